#!/usr/bin/env python3
"""Files of bench/peers/random_gguf.py, of every shape with fewer and narrower layers: slm and llama.cpp read the same
model. Their log-probabilities differ by the rounding of activations, the more for wrong weights.
usage: random_gguf_test.py SLM_PROGRAM MODEL_FOLDER

Skips (exit code 77) if the packages xllamacpp, gguf and numpy are not installed: ./test installs them from PyPI.
"""
import importlib.util
import pathlib
import sys
import tempfile

import llama_cpp_test

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "bench" / "peers"))
import random_gguf

VOCAB = 512
PROMPTS = [[i * 7919 % VOCAB for i in range(length)] for length in (3, 30, 70)]


def small(shape):
    layers, hidden = 4, 512
    heads = 4 if shape.head_dim else hidden // shape.width
    return shape._replace(layers=layers, hidden=hidden, ffn=256, heads=heads, kv_heads=heads if shape.kv_heads == shape.heads else 2,
                          head_dim=shape.width, vocab=VOCAB, experts=min(shape.experts, 8), chosen=min(shape.chosen, 2),
                          recurrent=tuple(layer for layer in shape.recurrent if layer < layers))


def check(program, folder, name, shape, type_):
    file = folder / f"{name}.{type_}.gguf"
    random_gguf.write(file, shape, type_)
    llama = llama_cpp_test.LlamaCpp(file)
    # An end token, or a byte that is no character, would have no log-probabilities.
    likeliest = [llama.read(ids, logit_bias=[[token, False] for token in range(259)])[1] for ids in PROMPTS]
    gate = "blk.0.ffn_gate_exps.weight" if shape.experts else "blk.0.ffn_gate.weight"
    wrong = llama_cpp_test.exchange_halves(file, gate, folder / "wrong.gguf")
    right, control = (llama_cpp_test.difference(program, one, PROMPTS, likeliest) for one in (file, wrong))
    print(f"{name}, {type_}: mean difference of log-probabilities {right:.4f}, of a wrong file {control:.4f}")
    assert right < control / 4, f"{name}, {type_}: slm and llama.cpp read different models"


def main():
    if not all(importlib.util.find_spec(name) for name in ("xllamacpp", "gguf", "numpy")):
        print("SKIPPED: the packages xllamacpp, gguf and numpy are not installed (./test fetches them)")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        for name, shape in random_gguf.SHAPES.items():
            for type_ in random_gguf.TYPES:
                check(sys.argv[1], pathlib.Path(folder), name, small(shape), type_)
    return 0


if __name__ == "__main__":
    sys.exit(main())
