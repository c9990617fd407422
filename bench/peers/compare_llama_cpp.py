#!/usr/bin/env python3
"""slm beside llama.cpp on models of one shape with random weights, in alternating runs: BF16 beside BF16, or four bits
(Q4_0, Q4_K) beside slm's four bits in groups of 128, with embedding and head in F16 on both sides.

Outside of CI. Needs an environment of its own:

    python3 -m venv /tmp/peer && /tmp/peer/bin/pip install llama-cpp-python gguf numpy
    /tmp/peer/bin/python bench/peers/compare_llama_cpp.py --slm build/cpu/bin/slm --threads 1 2
    /tmp/peer/bin/python bench/peers/compare_llama_cpp.py --slm build/cpu/bin/slm --type q4_0 --model AMD-OLMo-1B \\
        --format w4a16 w4a8 --threads 1 2
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import typing

import gguf_of


class Shape(typing.NamedTuple):
    layers: int
    hidden: int
    ffn: int
    heads: int
    vocab: int
    tied: bool


SHAPES = {
    "AMD-Llama-135M": Shape(12, 768, 2048, 12, 32000, False),
    "AMD-OLMo-1B": Shape(16, 2048, 8192, 16, 50304, True),
    "CodeLlama-7B": Shape(32, 4096, 11008, 32, 32016, False),
}
CONTEXT = 2048
PROMPT = 64
ROWS = range(1, 9)


def write_gguf(path, shape, type_name):
    import gguf
    import numpy as np

    types = gguf.GGMLQuantizationType
    weight_type = {"bf16": types.BF16, "q4_0": types.Q4_0, "q4_k": types.Q4_K}[type_name]
    table_type = types.BF16 if type_name == "bf16" else types.F16
    generator = np.random.default_rng(1)
    writer = gguf.GGUFWriter(path, "llama")
    gguf_of.write_settings(writer, {
        "max_position_embeddings": CONTEXT, "hidden_size": shape.hidden, "num_hidden_layers": shape.layers,
        "intermediate_size": shape.ffn, "num_attention_heads": shape.heads, "rms_norm_eps": 1e-5, "vocab_size": shape.vocab,
    })
    file_types = gguf.LlamaFileType
    writer.add_file_type({"bf16": file_types.MOSTLY_BF16, "q4_0": file_types.MOSTLY_Q4_0, "q4_k": file_types.MOSTLY_Q4_K_S}[type_name])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)

    def floats(name, rows, columns, type_):
        values = generator.standard_normal((rows, columns), dtype=np.float32) / np.sqrt(columns)
        writer.add_tensor(name, gguf.quants.quantize(values, type_), raw_dtype=type_)

    def matrix(name, rows, columns):
        if type_name == "bf16":
            return floats(name, rows, columns, weight_type)
        values, size = gguf.GGML_QUANT_SIZES[weight_type]
        blocks = generator.integers(0, 256, (rows, columns // values, size), dtype=np.uint8)
        scale = np.array([0.02 / (1 if type_name == "q4_0" else 32)], dtype=np.float16).view(np.uint8)
        blocks[:, :, 0:2] = scale
        if type_name == "q4_k":  # a scale of scales and one of minima
            blocks[:, :, 2:4] = scale
        writer.add_tensor(name, blocks.reshape(rows, -1), raw_dtype=weight_type)

    def ones(name):
        writer.add_tensor(name, np.ones(shape.hidden, dtype=np.float32))

    floats("token_embd.weight", shape.vocab, shape.hidden, table_type)
    for layer in range(shape.layers):
        ones(f"blk.{layer}.attn_norm.weight")
        ones(f"blk.{layer}.ffn_norm.weight")
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            matrix(f"blk.{layer}.{name}.weight", shape.hidden, shape.hidden)
        matrix(f"blk.{layer}.ffn_gate.weight", shape.ffn, shape.hidden)
        matrix(f"blk.{layer}.ffn_up.weight", shape.ffn, shape.hidden)
        matrix(f"blk.{layer}.ffn_down.weight", shape.hidden, shape.ffn)
    ones("output_norm.weight")
    if not shape.tied:
        floats("output.weight", shape.vocab, shape.hidden, table_type)
    gguf_of.finish(writer)


def measures(one, several, prompt):
    """one: seconds of a step of one token; several: {rows: v(rows)}; prompt: tokens/s."""
    return {"tokens/s": 1 / one, **{f"v({rows})": v for rows, v in several.items()}, "prefill tokens/s": prompt}


def run_llama(path, threads, steps):
    """Single steps, steps of several tokens with all logits and a 512-token prompt, inside one process."""
    import llama_cpp

    model = llama_cpp.Llama(model_path=path, n_ctx=CONTEXT, n_batch=512, n_threads=threads, n_threads_batch=threads, logits_all=True, verbose=False)
    tokens = [i * 7919 % model.n_vocab() for i in range(CONTEXT)]

    def step(count):
        model.n_tokens = PROMPT
        start = time.perf_counter()
        model.eval(tokens[PROMPT:PROMPT + count])
        return time.perf_counter() - start

    model.eval(tokens[:PROMPT])
    times = {rows: [] for rows in ROWS}
    for _ in range(steps + 1):
        for rows in ROWS:
            times[rows].append(step(rows))
    typical = {rows: statistics.median(samples[1:]) for rows, samples in times.items()}
    del model
    model = llama_cpp.Llama(model_path=path, n_ctx=CONTEXT, n_batch=512, n_threads=threads, n_threads_batch=threads, verbose=False)
    prompts = []
    for _ in range(3):
        model.reset()
        start = time.perf_counter()
        model.eval(tokens[:512])
        prompts.append(time.perf_counter() - start)
    return measures(typical[1], {rows: typical[rows] / typical[1] for rows in ROWS if rows > 1}, 512 / statistics.median(prompts))


def run_slm(program, model, format, threads):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "report.json"
        command = [program, "bench", "decode", "--model", model, "--format", format, "--threads", str(threads), "--json", str(path)]
        subprocess.run(command, check=True, capture_output=True)
        results = json.loads(path.read_text())["results"]

    def pick(benchmark, rows, number):
        return next(r["numbers"][number] for r in results if (r["benchmark"], r["rows"]) == (benchmark, rows))

    several = {rows: pick("decode", rows, "times_one_row") for rows in ROWS if rows > 1}
    return measures(1 / pick("decode", 1, "tokens_per_second"), several, pick("prefill", 512, "tokens_per_second"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slm", required=True, help="path of the program slm")
    parser.add_argument("--type", choices=["bf16", "q4_0", "q4_k"], default="bf16", help="llama.cpp's weights")
    parser.add_argument("--model", choices=SHAPES, default="AMD-Llama-135M")
    parser.add_argument("--format", choices=["w4a16", "w4a8"], nargs="+", default=["w4a16"], help="slm's, with four bits")
    parser.add_argument("--threads", type=int, nargs="+", default=[os.cpu_count()])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)  # PATH THREADS: one run of llama.cpp, as JSON
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(run_llama(arguments.one[0], int(arguments.one[1]), arguments.steps)))
        return
    formats = ["bf16"] if arguments.type == "bf16" else arguments.format
    with tempfile.TemporaryDirectory() as folder:
        path = str(pathlib.Path(folder) / f"random-{arguments.model}-{arguments.type}.gguf")
        write_gguf(path, SHAPES[arguments.model], arguments.type)
        print(f"| threads | measure | slm | llama.cpp {arguments.type} | slm / llama.cpp: median (min-max) |")
        print("|---|---|---|---|---|")
        for threads in arguments.threads:
            ours, theirs = {name: [] for name in formats}, []
            for _ in range(arguments.repeats):
                for name in formats:
                    ours[name].append(run_slm(arguments.slm, arguments.model, name, threads))
                command = [sys.executable, __file__, "--slm", "-", "--steps", str(arguments.steps), "--one", path, str(threads)]
                theirs.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1]))
            for name in formats:
                for measure in theirs[0]:
                    a, b = [run[measure] for run in ours[name]], [run[measure] for run in theirs]
                    ratios = [x / y for x, y in zip(a, b)]
                    spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
                    print(f"| {threads} | {name} {measure} | {statistics.median(a):.4g} | {statistics.median(b):.4g} | {spread} |", flush=True)


if __name__ == "__main__":
    main()
