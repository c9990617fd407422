#!/usr/bin/env python3
"""Compares slm's masks with llguidance: JSON schemas, the same texts cut into the same tokens, one thread, processor
time. Programs that run beside it change the caches and the clock, so compare only times of one run.

    pip install llguidance
    masks.py PROGRAM TOKENIZER.json [SCHEMAS.json]

PROGRAM: bench-grammar_masks. SCHEMAS.json: default tests/fixtures/structure/json-schema/bench.json.
"""
import ctypes
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import llguidance

WHITE_SPACE = r"(| |\n{1,2}[ \t]{0,20})"  # slm's default
VOCABULARY = 151936  # of Qwen2.5's logits


def cases_of(schemas, tokenizer):
    """The schemas that both compile, with the tokens of their texts that both accept."""
    for case in schemas:
        texts = [test["text"] for test in case["tests"] if test["slm"] == test["llguidance"] == "accept"]
        if case["compile"] == "ok" and texts:
            yield {"schema": case["schema"], "texts": [tokenizer.tokenize_str(text) for text in texts]}


def microseconds(call):
    begin = time.thread_time_ns()
    result = call()
    return (time.thread_time_ns() - begin) / 1000, result


def measure_llguidance(case, tokenizer):
    """Times in microseconds, or None if it takes not all texts. Tokens are allowed by their bytes alone, as in slm."""
    words = (tokenizer.vocab_size + 31) // 32
    bits = (ctypes.c_uint32 * words)()
    schema = json.dumps(case["schema"] | {"x-guidance": {"whitespace_pattern": WHITE_SPACE}})
    lark = '%llguidance {"no_forcing": true}\nstart: %json ' + schema
    grammar = llguidance.LLMatcher.grammar_from_lark(lark)
    spent, matcher = microseconds(lambda: llguidance.LLMatcher(tokenizer, grammar, log_level=0))
    times = {"compile": [spent], "mask": [], "advance": []}
    for text in case["texts"]:
        for token in text:
            spent, _ = microseconds(lambda: matcher.unsafe_compute_mask_ptr(ctypes.addressof(bits), words * 4))
            times["mask"].append(spent)
            spent, taken = microseconds(lambda: matcher.consume_token(token))
            times["advance"].append(spent)
            if not taken:
                return None
        matcher.reset()
    return times


def quantile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def main():
    program, tokenizer_file = sys.argv[1:3]
    default = pathlib.Path(__file__).parents[2] / "tests/fixtures/structure/json-schema/bench.json"
    schemas = json.loads(pathlib.Path(sys.argv[3] if len(sys.argv) > 3 else default).read_text())
    tokenizer = llguidance.LLTokenizer(pathlib.Path(tokenizer_file).read_text(), n_vocab=VOCABULARY,
                                       slices=llguidance.LLTokenizer.json_slices())
    cases, theirs = [], {"compile": [], "mask": [], "advance": []}
    left_out = 0
    for case in cases_of(schemas, tokenizer):
        times = measure_llguidance(case, tokenizer)
        if times is None:
            left_out += 1
            continue
        cases.append(case)
        for work, values in times.items():
            theirs[work] += values
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(cases, file)
        file.flush()
        out = subprocess.run([program, tokenizer_file, file.name], check=True, stdout=subprocess.PIPE).stdout
    found = {"slm": json.loads(out), f"llguidance {llguidance.__version__}": theirs}
    print(f"{len(cases)} schemas, {sum(len(case['texts']) for case in cases)} texts, times in microseconds; "
          f"left out, as llguidance does not take all texts: {left_out}\n")
    print("| program | work | number | mean | median | 99 % | 99.9 % | largest |\n|---|---|---|---|---|---|---|---|")
    for work in ("compile", "mask", "advance"):
        for name, times in found.items():
            values = times[work]
            cells = [statistics.mean(values), *(quantile(values, share) for share in (0.5, 0.99, 0.999)), max(values)]
            print(f"| {name} | {work} | {len(values)} | " + " | ".join(f"{cell:.1f}" for cell in cells) + " |")


if __name__ == "__main__":
    main()
