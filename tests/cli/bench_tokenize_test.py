#!/usr/bin/env python3
"""slm bench tokenize as its users call it.  usage: bench_tokenize_test.py PROGRAM SOURCE_DIR SCRATCH_DIR"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import unittest

PROGRAM, SOURCE, SCRATCH = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
MODEL = SOURCE / "tests" / "fixtures" / "tokenizers" / "qwen2.json"
TEXT = "The pump runs 2024 times, it's fine.\n" * 50
# Stands for Hugging Face's package: the ids that the test has put beside the text.
PACKAGE = """
import json

__version__ = "0.0"


class Tokenizer:
    @staticmethod
    def from_file(path):
        json.load(open(path))
        return Tokenizer()

    def encode(self, text, add_special_tokens):
        self.ids = json.load(open(IDS))
        return self
"""


def bench(*options, **environment):
    return subprocess.run([PROGRAM, "bench", "tokenize", MODEL, "--rounds", "3", *map(str, options)], text=True,
                          capture_output=True, stdin=subprocess.DEVNULL, timeout=300, env={**os.environ, **environment})


class Tokenize(unittest.TestCase):
    def setUp(self):
        shutil.rmtree(SCRATCH, ignore_errors=True)
        SCRATCH.mkdir(parents=True)
        self.text = SCRATCH / "text"
        self.text.write_text(TEXT)

    def ids(self):
        done = subprocess.run([PROGRAM, "tokenize", MODEL, "--no-special-tokens"], input=TEXT, text=True, capture_output=True,
                              timeout=100)
        return json.loads(done.stdout)

    def package(self, ids):
        (SCRATCH / "ids.json").write_text(json.dumps(ids))
        (SCRATCH / "tokenizers.py").write_text(PACKAGE.replace("IDS", repr(str(SCRATCH / "ids.json"))))
        return {"PYTHONPATH": str(SCRATCH)}

    def test_alone(self):
        run = bench("--text", self.text)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertRegex(run.stdout, rf"^slm: [0-9.]+ MB/s, {len(TEXT)} bytes, {len(self.ids())} tokens, one thread\n$")

    def test_beside_tokenizers(self):
        run = bench("--text", self.text, "--tokenizers", "--json", **self.package(self.ids()))
        self.assertEqual(run.returncode, 0, run.stderr)
        found = json.loads(run.stdout)
        self.assertEqual(found["tokens"], len(self.ids()))
        self.assertEqual(found["tokenizers"]["version"], "0.0")
        self.assertGreater(found["times_as_fast"], 0)

    def test_other_ids(self):
        run = bench("--text", self.text, "--tokenizers", **self.package([1, 2]))
        self.assertEqual(run.returncode, 1)
        self.assertIn("[bench.other-tokens]", run.stderr)

    def test_no_package(self):
        package = self.package([])
        (SCRATCH / "tokenizers.py").write_text("raise ImportError('none here')")
        run = bench("--text", self.text, "--tokenizers", **package)
        self.assertEqual(run.returncode, 1)
        self.assertIn("none here", run.stderr)
        self.assertIn("[baseline.refused]", run.stderr)

    def test_no_text(self):
        self.text.write_bytes(b"\xff\xfe")
        run = bench("--text", self.text)
        self.assertEqual(run.returncode, 1)
        self.assertIn("[bench.no-text]", run.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
