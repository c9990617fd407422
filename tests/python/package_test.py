#!/usr/bin/env python3
"""The Python package computes the program's texts: generation, streams, chats, embeddings, structured output, threads.
usage: package_test.py SOURCE_DIR PROGRAM EXAMPLE, with slm on PYTHONPATH or installed"""
import gc
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest

import slm

SOURCE, PROGRAM, EXAMPLE = map(pathlib.Path, sys.argv[1:4])
TARGET, DRAFT = SOURCE / "examples/demo_pair/target", SOURCE / "examples/demo_pair/draft"
PROMPT = "def read_config(path):"
MESSAGES = [{"role": "user", "content": "def add(a, b):"}]
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 9}}, "required": ["n"],
          "additionalProperties": False}


def run(*command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def generate(prompt, tokens, *options):
    return json.loads(run(PROGRAM, "generate", "--target", TARGET, "--prompt", prompt, "--max-new-tokens", tokens, "--json",
                          *options))["text"]


class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = slm.Model(TARGET, draft=DRAFT, template="plain")

    def test_texts_are_those_of_the_program(self):
        self.assertEqual(self.model.generate(PROMPT, max_tokens=40), generate(PROMPT, 40, "--temperature", 0))
        self.assertEqual(self.model.generate(PROMPT, max_tokens=40, temperature=0.8, seed=7),
                         generate(PROMPT, 40, "--temperature", 0.8, "--seed", 7))
        self.assertEqual(self.model.generate(self.model.encode(PROMPT), max_tokens=40), self.model.generate(PROMPT, max_tokens=40))

    def test_a_stream_yields_pieces(self):
        answer = self.model.stream(PROMPT, max_tokens=40)
        self.assertIsNone(answer.finish_reason)
        pieces = list(answer)
        self.assertGreater(len(pieces), 10)
        self.assertEqual("".join(pieces), self.model.generate(PROMPT, max_tokens=40))
        self.assertEqual((answer.finish_reason, len(answer.tokens)), ("length", 40))
        self.assertEqual(self.model.decode(answer.tokens), "".join(pieces))
        self.assertEqual(list(answer), [])

    def test_streams_end_at_stop_strings_and_can_be_cancelled(self):
        whole = self.model.generate(PROMPT, max_tokens=40)
        stop = whole[15:20]
        answer = self.model.stream(PROMPT, max_tokens=40, stop=stop)
        self.assertEqual("".join(answer), whole[:whole.index(stop)])
        self.assertEqual(answer.finish_reason, "stop_string")
        answer = self.model.stream(PROMPT, max_tokens=100)
        next(answer)
        answer.cancel()
        list(answer)
        self.assertEqual(answer.finish_reason, "cancelled")
        self.model.stream(PROMPT, max_tokens=100)  # not read: released, which cancels it
        gc.collect()
        self.assertEqual(self.model.generate(PROMPT, max_tokens=40), whole)

    def test_a_chat_uses_the_template(self):
        text = self.model.chat(MESSAGES, max_tokens=16)
        self.assertEqual(text, self.model.chat("def add(a, b):", max_tokens=16))
        self.assertEqual(text, "".join(self.model.stream(MESSAGES, max_tokens=16)))
        with tempfile.NamedTemporaryFile("w", suffix=".jinja") as template:
            template.write("{{ messages[0].content }}{{ end }}")
            template.flush()
            said = slm.Model(TARGET, template=template.name).chat(MESSAGES, max_tokens=16, variables={"end": "#"})
        self.assertEqual(said, self.model.generate(self.model.encode("def add(a, b):#", special=False), max_tokens=16))

    def test_structured_output(self):
        for schema in (SCHEMA, json.dumps(SCHEMA)):
            answer = self.model.stream("# JSON: ", schema=schema)
            self.assertIn(json.loads("".join(answer))["n"], range(10))
        self.assertIn(self.model.generate("x = ", choice=["one", "two"]), ("one", "two"))
        self.assertRegex(self.model.generate("x = ", regex="[0-9]{3}"), "^[0-9]{3}$")
        self.assertEqual(self.model.generate("x = ", gbnf='root ::= "a" "b"'), "ab")
        with self.assertRaises(ValueError):
            self.model.generate("x", regex="a", choice=["a"])

    def test_embeddings(self):
        values = self.model.embed(PROMPT)
        self.assertEqual(values, self.model.embed(self.model.encode(PROMPT), pooling="mean"))
        self.assertNotEqual(values, self.model.embed(PROMPT, pooling="last"))
        self.assertTrue(len(values) > 10 and all(map(math.isfinite, values)))
        with self.assertRaises(ValueError):
            self.model.embed(PROMPT, pooling="none")

    def test_tokens(self):
        self.assertEqual(self.model.decode(self.model.encode("naïve 🙂")), "naïve 🙂")
        self.assertGreater(self.model.vocab, max(self.model.encode(PROMPT)))
        self.assertEqual(slm.Model(DRAFT, context=100, threads=1).context, 100)

    def test_threads_have_the_texts_of_one(self):
        prompts = [PROMPT, "def add(a, b):", "class Reader:", "import os"]
        alone = [self.model.generate(prompt, max_tokens=24) for prompt in prompts]
        together = [None] * len(prompts)

        def work(index):
            together[index] = self.model.generate(prompts[index], max_tokens=24)

        threads = [threading.Thread(target=work, args=(index,)) for index in range(len(prompts))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(together, alone)

    def test_python_runs_while_the_library_computes(self):
        counts = []
        ended = threading.Event()

        def count():
            while not ended.is_set():
                counts.append(1)

        other = threading.Thread(target=count)
        other.start()
        before = len(counts)
        self.model.embed([5] * 500)  # one call
        during = len(counts) - before
        ended.set()
        other.join()
        self.assertGreater(during, 0)

    def test_errors(self):
        for act, id in ((lambda: slm.Model("/nowhere"), "checkpoint.no-folder"),
                        (lambda: self.model.generate([]), "decode.empty-prompt"),
                        (lambda: self.model.generate([self.model.vocab]), "decode.token-out-of-range"),
                        (lambda: slm.Model(TARGET).chat("x"), "chat.unrecognised"),
                        (lambda: self.model.generate(PROMPT, regex="("), "grammar.syntax")):
            with self.assertRaises(slm.Error) as caught:
                act()
            self.assertEqual(caught.exception.id, id)
            self.assertIn(id, str(caught.exception))
        with self.assertRaises(ValueError):
            slm.Model(TARGET, cache_format="f8")

    def test_progress_and_its_exceptions(self):
        shares = []
        slm.Model(TARGET, progress=shares.append)
        self.assertEqual((shares[-1], sorted(shares)), (1.0, shares))

        def stop(share):
            raise KeyboardInterrupt

        with self.assertRaises(KeyboardInterrupt):
            slm.Model(TARGET, progress=stop)

    def test_the_example(self):
        streamed, answer = run(sys.executable, "-B", EXAMPLE, TARGET, PROMPT).split("\n---\n")
        self.assertEqual(streamed, PROMPT + self.model.generate(PROMPT, max_tokens=48))
        self.assertEqual(list(json.loads(answer)), ["name", "count"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
