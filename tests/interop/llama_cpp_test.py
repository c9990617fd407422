#!/usr/bin/env python3
"""GGUF files written by slm and read by llama.cpp: the same token ids and, except for its 8-bit activations, the same
log-probabilities as slm's. The difference is 1/10 of the difference that exchanging the halves of one matrix of the first
layer causes; the test requires less than 1/4.
usage: llama_cpp_test.py SLM_PROGRAM MODEL_FOLDER

Skips (exit code 77) if the package xllamacpp, which contains llama.cpp, is not installed: ./test installs it from PyPI,
like the server's clients. slm itself does not need it.
"""
import importlib.util
import json
import math
import pathlib
import subprocess
import sys
import tempfile

TEXTS = [
    "def mean(values):\n    return sum(values) /",
    "for index in range(10):\n\tprint(index",
    "class Tree:\n    def __init__(self, left, right):\n        self.",
    "# Größe: naïve café, 1234567890 ☃ 日本語\nx =",
    "import os\n\n\nwith open(os.path.join(folder, 'a  b')) as file:\n    lines = file",
]
LIKELIEST = 10


def slm(program, *arguments, text=None):
    run = subprocess.run([program, *map(str, arguments)], input=text, check=True, capture_output=True, text=True)
    return json.loads(run.stdout)


def by_slm(program, file, ids):
    """Log-probability of each token after the last id."""
    logits = slm(program, "logits", file, "--ids", ",".join(map(str, ids)), "--json")["logits"][-1]
    largest = max(logits)
    total = largest + math.log(sum(math.exp(logit - largest) for logit in logits))
    return [logit - total for logit in logits]


class LlamaCpp:
    def __init__(self, file):
        import xllamacpp

        params = xllamacpp.CommonParams()
        params.model.path = str(file)
        params.n_ctx, params.cpuparams.n_threads, params.n_gpu_layers = 256, 1, 0
        params.warmup = False
        self.server = xllamacpp.Server(params)

    def read(self, prompt, **sampling):
        """The number of tokens of a prompt, and the likeliest after it with their log-probabilities. prompt: text or ids"""
        answer = self.server.handle_completions({"prompt": prompt, "n_predict": 1, "n_probs": LIKELIEST, "cache_prompt": False, **sampling})
        answer = json.loads(answer) if isinstance(answer, str) else answer
        likeliest = answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
        return answer["usage"]["prompt_tokens"], {token["id"]: token["logprob"] for token in likeliest}


def difference(program, file, ids_of_texts, likeliest_of_texts):
    differences = []
    for ids, likeliest in zip(ids_of_texts, likeliest_of_texts, strict=True):
        own = by_slm(program, file, ids)
        differences += [abs(own[token] - value) for token, value in likeliest.items()]
    return sum(differences) / len(differences)


def exchange_halves(file, name, wrong):
    """A copy of the file with the first rows of a matrix after the last ones."""
    import gguf

    tensor = next(tensor for tensor in gguf.GGUFReader(file).tensors if tensor.name == name)
    data = bytearray(file.read_bytes())
    begin, half = tensor.data_offset, int(tensor.n_bytes) // 2
    data[begin : begin + 2 * half] = data[begin + half : begin + 2 * half] + data[begin : begin + half]
    wrong.write_bytes(data)
    return wrong


def check(program, model, folder, kind):
    file = folder / f"{kind}.gguf"
    subprocess.run([program, "quantize", str(model), str(file), "--type", kind], check=True, capture_output=True)
    ids_of_texts = [slm(program, "tokenize", file, text=text) for text in TEXTS]
    llama = LlamaCpp(file)
    for text, ids in zip(TEXTS, ids_of_texts, strict=True):
        of_text, of_ids = llama.read(text), llama.read(ids)
        assert of_text == of_ids, f"{kind}: llama.cpp's ids of {text!r} are not slm's"
    likeliest = [llama.read(ids)[1] for ids in ids_of_texts]
    right = difference(program, file, ids_of_texts, likeliest)
    wrong = LlamaCpp(exchange_halves(file, "blk.0.attn_q.weight", folder / "wrong.gguf"))
    control = difference(program, file, ids_of_texts, [wrong.read(ids)[1] for ids in ids_of_texts])
    print(f"{kind}: mean difference of log-probabilities {right:.4f}, of a wrong file {control:.4f}")
    assert right < control / 4, f"{kind}: llama.cpp reads other weights than slm"


def main():
    if not all(importlib.util.find_spec(name) for name in ("xllamacpp", "gguf")):
        print("SKIPPED: the packages xllamacpp and gguf are not installed (./test fetches them)")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("q4_0", "q4_1", "q5_0", "q8_0", "q4_k", "q6_k"):
            check(sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(folder), kind)
    return 0


if __name__ == "__main__":
    sys.exit(main())
