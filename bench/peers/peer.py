"""Common code of the peers of `slm bench speculative`: the protocol, the weights of a folder, and their digest.

A peer is a child process that measures another engine. It reads JSON lines from standard input and answers each with one
line on standard output, in this order:

    {"target": FOLDER, "draft": FOLDER or null, "threads": N, "context": N, "scratch": FOLDER}
        -> {"engine", "version", "threads", "dtype", "speculation", "notes": [...], "weights": {"target", "draft"}}
    {"kind": "plain" | "speculative", "ids": [...], "max_new_tokens", "end_tokens": [...], "temperature", "top_k", "top_p",
     "seed", "draft_length": "heuristic" | "1" | "2" | ...}
        -> {"new_ids": [...], "seconds": {"total", "prompt"}, and if speculative "drafted", "accepted", "rounds"}

or, to any of them, {"error": SENTENCE}. The end of standard input ends the peer. `speculation` says how the engine
speculates; null: it does not. `weights` are digests of what the engine has loaded, not of the files;
`python3 peer.py FOLDER` prints that of a folder.
"""
import hashlib
import json
import mmap
import os
import pathlib
import sys

FOLDERS = ("target", "draft")


class Refused(Exception):
    """A request that this engine does not support; the text states why."""


class Weight:
    """One tensor of a safetensors file: `dtype` as the file names it, `shape`, `bytes`."""

    def __init__(self, dtype, shape, data):
        self.dtype, self.shape, self.bytes = dtype, tuple(shape), data


def is_weight(name):
    """Whether a tensor is the rotary table of old checkpoints, which every engine computes itself."""
    return not name.endswith("rotary_emb.inv_freq")


def read_weights(folder):
    """name -> Weight of a model folder, in the order of the names; the bytes stay in the mapped files."""
    folder = pathlib.Path(folder)
    index = folder / "model.safetensors.index.json"
    names = {"model.safetensors"}
    if not (folder / "model.safetensors").exists():
        names = set(json.loads(index.read_text())["weight_map"].values())
    found = {}
    for name in names:
        with open(folder / name, "rb") as file:
            mapped = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        length = int.from_bytes(mapped[:8], "little")
        for tensor, entry in json.loads(bytes(mapped[8:8 + length])).items():
            if tensor != "__metadata__" and is_weight(tensor):
                begin, end = (8 + length + offset for offset in entry["data_offsets"])
                found[tensor] = Weight(entry["dtype"], entry["shape"], mapped[begin:end])
    return dict(sorted(found.items()))


def precision(weights, folder):
    """The one floating-point type of these weights, as "BF16", "FP16" or "FP32"."""
    types = {weight.dtype for weight in weights.values()}
    names = {"F32": "FP32", "F16": "FP16", "BF16": "BF16"}
    if len(types) != 1 or not types <= set(names):
        raise Refused(f"the tensors of '{folder}' are of types {sorted(types)}, expected one floating-point type")
    return names[types.pop()]


def read_config(folder):
    return json.loads((pathlib.Path(folder) / "config.json").read_text())


def digest(weights):
    """SHA-256 of lines of name, type, shape and SHA-256 of every tensor, in the order of the names."""
    total = hashlib.sha256()
    for name, weight in sorted(weights.items()):
        shape = ",".join(map(str, weight.shape))
        total.update(f"{name} {weight.dtype} [{shape}] {hashlib.sha256(weight.bytes).hexdigest()}\n".encode())
    return "sha256:" + total.hexdigest()


class DraftLength:
    """Tokens to draft in the next round: a fixed number, or 5, then +2 after a fully accepted round, else -1."""

    def __init__(self, name):
        self.heuristic = name == "heuristic"
        if not self.heuristic and not name.isdigit():
            raise Refused(f"draft length '{name}' is specific to slm")
        self.tokens = 5 if self.heuristic else int(name)

    def observe(self, drafted, accepted):
        if self.heuristic and drafted > 0:
            self.tokens = self.tokens + 2 if accepted == self.tokens else max(1, self.tokens - 1)


def serve(open_engine):
    """Runs the protocol. open_engine(request) returns an object with `about`, the answer to the first line, and `run(task)`."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # keeps output of libraries out of the answers

    def answer(make):
        try:
            line = make()
        except Exception as problem:  # reports every exception of an engine to the reader
            line = {"error": str(problem) if isinstance(problem, Refused) else f"{type(problem).__name__}: {problem}"}
        answers.write(json.dumps(line) + "\n")
        answers.flush()
        return "error" not in line

    engine = None

    def start():
        nonlocal engine
        engine = open_engine(json.loads(sys.stdin.readline()))
        return engine.about

    if not answer(start):
        return
    for line in sys.stdin:
        answer(lambda: engine.run(json.loads(line)))


if __name__ == "__main__":
    print(digest(read_weights(sys.argv[1])))
