#!/usr/bin/env python3
"""Compares slm with llama.cpp and its forks on the same GGUF file, in alternating runs: decoding, steps of five tokens,
prompts of 512 tokens, batches. A peer is a llama-bench program, optionally with additional options:

    python3 bench/peers/compare.py --slm build/cpu/bin/slm --threads 1 2 --file build/models/SmolLM2-135M-Instruct.Q4_1.gguf \\
        --peer llama.cpp=llama.cpp/build/bin/llama-bench --peer "ik_llama.cpp=ik_llama.cpp/build/bin/llama-bench -rtr 1" \\
        --batches llama.cpp/build/bin/llama-batched-bench

A peer without a llama-bench is the package xllamacpp: "llama.cpp=python3 bench/peers/xllamacpp_bench.py".
--shape and --type instead of --file write a model with random weights first (packages gguf and numpy); --keep FILE keeps it.
Run it on an idle machine, outside CI.
"""
import argparse
import json
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile

import random_gguf

PROMPT, ANSWER, SEVERAL = 512, 64, 5
SEQUENCES = [1, 8, 32]


def said(command):
    run = subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True)
    return run.stdout


def of_slm(program, file, threads, format_, isa, sequences):
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        command = [program, "bench", "decode", "--file", file, "--threads", threads, "--json", report]
        command += ["--format", format_] if format_ else []
        command += ["--isa", isa] if isa else []
        command += ["--sequences", ",".join(map(str, sequences))] if sequences else ["--quick"]
        said(command)
        results = json.loads(report.read_text())["results"]
    numbers = {(result["benchmark"], result["rows"]): result["numbers"] for result in results}
    if sequences:
        return {f"{count} sequences, tokens/s": numbers["batch", count]["tokens_per_second"] for count in sequences}
    return {
        "tokens/s": numbers["decode", 1]["tokens_per_second"],
        f"{SEVERAL} tokens, steps of one": numbers["decode", SEVERAL]["times_one_row"],
        f"prompt of {PROMPT}, tokens/s": numbers["prefill", PROMPT]["tokens_per_second"],
    }


def of_peer(program, file, threads):
    command = [*shlex.split(program), "-m", file, "-t", threads, "-p", f"{SEVERAL},{PROMPT}", "-n", ANSWER, "-r", 3, "-o", "json"]
    tests = json.loads(said(command))
    speed = {(test["n_prompt"], test["n_gen"]): test["avg_ts"] for test in tests}
    one = speed[0, ANSWER]
    return {
        "tokens/s": one,
        f"{SEVERAL} tokens, steps of one": SEVERAL / speed[SEVERAL, 0] * one,
        f"prompt of {PROMPT}, tokens/s": speed[PROMPT, 0],
    }


def of_batches(program, file, threads):
    command = [*shlex.split(program), "-m", file, "-t", threads, "-tb", threads, "-npp", 128, "-ntg", 32, "-c", 8192,
               "-npl", ",".join(map(str, SEQUENCES)), "--output-format", "jsonl"]
    tests = [json.loads(line) for line in said(command).splitlines() if line.startswith("{")]
    return {f"{test['pl']} sequences, tokens/s": test["speed_tg"] for test in tests}


def print_table(threads, own, peers):
    """own, peers: {name: [measures of a run]}"""
    for peer, theirs in peers.items():
        for name, ours in own.items():
            for measure in theirs[0]:
                a, b = [run[measure] for run in ours], [run[measure] for run in theirs]
                ratios = [x / y for x, y in zip(a, b, strict=True)]
                print(f"| {threads} | {measure} | {name} {statistics.median(a):.4g} | {peer} {statistics.median(b):.4g} "
                      f"| {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slm", required=True, help="path of the program slm")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=PROGRAM", help="a llama-bench; may be repeated")
    parser.add_argument("--batches", metavar="PROGRAM", help="llama.cpp's llama-batched-bench")
    parser.add_argument("--file", type=pathlib.Path, help="the GGUF file")
    parser.add_argument("--shape", choices=random_gguf.SHAPES, help="instead of --file: a model of this shape with random weights")
    parser.add_argument("--type", choices=random_gguf.TYPES, default="q4_0", help="type of the random weights")
    parser.add_argument("--keep", type=pathlib.Path, help="path to keep that file")
    parser.add_argument("--format", choices=["w4a8"], nargs="*", default=[], help="also measure slm with 8-bit activations")
    parser.add_argument("--isa", help="slm's instruction set, as in 'slm bench decode --isa'; default: the best one")
    parser.add_argument("--threads", type=int, nargs="+", default=[os.cpu_count()])
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    if (arguments.file is None) == (arguments.shape is None) or not (arguments.peer or arguments.batches):
        parser.error("give either --file or --shape, and --peer or --batches")
    if unnamed := [peer for peer in arguments.peer if "=" not in peer]:
        parser.error(f"--peer {unnamed[0]}: expected NAME=PROGRAM")
    with tempfile.TemporaryDirectory() as folder:
        file = arguments.file or arguments.keep or pathlib.Path(folder) / f"{arguments.shape}.{arguments.type}.gguf"
        if arguments.shape and not file.exists():
            random_gguf.write(file, random_gguf.SHAPES[arguments.shape], arguments.type)
        print(f"{file.name}\n\n| threads | measure | slm | beside | slm / beside: median (lowest to highest) |\n|---|---|---|---|---|")
        for threads in arguments.threads:
            formats = {"slm": None, **{f"slm {name}": name for name in arguments.format}}
            programs = dict(peer.split("=", 1) for peer in arguments.peer)
            own, peers = {name: [] for name in formats}, {name: [] for name in programs}
            for _ in range(arguments.repeats if programs else 0):
                for name, format_ in formats.items():
                    own[name].append(of_slm(arguments.slm, file, threads, format_, arguments.isa, []))
                for name, program in programs.items():
                    peers[name].append(of_peer(program, file, threads))
            print_table(threads, own, peers)
            own, batches = {name: [] for name in formats}, {"llama.cpp": []}
            for _ in range(arguments.repeats if arguments.batches else 0):
                for name, format_ in formats.items():
                    own[name].append(of_slm(arguments.slm, file, threads, format_, arguments.isa, SEQUENCES))
                batches["llama.cpp"].append(of_batches(arguments.batches, file, threads))
            if arguments.batches:
                print_table(threads, own, batches)


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        sys.exit(f"{error.filename}: {error.strerror}")
    except subprocess.CalledProcessError as error:
        sys.exit(f"{' '.join(error.cmd)}\n{error.stderr[-2000:]}")
