#!/usr/bin/env python3
"""slm.exe under Wine prints what slm prints on Linux with the same kernels: logits of fixtures, texts with and without a
draft, from folders whose names are not ASCII. Its server answers on loopback.

usage: program_test.py ROOT SLM.EXE SLM WINEPREFIX SETS [unittest options]
SLM: the program for this machine. SETS: the instruction sets that are compared, as in portable,avx2
"""
import itertools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import urllib.request

ROOT, WINDOWS, LINUX, PREFIX = sys.argv[1:5]
SETS = sys.argv[5].split(",")
PAIR = f"{ROOT}/examples/demo_pair"
FIXTURES = ["gpt2", "llama3-gqa-scaled-tied", "qwen3-qknorm-headdim", "qwen3moe", "qwen35"]
ENVIRONMENT = os.environ | {"WINEPREFIX": PREFIX, "WINEDEBUG": "-all", "LC_ALL": "C.UTF-8"}
ENVIRONMENT.pop("DISPLAY", None)


def start(words, windows, **options):
    command = ["wine", WINDOWS] if windows else [LINUX]
    return subprocess.Popen([*command, *words], env=ENVIRONMENT, text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, **options)


def run(*words, windows=True):
    process = start(words, windows)
    out, err = process.communicate(timeout=300)
    return process.returncode, out, err


class Program(unittest.TestCase):
    def both(self, *words):
        """The standard outputs on Linux and on Windows."""
        outputs = []
        for windows in (False, True):
            status, out, err = run(*words, windows=windows)
            self.assertEqual(status, 0, err)
            outputs.append(out)
        return outputs

    def answer(self, *words):
        """The answer of slm.exe, which has Linux's tokens with every instruction set."""
        for isa in SETS:
            with self.subTest(isa=isa):
                linux, windows = (json.loads(line) for line in self.both("generate", *words, "--json", "--isa", isa))
                self.assertEqual((linux["ids"], linux["text"]), (windows["ids"], windows["text"]))
                self.assertGreater(len(windows["ids"]), 0)
        return windows

    def test_version_and_usage(self):
        linux, windows = self.both("--version")
        self.assertEqual(linux, windows)
        status, _, err = run("genrate")
        self.assertEqual(status, 2)
        self.assertIn("cli.unknown-command", err)

    def test_logits_of_fixtures(self):
        for name, isa in itertools.product(FIXTURES, SETS):
            with self.subTest(name=name, isa=isa):
                folder = f"{ROOT}/tests/fixtures/models/{name}"
                linux, windows = self.both("logits", folder, "--ids", "1,5,7,2", "--isa", isa)
                self.assertEqual(linux, windows)
                self.assertGreater(linux.count(","), 50)

    def test_a_greedy_text(self):
        self.answer("--target", f"{PAIR}/target", "--prompt", "def read_config(path):", "--max-new-tokens", "24")

    def test_a_draft_changes_no_token(self):
        words = ["--target", f"{PAIR}/target", "--prompt", "def add(a, b):", "--max-new-tokens", "24"]
        alone = self.answer(*words, "--drafter", "none")
        drafted = self.answer(*words, "--draft", f"{PAIR}/draft", "--draft-length", "4")
        self.assertEqual(alone["ids"], drafted["ids"])
        self.assertGreater(drafted["statistics"]["acceptance_rate"], 0)

    def test_names_that_are_not_ascii(self):
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch, "модель-é-模型")
            shutil.copytree(f"{PAIR}/draft", folder)
            prompt = folder / "frage-ß.txt"
            prompt.write_text("# Größe: 日本語\ndef size():", encoding="utf-8")
            answer = self.answer("--target", str(folder), "--prompt-file", str(prompt), "--max-new-tokens", "8")
            status, out, err = run("generate", "--target", str(folder), "--prompt", "# Größe:", "--max-new-tokens", "4",
                                   "--save", str(folder / "zustand-ö.kv"))
            self.assertEqual(status, 0, err)
            self.assertTrue((folder / "zustand-ö.kv").is_file(), sorted(folder.iterdir()))
            self.assertTrue(answer["prompt_ids"])
            status, _, err = run("info", str(folder / "fehlt-ü"))
            self.assertEqual(status, 1)
            self.assertIn("fehlt-ü", err)


class Server(unittest.TestCase):
    def test_http(self):
        words = ["--target", f"{PAIR}/target", "--port", "0", "--json", "--context", "256"]
        server = start(["serve", *words], True)
        try:
            started = json.loads(server.stdout.readline())
            body = {"model": started["model"], "prompt": "def add(a, b):", "max_tokens": 8, "temperature": 0}

            def post(**more):
                request = urllib.request.Request(started["address"] + "/v1/completions", json.dumps(body | more).encode(),
                                                 {"Content-Type": "application/json"})
                with urllib.request.urlopen(request, timeout=120) as answer:
                    return answer.read().decode()

            text = json.loads(post())["choices"][0]["text"]
            self.assertTrue(text)
            events = [line[6:] for line in post(stream=True).splitlines() if line.startswith("data: ")]
            self.assertEqual(events.pop(), "[DONE]")
            self.assertEqual("".join(json.loads(event)["choices"][0]["text"] for event in events), text)
        finally:
            server.kill()
            server.communicate()


if __name__ == "__main__":
    for needed in (WINDOWS, LINUX):
        if not pathlib.Path(needed).exists():
            print(f"SKIPPED: {needed} is not built")
            sys.exit(77)
    if shutil.which("wine") is None:
        print("SKIPPED: no wine")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1] + sys.argv[6:])
