#!/usr/bin/env python3
"""examples/convert_bin.py: its output, and its rejections. The .bin files are built by hand in PyTorch's format.
usage: convert_bin_test.py SOURCE_DIR SCRATCH_DIR [PROGRAM]"""
import collections
import io
import json
import os
import pathlib
import pickle
import random
import shutil
import struct
import subprocess
import sys
import types
import unittest
import zipfile

SOURCE, SCRATCH = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
PROGRAM = sys.argv[3] if len(sys.argv) > 3 else ""
SCRIPT = SOURCE / "examples" / "convert_bin.py"
MODELS = SOURCE / "tests" / "fixtures" / "models"

# Stand-ins with PyTorch's names, so that Python's own pickler has the output of PyTorch's torch.save.
SIZES = {"Float": 4, "Half": 2, "BFloat16": 2, "Long": 8, "Bool": 1}
DTYPES = {"F32": "Float", "F16": "Half", "BF16": "BFloat16", "I64": "Long", "BOOL": "Bool"}
torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")


def stand_in(module, name, value):
    value.__module__, value.__qualname__, value.__name__ = module.__name__, name, name
    setattr(module, name, value)
    return value


for kind in SIZES:
    stand_in(torch, kind + "Storage", type(kind + "Storage", (), {}))
stand_in(utils, "_rebuild_tensor_v2", lambda *arguments: None)
stand_in(utils, "_rebuild_parameter", lambda *arguments: None)
sys.modules.update({"torch": torch, "torch._utils": utils})


class Storage:
    def __init__(self, kind, data):
        self.kind, self.data = kind, data


class Tensor:
    def __init__(self, storage, shape, strides=None, offset=0):
        if strides is None:
            strides, step = [], 1
            for extent in reversed(shape):
                strides.insert(0, step)
                step *= extent
        self.parts = (storage, offset, tuple(shape), tuple(strides))

    def __reduce__(self):
        return utils._rebuild_tensor_v2, (*self.parts, False, collections.OrderedDict())


class Parameter:
    def __init__(self, tensor):
        self.tensor = tensor

    def __reduce__(self):
        return utils._rebuild_parameter, (self.tensor, True, collections.OrderedDict())


def save(path, table, pickled=None, compression=zipfile.ZIP_STORED, byteorder=None, leave_out=()):
    """torch.save(table, path)"""
    storages = []

    class Pickler(pickle.Pickler):
        def persistent_id(self, item):
            if not isinstance(item, Storage):
                return None
            if item not in storages:
                storages.append(item)
            kind = getattr(torch, item.kind + "Storage")
            return ("storage", kind, str(storages.index(item)), "cpu", len(item.data) // SIZES[item.kind])

    data = io.BytesIO()
    Pickler(data, protocol=2).dump(table)
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("archive/data.pkl", pickled if pickled is not None else data.getvalue())
        if byteorder:
            archive.writestr("archive/byteorder", byteorder)
        for key, storage in enumerate(storages):
            if str(key) not in leave_out:
                archive.writestr(f"archive/data/{key}", storage.data)
        archive.writestr("archive/version", "3\n")


def numbers(kind, count, seed=1):
    return Storage(kind, random.Random(seed).randbytes(count * SIZES[kind]))


def read_safetensors(path):
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header, body = json.loads(data[8 : 8 + length]), data[8 + length :]
    metadata = header.pop("__metadata__")
    ends = sorted(entry["data_offsets"] for entry in header.values())
    assert [begin for begin, _ in ends] == [0, *[end for _, end in ends]][:-1] and ends[-1][1] == len(body), "holes"
    tensors = {name: (e["dtype"], e["shape"], body[slice(*e["data_offsets"])]) for name, e in header.items()}
    return tensors, metadata, 8 + length


class ConvertBin(unittest.TestCase):
    def setUp(self):
        self.folder = SCRATCH / self.id().split(".")[-1]
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        self.bin = self.folder / "pytorch_model.bin"

    def run_script(self, *arguments):
        return subprocess.run([sys.executable, "-B", SCRIPT, self.folder, *arguments], capture_output=True, text=True, timeout=100)

    def convert(self, *arguments):
        result = self.run_script(*arguments)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return (*read_safetensors(self.folder / "model.safetensors"), result.stdout)

    def refused(self, expected, *arguments):
        result = self.run_script(*arguments)
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertRegex(result.stderr, expected)
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        self.assertNotIn("Traceback", result.stderr)
        self.assertEqual([path.name for path in self.folder.glob("*.safetensors*")], [])

    # ---- output

    def test_types_shapes_and_alignment(self):
        kinds = {"a": "Float", "b": "Half", "c": "BFloat16", "d": "Long", "e": "Bool"}
        storages = {name: numbers(kind, 96, i) for i, (name, kind) in enumerate(kinds.items())}
        table = collections.OrderedDict((name, Tensor(storage, [4, 24])) for name, storage in storages.items())
        table["odd"] = Tensor(numbers("BFloat16", 3, 9), [3])
        table["scalar"] = Tensor(numbers("Float", 1, 10), [])
        table["empty"] = Tensor(Storage("Float", b""), [0, 5])
        table["parameter"] = Parameter(Tensor(storages["a"], [2], offset=5))
        table._metadata = collections.OrderedDict([("", {"version": 1})])
        save(self.bin, table, byteorder="little")
        tensors, metadata, start, _ = self.convert()
        self.assertEqual(metadata, {"format": "pt"})
        self.assertEqual(start % 64, 0)
        for name, kind in kinds.items():
            dtype, shape, data = tensors[name]
            self.assertEqual((DTYPES[dtype], shape, data), (kind, [4, 24], storages[name].data))
        self.assertEqual(tensors["scalar"][1], [])
        self.assertEqual(tensors["empty"], ("F32", [0, 5], b""))
        self.assertEqual(tensors["parameter"][2], storages["a"].data[20:28])
        # Every tensor of whole cache lines starts on one.
        head = json.loads((self.folder / "model.safetensors").read_bytes()[8:start])
        self.assertTrue(all(head[name]["data_offsets"][0] % 64 == 0 for name in "abcd"))

    def test_strides(self):
        storage = numbers("BFloat16", 24)
        item = [storage.data[2 * i : 2 * i + 2] for i in range(24)]
        save(
            self.bin,
            {
                "transposed": Tensor(storage, [4, 6], [1, 4]),
                "columns": Tensor(storage, [3, 2], [6, 2], offset=1),
                "swapped": Tensor(storage, [2, 3, 4], [4, 8, 1]),
                "one": Tensor(storage, [1, 3, 1], [99, 1, 77], offset=2),
                "repeated": Tensor(storage, [2, 3], [0, 1]),
                "constant": Tensor(storage, [3], [0], offset=7),
            },
        )
        tensors, *_ = self.convert()
        self.assertEqual(tensors["transposed"][2], b"".join(item[r + 4 * c] for r in range(4) for c in range(6)))
        self.assertEqual(tensors["columns"][2], b"".join(item[1 + 6 * r + 2 * c] for r in range(3) for c in range(2)))
        self.assertEqual(tensors["swapped"][2], b"".join(item[4 * a + 8 * b + c] for a in range(2) for b in range(3) for c in range(4)))
        self.assertEqual(tensors["one"][1:], ([1, 3, 1], b"".join(item[2:5])))
        self.assertEqual(tensors["repeated"][2], b"".join(item[0:3]) * 2)
        self.assertEqual(tensors["constant"][2], item[7] * 3)

    def test_tied_tensors_are_written_once(self):
        storage = numbers("Float", 32)
        table = {"lm_head.weight": Tensor(storage, [4, 8]), "model.embed_tokens.weight": Tensor(storage, [4, 8]), "view": Tensor(storage, [8, 4])}
        save(self.bin, table)
        tensors, metadata, _, said = self.convert()
        self.assertEqual(set(tensors), {"model.embed_tokens.weight", "view"})
        self.assertEqual(metadata["lm_head.weight"], "model.embed_tokens.weight")
        self.assertIn("'lm_head.weight' is 'model.embed_tokens.weight'", said)
        # A config.json with tie_word_embeddings false needs its head.
        (self.folder / "config.json").write_text('{"tie_word_embeddings": false}')
        tensors, *_ = self.convert("--force")
        self.assertEqual(tensors["lm_head.weight"], tensors["model.embed_tokens.weight"])

    def test_shards(self):
        one, two = numbers("Float", 6, 1), numbers("Half", 6, 2)
        save(self.folder / "part-1.bin", {"a": Tensor(one, [6]), "surplus": Tensor(one, [6])})
        save(self.folder / "part-2.bin", {"b": Tensor(two, [2, 3])})
        index = {"metadata": {}, "weight_map": {"a": "part-1.bin", "b": "part-2.bin"}}
        (self.folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))
        tensors, *_ = self.convert()
        self.assertEqual({name: tensor[2] for name, tensor in tensors.items()}, {"a": one.data, "b": two.data})

    def test_a_model_gives_the_same_logits(self):
        if not PROGRAM:
            self.skipTest("the program slm is not built")
        for fixture in (MODELS / "llama-mha3h", MODELS / "mosaicgpt-qkln-alibi"):  # the latter is a small mpt-1b-redpajama
            with self.subTest(fixture.name):
                shutil.copy(fixture / "config.json", self.folder)
                tensors, *_ = read_safetensors(fixture / "model.safetensors")
                save(self.bin, {name: Tensor(Storage(DTYPES[dtype], data), shape) for name, (dtype, shape, data) in tensors.items()})
                self.convert("--force")
                folders = (self.folder, fixture)
                rows = [subprocess.run([PROGRAM, "logits", folder, "--ids", "1,5,7"], capture_output=True, check=True).stdout for folder in folders]
                self.assertEqual(rows[0], rows[1])

    def test_existing_files_are_kept(self):
        save(self.bin, {"a": Tensor(numbers("Float", 6), [6])})
        self.convert()
        result = self.run_script()
        self.assertEqual(result.returncode, 1)
        self.assertIn("--force", result.stderr)
        self.convert("--force")
        other = self.folder / "other.safetensors"
        self.assertEqual(self.run_script("--out", other).returncode, 0)
        self.assertEqual(other.read_bytes(), (self.folder / "model.safetensors").read_bytes())

    def test_real_pytorch_agrees(self):
        probe = (
            "import torch, sys; t = torch.arange(24.).reshape(4, 6); e = torch.nn.Parameter(torch.ones(3, 5).bfloat16());"
            "torch.save(dict(a=t.t(), b=t.half(), e=e, head=e, i=torch.arange(3)), sys.argv[1])"
        )
        made = subprocess.run([sys.executable, "-c", probe, self.bin], capture_output=True)
        if made.returncode != 0:
            self.skipTest("PyTorch is not installed")
        tensors, *_ = self.convert()
        self.assertEqual(tensors["a"][:2], ("F32", [6, 4]))
        self.assertEqual(struct.unpack("<24f", tensors["a"][2]), tuple(float(r + 6 * c) for r in range(6) for c in range(4)))
        self.assertEqual(tensors["b"][2], struct.pack("<24e", *range(24)))
        self.assertEqual(tensors["e"], ("BF16", [3, 5], b"\x80\x3f" * 15))
        self.assertNotIn("head", tensors)

    # ---- rejections

    def test_pickles_that_are_programs(self):
        marker = self.folder / "executed"

        class Attack:
            def __reduce__(self):
                return os.system, (f"touch {marker}",)

        class Evaluation:
            def __reduce__(self):
                return eval, (f"open({str(marker)!r}, 'w')",)

        for attack, name in ((Attack(), "(posix|nt).system"), (Evaluation(), "__builtin__.eval")):
            save(self.bin, {"a": attack})
            self.refused(f"asks for '{name}'")
        for code, expected in (
            (b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x02id\x85R.", "posix.system"),
            (b"(S'id'\nios\nsystem\n.", "instruction STRING"),
            (b"(cos\nsystem\nS'id'\no.", "os.system"),
            (b"(ios\nsystem\n.", "instruction INST"),
            (b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n)\x81.", "instruction NEWOBJ"),
            (b"\x80\x02\x82\x01.", "instruction EXT1"),
            (b"\x80\x02ctorch\nFloatStorage\n)R.", "calls 'torch.FloatStorage'"),
            (b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n}b.", "changes an object"),
            (b"\x80\x02ctorch\nload\n.", "torch.load"),
            (b"\x80\x02]q\x00h\x00a.", "no table"),
            (b"\x80\x02}q\x00X\x01\x00\x00\x00aK\x01s.", "'a' is not a tensor"),
            (b"\x80\x02}q\x00]K\x01s.", "keys are not strings"),
        ):
            with self.subTest(expected):
                save(self.bin, {}, pickled=code)
                self.refused(expected)
        self.assertFalse(marker.exists())

    def test_broken_pickles(self):
        for code in (b"", b".", b"R.", b"\x80\x02h\x00.", b"\x80\x02}u.", b"\x80\x02(", b"\xff", b"\x80\x02X\xff\xff\xff\x7fa.", b"\x80\x020.", b"\x80\x02}"):
            with self.subTest(code):
                save(self.bin, {}, pickled=code)
                self.refused("pickle is broken|pickle has no end|no table|not a dict|not a list|instruction")

    def test_tensors_outside_their_storage(self):
        storage = numbers("Float", 10)
        for tensor in (
            Tensor(storage, [11]),
            Tensor(storage, [10], offset=1),
            Tensor(storage, [2, 2], [9, 2]),
            Tensor(storage, [1 << 40], [0]),
            Tensor(storage, [1 << 61, 8], [0, 1]),
        ):
            save(self.bin, {"a": tensor})
            self.refused("reaches outside its storage")
        for tensor in (Tensor(storage, [-1], [1]), Tensor(storage, [2], [-1], offset=5), Tensor(storage, [2], [1], offset=-1), Tensor(storage, [2, 2], [1])):
            save(self.bin, {"a": tensor})
            self.refused("unexpected arguments")
        save(self.bin, {"a": Tensor(storage, [0, 1 << 70], [1, 1])})
        self.refused("unexpected arguments")
        save(self.bin, {str(i): Tensor(storage, [5], offset=i % 6) for i in range(6)} | {f"{i}r": Tensor(storage, [4], [2], offset=i) for i in range(3)})
        self.convert()
        (self.folder / "model.safetensors").unlink()
        big = numbers("Float", 1000)
        save(self.bin, {str(i): Tensor(big, [999 - i]) for i in range(20)})
        self.refused("overlap")

    def test_broken_archives(self):
        storage = numbers("Float", 4096)
        save(self.bin, {"a": Tensor(storage, [4096])})
        whole = self.bin.read_bytes()
        for size in (len(whole) // 2, len(whole) - 1, 100, 4):
            self.bin.write_bytes(whole[:size])
            self.refused("cut off or damaged")
        flipped = bytearray(whole)
        flipped[whole.index(storage.data[:64]) + 100] ^= 1
        self.bin.write_bytes(flipped)
        self.refused("is damaged.*CRC")
        save(self.bin, {"a": Tensor(storage, [4096])}, leave_out=("0",))
        self.refused("lacks 'archive/data/0'")
        save(self.bin, {"a": Tensor(storage, [4096])}, compression=zipfile.ZIP_DEFLATED)
        self.refused("compressed")
        save(self.bin, {"a": Tensor(storage, [4096])}, byteorder="big")
        self.refused("big-endian")
        with zipfile.ZipFile(self.bin, "w") as archive:
            archive.writestr("other", "")
        self.refused("0 files data.pkl")

    def test_other_formats(self):
        self.bin.write_bytes(pickle.dumps(0x1950A86A20F9469CFC6C, protocol=2))
        self.refused(r"before version 1.6.*torch.save\(torch.load\(path, weights_only=True\), path\)")
        for data in (b"", b"hello", b"\x7fELF"):
            self.bin.write_bytes(data)
            self.refused("no PyTorch checkpoint")

    def test_folders(self):
        self.refused("neither pytorch_model.bin nor")
        index = self.folder / "pytorch_model.bin.index.json"
        for content, expected in (
            ("{", "no JSON"),
            ("[]", "no weight_map"),
            ('{"weight_map": {"a": 3}}', "no weight_map"),
            ('{"weight_map": {"a": "../x.bin"}}', "same folder"),
            ('{"weight_map": {"a": ".."}}', "same folder"),
            ('{"weight_map": {"a": "absent.bin"}}', "shard is missing"),
            ('{"weight_map": {"b": "part.bin"}}', "lacks it"),
        ):
            save(self.folder / "part.bin", {"a": Tensor(numbers("Float", 6), [6])})
            index.write_text(content)
            self.refused(expected)
        missing = subprocess.run([sys.executable, "-B", SCRIPT, self.folder / "absent"], capture_output=True, text=True)
        self.assertIn("not a folder", missing.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
