#!/usr/bin/env python3
"""Examples with several texts, on the embedded target: their output equals slm's.
usage: programs_test.py SOURCE_DIR SCRATCH_DIR EXAMPLES_DIR PROGRAM"""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

SOURCE, SCRATCH, EXAMPLES, PROGRAM = map(pathlib.Path, sys.argv[1:5])
TARGET, ADAPTERS = SOURCE / "examples/demo_pair/target", SOURCE / "examples/adapters"


def run(*command, stdin=""):
    done = subprocess.run(list(map(str, command)), input=stdin, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def example(name, *arguments, stdin=""):
    return run(EXAMPLES / f"example-{name}", TARGET, *arguments, stdin=stdin)


def generate(prompt, tokens, *options):
    answer = run(PROGRAM, "generate", "--target", TARGET, "--prompt", prompt, "--max-new-tokens", tokens,
                 "--temperature", 0, "--json", *options)
    return json.loads(answer)


class Programs(unittest.TestCase):
    def test_a_conversation_processes_only_new_tokens(self):
        counts = re.findall(r"--- (\d+) of (\d+) tokens read", example("chat", "plain", stdin="def add(a, b):\nclass Reader:\n"))
        (first, whole), (second, both) = [tuple(map(int, pair)) for pair in counts]
        self.assertEqual(first, whole)
        self.assertLess(second, both - whole)

    def test_a_session_continues_where_the_last_process_stopped(self):
        file = SCRATCH / "session.slm"
        first = example("session", file, "def read_config(path):")
        self.assertEqual(first.rsplit("\n--- ", 1)[0], generate("def read_config(path):", 24)["text"])
        second = example("session", file, "\n\ndef ")
        there, whole = map(int, re.search(r"--- (\d+) of (\d+) tokens reused", second).groups())
        self.assertGreater(there, 24)
        self.assertLess(whole - there, 8)
        self.assertNotEqual(subprocess.run([EXAMPLES / "example-session", TARGET, SOURCE / "README.md", "x"],
                                           capture_output=True).returncode, 0, "this is no saved text")

    def test_adapters_and_the_base_model_have_the_same_answers_as_alone(self):
        prompt = 'def read_lines(path):\n    """Return the lines of a file."""\n'
        folders = [ADAPTERS / "shout", ADAPTERS / "semicolons"]
        alone = [generate(prompt, 32)["text"]] + [generate(prompt, 32, "--adapter", path)["text"] for path in folders]
        names = ["no adapter", *map(str, folders)]
        self.assertEqual(example("adapters", prompt, *folders),
                         "".join(f"--- {name}\n{text}\n" for name, text in zip(names, alone)))

    def test_the_nearest_text_is_the_similar_one(self):
        lines = example("nearest", "def read_lines(path):", "import os", "def read_line(path):").splitlines()
        self.assertEqual([line.split("  ", 1)[1] for line in lines], ["def read_line(path):", "import os"])
        self.assertTrue(all(-1 <= float(line.split()[0]) <= 1 for line in lines))

    def test_a_masked_answer_is_json_of_its_schema(self):
        for prompt in ("def read_config(path):", "A ship, as JSON:"):
            answer = json.loads(example("json_answer", prompt))
            self.assertEqual(list(answer), ["name", "count"])
            self.assertRegex(answer["name"], "^[A-Za-z _]{1,24}$")
            self.assertIsInstance(answer["count"], int)

    def test_a_batch_continues_each_text_as_alone(self):
        prompts = ["def add(a, b):", "class Reader:", "import os"]
        self.assertEqual(example("batch", *prompts), "".join(p + generate(p, 32)["text"] + "\n---\n" for p in prompts))

    def test_the_threads_of_an_application_compute_the_same_text(self):
        prompt = "def read_config(path):"
        self.assertEqual(example("own_threads", prompt), generate(prompt, 48)["text"] + "\n")

    def test_an_event_loop_answers_each_line_as_alone(self):
        prompts = ["def add(a, b):", "class Reader:", "import os"]
        answers = example("event_loop", stdin="".join(prompt + "\n" for prompt in prompts)).split("\n---\n")
        self.assertEqual(answers.pop(), "")
        self.assertEqual(sorted(answers), sorted(prompt + generate(prompt, 32)["text"] for prompt in prompts))


if __name__ == "__main__":
    shutil.rmtree(SCRATCH, ignore_errors=True)
    SCRATCH.mkdir(parents=True)
    unittest.main(argv=sys.argv[:1])
