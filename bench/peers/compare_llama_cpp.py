#!/usr/bin/env python3
"""slm beside llama.cpp on one AMD-Llama-135M-shaped model in BF16 with random weights, in alternating runs.

Outside of CI. Needs an environment of its own:

    python3 -m venv /tmp/peer && /tmp/peer/bin/pip install llama-cpp-python gguf numpy
    /tmp/peer/bin/python bench/peers/compare_llama_cpp.py --slm build/cpu/bin/bench-decode_step --threads 1 2
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

LAYERS, HIDDEN, FFN, HEADS, VOCAB, CONTEXT = 12, 768, 2048, 12, 32000, 2048
PROMPT = 64


def write_gguf(path):
    import gguf
    import numpy as np

    bf16 = gguf.GGMLQuantizationType.BF16
    generator = np.random.default_rng(1)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(VOCAB)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    writer.add_tokenizer_model("llama")
    pieces = [b"<unk>", b"<s>", b"</s>"] + [f"<0x{byte:02X}>".encode() for byte in range(256)]
    pieces += [f"t{i}".encode() for i in range(len(pieces), VOCAB)]
    writer.add_token_list(pieces)
    writer.add_token_scores([0.0] * VOCAB)
    writer.add_token_types([2, 3, 3] + [6] * 256 + [1] * (VOCAB - 259))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)

    def matrix(name, rows, columns):
        values = generator.standard_normal((rows, columns), dtype=np.float32) / np.sqrt(columns)
        writer.add_tensor(name, gguf.quants.quantize(values, bf16), raw_dtype=bf16)

    def ones(name):
        writer.add_tensor(name, np.ones(HIDDEN, dtype=np.float32))

    matrix("token_embd.weight", VOCAB, HIDDEN)
    for layer in range(LAYERS):
        ones(f"blk.{layer}.attn_norm.weight")
        ones(f"blk.{layer}.ffn_norm.weight")
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            matrix(f"blk.{layer}.{name}.weight", HIDDEN, HIDDEN)
        matrix(f"blk.{layer}.ffn_gate.weight", FFN, HIDDEN)
        matrix(f"blk.{layer}.ffn_up.weight", FFN, HIDDEN)
        matrix(f"blk.{layer}.ffn_down.weight", HIDDEN, FFN)
    ones("output_norm.weight")
    matrix("output.weight", VOCAB, HIDDEN)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def run_llama(path, threads, steps):
    """Tokens/s of single steps and of a 512-token prompt, and v(5), measured inside one process."""
    import llama_cpp

    model = llama_cpp.Llama(model_path=path, n_ctx=CONTEXT, n_batch=512, n_threads=threads, n_threads_batch=threads, logits_all=True, verbose=False)
    tokens = [i * 7919 % VOCAB for i in range(CONTEXT)]

    def step(count):
        model.n_tokens = PROMPT
        start = time.perf_counter()
        model.eval(tokens[PROMPT:PROMPT + count])
        return time.perf_counter() - start

    model.eval(tokens[:PROMPT])
    step(1), step(5)
    one = [step(1) for _ in range(steps)]
    five = [step(5) for _ in range(steps)]
    del model
    model = llama_cpp.Llama(model_path=path, n_ctx=CONTEXT, n_batch=512, n_threads=threads, n_threads_batch=threads, verbose=False)
    prompts = []
    for _ in range(3):
        model.reset()
        start = time.perf_counter()
        model.eval(tokens[:512])
        prompts.append(time.perf_counter() - start)
    one_time, five_time = statistics.median(one), statistics.median(five)
    return {"tokens/s": 1 / one_time, "v(5)": five_time / one_time, "prefill tokens/s": 512 / statistics.median(prompts)}


def run_slm(binary, threads):
    names = {"tokens/s": f"^decode/rows:1/threads:{threads}/", "v(5)": f"^decode/rows:5/threads:{threads}/", "prefill tokens/s": f"^prefill/threads:{threads}/"}
    command = [binary, f"--benchmark_filter={'|'.join(names.values())}", "--benchmark_format=json"]
    rows = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["benchmarks"]
    found = {row["name"]: row for row in rows}
    pick = lambda part, counter: next(row[counter] for name, row in found.items() if name.startswith(part))
    return {
        "tokens/s": pick(f"decode/rows:1/threads:{threads}/", "tokens/s"),
        "v(5)": pick(f"decode/rows:5/threads:{threads}/", "v(n)"),
        "prefill tokens/s": pick(f"prefill/threads:{threads}/", "tokens/s"),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slm", required=True, help="path of bench-decode_step")
    parser.add_argument("--threads", type=int, nargs="+", default=[os.cpu_count()])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)  # PATH THREADS: one run of llama.cpp, as JSON
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(run_llama(arguments.one[0], int(arguments.one[1]), arguments.steps)))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = str(pathlib.Path(folder) / "random-135m-bf16.gguf")
        write_gguf(path)
        print("| threads | measure | slm | llama.cpp | slm / llama.cpp: median (min-max) |")
        print("|---|---|---|---|---|")
        for threads in arguments.threads:
            ours, theirs = [], []
            for _ in range(arguments.repeats):
                ours.append(run_slm(arguments.slm, threads))
                command = [os.sys.executable, __file__, "--slm", "-", "--steps", str(arguments.steps), "--one", path, str(threads)]
                theirs.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1]))
            for measure in ("tokens/s", "v(5)", "prefill tokens/s"):
                a, b = [run[measure] for run in ours], [run[measure] for run in theirs]
                ratios = [x / y for x, y in zip(a, b)]
                spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
                print(f"| {threads} | {measure} | {statistics.median(a):.4g} | {statistics.median(b):.4g} | {spread} |", flush=True)


if __name__ == "__main__":
    main()
