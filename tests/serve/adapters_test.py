#!/usr/bin/env python3
"""Adapters as models of slm serve: set at the start, found in a folder, loaded and unloaded over HTTP.
usage: adapters_test.py PROGRAM SOURCE_DIR"""
import concurrent.futures
import json
import pathlib
import re
import sys
import tempfile
import unittest

from server import PAIR, PROMPT, SOURCE, Server, generate

sys.path.insert(0, str(SOURCE / "tests" / "support"))
from adapter_folder import make_adapter_folder  # noqa: E402


class Adapters(unittest.TestCase):
    maxDiff = None

    def test_an_adapter_is_a_separate_model(self):
        with tempfile.TemporaryDirectory() as scratch:
            shape = json.loads((PAIR / "target" / "config.json").read_text())
            folder = make_adapter_folder(pathlib.Path(scratch) / "lora", 1, layers=shape["num_hidden_layers"],
                                         hidden=shape["hidden_size"], ffn=shape["intermediate_size"], most=0.2)
            with Server("--draft", PAIR / "draft", "--adapter", f"sql={folder}") as server:
                models = server.json("GET", "/v1/models")["data"]
                self.assertEqual([(model["id"], model["parent"]) for model in models], [("target", None), ("sql", "target")])
                self.assertEqual(server.json("GET", "/v1/models/sql")["root"], str(folder))
                bare = generate("--prompt", PROMPT, "--max-new-tokens", 30)["text"]
                adapted = generate("--prompt", PROMPT, "--max-new-tokens", 30, "--adapter", folder)["text"]
                self.assertNotEqual(adapted, bare)
                with concurrent.futures.ThreadPoolExecutor(8) as pool:
                    ask = lambda model: server.complete(model=model, max_tokens=30)
                    answers = list(pool.map(ask, ["sql", "target"] * 8))
                for i, answer in enumerate(answers):
                    self.assertEqual(answer["choices"][0]["text"], bare if i % 2 else adapted)
                    self.assertEqual(answer["model"], "target" if i % 2 else "sql")
                self.assertEqual(len({answer["system_fingerprint"] for answer in answers}), 2)
                vectors = [server.json("POST", "/v1/embeddings", {"input": PROMPT, "model": model})["data"][0]["embedding"]
                           for model in ("sql", "target")]
                self.assertNotEqual(*vectors)
            for wrong in ("a/b", "TARGET", "", ".."):
                with self.assertRaisesRegex(AssertionError, "adapter.name"), Server("--adapter", f"{wrong}={folder}"):
                    pass

    def make_adapters(self, folder, *names):
        shape = json.loads((PAIR / "target" / "config.json").read_text())
        return [make_adapter_folder(folder / name, seed, layers=shape["num_hidden_layers"], hidden=shape["hidden_size"],
                                    ffn=shape["intermediate_size"], most=0.2) for seed, name in enumerate(names, 1)]

    def test_a_folder_of_adapters_is_served_by_their_names(self):
        with tempfile.TemporaryDirectory() as scratch:
            root = pathlib.Path(scratch) / "adapters"
            outside = pathlib.Path(scratch) / "outside"
            root.mkdir()
            folders = self.make_adapters(root, "a", "b", "c", "cut", "SQL", "sql", "gone")
            self.make_adapters(pathlib.Path(scratch), "outside")
            (root / "link").symlink_to(outside)
            (root / "a b").mkdir()
            weights = root / "cut" / "adapter_model.safetensors"
            weights.write_bytes(weights.read_bytes()[:-1])
            memory = 2 * (root / "a" / "adapter_model.safetensors").stat().st_size
            with Server("--draft", PAIR / "draft", "--adapters", root, "--adapter-memory", memory) as server:
                (root / "gone" / "adapter_model.safetensors").unlink()
                models = server.json("GET", "/v1/models")["data"]
                self.assertEqual([(model["id"], model["parent"]) for model in models], [("target", None)] + [
                    (name, "target") for name in ("SQL", "a", "b", "c", "cut", "gone", "link", "sql")])
                self.assertEqual(server.json("GET", "/v1/models/b")["root"], str(root / "b"))
                expected = [generate("--prompt", PROMPT, "--max-new-tokens", 20, "--adapter", folder)["text"]
                            for folder in folders[:3]]
                expected.append(generate("--prompt", PROMPT, "--max-new-tokens", 20)["text"])
                self.assertEqual(len(set(expected)), 4)
                with concurrent.futures.ThreadPoolExecutor(12) as pool:  # three adapters, and memory for two
                    answers = list(pool.map(lambda model: server.complete(model=model, max_tokens=20), ["a", "b", "c", "target"] * 8))
                for i, answer in enumerate(answers):
                    self.assertEqual(answer["choices"][0]["text"], expected[i % 4])
                self.assertEqual(len({answer["system_fingerprint"] for answer in answers}), 4)

                for name, status, slm_id, says in (
                        ("cut", 400, "safetensors.bad-offsets", "cut/adapter_model.safetensors"),
                        ("gone", 400, "adapter.missing-tensor", "'gone'"), ("link", 400, "adapter.outside", "'link'"),
                        ("sql", 400, "adapter.name", "'SQL'"), ("a b", 404, "serve.unknown-model", "a b"),
                        ("../outside", 404, "serve.unknown-model", "outside"), ("x\u0000", 404, "serve.unknown-model", "x")):
                    for body in ({"max_tokens": 1}, {"max_tokens": 1, "stream": True}):
                        with self.subTest(name=name, body=body):
                            error = server.json("POST", "/v1/completions", {"prompt": PROMPT, "model": name} | body, status=status)["error"]
                            self.assertEqual(error["slm_id"], slm_id)
                            self.assertIn(says, error["message"])
                            self.assertNotIn(scratch, error["message"])
                server.json("POST", "/v1/embeddings", {"input": PROMPT, "model": "cut"}, status=400)
                events = server.stream("/v1/completions", {"prompt": PROMPT, "model": "b", "max_tokens": 20, "temperature": 0})
                self.assertEqual("".join(event["choices"][0]["text"] for event in events), expected[1])

                self.make_adapters(root, "later")  # its seed is a's
                self.assertEqual(server.complete(model="later", max_tokens=20)["choices"][0]["text"], expected[0])
                for path in ("load", "unload"):  # not allowed
                    server.json("POST", f"/v1/{path}_lora_adapter", {"lora_name": "a", "lora_path": "a"}, status=404)
                page = server.ask("GET", "/metrics")[1].decode()
                self.assertRegex(page, r'vllm:lora_requests_info{[^}]*max_lora="\d+",running_lora_adapters="",waiting_lora_adapters=""} \d')
                count = lambda name: float(re.search(rf"^{name}.* (\S+)$", page, re.MULTILINE)[1])
                self.assertEqual(count(r'vllm:num_requests_waiting_by_reason{[^}]*reason="deferred"'), 0)
                self.assertEqual(count(r'slm:adapters_resident{[^}]*tier="disk"'), 9)
                self.assertEqual(count(r'slm:adapters_resident{[^}]*tier="host"'), 2)
                self.assertLessEqual(count(r'slm:adapter_bytes{[^}]*tier="host"'), memory)
                self.assertEqual(count(r'slm:adapter_loads_total{[^}]*from="disk"'),
                                 count(r'slm:adapter_evictions_total{[^}]*tier="host"') + 2)
                self.assertGreaterEqual(count("slm:adapter_failures_total"), 3)

    def test_adapters_can_be_added_and_removed_if_allowed(self):
        with tempfile.TemporaryDirectory() as scratch:
            root = pathlib.Path(scratch) / "adapters"
            root.mkdir()
            self.make_adapters(root, "a", "b")
            self.make_adapters(pathlib.Path(scratch), "outside")
            text_of = lambda server, name: server.complete(model=name, max_tokens=20)["choices"][0]["text"]
            with Server("--adapters", root, "--allow-adapter-updates") as server:
                load = lambda status=200, **body: server.ask("POST", "/v1/load_lora_adapter", body)
                a, b = (text_of(server, name) for name in "ab")
                response, said = load(lora_name="sql", lora_path="a")
                self.assertEqual((response.status, said), (200, b"Success: LoRA adapter 'sql' added successfully."))
                self.assertEqual(text_of(server, "sql"), a)
                self.assertIn("sql", [model["id"] for model in server.json("GET", "/v1/models")["data"]])
                for body, slm_id in (
                        ({"lora_name": "sql", "lora_path": "b"}, "adapter.name"),
                        ({"lora_name": "SQL", "lora_path": "b", "load_inplace": True}, "adapter.name"),
                        ({"lora_name": "target", "lora_path": "b", "load_inplace": True}, "adapter.name"),
                        ({"lora_name": "../x", "lora_path": "b"}, "adapter.name"),
                        ({"lora_name": "x", "lora_path": "../outside"}, "adapter.outside"),
                        ({"lora_name": "x", "lora_path": scratch + "/outside"}, "adapter.outside"),
                        ({"lora_name": "x", "lora_path": "b\u0000"}, "serve.bad-field"),
                        ({"lora_name": "x"}, "serve.bad-field"), ({"lora_path": "b"}, "serve.bad-field"),
                        ({"lora_name": "x", "lora_path": "none"}, "io.unreadable")):
                    with self.subTest(body=body):
                        response, said = load(**body)
                        self.assertEqual((response.status, json.loads(said)["error"]["slm_id"]), (400, slm_id))
                        self.assertNotIn(scratch, said.decode())

                # A started request keeps the adapter that the name had then.
                connection, response = server.open("POST", "/v1/completions", {
                    "prompt": PROMPT, "model": "sql", "stream": True, "temperature": 0, "max_tokens": 400, "ignore_eos": True})
                head = response.read(64)
                self.assertEqual(load(lora_name="sql", lora_path=str(root / "b"), load_inplace=True)[0].status, 200)
                self.assertEqual(text_of(server, "sql"), b)
                said = (head + response.read()).decode()
                connection.close()
                events = [json.loads(event[6:]) for event in said.split("\n\n")[:-2]]
                whole = "".join(event["choices"][0]["text"] for event in events)
                alone = server.complete(model="a", max_tokens=400, ignore_eos=True)["choices"][0]["text"]
                self.assertEqual(whole, alone)

                unload = lambda name: server.ask("POST", "/v1/unload_lora_adapter", {"lora_name": name})[0].status
                self.assertEqual([unload(name) for name in ("sql", "sql", "b", "target")], [200, 404, 200, 404])
                server.json("POST", "/v1/completions", {"prompt": PROMPT, "model": "b"}, status=404)
                self.assertEqual(load(lora_name="b", lora_path="b")[0].status, 200)
                self.assertEqual(text_of(server, "b"), b)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
