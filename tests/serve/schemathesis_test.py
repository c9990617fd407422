#!/usr/bin/env python3
"""The server against its OpenAPI file: schemathesis generates valid and invalid requests from it. Answers have the documented
shapes, invalid requests are rejected, and no request is a server error.
usage: schemathesis_test.py PROGRAM SOURCE_DIR, by a Python that has the package schemathesis"""
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

if importlib.util.find_spec("schemathesis") is None:
    print("SKIPPED: this Python has no package schemathesis")
    sys.exit(77)

from server import PATIENCE, Server

# A schema cannot express the options of a chat template.
SETTINGS = """
[[operations]]
include-name = ["POST /v1/chat/completions", "POST /v1/chat/completions/input_tokens", "POST /v1/messages",
    "POST /v1/messages/count_tokens", "POST /v1/responses", "POST /v1/responses/input_tokens", "POST /tokenize"]
checks.positive_data_acceptance.enabled = false

# It has no tokens for filling in the middle.
[[operations]]
include-name = ["POST /infill"]
checks.positive_data_acceptance.enabled = false
checks.not_a_server_error.enabled = false

[[operations]]
include-name = ["POST /apply-template"]
checks.positive_data_acceptance.enabled = false

# Nor can one count tokens: a text may exceed the context.
[[operations]]
include-name = ["POST /embedding", "POST /v1/rerank"]
checks.positive_data_acceptance.enabled = false

# Nor can one say which slots and files there are.
[[operations]]
include-name = ["POST /slots/{id}"]
checks.positive_data_acceptance.enabled = false

# Nor can one say which adapters there are.
[[operations]]
include-name = ["POST /v1/load_lora_adapter", "POST /v1/unload_lora_adapter"]
checks.positive_data_acceptance.enabled = false
"""
EXAMPLES = 30 if "SLM_EVERY_COMBINATION" in os.environ else 10  # of each operation and phase


class SchemathesisTest(unittest.TestCase):
    def test_the_file_is_correct(self):
        with tempfile.TemporaryDirectory() as scratch, Server(
                "--template", "plain", "--context", 1024, "--adapters", scratch, "--allow-adapter-updates", "--slot-save-path",
                scratch) as server:
            (pathlib.Path(scratch) / "schemathesis.toml").write_text(SETTINGS)
            done = subprocess.run(
                [pathlib.Path(sys.executable).parent / "schemathesis", "run", f"http://127.0.0.1:{server.port}/openapi.json",
                 "--max-examples", str(EXAMPLES), "--phases", "examples,coverage,fuzzing", "--generation-deterministic"],
                capture_output=True, text=True, cwd=scratch, timeout=8 * PATIENCE, env=os.environ | {"NO_COLOR": "1"})
            self.assertEqual(done.returncode, 0, done.stdout[-6000:] + done.stderr[-2000:])
            print(done.stdout[-600:])
            server.json("GET", "/v1/models")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
