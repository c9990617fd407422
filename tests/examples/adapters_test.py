#!/usr/bin/env python3
"""The trained adapters of examples/adapters change the text as their names state, in a batch as alone; slm merge creates a
model from one.
usage: adapters_test.py SOURCE_DIR SCRATCH_DIR PROGRAM"""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

SOURCE, SCRATCH, PROGRAM = map(pathlib.Path, sys.argv[1:4])
TARGET, ADAPTERS = SOURCE / "examples/demo_pair/target", SOURCE / "examples/adapters"
NAMES = ["shout", "semicolons"]
PROMPTS = ['def add(a, b):\n    """Add two numbers."""\n',
           'def read_lines(path):\n    """Return the lines of a file."""\n',
           'def is_valid(self, value):\n    """Return True if the value is allowed for this field."""\n',
           'def close(self):\n    """Close the connection."""\n']


def slm(*arguments):
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=300)


def generate(name, prompt, target=TARGET):
    adapter = [] if name == "" else ["--adapter", ADAPTERS / name]
    done = slm("generate", "--target", target, *adapter, "--prompt", prompt, "--max-new-tokens", 48, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["ids"], json.loads(done.stdout)["text"]


def capitals(texts):
    letters = re.findall("[A-Za-z]", "".join(texts))
    return sum(map(str.isupper, letters)) / len(letters)


def closed_lines(texts):
    """The share of lines that end with a semicolon, among those where a statement may end."""
    lines = [line.rstrip() for text in texts for line in text.split("\n")[:-1]]
    lines = [line for line in lines if line and line[-1] not in ":,([{"]
    return sum(line.endswith(";") for line in lines) / len(lines)


class Adapters(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        shutil.rmtree(SCRATCH, ignore_errors=True)
        SCRATCH.mkdir(parents=True)
        cls.answers = {name: [generate(name, prompt) for prompt in PROMPTS] for name in ["", *NAMES]}
        cls.texts = {name: [text for _, text in answers] for name, answers in cls.answers.items()}

    def test_shout_writes_capitals(self):
        self.assertGreater(capitals(self.texts["shout"]), 0.95, self.texts)
        for name in ("", "semicolons"):
            self.assertLess(capitals(self.texts[name]), 0.2, self.texts)

    def test_semicolons_closes_statements(self):
        self.assertGreater(closed_lines(self.texts["semicolons"]), 0.7, self.texts)
        for name in ("", "shout"):
            self.assertLess(closed_lines(self.texts[name]), 0.1, self.texts)

    def test_in_a_batch_each_has_the_same_text_as_alone(self):
        lines = [(name, prompt) for prompt in PROMPTS for name in ["", *NAMES]]
        file = SCRATCH / "requests.jsonl"
        file.write_text("".join(json.dumps({"prompt": prompt, "adapter": str(ADAPTERS / name) if name else ""}) + "\n"
                                for name, prompt in lines))
        done = slm("generate", "--target", TARGET, "--prompts", file, "--max-new-tokens", 48, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        found = [json.loads(line)["ids"] for line in done.stdout.splitlines()]
        self.assertEqual(found, [self.answers[name][PROMPTS.index(prompt)][0] for name, prompt in lines])

    def test_a_merged_model_needs_no_adapter(self):
        out = SCRATCH / "merged"
        done = slm("merge", TARGET, ADAPTERS / "shout", out, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout)["changed"], 42)
        self.assertGreater(capitals([generate("", prompt, out)[1] for prompt in PROMPTS]), 0.95)
        again = slm("merge", TARGET, ADAPTERS / "shout", out)
        self.assertEqual((again.returncode, "merge.output-exists" in again.stderr), (1, True), again.stderr)
        four_bits = slm("merge", f"{TARGET}-int4", ADAPTERS / "shout", SCRATCH / "other")
        self.assertEqual((four_bits.returncode, "merge.base" in four_bits.stderr), (1, True), four_bits.stderr)
        self.assertEqual(sorted(path.name for path in SCRATCH.iterdir() if path.is_dir()), ["merged"])

    def test_they_are_small(self):
        for name in NAMES:
            self.assertLess(sum(path.stat().st_size for path in (ADAPTERS / name).iterdir()), 300_000)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
