#!/usr/bin/env python3
"""The agents of examples/agent on the embedded target: the required call runs a function, and its result reaches the model.
usage: agent_test.py PROGRAM SOURCE_DIR EXAMPLE"""
import importlib.util
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

SOURCE, EXAMPLE = pathlib.Path(sys.argv[2]), sys.argv[3]
sys.path.insert(0, str(SOURCE / "tests" / "serve"))
from server import CALLING_TEMPLATE, PAIR, Server  # noqa: E402

CALLS = r'calls (?:add \{\s*"a":\s*-?\d+,\s*"b":\s*-?\d+\s*\}|now \{\s*\})'


def run(*command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return done.stdout


class AgentTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.template = pathlib.Path(scratch.name) / "template.jinja"
        cls.template.write_text(CALLING_TEMPLATE)

    def test_both_have_forty_lines(self):
        for name in ("agent.py", "agent.cpp"):
            self.assertLessEqual(len((SOURCE / "examples" / "agent" / name).read_text().splitlines()), 40)

    def test_in_the_program(self):
        output = run(EXAMPLE, PAIR / "target", "What is 17 + 25?", self.template)
        self.assertTrue(output.startswith("user: What is 17 + 25?\nassistant: \n"), output)
        self.assertRegex(output, "  " + CALLS)
        self.assertRegex(output, r"\ntool: (-?\d+\.\d+|\d+ seconds since 1970)\n")

    @unittest.skipIf(importlib.util.find_spec("openai") is None, "OpenAI's client is not installed")
    def test_over_the_server(self):
        with Server("--chat-template", self.template) as server:
            output = run(sys.executable, SOURCE / "examples" / "agent" / "agent.py", "What is 17 + 25?",
                         f"http://127.0.0.1:{server.port}/v1")
        self.assertRegex(output, "^" + CALLS + r": (-?\d+|\d+ seconds since 1970)\n")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
