#!/usr/bin/env python3
"""GGUF files written by slm and read by the package gguf: its values of the same model, as a folder of fp32, have the logits
that slm computes from the file, and the metadata are those that llama.cpp needs.
usage: gguf_test.py SLM_PROGRAM MODEL_FOLDER

Skips (exit code 77) if the package is not installed: ./test installs it from PyPI, like the server's clients. slm itself
does not need it.
"""
import importlib.util
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

IDS = [0, 263, 700, 12, 1999, 45, 45, 310, 8, 1024, 77, 501]
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench" / "peers"))
import gguf_of  # noqa: E402, the names of a Llama's tensors and the order of its rows

LAYER = {gguf: folder for folder, gguf in gguf_of.LAYER.items()}
OUTSIDE = {gguf: folder for folder, gguf in gguf_of.OTHERS.items()}


def folder_name(name):
    module = name.removesuffix(".weight")
    if module in OUTSIDE:
        return OUTSIDE[module] + ".weight"
    _, layer, part = module.split(".")
    return f"model.layers.{layer}.{LAYER[part]}.weight"


def write_safetensors(path, tensors):
    header, offset = {}, 0
    for name, values in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [offset, offset + values.nbytes]}
        offset += values.nbytes
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(values.tobytes() for values in tensors.values()))


def logits(program, model):
    command = [program, "logits", str(model), "--ids", ",".join(map(str, IDS)), "--json", "--backend", "reference"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["logits"]


def check(program, model, folder, kind):
    import gguf
    import numpy

    file = folder / f"{kind}.gguf"
    subprocess.run([program, "quantize", str(model), str(file), "--type", kind], check=True, capture_output=True)
    reader = gguf.GGUFReader(file)
    config = json.loads((model / "config.json").read_text())
    fields = {name: field.contents() for name, field in reader.fields.items()}
    expected = {
        "general.architecture": "llama",
        "general.quantization_version": 2,
        "llama.block_count": config["num_hidden_layers"],
        "llama.context_length": config["max_position_embeddings"],
        "llama.embedding_length": config["hidden_size"],
        "llama.feed_forward_length": config["intermediate_size"],
        "llama.attention.head_count": config["num_attention_heads"],
        "llama.attention.head_count_kv": config["num_key_value_heads"],
        "llama.rope.dimension_count": config["head_dim"],
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.eos_token_id": config["eos_token_id"],
    }
    for key, value in expected.items():
        assert fields[key] == value, (key, fields.get(key), value)
    assert len(fields["tokenizer.ggml.tokens"]) == config["vocab_size"]
    tensors, kinds = {}, set()
    for tensor in reader.tensors:
        values = numpy.ascontiguousarray(gguf.dequantize(tensor.data, tensor.tensor_type), dtype=numpy.float32)
        name = folder_name(tensor.name)
        if heads := gguf_of.rotary_heads(name, config):
            values = numpy.ascontiguousarray(gguf_of.reorder(values, heads, back=True))
        tensors[name] = values
        kinds.add(tensor.tensor_type.name)
    assert kind.upper() in {name.upper() for name in kinds}, kinds
    plain = folder / kind
    plain.mkdir()
    write_safetensors(plain / "model.safetensors", tensors)
    shutil.copy(model / "config.json", plain)
    assert logits(program, file) == logits(program, plain), f"{kind}: slm reads other values than gguf does"
    print(f"{kind}: {', '.join(sorted(kinds))}")


def main():
    if not importlib.util.find_spec("gguf"):
        print("SKIPPED: the package gguf is not installed (./test fetches it, else pip install gguf)")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("q4_0", "q4_1", "q5_0", "q8_0", "q4_k", "q6_k"):
            check(sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(folder), kind)
    return 0


if __name__ == "__main__":
    sys.exit(main())
