#!/usr/bin/env python3
"""A small program with the library prints under Wine what slm prints on Linux with the same kernels: its version, the
logits of a fixture, and the tokens of a greedy text.

usage: short_test.py ROOT WINDOWS-SHORT.EXE SLM WINEPREFIX    SLM: the program for this machine
"""
import array
import json
import os
import pathlib
import shutil
import subprocess
import sys
import unittest

ROOT, WINDOWS, LINUX, PREFIX = sys.argv[1:5]
PAIR = f"{ROOT}/examples/demo_pair"
FIXTURES = [f"{ROOT}/tests/fixtures/models/{name}" for name in ("qwen3-qknorm-headdim", "qwen35", "qwen3moe")]
IDS, PROMPT, TOKENS = "1,5,7,2", "def read_config(path):", "24"
SAME_KERNELS = ["--isa", "portable"]  # those of windows-short


def run(*command):
    environment = os.environ | {"WINEPREFIX": PREFIX, "WINEDEBUG": "-all"}
    environment.pop("DISPLAY", None)
    done = subprocess.run(command, env=environment, text=True, timeout=300, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode != 0:
        raise AssertionError(f"ended with {done.returncode}: {command}\n{(done.stdout + done.stderr)[-3000:]}")
    return done.stdout


def on_windows(fixture):
    return json.loads(run("wine", WINDOWS, fixture, IDS, f"{PAIR}/target", f"{PAIR}/draft", PROMPT, TOKENS))


class Short(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.found = on_windows(FIXTURES[0])

    def test_the_version(self):
        self.assertEqual(self.found["version"], run(LINUX, "--version").strip())

    def test_the_logits_of_fixtures(self):
        for fixture in FIXTURES:
            linux = json.loads(run(LINUX, "logits", fixture, "--ids", IDS, *SAME_KERNELS))
            for found, expected in zip(on_windows(fixture)["logits"], linux, strict=True):
                self.assertEqual(array.array("f", found), array.array("f", expected), fixture)  # digits of floats
            self.assertEqual(len(linux), 4)
            self.assertGreater(len(set(linux[0])), 10)

    def test_a_greedy_text(self):
        words = ["--target", f"{PAIR}/target", "--drafter", "none", "--prompt", PROMPT, "--max-new-tokens", TOKENS, "--json"]
        self.assertEqual(self.found["ids"], json.loads(run(LINUX, "generate", *words, *SAME_KERNELS))["ids"])
        self.assertEqual(len(self.found["ids"]), int(TOKENS))
        self.assertGreater(self.found["accepted"], 0)


if __name__ == "__main__":
    if shutil.which("wine") is None or not pathlib.Path(LINUX).exists():
        print(f"SKIPPED: no wine, or {LINUX} is not built")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
