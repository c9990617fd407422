#!/usr/bin/env python3
"""slm serve on the demo pair over real sockets: every route, whole answers and streams, errors.
usage: serve_test.py PROGRAM SOURCE_DIR"""
import base64
import concurrent.futures
import json
import re
import socket
import struct
import sys
import time
import unittest

from server import PAIR, PATIENCE, PROMPT, Server, generate, slm


def joined(chunks, index=0, key="text"):
    texts = [choice["text"] if key == "text" else choice["delta"].get(key) or "" for chunk in chunks for choice in chunk["choices"]
             if choice["index"] == index]
    return "".join(texts)


class Serve(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.server = Server("--draft", PAIR / "draft", "--draft-length", "4", "--template", "plain", "--served-model-name", "demo",
                            "--served-model-name", "other")
        cls.addClassCleanup(cls.server.__exit__)

    def refused(self, body, param, *words, path="/v1/completions", status=400, code=None):
        answer = self.server.json("POST", path, body, status)
        error = answer["error"]
        self.assertEqual(error["param"], param, error)
        self.assertEqual(error["code"], code, error)
        for word in words:
            self.assertIn(word, error["message"])
        self.assertRegex(error["slm_id"], r"^[a-z]+\.[a-z-]+$")
        self.assertNotIn("demo_pair", error["message"])  # no paths
        return error

    def test_a_completion_equals_the_command_line(self):
        answer = self.server.complete(max_tokens=40, return_token_ids=True)
        expected = generate("--prompt", PROMPT, "--max-new-tokens", 40)
        choice = answer["choices"][0]
        self.assertEqual(choice["text"], expected["text"])
        self.assertEqual(choice["token_ids"], expected["ids"])
        self.assertEqual(choice["prompt_token_ids"], expected["prompt_ids"])
        self.assertEqual(choice["finish_reason"], "length")
        self.assertIsNone(choice["logprobs"])
        self.assertGreater(choice["slm"]["statistics"]["accepted"], 0)
        self.assertEqual(answer["object"], "text_completion")
        self.assertEqual(answer["model"], "demo")
        self.assertRegex(answer["id"], "^cmpl-[0-9a-f]{32}$")
        self.assertRegex(answer["system_fingerprint"], "^slm-")
        prompt = len(expected["prompt_ids"])
        self.assertEqual(
            {name: answer["usage"][name] for name in ("prompt_tokens", "completion_tokens", "total_tokens")},
            {"prompt_tokens": prompt, "completion_tokens": 40, "total_tokens": prompt + 40})
        self.assertIn("cached_tokens", answer["usage"]["prompt_tokens_details"])

    def test_an_echo_of_ids_shows_special_tokens_and_a_chat_is_tokenized_as_it_is_answered(self):
        self.assertEqual(self.server.complete(prompt=[0, 5], max_tokens=0, echo=True)["choices"][0]["text"][:13], "<|endoftext|>")
        messages = [{"role": "user", "content": "x"}]
        both = {"add_generation_prompt": True, "continue_final_message": True}
        self.assertEqual(self.server.ask("POST", "/tokenize", {"messages": messages} | both)[0].status, 400)

    def test_cached_prefixes_are_shared_only_inside_a_salt(self):
        ids = [(7 * i) % 500 + 5 for i in range(100)]  # more than a page
        def cached(**fields):
            return self.server.complete(prompt=ids, max_tokens=1, **fields)["usage"]["prompt_tokens_details"]["cached_tokens"]
        self.assertEqual([cached(cache_salt=salt) for salt in ("a", "a", "b", "b", None, None)], [0, 99, 0, 99, 0, 99])

    def test_a_sampled_completion_equals_the_command_line(self):
        settings = ["--prompt", PROMPT, "--max-new-tokens", 30, "--temperature", 0.9, "--top-p", 0.9, "--top-k", 50]
        answer = self.server.complete(max_tokens=30, temperature=0.9, top_p=0.9, top_k=50, seed=7, n=3, return_token_ids=True)
        for choice in answer["choices"]:
            self.assertEqual(choice["token_ids"], generate(*settings, "--seed", 7 + choice["index"])["ids"])
        self.assertNotEqual(answer["choices"][0]["text"], answer["choices"][1]["text"])

    def test_a_chat_equals_the_command_line(self):
        answer = self.server.chat()
        line = PROMPT.encode() + b"\n"
        expected = slm("chat", "--target", PAIR / "target", "--template", "plain", "--json", "--max-new-tokens", 20, stdin=line)
        choice = answer["choices"][0]
        self.assertEqual(choice["message"], {"role": "assistant", "content": expected["text"], "refusal": None})
        self.assertEqual(answer["usage"]["prompt_tokens"], len(expected["prompt_ids"]))
        self.assertEqual(answer["object"], "chat.completion")
        self.assertRegex(answer["id"], "^chatcmpl-[0-9a-f]{32}$")

    def test_a_stream_has_the_text_of_a_whole_answer(self):
        body = {"prompt": [PROMPT, "class Reader:"], "temperature": 0.8, "seed": 3, "max_tokens": 25, "n": 2, "logprobs": 2}
        whole = self.server.json("POST", "/v1/completions", body)
        chunks = self.server.stream("/v1/completions", body | {"stream_options": {"include_usage": True}})
        self.assertEqual([len(chunk["choices"]) for chunk in chunks[-2:]], [1, 0])
        for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
            self.assertEqual(chunks[-1]["usage"][name], whole["usage"][name])
        self.assertTrue(all(chunk["usage"] is None for chunk in chunks[:-1]))
        self.assertEqual(len({(chunk["id"], chunk["created"], chunk["model"], chunk["object"]) for chunk in chunks}), 1)
        for choice in whole["choices"]:
            mine = [c for chunk in chunks for c in chunk["choices"] if c["index"] == choice["index"]]
            self.assertEqual("".join(c["text"] for c in mine), choice["text"])
            self.assertEqual([c["finish_reason"] for c in mine], [None] * (len(mine) - 1) + [choice["finish_reason"]])
            for name, values in choice["logprobs"].items():
                self.assertEqual([value for c in mine for value in c["logprobs"][name]], values)

    def test_a_streamed_chat_begins_with_a_role_and_marks_drafted_text(self):
        chunks = self.server.stream("/v1/chat/completions", {
            "messages": [{"role": "user", "content": [{"type": "text", "text": PROMPT}]}], "temperature": 0, "max_tokens": 20})
        self.assertEqual(chunks[0]["choices"][0]["delta"], {"role": "assistant", "content": None})
        self.assertEqual(chunks[0]["object"], "chat.completion.chunk")
        self.assertEqual(joined(chunks, key="content"), self.server.chat()["choices"][0]["message"]["content"])
        marks = [chunk["choices"][0].get("slm", {}).get("drafted", False) for chunk in chunks]
        self.assertIn(True, marks)
        self.assertIn(False, marks[1:])
        self.assertGreaterEqual(chunks[-1]["choices"][0]["slm"]["statistics"]["tokens_per_step"], 1)

    def test_answers_do_not_depend_on_other_requests(self):
        def body(i):
            return {"prompt": PROMPT + " " * (i % 3), "max_tokens": 20 + i, "temperature": 0.7 * (i % 2), "seed": i, "logprobs": 1,
                    "return_token_ids": True}

        def ask(i):
            return self.server.json("POST", "/v1/completions", body(i))["choices"]

        alone = [ask(i) for i in range(16)]
        with concurrent.futures.ThreadPoolExecutor(16) as clients:
            together = list(clients.map(ask, range(16)))
        for one, other in zip(alone, together):
            for choice in one + other:
                del choice["slm"]
        self.assertEqual(alone, together)

    def test_stop_strings_and_stop_tokens_end_the_text_before_them(self):
        full = self.server.complete(max_tokens=40, return_token_ids=True)["choices"][0]
        stop = full["text"][12:15]
        cut = full["text"].index(stop)
        choice = self.server.complete(max_tokens=40, stop=["never so", stop])["choices"][0]
        self.assertEqual((choice["text"], choice["finish_reason"], choice["stop_reason"]), (full["text"][:cut], "stop", stop))
        choice = self.server.complete(max_tokens=40, stop=stop, include_stop_str_in_output=True)["choices"][0]
        self.assertEqual(choice["text"], full["text"][:cut] + stop)
        chunks = self.server.stream("/v1/completions", {"prompt": PROMPT, "temperature": 0, "max_tokens": 40, "stop": stop})
        self.assertEqual(joined(chunks), full["text"][:cut])
        token = full["token_ids"][5]
        choice = self.server.complete(max_tokens=40, stop_token_ids=[token], return_token_ids=True)["choices"][0]
        first = full["token_ids"].index(token)
        self.assertEqual((choice["token_ids"], choice["stop_reason"]), (full["token_ids"][:first + 1], token))
        self.assertTrue(full["text"].startswith(choice["text"]))

    def test_log_probabilities_have_both_shapes_and_agree(self):
        completion = self.server.complete(max_tokens=8, logprobs=3)["choices"][0]
        lists = completion["logprobs"]
        self.assertEqual("".join(lists["tokens"]), completion["text"])
        self.assertEqual(lists["text_offset"], [len("".join(lists["tokens"][:i])) for i in range(8)])
        for token, logprob, top in zip(lists["tokens"], lists["token_logprobs"], lists["top_logprobs"]):
            self.assertEqual(max(top.values()), logprob)  # greedy
            self.assertEqual(top[token], logprob)
        ids = self.server.json("POST", "/tokenize", {"messages": [{"role": "user", "content": PROMPT}]})["tokens"]
        lists = self.server.complete(prompt=ids, max_tokens=8, logprobs=3)["choices"][0]["logprobs"]
        content = self.server.chat(max_tokens=8, logprobs=True, top_logprobs=3)["choices"][0]["logprobs"]["content"]
        self.assertEqual([entry["token"] for entry in content], lists["tokens"])
        self.assertEqual([entry["logprob"] for entry in content], lists["token_logprobs"])
        for entry in content:
            self.assertEqual(bytes(entry["bytes"]).decode(errors="replace"), entry["token"])
            self.assertEqual(len(entry["top_logprobs"]), 3)

    def test_logit_bias_echo_and_min_tokens(self):
        token = self.server.json("POST", "/tokenize", {"prompt": "x", "add_special_tokens": False})["tokens"][0]
        choice = self.server.complete(max_tokens=5, logit_bias={str(token): 100}, return_token_ids=True)["choices"][0]
        self.assertEqual(choice["token_ids"], [token] * 5)
        self.assertTrue(self.server.complete(echo=True, max_tokens=3)["choices"][0]["text"].startswith(PROMPT))
        self.assertEqual(self.server.complete(echo=True, max_tokens=0)["choices"][0]["text"], PROMPT)
        end = self.server.json("POST", "/tokenize", {"prompt": "<|endoftext|>", "add_special_tokens": False})["tokens"]
        self.assertEqual(len(end), 1)
        bias = {str(end[0]): 100}
        choice = self.server.complete(logit_bias=bias, return_token_ids=True)["choices"][0]
        self.assertEqual((choice["token_ids"], choice["finish_reason"], choice["stop_reason"]), (end, "stop", None))
        choice = self.server.complete(logit_bias=bias, min_tokens=4, return_token_ids=True)["choices"][0]
        self.assertEqual((len(choice["token_ids"]), choice["token_ids"][-1:]), (5, end))
        choice = self.server.complete(logit_bias=bias, ignore_eos=True, max_tokens=6, return_token_ids=True)["choices"][0]
        self.assertEqual(choice["token_ids"], end * 6)

    def test_echo_with_log_probabilities_has_the_values_of_evaluation_harnesses(self):
        text = PROMPT + self.server.complete(max_tokens=20)["choices"][0]["text"]
        prompts = [self.server.json("POST", "/tokenize", {"prompt": words})["tokens"] for words in (text, "class Reader:")]
        body = {"prompt": prompts, "temperature": 0, "max_tokens": 1, "logprobs": 1, "seed": 1234, "echo": True}
        for choice in self.server.json("POST", "/v1/completions", body)["choices"]:
            lists, prompt = choice["logprobs"], prompts[choice["index"]]
            self.assertTrue(all(len(values) == len(prompt) + 1 for values in lists.values()))
            self.assertIsNone(lists["token_logprobs"][0])
            self.assertIsNone(lists["top_logprobs"][0])
            for i in range(1, len(prompt) + 1):
                self.assertIn(lists["tokens"][i], lists["top_logprobs"][i])
            if choice["index"] == 0:  # the greedy choice was the likeliest
                greedy = [logprob == max(top.values()) for logprob, top in zip(lists["token_logprobs"][1:], lists["top_logprobs"][1:])]
                self.assertTrue(all(greedy[len(self.server.json("POST", "/tokenize", {"prompt": PROMPT})["tokens"]) - 1:-1]))
            streamed = self.server.stream("/v1/completions", body | {"prompt": prompt})
            self.assertEqual([x for chunk in streamed for c in chunk["choices"] for x in c["logprobs"]["token_logprobs"]],
                             lists["token_logprobs"])
            alone = self.server.json("POST", "/v1/completions", body | {"prompt": prompt, "max_tokens": 0})["choices"][0]["logprobs"]
            self.assertEqual(alone["token_logprobs"], lists["token_logprobs"][:-1])

    def test_embeddings_equal_the_command_line(self):
        texts = ["def add(a, b):", "class Reader:"]
        expected = [slm("embed", PAIR / "target", "--text", text, "--normalize", "--json") for text in texts]
        answer = self.server.json("POST", "/v1/embeddings", {"input": texts, "model": "demo"})
        self.assertEqual([entry["index"] for entry in answer["data"]], [0, 1])
        self.assertEqual(answer["usage"]["prompt_tokens"], sum(one["tokens"] for one in expected))
        packed = self.server.json("POST", "/v1/embeddings", {"input": texts, "encoding_format": "base64"})
        for entry, other, one in zip(answer["data"], packed["data"], expected):
            values = [struct.unpack("f", struct.pack("f", value))[0] for value in one["embedding"]]
            self.assertEqual([struct.unpack("f", struct.pack("f", value))[0] for value in entry["embedding"]], values)
            self.assertEqual(list(struct.unpack(f"<{len(values)}f", base64.b64decode(other["embedding"]))), values)
        last = self.server.json("POST", "/v1/embeddings", {"input": texts[0], "pooling": "last", "normalize": False})["data"][0]
        one = slm("embed", PAIR / "target", "--text", texts[0], "--pooling", "last", "--json")
        self.assertEqual([struct.pack("f", value) for value in last["embedding"]], [struct.pack("f", value) for value in one["embedding"]])
        self.refused({"input": []}, "input", path="/v1/embeddings")
        self.refused({"input": "x", "dimensions": 3}, "dimensions", path="/v1/embeddings")

    def test_prompts_are_texts_ids_or_lists_of_them(self):
        ids = self.server.json("POST", "/tokenize", {"prompt": PROMPT})["tokens"]
        one = self.server.complete(max_tokens=6)["choices"][0]["text"]
        for prompt in (ids, [PROMPT], [ids], [float(i) for i in ids]):
            self.assertEqual(self.server.complete(prompt=prompt, max_tokens=6)["choices"][0]["text"], one)
        both = self.server.complete(prompt=[ids, "class Reader:"], max_tokens=6)
        self.assertEqual([choice["index"] for choice in both["choices"]], [0, 1])
        self.assertEqual(both["choices"][0]["text"], one)

    def test_null_is_absent_and_unknown_fields_are_ignored(self):
        plain = self.server.complete()["choices"][0]["text"]
        names = ("max_tokens", "top_p", "n", "stop", "logprobs", "stream", "seed", "suffix", "logit_bias", "tools", "model")
        fields = dict.fromkeys(names) | {"user": "me", "what": [{}], "tool_choice": "none", "response_format": {"type": "text"}}
        self.assertEqual(self.server.complete(**fields)["choices"][0]["text"], plain)

    def test_unknown_fields_are_listed_in_a_header_and_rejected_with_strict_fields(self):
        for path, body in (("/v1/completions", {"prompt": "x", "max_tokens": 1}), ("/v1/embeddings", {"input": "x"}),
                           ("/tokenize", {"prompt": "x"})):
            for field, named in (("temprature", "temprature"), ("user", None)):
                response, _ = self.server.ask("POST", path, body | {field: 0})
                self.assertEqual((response.status, response.headers["X-Slm-Ignored-Fields"]), (200, named))
        with Server("--strict-fields") as server:
            error = server.json("POST", "/v1/completions", {"prompt": "x", "temprature": 0}, status=400)["error"]
            self.assertEqual((error["slm_id"], error["param"]), ("serve.unknown-field", "temprature"))
            server.complete(max_tokens=1, user="me")

    def test_bad_fields_are_named(self):
        for field, value in (
                ("temperature", 2.5), ("temperature", "1"), ("top_p", -0.1), ("n", 0), ("n", 1.5), ("max_tokens", 0), ("seed", 2**63),
                ("logprobs", 21), ("logprobs", True), ("stop", ["x"] * 33), ("stop", ["x" * 257]), ("stop", 5), ("stream", 1),
                ("logit_bias", {"99999": 1}), ("logit_bias", {"1": 101}), ("presence_penalty", -3), ("prompt", []), ("prompt", [[]]),
                ("prompt", [1, {}]), ("prompt", [-1]), ("prompt", {}), ("stop_token_ids", [2048]),
                ("stream_options", {"include_usage": True}), ("cache_salt", "x" * 257)):
            with self.subTest(field=field, value=value):
                self.refused({"prompt": "x", field: value}, field)
        for field, value in (
                ("tools", [{"type": "function"}]), ("tool_choice", "required"),
                ("suffix", "x"), ("best_of", 3), ("prompt_logprobs", 1), ("priority", 1)):
            with self.subTest(field=field):
                self.refused({"prompt": "x", field: value}, field, "not supported")
        chat = "/v1/chat/completions"
        self.refused({}, "messages", path=chat)
        self.refused({"messages": []}, "messages", path=chat)
        self.refused({"messages": [{"role": "narrator", "content": "x"}]}, "messages", "narrator", path=chat)
        self.refused({"messages": [{"role": "user", "content": "x"}], "chat_template_kwargs": {"enable_thinking": "no"}},
                     "chat_template_kwargs", "enable_thinking", path=chat)
        self.refused({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages", "text", path=chat)
        self.refused({"messages": [{"role": "user", "content": "x"}], "top_logprobs": 2}, "top_logprobs", path=chat)
        self.refused({"model": "gpt", "prompt": "x"}, "model", "`gpt` does not exist", status=404, code="model_not_found")

    def test_a_prompt_beyond_the_context_has_openais_message(self):
        error = self.refused({"prompt": [5] * 1024}, "prompt", "This model's maximum context length is 1024 tokens. However, you",
                             code="context_length_exceeded")
        self.assertEqual((error["type"], error["n_prompt_tokens"], error["n_ctx"]), ("exceed_context_size_error", 1024, 1024))
        answer = self.server.complete(prompt=[5] * 1020, max_tokens=100, ignore_eos=True)
        self.assertEqual((answer["usage"]["completion_tokens"], answer["choices"][0]["finish_reason"]), (4, "length"))

    def test_bodies_that_are_not_valid_json_are_rejected(self):
        for body in ("", "{", "[]", '{"prompt":"a","prompt":"b"}', '{"n":1e999}', "[" * 100000, b'{"prompt":"\xff"}',
                     '{"prompt":"\\ud800"}', '{"prompt":"x"} x', '{"a":' * 100 + "1" + "}" * 100):
            with self.subTest(body=body[:30]):
                self.refused(body, None)
        response, _ = self.server.ask("POST", "/v1/completions", "prompt=x", {"Content-Type": "text/plain"})
        self.assertEqual(response.status, 415)

    def test_other_routes(self):
        models = self.server.json("GET", "/v1/models")
        self.assertEqual(models["object"], "list")
        self.assertEqual([card["id"] for card in models["data"]], ["demo", "other"])
        card = self.server.json("GET", "/v1/models/demo")
        self.assertEqual((card["object"], card["max_model_len"], card["parent"]), ("model", 1024, None))
        self.assertEqual(self.server.complete(model="other")["model"], "demo")
        self.server.json("GET", "/v1/models/none", status=404)
        for path in ("/health", "/v1/health", "/ping"):
            response, text = self.server.ask("GET", path)
            self.assertEqual((response.status, text), (200, b""))
        self.assertRegex(self.server.json("GET", "/version")["version"], r"^\d+\.\d+\.\d+$")
        self.assertEqual(self.server.json("GET", "/load"), {"server_load": 0})
        self.assertEqual(self.server.json("GET", "/none", status=404)["error"]["code"], None)
        response, _ = self.server.ask("GET", "/v1/completions")
        self.assertEqual((response.status, response.headers["Allow"]), (405, "POST, OPTIONS"))
        response, _ = self.server.ask("GET", "/version", headers={"X-Request-Id": "mine-1"})
        self.assertEqual(response.headers["X-Request-Id"], "mine-1")

    def test_texts_are_tokenized_and_detokenized(self):
        text = "def f(x):\n    return 'é€🙂'"
        tokens = self.server.json("POST", "/tokenize", {"prompt": text, "add_special_tokens": False})
        self.assertEqual(tokens["tokens"], slm("tokenize", PAIR / "target", "--no-special-tokens", stdin=text.encode()))
        self.assertEqual((tokens["count"], tokens["max_model_len"], tokens["token_strs"]), (len(tokens["tokens"]), 1024, None))
        back = self.server.json("POST", "/detokenize", {"tokens": tokens["tokens"]})
        self.assertEqual(back, {"prompt": text, "content": text})
        self.assertEqual(self.server.json("POST", "/tokenize", {"content": text})["tokens"], tokens["tokens"])
        info = self.server.json("GET", "/tokenizer_info")
        self.assertEqual((info["eos_token"], info["tokenizer_class"]), ("<|endoftext|>", "PreTrainedTokenizerFast"))
        self.server.json("POST", "/detokenize", {"tokens": [99999]}, status=400)

    def test_metrics_have_the_prometheus_format(self):
        response, text = self.server.ask("GET", "/metrics")
        self.assertEqual(response.headers["Content-Type"], "text/plain; version=0.0.4; charset=utf-8")
        samples = dict(re.findall(r'^([\w:]+)\{[^}]*model_name="demo"[^}]*\} (\S+)$', text.decode(), re.M))
        self.assertEqual(float(samples["vllm:num_requests_running"]), 0)
        for name in ("vllm:num_preemptions_total", "slm:open_streams"):
            self.assertIn(name, samples)
        before = self.counts()
        self.server.complete(max_tokens=9, ignore_eos=True, n=2)
        after = self.counts()
        prompt = len(self.server.json("POST", "/tokenize", {"prompt": PROMPT})["tokens"])
        for name, more in (("vllm:generation_tokens_total", 18), ("vllm:inter_token_latency_seconds_count", 16),
                           ("vllm:iteration_tokens_total_sum", 18 + 2 * prompt), ("vllm:request_params_n_sum", 2),
                           ("vllm:request_params_max_tokens_sum", 9), ("vllm:e2e_request_latency_seconds_count", 2),
                           ('vllm:request_success_total{finished_reason="length"}', 2)):
            self.assertEqual(after[name] - before[name], more, name)
        self.assertGreater(after["vllm:spec_decode_num_draft_tokens_total"], before["vllm:spec_decode_num_draft_tokens_total"])
        stop = self.server.complete(max_tokens=40)["choices"][0]["text"][10:14]
        before = self.counts()
        self.server.complete(max_tokens=400, stop=stop)
        after = self.counts()
        for reason, more in (("stop", 1), ("abort", 0)):
            name = f'vllm:request_success_total{{finished_reason="{reason}"}}'
            self.assertEqual(after[name] - before[name], more, name)

    def counts(self):
        """Values of all samples, by name and labels without the model's."""
        text = self.server.ask("GET", "/metrics")[1].decode()
        found = re.findall(r'^([\w:]+)\{engine="0",model_name="demo",?([^}]*)\} (\S+)$', text, re.M)
        self.assertEqual(len(found), len([line for line in text.splitlines() if not line.startswith(("#", "llamacpp:"))]))
        return {name + ("{" + labels + "}" if labels else ""): float(value) for name, labels, value in found}

    def test_a_client_that_disconnects_ends_its_texts(self):
        name = 'vllm:request_success_total{finished_reason="abort"}'
        body = {"prompt": PROMPT, "max_tokens": 900, "ignore_eos": True, "n": 16}
        for stream in (True, False):
            before = self.counts()[name]
            with self.send(body | {"stream": stream}) as client:
                if stream:
                    client.recv(10)
                else:
                    self.wait_for_load(lambda load: load > 0)
            self.wait_for_load(lambda load: load == 0)
            self.assertGreater(self.counts()[name], before)

    def test_a_client_that_closes_its_sending_side_is_answered(self):
        text = self.server.complete(max_tokens=100)["choices"][0]["text"]
        body = {"prompt": PROMPT, "max_tokens": 100, "temperature": 0}
        for stream in (True, False):
            with self.send(body | {"stream": stream}) as client:
                client.shutdown(socket.SHUT_WR)
                client.settimeout(PATIENCE)
                received = b""
                while piece := client.recv(1 << 16):
                    received += piece
            self.assertIn(b"HTTP/1.1 200 OK\r\n", received)
            if stream:
                self.assertTrue(received.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n"))
            else:
                self.assertEqual(json.loads(received[received.index(b'{"id"'):])["choices"][0]["text"], text)

    def send(self, body):
        body = json.dumps(body).encode()
        client = socket.create_connection(("127.0.0.1", self.server.port), PATIENCE)
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        return client

    def wait_for_load(self, condition):
        deadline = time.monotonic() + PATIENCE
        while not condition(self.server.json("GET", "/load")["server_load"]):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)

    def test_other_drafters_change_nothing_and_without_a_template_there_is_no_chat(self):
        expected = self.server.complete(max_tokens=24)["choices"][0]["text"]
        for arguments in ([], ["--drafter", "lookup"], ["--max-running", "1", "--cache-memory", "64MiB"]):
            with self.subTest(arguments=arguments), Server(*arguments) as server:
                self.assertEqual(server.complete(max_tokens=24)["choices"][0]["text"], expected)
                self.assertEqual(server.started["model"], "target")
                server.json("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}, status=400)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
