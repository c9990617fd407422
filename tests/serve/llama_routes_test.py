#!/usr/bin/env python3
"""slm serve with llama.cpp's routes, on the demo pair.
usage: llama_routes_test.py PROGRAM SOURCE_DIR"""
import json
import os
import re
import sys
import tempfile
import unittest

from server import PAIR, PROMPT, Server


class LlamaRoutesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--draft", PAIR / "draft", "--template", "plain", "--any-model-name", "--max-running", 3,
                            "--default", "temperature=0", "--default", "seed=5", "--default", "max_tokens=12")
        cls.addClassCleanup(cls.server.__exit__)

    def complete(self, path="/completion", **fields):
        return self.server.json("POST", path, {"prompt": PROMPT} | fields)

    def events(self, **fields):
        response, text = self.server.ask("POST", "/completion", {"prompt": PROMPT, "stream": True} | fields)
        self.assertEqual(response.status, 200, text)
        return [json.loads(event[6:]) for event in text.decode().split("\n\n")[:-1]]

    def test_a_completion_is_that_of_openais_route(self):
        said = self.complete(return_tokens=True, n_probs=2)
        whole, = self.server.complete(max_tokens=12, return_token_ids=True)["choices"]
        self.assertEqual((said["content"], said["tokens"]), (whole["text"], whole["token_ids"]))
        self.assertEqual(len(said["completion_probabilities"]), len(said["tokens"]))
        self.assertEqual(said["generation_settings"]["seed"], 5)
        self.assertEqual(said["timings"]["predicted_n"], len(said["tokens"]))
        self.assertGreater(said["timings"]["draft_n"], 0)
        for token in said["completion_probabilities"]:
            self.assertEqual(token["logprob"], token["top_logprobs"][0]["logprob"])

    def test_a_stream_has_the_tokens_one_by_one(self):
        whole = self.complete(return_tokens=True)
        *parts, last = self.events(n_probs=2, timings_per_token=True)
        self.assertEqual("".join(part["content"] for part in parts), whole["content"])
        self.assertEqual([token for part in parts for token in part["tokens"]], whole["tokens"])
        self.assertTrue(all(len(part["completion_probabilities"]) == 1 and not part["stop"] for part in parts))
        self.assertEqual((last["stop"], last["stop_type"], last["tokens_predicted"]), (True, whole["stop_type"], len(parts)))

    def test_openais_routes_have_timings_where_they_are_wanted(self):
        self.assertNotIn("timings", self.server.complete(n_predict=5))
        whole = self.server.complete(n_predict=5, timings_per_token=True, ignore_eos=True)
        self.assertEqual((whole["usage"]["completion_tokens"], whole["timings"]["predicted_n"]), (5, 5))
        self.assertAlmostEqual(whole["timings"]["predicted_per_second"], 4e3 / whole["timings"]["predicted_ms"])
        first, *others = self.server.stream("/v1/chat/completions", {
            "messages": [{"role": "user", "content": PROMPT}], "n_predict": 5, "timings_per_token": True, "ignore_eos": True,
            "stream_options": {"include_usage": True}})
        self.assertNotIn("timings", first)
        self.assertTrue(all(0 < chunk["timings"]["predicted_n"] <= 5 for chunk in others))
        self.assertEqual((others[-1]["choices"], others[-1]["timings"]["predicted_n"]), ([], 5))
        one = self.complete(n_predict=1)["timings"]
        self.assertEqual((one["predicted_n"], one["predicted_per_second"], one["predicted_per_token_ms"]), (1, 0, 0))

    def test_metrics_are_sums_with_llamacpps_names(self):
        def values():
            text = self.server.ask("GET", "/metrics")[1].decode()
            return {name: float(value) for name, value in re.findall(r"^(llamacpp:\w+) (\S+)$", text, re.M)}

        before = values()
        timings = [self.complete(n_predict=n, ignore_eos=True)["timings"] for n in (1, 4, 9)]
        after = values()
        more = {name: after[name] - before[name] for name in after}
        self.assertEqual(more["llamacpp:tokens_predicted_total"], 14)
        self.assertEqual(more["llamacpp:prompt_tokens_total"], sum(one["prompt_n"] for one in timings))
        self.assertEqual(more["llamacpp:prompt_tokens_cached_total"], sum(one["cache_n"] for one in timings))
        self.assertGreater(more["llamacpp:n_decode_total"], 0)
        self.assertGreater(after["llamacpp:predicted_tokens_seconds"], 0)
        self.assertEqual(after["llamacpp:requests_processing"], 0)
        self.assertGreaterEqual(after["llamacpp:n_tokens_max"], timings[-1]["prompt_n"] + timings[-1]["cache_n"] + 9)
        self.assertTrue(0 < after["llamacpp:n_busy_slots_per_decode"] <= 3)

    def test_streams_report_how_far_the_prompt_is_read(self):
        """Each step reads 16 tokens, after those that the second prompt has in common with the first one."""
        with Server("--template", "plain", "--prompt-rows", 16) as server:
            body = {"max_tokens": 2, "temperature": 0, "return_progress": True}
            for prompt, cached, count in (([7] * 100, 0, 8), ([7] * 70 + [8] * 30, 70, 3)):
                events = server.stream("/v1/completions", body | {"prompt": prompt})
                events = [event for event in events if "prompt_progress" in event]
                progress = [event["prompt_progress"] for event in events]
                self.assertEqual(progress[0]["processed"], cached)
                self.assertEqual(progress[-1]["processed"], 100)
                self.assertEqual([(one["cache"], one["total"]) for one in progress], [(cached, 100)] * count)
                read = [one["processed"] for one in progress]
                self.assertEqual(read, sorted(set(read)))
            chat = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 2, "return_progress": True}
            self.assertGreater(len([event for event in server.stream("/v1/chat/completions", chat) if "prompt_progress" in event]), 1)
            events = server.named_events("/v1/responses", {"input": PROMPT, "max_output_tokens": 2, "return_progress": True})
            self.assertTrue(all(event["type"] == "response.in_progress" for event in events if "prompt_progress" in event))
            self.assertIn("prompt_progress", events[2])

    def test_a_chat_continues_its_last_answer_and_has_tools_without_a_template_for_them(self):
        with Server("--template", "plain", "--prefill-assistant", "--tools-as-text", "--tag", "small") as server:
            messages = [{"role": "user", "content": PROMPT}, {"role": "assistant", "content": "    return"}]
            prompt = server.json("POST", "/apply-template", {"messages": messages})["prompt"]
            self.assertTrue(prompt.endswith("    return"))
            server.json("POST", "/v1/chat/completions", {"messages": messages + messages[1:], "max_tokens": 1}, status=400)
            fields = {"tools": [{"type": "function", "function": {"name": "stop"}}], "tool_choice": "required", "max_tokens": 60}
            call, = server.chat(**fields)["choices"][0]["message"]["tool_calls"]
            self.assertEqual(call["function"]["name"], "stop")
            self.assertEqual(server.json("GET", "/models")["data"][0]["tags"], ["small"])

    def test_probabilities_after_sampling(self):
        said = self.complete(temperature=1, n_probs=5, post_sampling_probs=True, n_predict=8)
        for token in said["completion_probabilities"]:
            self.assertTrue(0 < token["prob"] <= 1)
            self.assertTrue(all(0 < other["prob"] <= 1 for other in token["top_probs"]))
            self.assertIn(token["id"], [other["id"] for other in token["top_probs"]] + [token["id"]])

    def test_prompts_grammars_and_the_end_of_the_context(self):
        tokens = self.server.json("POST", "/tokenize", {"content": PROMPT, "add_special": True})["tokens"]
        answers = self.complete(prompt=[PROMPT, tokens, {"prompt_string": PROMPT}])
        self.assertEqual(len({answer["content"] for answer in answers}), 1)
        self.assertEqual(self.complete(grammar='root ::= "a"{5,5}')["content"], "aaaaa")
        said = self.complete(n_predict=100, ignore_eos=True, prompt=[5] * 1000, response_fields=["truncated", "tokens_predicted"])
        self.assertEqual(said, {"truncated": True, "tokens_predicted": 24})
        error = self.server.json("POST", "/completion", {"prompt": [5] * 1024}, 400)["error"]
        self.assertEqual((error["type"], error["n_prompt_tokens"], error["n_ctx"]), ("exceed_context_size_error", 1024, 1024))

    def test_the_server_describes_itself(self):
        props = self.server.json("GET", "/props")
        self.assertEqual(props["total_slots"], 3)
        self.assertEqual(props["default_generation_settings"]["params"]["temperature"], 0)
        self.assertEqual(len(self.server.json("GET", "/slots")), 3)
        prompt = self.server.json("POST", "/apply-template", {"messages": [{"role": "user", "content": PROMPT}]})["prompt"]
        self.assertIn(PROMPT, prompt)
        self.server.json("POST", "/infill", {"input_prefix": "a", "input_suffix": "b"}, 501)

    def test_vectors_and_their_ranking(self):
        texts = ["def f(x):", "class A:", "def f(x):"]
        vectors = [entry["embedding"][0] for entry in self.server.json("POST", "/embedding", {"content": texts})]
        openai = self.server.json("POST", "/v1/embeddings", {"input": texts, "model": "text-embedding-3-small"})["data"]
        self.assertEqual(vectors, [entry["embedding"] for entry in openai])
        results = self.server.json("POST", "/v1/rerank", {"query": texts[0], "documents": texts})["results"]
        self.assertEqual([result["index"] for result in results], [0, 2, 1])
        self.assertAlmostEqual(results[0]["relevance_score"], 1, 5)

    def test_a_restored_slot_is_in_the_cache_of_a_new_server(self):
        prompt = [5 + i % 50 for i in range(200)]
        ask = lambda server, **fields: server.json("POST", "/completion", {"prompt": prompt, "n_predict": 8, "ignore_eos": True, "id_slot": 1} | fields)
        act = lambda server, action, status=200, slot=1, **body: server.json("POST", f"/slots/{slot}?action={action}", body, status)
        with tempfile.TemporaryDirectory() as folder:
            options = ("--slot-save-path", folder, "--default", "temperature=0", "--max-running", 2)
            with Server(*options) as server:
                said = ask(server)
                self.assertEqual((said["id_slot"], said["tokens_cached"]), (1, 0))
                saved = act(server, "save", filename="a.slot")
                self.assertEqual((saved["id_slot"], saved["n_saved"]), (1, 208))
                self.assertEqual(os.listdir(folder), ["a.slot"])
                self.assertEqual(server.ask("POST", "/slots/1?action=erase")[0].status, 200)
                self.assertEqual(act(server, "save", filename="b.slot")["n_saved"], 0)
                for name in ("../a.slot", "a/b", "..", ""):
                    act(server, "save", 400, filename=name)
                    act(server, "restore", 400, filename=name)
            with Server(*options) as server:
                act(server, "restore", 400, slot=2, filename="a.slot")
                act(server, "restore", 400, filename="c.slot")
                restored = act(server, "restore", slot=0, filename="a.slot")
                self.assertEqual((restored["id_slot"], restored["n_restored"], restored["n_read"]), (0, 208, saved["n_written"]))
                again = ask(server, id_slot=0)
                self.assertEqual(again["content"], said["content"])
                self.assertGreaterEqual(again["tokens_cached"], 128)
                self.assertEqual(act(server, "erase", slot=0)["n_erased"], 208)
        act(self.server, "save", 501, filename="a.slot")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
