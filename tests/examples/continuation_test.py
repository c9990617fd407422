#!/usr/bin/env python3
"""Examples that print a text print the part added to the prompt, with tokenizers of either kind.
usage: continuation_test.py SOURCE_DIR SCRATCH_DIR PROGRAM GENERATE STATIC_PAIR ADD_YOUR_MODEL"""
import json
import pathlib
import shutil
import subprocess
import sys

SOURCE, SCRATCH, PROGRAM, GENERATE, STATIC_PAIR, ADD_YOUR_MODEL = map(pathlib.Path, sys.argv[1:])
PROMPT = "x ="  # with either tokenizer a space follows


def output(*arguments):
    return subprocess.run(list(map(str, arguments)), capture_output=True, check=True, timeout=300).stdout.decode()


def pair_with(tokenizer):
    """The embedded pair with another tokenizer; its text has no meaning, but is still a text."""
    folder = SCRATCH / tokenizer.stem
    for name in ("draft", "target"):
        shutil.copytree(SOURCE / "examples" / "demo_pair" / name, folder / name)
        shutil.copy(tokenizer, folder / name / "tokenizer.json")
    return folder / "draft", folder / "target"


def text_of(target, tokens):
    """The part of the whole text after the prompt's."""
    command = [PROGRAM, "generate", "--target", target, "--prompt", PROMPT, "--max-new-tokens", tokens, "--json"]
    answer = json.loads(output(*command))
    known = json.loads(output(PROGRAM, "info", target, "--json"))["tokenizer_vocab"]
    ids = json.dumps([token for token in answer["prompt_ids"] + answer["ids"] if token < known])
    back = subprocess.run([PROGRAM, "tokenize", target, "--decode"], input=ids.encode(), capture_output=True, check=True)
    whole = back.stdout.decode()
    assert whole.startswith(PROMPT + " "), whole
    return whole.removeprefix(PROMPT)


shutil.rmtree(SCRATCH, ignore_errors=True)
for tokenizer in (SOURCE / "examples/demo_pair/target/tokenizer.json", SOURCE / "tests/fixtures/tokenizers/llama2_legacy.json"):
    draft, target = pair_with(tokenizer)
    for printed, expected in (
        (output(GENERATE, draft, target, PROMPT), text_of(target, 128)),
        (output(STATIC_PAIR, draft, target, PROMPT), PROMPT + text_of(target, 64)),
        (output(ADD_YOUR_MODEL, target, PROMPT).split("layers\n", 1)[1], PROMPT + text_of(target, 64)),
    ):
        if not printed.startswith(expected + "\n\n"):
            sys.exit(f"{tokenizer}: printed {printed!r}, expected {expected!r}")
    print(f"{tokenizer.name}: {text_of(target, 16)!r}")
