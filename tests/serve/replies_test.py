#!/usr/bin/env python3
"""slm serve with the APIs /v1/messages and /v1/responses, on the demo pair.
usage: replies_test.py PROGRAM SOURCE_DIR"""
import json
import sys
import unittest

from server import MOVE, PROMPT, Server, scratch_file, start_calling_server

MESSAGES = [{"role": "user", "content": PROMPT}]


class RepliesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = start_calling_server(cls)
        cls.guarded = Server("--api-key-file", scratch_file(cls, "secret\n"), "--template", "plain")
        cls.addClassCleanup(cls.guarded.__exit__)

    def chat_text(self, **fields):
        return self.server.chat(**fields)["choices"][0]["message"]["content"]

    def test_all_apis_give_the_same_text(self):
        text = self.chat_text()
        message = self.server.json("POST", "/v1/messages", {"messages": MESSAGES, "max_tokens": 20, "temperature": 0})
        self.assertEqual(message["content"], [{"type": "text", "text": text}])
        self.assertEqual((message["stop_reason"], message["usage"]["output_tokens"]), ("max_tokens", 20))
        response = self.server.json("POST", "/v1/responses", {"input": PROMPT, "max_output_tokens": 20, "temperature": 0})
        self.assertEqual(response["output"][0]["content"][0]["text"], text)
        self.assertEqual((response["status"], response["usage"]["output_tokens"]), ("incomplete", 20))

    def test_a_stream_of_messages_adds_up_to_the_whole_message(self):
        body = {"messages": MESSAGES, "max_tokens": 30, "temperature": 1, "seed": 3}
        whole = self.server.json("POST", "/v1/messages", body)
        events = self.server.named_events("/v1/messages", body)
        self.assertEqual([events[0]["type"], events[1]["type"]], ["message_start", "content_block_start"])
        self.assertEqual([event["type"] for event in events[-3:]], ["content_block_stop", "message_delta", "message_stop"])
        text = "".join(event["delta"]["text"] for event in events if event["type"] == "content_block_delta")
        self.assertEqual(text, whole["content"][0]["text"])
        self.assertEqual(events[-2]["delta"], {"stop_reason": whole["stop_reason"], "stop_sequence": None})
        self.assertEqual(events[-2]["usage"]["output_tokens"], whole["usage"]["output_tokens"])

    def test_a_stream_of_a_response_adds_up_to_the_whole_response(self):
        body = {"input": PROMPT, "max_output_tokens": 30, "temperature": 1, "seed": 3}
        whole = self.server.json("POST", "/v1/responses", body)
        events = self.server.named_events("/v1/responses", body)
        self.assertEqual([event["sequence_number"] for event in events], list(range(len(events))))
        text = "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")
        self.assertEqual(text, whole["output"][0]["content"][0]["text"])
        self.assertEqual(events[-1]["response"]["output"][0]["content"], whole["output"][0]["content"])

    def test_required_calls_fit_their_schema(self):
        message = self.server.json("POST", "/v1/messages", {
            "messages": MESSAGES, "max_tokens": 80, "temperature": 0, "tools": [{"name": "move", "input_schema": MOVE}],
            "tool_choice": {"type": "any"}})
        call, = message["content"]
        self.assertEqual((call["type"], call["name"], message["stop_reason"]), ("tool_use", "move", "tool_use"))
        self.assertIn(call["input"]["steps"], range(1, 10))
        response = self.server.json("POST", "/v1/responses", {
            "input": PROMPT, "max_output_tokens": 80, "temperature": 0, "tool_choice": {"type": "function", "name": "move"},
            "tools": [{"type": "function", "name": "move", "parameters": MOVE}]})
        call, = response["output"]
        self.assertEqual((call["type"], call["name"]), ("function_call", "move"))
        self.assertIn(json.loads(call["arguments"])["to"], ("north", "south"))

    def test_schemas_hold(self):
        message = self.server.json("POST", "/v1/messages", {
            "messages": MESSAGES, "max_tokens": 80, "temperature": 0,
            "output_config": {"format": {"type": "json_schema", "schema": MOVE}}})
        self.assertEqual(list(json.loads(message["content"][0]["text"])), ["to", "steps"])
        response = self.server.json("POST", "/v1/responses", {
            "input": PROMPT, "max_output_tokens": 80, "temperature": 0,
            "text": {"format": {"type": "json_schema", "name": "move", "schema": MOVE}}})
        self.assertEqual(list(json.loads(response["output"][0]["content"][0]["text"])), ["to", "steps"])

    def test_a_budget_limits_the_reasoning(self):
        for budget in (1, 7):
            with self.subTest(budget=budget):
                answer = self.server.chat(enable_thinking=True, reasoning_budget_tokens=budget, max_tokens=budget + 30)
                reasoning = answer["usage"]["completion_tokens_details"]["reasoning_tokens"]
                self.assertGreaterEqual(reasoning, 1)
                self.assertLess(reasoning, budget + 15)  # its tag is text
                self.assertTrue(answer["choices"][0]["message"]["content"])
        message = self.server.json("POST", "/v1/messages", {"messages": MESSAGES, "max_tokens": 40, "temperature": 0,
                                                            "thinking": {"type": "enabled", "budget_tokens": 7}})
        self.assertEqual([block["type"] for block in message["content"]], ["thinking", "text"])

    def test_a_grammar_that_permits_only_an_end_is_stronger_than_min_tokens(self):
        first, = self.server.json("POST", "/tokenize", {"content": "x"})["tokens"]
        answer = self.server.complete(grammar='root ::= "x"', min_tokens=5, max_tokens=9)
        self.assertEqual(answer["choices"][0]["text"], "x")
        answer = self.server.complete(grammar='root ::= "x"+', min_tokens=5, max_tokens=9, stop_token_ids=[first])
        self.assertIn(answer["choices"][0]["finish_reason"], ("stop", "length"))

    def test_counts_are_those_of_the_answer(self):
        usage = self.server.json("POST", "/v1/messages", {"messages": MESSAGES, "max_tokens": 1})["usage"]
        prompt = usage["input_tokens"] + usage["cache_read_input_tokens"]
        self.assertEqual(self.server.json("POST", "/v1/messages/count_tokens", {"messages": MESSAGES}), {"input_tokens": prompt})
        for path, body in (("/v1/responses/input_tokens", {"input": PROMPT}), ("/v1/chat/completions/input_tokens", {"messages": MESSAGES})):
            self.assertEqual(self.server.json("POST", path, body)["input_tokens"], prompt)

    def test_keys_and_errors(self):
        body = {"messages": MESSAGES, "max_tokens": 2}
        for headers in ({"x-api-key": "secret"}, {"Authorization": "Bearer secret"}):
            self.guarded.json("POST", "/v1/messages", body, headers=headers | {"anthropic-version": "2023-06-01"})
        for headers in ({}, {"x-api-key": "wrong"}, {"x-api-key": "secret", "Authorization": "Bearer wrong"}):
            error = self.guarded.json("POST", "/v1/messages", body, 401, headers=headers)
            self.assertEqual((error["type"], error["error"]["type"]), ("error", "authentication_error"))
        error = self.server.json("POST", "/v1/messages", {"messages": MESSAGES}, 400)
        self.assertEqual((error["type"], error["error"]["type"]), ("error", "invalid_request_error"))
        error = self.server.json("POST", "/v1/responses", {"input": PROMPT, "previous_response_id": "resp_1"}, 400)["error"]
        self.assertEqual(error["param"], "previous_response_id")
        self.assertIn("stores no answers", error["message"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
