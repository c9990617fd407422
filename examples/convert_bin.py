#!/usr/bin/env python3
"""Converts the PyTorch checkpoint of a model folder (pytorch_model.bin, or pytorch_model.bin.index.json and its shards)
to model.safetensors, which slm reads.

A .bin file is a zip archive of raw numbers and a pickle that describes the tensors. A pickle is a program, and unpickling
an untrusted one can run any command. This script runs no pickle. It interprets the few instructions that a table of
tensors needs, and rejects every other instruction by name. It needs neither PyTorch nor NumPy.

usage: convert_bin.py FOLDER [--out FILE] [--force]"""
import argparse
import io
import itertools
import json
import mmap
import os
import pathlib
import pickletools
import struct
import sys
import zipfile

ALIGNMENT = 64  # bytes, a cache line: for kernels that read the mapped file
MOST_PICKLE_BYTES = 1 << 28
MOST_DIMENSIONS = 8

# PyTorch's storage classes: safetensors' name, bytes, the code of an unsigned integer of that size.
STORAGES = {
    "torch.FloatStorage": ("F32", 4, "I"),
    "torch.HalfStorage": ("F16", 2, "H"),
    "torch.BFloat16Storage": ("BF16", 2, "H"),
    "torch.DoubleStorage": ("F64", 8, "Q"),
    "torch.LongStorage": ("I64", 8, "Q"),
    "torch.IntStorage": ("I32", 4, "I"),
    "torch.ShortStorage": ("I16", 2, "H"),
    "torch.CharStorage": ("I8", 1, "B"),
    "torch.ByteStorage": ("U8", 1, "B"),
    "torch.BoolStorage": ("BOOL", 1, "B"),
}
MAKE_TENSOR, MAKE_PARAMETER, MAKE_DICT = "torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_parameter", "collections.OrderedDict"


class Refused(Exception):
    """An error in a file, with a remedy."""


class Global:
    """A global name in the pickle. It is never imported."""

    def __init__(self, name):
        self.name = name


class Storage:
    def __init__(self, kind, key, count):
        self.dtype, self.size, self.code = STORAGES[kind]
        self.key, self.count = key, count


class Tensor:
    def __init__(self, storage, offset, shape, strides):
        self.storage, self.offset, self.shape, self.strides = storage, offset, shape, strides
        self.elements = 1
        for extent in shape:
            self.elements *= extent
        self.bytes = self.elements * storage.size
        self.archive = None

    def identity(self):
        return (self.archive, self.storage.key, self.storage.dtype, self.offset, self.shape, self.strides)


def is_count(value):
    return type(value) is int and value >= 0


class Unpickler:
    """Interprets a pickle with plain values only: dicts, lists, strings, numbers, and descriptions of tensors."""

    def __init__(self, file):
        self.file = file

    def refuse(self, what):
        raise Refused(f"{self.file}: {what}. It is not a plain table of tensors; take the checkpoint from its original repository")

    def checked_global(self, name):
        if name not in STORAGES and name not in (MAKE_TENSOR, MAKE_PARAMETER, MAKE_DICT):
            self.refuse(f"its pickle asks for '{name}', which a checkpoint has no use for")
        return Global(name)

    def storage(self, identity):
        kind, key, count = None, None, None
        if type(identity) is tuple and len(identity) == 5 and identity[0] == "storage":
            kind, key, count = identity[1], identity[2], identity[4]
        if not isinstance(kind, Global) or kind.name not in STORAGES or type(key) is not str or not is_count(count):
            self.refuse("its pickle describes a storage in an unknown way")
        return Storage(kind.name, key, count)

    def call(self, function, arguments):
        name = function.name if isinstance(function, Global) else type(function).__name__
        if type(arguments) is not tuple:
            self.refuse(f"its pickle calls '{name}' without a list of arguments")
        if name == MAKE_DICT and arguments == ():
            return {}
        if name == MAKE_PARAMETER and arguments and isinstance(arguments[0], Tensor):
            return arguments[0]
        if name == MAKE_TENSOR and len(arguments) >= 4:
            storage, offset, shape, strides = arguments[:4]
            sound = isinstance(storage, Storage) and is_count(offset) and type(shape) is tuple and type(strides) is tuple
            sound = sound and len(shape) == len(strides) <= MOST_DIMENSIONS
            sizes = (offset, *shape, *strides) if sound else ()
            if sound and all(is_count(size) and size < 1 << 62 for size in sizes):
                return Tensor(storage, offset, shape, strides)
        self.refuse(f"its pickle calls '{name}' with unexpected arguments")

    def load(self, data):
        stack, marks, memo = [], [], {}

        def since_mark():
            begin = marks.pop()
            items = stack[begin:]
            del stack[begin:]
            return items

        def put_pairs(items):
            table = stack[-1]
            if type(table) is not dict or len(items) % 2:
                self.refuse("its pickle adds entries to an object that is not a dict")
            for key, value in zip(items[::2], items[1::2]):
                if type(key) not in (str, int, float, bool, type(None)):
                    self.refuse("its pickle has a dict whose keys are not strings")
                table[key] = value

        def put_items(items):
            if type(stack[-1]) is not list:
                self.refuse("its pickle adds items to an object that is not a list")
            stack[-1].extend(items)

        def take(count):
            if count > len(stack) - (marks[-1] if marks else 0):
                raise IndexError
            items = stack[len(stack) - count :]
            del stack[len(stack) - count :]
            return items

        try:
            for operation, argument, _ in pickletools.genops(io.BytesIO(data)):
                name = operation.name
                if name in ("PROTO", "FRAME"):
                    continue
                if name == "STOP":
                    (result,) = take(1)
                    return result
                if name == "MARK":
                    marks.append(len(stack))
                elif name in ("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"):
                    stack.append(argument)
                elif name in ("NONE", "NEWTRUE", "NEWFALSE"):
                    stack.append({"NONE": None, "NEWTRUE": True, "NEWFALSE": False}[name])
                elif name in ("EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE"):
                    stack.append({"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}[name]())
                elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
                    stack.append(tuple(take(int(name[-1]))))
                elif name == "TUPLE":
                    stack.append(tuple(since_mark()))
                elif name in ("BINPUT", "LONG_BINPUT"):
                    memo[argument] = stack[-1]
                elif name == "MEMOIZE":
                    memo[len(memo)] = stack[-1]
                elif name in ("BINGET", "LONG_BINGET"):
                    stack.append(memo[argument])
                elif name == "GLOBAL":
                    stack.append(self.checked_global(argument.replace(" ", ".", 1)))
                elif name == "STACK_GLOBAL":
                    module, attribute = take(2)
                    stack.append(self.checked_global(f"{module}.{attribute}"))
                elif name == "BINPERSID":
                    stack.append(self.storage(*take(1)))
                elif name == "REDUCE":
                    stack.append(self.call(*take(2)))
                elif name == "SETITEM":
                    put_pairs(take(2))
                elif name == "SETITEMS":
                    put_pairs(since_mark())
                elif name == "APPEND":
                    put_items(take(1))
                elif name == "APPENDS":
                    put_items(since_mark())
                elif name == "BUILD":  # attributes of the dict, such as PyTorch's _metadata: not needed
                    take(1)
                    if type(stack[-1]) is not dict:
                        self.refuse("its pickle changes an object that is not a dict")
                else:
                    self.refuse(f"its pickle uses the instruction {name}, which a checkpoint does not need")
        except (IndexError, KeyError, ValueError, struct.error, UnicodeDecodeError, RecursionError) as fault:
            raise Refused(f"{self.file}: its pickle is broken ({type(fault).__name__}). Download the file again") from fault
        self.refuse("its pickle has no end")


class Archive:
    """One .bin file."""

    def __init__(self, path):
        self.path = path
        self.file = open(path, "rb")
        head = self.file.read(4)
        if head[:2] != b"PK":
            old = "it is of PyTorch's format from before version 1.6" if head[:1] == b"\x80" else "it is no PyTorch checkpoint"
            raise Refused(
                f"{path}: {old}. Where PyTorch is installed, bring it to the present format with "
                f"torch.save(torch.load(path, weights_only=True), path), and try again"
            )
        try:
            self.zip = zipfile.ZipFile(self.file)
        except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError) as fault:
            raise Refused(f"{path}: the archive is cut off or damaged ({fault}). Download the file again") from fault
        pickles = [name for name in self.zip.namelist() if name == "data.pkl" or name.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise Refused(f"{path}: the archive holds {len(pickles)} files data.pkl, expected one. Download the file again")
        self.root = pickles[0][: -len("data.pkl")]
        if self.root + "byteorder" in self.zip.namelist() and self.read(self.root + "byteorder", 16).strip() != b"little":
            raise Refused(f"{path}: its numbers are big-endian. Save it on a little-endian machine")
        self.bytes = mmap.mmap(self.file.fileno(), 0, access=mmap.ACCESS_READ)
        self.places = {}

    def read(self, name, most):
        try:
            info = self.zip.getinfo(name)
            if info.file_size > most:
                raise Refused(f"{self.path}: '{name}' has {info.file_size} bytes, expected at most {most}. Download the file again")
            return self.zip.read(info)
        except (zipfile.BadZipFile, OSError, EOFError, NotImplementedError, RuntimeError) as fault:
            raise Refused(f"{self.path}: '{name}' cannot be read ({fault}). Download the file again") from fault

    def tensors(self):
        table = Unpickler(self.path).load(self.read(self.root + "data.pkl", MOST_PICKLE_BYTES))
        if type(table) is not dict or not table:
            raise Refused(f"{self.path}: it holds no table of tensors. Save a model's state_dict()")
        for name, tensor in table.items():
            if type(name) is not str or name == "__metadata__" or not isinstance(tensor, Tensor):
                raise Refused(f"{self.path}: the entry '{name}' is not a tensor. Save a model's state_dict() and nothing else")
            tensor.archive = self
            self.check(name, tensor)
        return table

    def check(self, name, tensor):
        last = tensor.offset + sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.strides))
        fits = tensor.elements == 0 or last < tensor.storage.count
        # A tensor that reads one number twice could be of any size.
        if not fits or tensor.elements > tensor.storage.count:
            raise Refused(f"{self.path}: tensor '{name}' reaches outside its storage. Download the file again")
        if tensor.elements:
            self.place(tensor.storage)

    def place(self, storage):
        """The position of a storage's bytes in the file."""
        if storage.key not in self.places:
            name = f"{self.root}data/{storage.key}"
            try:
                info = self.zip.getinfo(name)
            except KeyError as fault:
                raise Refused(f"{self.path}: the archive lacks '{name}'. Download the file again") from fault
            if info.compress_type != zipfile.ZIP_STORED:
                raise Refused(f"{self.path}: '{name}' is compressed, which PyTorch does not do. Take the original file")
            header = self.bytes[info.header_offset : info.header_offset + 30]
            if len(header) < 30 or header[:4] != b"PK\x03\x04":
                raise Refused(f"{self.path}: the archive is damaged at '{name}'. Download the file again")
            begin = info.header_offset + 30 + sum(struct.unpack("<HH", header[26:30]))
            if begin + info.file_size > len(self.bytes):
                raise Refused(f"{self.path}: the archive ends inside '{name}'. Download the file again")
            self.places[storage.key] = [begin, info.file_size, name]
        if storage.count * storage.size > self.places[storage.key][1]:
            raise Refused(f"{self.path}: the storage '{storage.key}' is shorter than its tensors. Download the file again")
        return self.places[storage.key]

    def verify(self, storage):
        """Compares a storage with its checksum, once."""
        place = self.place(storage)
        if place[2] is None:
            return
        try:
            with self.zip.open(place[2]) as entry:
                while entry.read(1 << 20):
                    pass
        except (zipfile.BadZipFile, OSError, EOFError) as fault:
            raise Refused(f"{self.path}: '{place[2]}' is damaged ({fault}). Download the file again") from fault
        place[2] = None

    def chunks(self, tensor):
        """The tensor's bytes in row-major order."""
        if tensor.elements == 0:
            return
        storage = tensor.storage
        self.verify(storage)
        begin = self.place(storage)[0]
        dense, expected = True, 1
        for extent, stride in reversed(list(zip(tensor.shape, tensor.strides))):
            dense = dense and (extent == 1 or stride == expected)
            expected *= extent
        if dense:
            first = begin + tensor.offset * storage.size
            for at in range(first, first + tensor.bytes, 1 << 22):
                yield self.bytes[at : min(at + (1 << 22), first + tensor.bytes)]
            return
        with memoryview(self.bytes) as whole:
            numbers = whole[begin : begin + storage.count * storage.size].cast(storage.code)
            *outer, (extent, stride) = zip(tensor.shape, tensor.strides)
            for place in itertools.product(*(range(count) for count, _ in outer)):
                first = tensor.offset + sum(index * step for index, (_, step) in zip(place, outer))
                yield numbers[first : first + (extent - 1) * stride + 1 : stride or 1].tobytes() * (1 if stride else extent)
            numbers.release()


def read_json(path):
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as fault:
        raise Refused(f"{path}: no JSON can be read from it ({fault}). Download the file again") from fault


def open_folder(folder):
    """Name -> tensor of a whole folder."""
    single, index = folder / "pytorch_model.bin", folder / "pytorch_model.bin.index.json"
    if single.exists():
        return Archive(single).tensors()
    if not index.exists():
        raise Refused(f"{folder}: it has neither {single.name} nor {index.name}. Name the folder of a PyTorch checkpoint")
    places = read_json(index)
    places = places.get("weight_map") if isinstance(places, dict) else None
    if not isinstance(places, dict) or not all(isinstance(shard, str) for shard in places.values()):
        raise Refused(f"{index}: it has no weight_map of names and files. Download the file again")
    shards, tensors = {}, {}
    for name, shard in places.items():
        if shard in ("", ".", "..") or pathlib.PurePath(shard).name != shard:
            raise Refused(f"{index}: '{shard}' is not the name of a file in the same folder. Download the file again")
        if shard not in shards:
            if not (folder / shard).exists():
                raise Refused(f"{folder / shard}: the shard is missing. Download it")
            shards[shard] = Archive(folder / shard).tensors()
        if name not in shards[shard]:
            raise Refused(f"{index}: it places '{name}' in '{shard}', which lacks it. Download both again")
        tensors[name] = shards[shard][name]
    return tensors


def says_untied(folder):
    config = folder / "config.json"
    fields = read_json(config) if config.exists() else {}
    return isinstance(fields, dict) and fields.get("tie_word_embeddings") is False


def without_copies(tensors, keep_head):
    """Tensors, and the names of tensors that share another's storage, which safetensors does not support. Of the names of one
    storage, the head's is dropped, since readers then use the embedding."""
    kept, same, known = {}, {}, {}
    for name, tensor in sorted(tensors.items(), key=lambda item: item[0].endswith("lm_head.weight")):
        first = known.setdefault(tensor.identity(), name)
        if first == name or tensor.elements == 0 or (keep_head and name.endswith("lm_head.weight")):
            kept[name] = tensor
        else:
            same[name] = first
    return kept, same


def write(path, tensors, same):
    """Writes a temporary file beside `path` and renames it at the end."""
    # Tensors of whole cache lines come first, so each is aligned without gaps, which the format forbids.
    order = sorted(tensors, key=lambda name: (tensors[name].bytes % ALIGNMENT != 0, -tensors[name].storage.size, name))
    header, end = {"__metadata__": {"format": "pt", **same}}, 0
    for name in order:
        tensor = tensors[name]
        header[name] = {"dtype": tensor.storage.dtype, "shape": tensor.shape, "data_offsets": [end, end + tensor.bytes]}
        end += tensor.bytes
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-(8 + len(head)) % ALIGNMENT)
    temporary = path.with_name(path.name + ".partial")
    try:
        with open(temporary, "wb") as file:
            file.write(struct.pack("<Q", len(head)) + head)
            done = 0
            for name in order:
                for chunk in tensors[name].archive.chunks(tensors[name]):
                    file.write(chunk)
                    done += len(chunk)
                    show_progress(done / end)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return end


def show_progress(share):
    if sys.stderr.isatty():
        bar = f"\r[{'#' * int(32 * share):32}] {int(100 * share):3}%"
        print(bar, end="\r\x1b[K" if share == 1 else "", file=sys.stderr, flush=True)


def convert(folder, out, force):
    if not folder.is_dir():
        raise Refused(f"{folder}: it is not a folder. Name the folder with pytorch_model.bin and config.json")
    if out.exists() and not force:
        raise Refused(f"{out}: the file is already there. Give --force to replace it, or --out to write another")
    tensors = open_folder(folder)
    kept, same = without_copies(tensors, says_untied(folder))
    stored = sum(path.stat().st_size for path in {tensor.archive.path for tensor in kept.values()})
    if sum(tensor.bytes for tensor in kept.values()) > 2 * stored:
        raise Refused(f"{folder}: its tensors overlap so much that they would take more than twice the space. Take the original files")
    size = write(out, kept, same)
    print(f"{out}: {len(kept)} tensors, {size} bytes", *(f"; '{name}' is '{first}'" for name, first in same.items()), sep="")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, usage=argparse.SUPPRESS)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, help="output file; default: model.safetensors in the folder")
    parser.add_argument("--force", action="store_true", help="replace an existing file")
    options = parser.parse_args()
    try:
        convert(options.folder, options.out or options.folder / "model.safetensors", options.force)
    except (Refused, OSError) as fault:
        sys.exit(f"convert_bin.py: {fault}")


if __name__ == "__main__":
    main()
