#!/usr/bin/env python3
"""Several models in one slm serve: a list or a folder, a budget of memory, failed loads, shutdown.
usage: models_test.py PROGRAM SOURCE_DIR"""
import concurrent.futures
import json
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

from server import PAIR, PATIENCE, PROGRAM, PROMPT, Server, generate, slm

A, B = f"a={PAIR / 'target'}", f"b={PAIR / 'draft'}"
SMALL = ("--cache-memory", "16MiB")


def states(server):
    return {model["id"]: model["status"]["value"] for model in server.json("GET", "/v1/models")["data"]}


def text_of(server, model, **fields):
    return server.complete(model=model, max_tokens=20, **fields)["choices"][0]["text"]


def failure(*arguments):
    done = subprocess.run([PROGRAM, "serve", "--port", "0", *map(str, arguments)], capture_output=True, text=True, timeout=PATIENCE)
    return done.returncode, done.stdout + done.stderr


def bytes_of(*models):
    """The memory that the server wants for these models."""
    status, said = failure("--model-memory", 1, *SMALL, *(word for model in models for word in ("--model", model)))
    assert status == 1 and "serve.model-memory" in said, said
    return int(re.search(r"needs (\d+) bytes", said)[1])


class Models(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.expected = {"a": generate("--prompt", PROMPT, "--max-new-tokens", 20)["text"],
                        "b": slm("generate", "--target", PAIR / "draft", "--prompt", PROMPT, "--max-new-tokens", 20, "--json")["text"]}

    def test_models_of_a_list_load_when_they_are_named(self):
        with Server("--model", f"{A},draft={PAIR / 'draft'}", "--draft-bits", 8, "--draft-length", 2, "--model", B,
                    *SMALL, target=None) as server:
            self.assertEqual((server.started["model"], server.started["models"]), ("a", ["a", "b"]))
            self.assertEqual(states(server), {"a": "unloaded", "b": "unloaded"})
            with concurrent.futures.ThreadPoolExecutor(12) as pool:
                answers = list(pool.map(lambda model: server.complete(model=model, max_tokens=20), "ab" * 12))
            for answer in answers:
                self.assertEqual(answer["choices"][0]["text"], self.expected[answer["model"]])
            alone = server.complete(model="a", max_tokens=60)["choices"][0]
            self.assertGreater(alone["slm"]["statistics"]["drafted"], 0)
            self.assertEqual(len({answer["system_fingerprint"] for answer in answers}), 2)
            self.assertEqual(states(server), {"a": "loaded", "b": "loaded"})
            self.assertEqual(server.complete(max_tokens=20)["model"], "a")
            page = server.ask("GET", "/metrics")[1].decode()
            for model in "ab":
                self.assertIn(f'slm:model_loads_total{{engine="0",model_name="{model}"}} 1', page)
            self.assertEqual(len(re.findall("^# HELP vllm:prompt_tokens_total", page, re.MULTILINE)), 1)

            vectors = [server.json("POST", path, {"input": PROMPT, "model": model})
                       for path in ("/v1/embeddings", "/embedding") for model in "ab"]
            self.assertNotEqual(vectors[0]["data"][0]["embedding"], vectors[1]["data"][0]["embedding"])
            self.assertEqual(vectors[1]["data"][0]["embedding"], vectors[3][0]["embedding"][0])
            self.assertEqual(server.json("POST", "/v1/rerank", {"query": "a", "documents": ["b"], "model": "b"})["model"], "b")
            self.assertEqual(server.json("POST", "/completion", {"prompt": PROMPT, "n_predict": 3, "model": "b"})["model"], "b")
            self.assertEqual(server.json("GET", "/props?model=b")["model_path"], str(PAIR / "draft"))
            self.assertEqual(len(server.json("GET", "/slots?model=b")), 64)
            server.json("GET", "/props?model=c", status=404)
            server.json("GET", "/v1/models/c", status=404)
            for path in ("/v1/completions", "/v1/messages", "/v1/responses"):
                server.json("POST", path, {"model": "c", "prompt": "x"}, status=404)

    def test_the_budget_unloads_idle_models_and_keeps_those_in_use(self):
        both = {"a": bytes_of(A), "b": bytes_of(B)}
        with Server("--model", A, "--model", B, "--model-memory", max(both.values()), *SMALL, target=None) as server:
            for model in "abba":
                self.assertEqual(text_of(server, model), self.expected[model])
                self.assertEqual(states(server), {name: "loaded" if name == model else "unloaded" for name in "ab"})
            connection, response = server.open("POST", "/v1/completions", {
                "prompt": PROMPT, "model": "a", "stream": True, "temperature": 0, "max_tokens": 300, "ignore_eos": True})
            head = response.read(64)
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                texts = pool.map(lambda model: text_of(server, model), "babbaabb")
                said = (head + response.read()).decode()
                connection.close()
                self.assertTrue(said.endswith("data: [DONE]\n\n"), said[-200:])
                self.assertNotIn('"error"', said)
                self.assertEqual(list(texts), [self.expected[model] for model in "babbaabb"])

    def test_a_folder_of_models_with_a_damaged_one(self):
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch)
            shutil.copytree(PAIR / "target", folder / "a")
            shutil.copytree(PAIR / "draft", folder / "cut")
            (folder / "notes").mkdir()
            weights = folder / "cut" / "model.safetensors"
            whole = weights.read_bytes()
            weights.write_bytes(whole[:-1])
            with Server("--models", folder, "--any-model-name", *SMALL, target=None) as server:
                self.assertEqual(states(server), {"a": "unloaded", "cut": "failed"})
                for _ in range(2):
                    error = server.json("POST", "/v1/completions", {"prompt": "x", "model": "cut"}, status=500)["error"]
                    self.assertIn("cannot be loaded", error["message"])
                    self.assertNotIn(scratch, error["message"])
                self.assertEqual(text_of(server, "a"), self.expected["a"])
                self.assertEqual(text_of(server, "unknown"), self.expected["a"])
                weights.write_bytes(whole)
                self.assertEqual(text_of(server, "cut"), self.expected["b"])
                self.assertEqual(states(server), {"a": "loaded", "cut": "loaded"})

    def test_wrong_lists_are_named(self):
        with tempfile.TemporaryDirectory() as empty:
            for arguments, status, said in (
                    (["--model", A, "--model", f"a={PAIR / 'draft'}"], 1, "two models have the name 'a'"),
                    (["--model", "a"], 1, "serve.model-list"), (["--model", "=x"], 1, "serve.model-list"),
                    (["--model", "a=,draft=x"], 1, "serve.model-list"), (["--model", "a=x,draft="], 1, "serve.model-list"),
                    (["--model", f"a={empty}/none"], 1, f"{empty}/none"),
                    (["--model", f"{A},draft={empty}/none"], 1, f"{empty}/none"),
                    (["--models", empty], 1, "has no model"), (["--models", f"{empty}/none"], 1, "cannot be read"),
                    (["--model", A, "--cache-memory", 0], 1, "serve.model-memory"),
                    (["--model", A, "--models", empty], 2, "models"), ([], 2, "models"),
                    (["--model", A, "--target", PAIR / "target"], 2, "models"),
                    (["--model", A, "--draft", PAIR / "draft"], 2, "--draft"),
                    (["--target", PAIR / "target", "--draft-bits", 8], 2, "--draft"),
                    (["--models", empty, "--draft-head", 8], 2, "--draft"),
                    (["--model", A, "--served-model-name", "x"], 2, "--served-model-name"),
                    (["--model", A, "--adapters", empty], 2, "--adapters")):
                with self.subTest(arguments=arguments):
                    found, text = failure(*arguments)
                    self.assertEqual(found, status, text)
                    self.assertIn(said, text)

    def test_the_server_stops_while_requests_wait_for_models(self):
        both = {"a": bytes_of(A), "b": bytes_of(B)}
        limits = ("--model-memory", max(both.values()), "--drain-timeout", "0.2")
        with Server("--model", A, "--model", B, *limits, *SMALL, target=None) as server:
            body = {"prompt": PROMPT, "model": "a", "stream": True, "max_tokens": 900, "ignore_eos": True}
            connection, response = server.open("POST", "/v1/completions", body)
            response.read(64)
            with concurrent.futures.ThreadPoolExecutor(2) as pool:
                waiting = pool.submit(server.ask, "POST", "/v1/completions", {"prompt": PROMPT, "model": "b"})
                while states(server)["b"] != "loading":
                    pass
                server.process.send_signal(signal.SIGTERM)
                answer, text = waiting.result()
                self.assertIn(answer.status, (200, 503), text)
            response.read()
            connection.close()
            self.assertEqual(server.process.wait(timeout=PATIENCE), 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
