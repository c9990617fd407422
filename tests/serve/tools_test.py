#!/usr/bin/env python3
"""slm serve with tools and reasoning, on the demo pair with a template that has both.
usage: tools_test.py PROGRAM SOURCE_DIR"""
import json
import sys
import unittest

from server import MOVE, start_calling_server

CHAT = "/v1/chat/completions"
TOOLS = [
    {"type": "function", "function": {"name": "move", "description": "Moves a piece.", "parameters": MOVE}},
    {"type": "function", "function": {"name": "stop"}}]


def named(name):
    return {"type": "function", "function": {"name": name}}


class ToolsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = start_calling_server(cls)

    def check_call(self, call, name=None):
        self.assertRegex(call["id"], "^[0-9a-z]{9}$")
        self.assertEqual(call["type"], "function")
        function = call["function"]
        arguments = json.loads(function["arguments"])
        if name:
            self.assertEqual(function["name"], name)
        if function["name"] == "move":
            self.assertEqual(list(arguments), ["to", "steps"])
            self.assertIn(arguments["to"], ("north", "south"))
            self.assertIn(arguments["steps"], range(1, 10))
        else:
            self.assertEqual((function["name"], arguments), ("stop", {}))

    def test_required_and_named_calls_fit_their_schema(self):
        for choice, name in (("required", None), (named("move"), "move"), (named("stop"), "stop")):
            for temperature in (0, 1.5):
                with self.subTest(choice=choice, temperature=temperature):
                    answer = self.server.chat(tools=TOOLS, tool_choice=choice, max_tokens=80, temperature=temperature, seed=3)
                    choice_, = answer["choices"]
                    self.assertEqual(choice_["finish_reason"], "tool_calls", choice_)
                    self.assertIsNone(choice_["message"]["content"])
                    call, = choice_["message"]["tool_calls"]
                    self.check_call(call, name)

    def test_a_stream_has_the_call_of_the_whole_answer(self):
        body = {"messages": [{"role": "user", "content": "x"}], "tools": TOOLS, "tool_choice": "required", "temperature": 1, "seed": 5,
                "max_tokens": 80}
        whole = self.server.json("POST", CHAT, body)["choices"][0]["message"]["tool_calls"][0]["function"]
        choices = [chunk["choices"][0] for chunk in self.server.stream(CHAT, body)]
        self.assertEqual(choices[-1]["finish_reason"], "tool_calls")
        self.assertEqual(choices[-1]["delta"], {})
        parts = [part for choice in choices for part in choice["delta"].get("tool_calls", [])]
        self.assertEqual([part["index"] for part in parts], [0] * len(parts))
        self.assertEqual(parts[0]["function"], {"name": whole["name"], "arguments": ""})
        self.assertEqual([part for part in parts[1:] if "id" in part], [])
        self.assertEqual("".join(part["function"]["arguments"] for part in parts), whole["arguments"])

    def test_an_answer_comes_back_with_its_results(self):
        messages = [{"role": "user", "content": "go"}]
        answer = self.server.json("POST", CHAT, {
            "messages": messages, "tools": TOOLS, "tool_choice": "required", "max_tokens": 80, "temperature": 0})
        message = answer["choices"][0]["message"]
        call, = message["tool_calls"]
        messages += [message, {"role": "tool", "tool_call_id": call["id"], "content": "done"}]
        tokens = self.server.json("POST", "/tokenize", {"messages": messages, "tools": TOOLS})["tokens"]
        prompt = self.server.json("POST", "/detokenize", {"tokens": tokens})["prompt"]
        self.assertIn(f'"name": "{call["function"]["name"]}"', prompt)
        self.assertTrue(prompt.endswith("tool: done\nassistant: "), prompt)
        self.assertTrue(prompt.startswith("<tools>" + json.dumps(TOOLS) + "</tools>\n"), prompt)
        answer = self.server.json("POST", CHAT, {"messages": messages, "tools": TOOLS, "tool_choice": "none", "max_tokens": 5})
        self.assertNotIn("tool_calls", answer["choices"][0]["message"])

    def test_constraints_begin_behind_the_reasoning(self):
        answer = self.server.chat(enable_thinking=True, max_tokens=8, temperature=1, seed=1, guided_choice=["yes"])
        choice, = answer["choices"]
        if choice["finish_reason"] == "length":
            self.assertIsNone(choice["message"]["content"])
            self.assertEqual(answer["usage"]["completion_tokens_details"]["reasoning_tokens"], 8)
        choice, = self.server.chat(max_tokens=8, guided_choice=["yes"])["choices"]
        self.assertEqual(choice["message"]["content"], "yes")
        self.assertNotIn("reasoning_content", choice["message"])

    def test_refusals(self):
        body = {"messages": [{"role": "user", "content": "x"}]}
        for fields, param in (({"tool_choice": "required"}, "tool_choice"), ({"tools": TOOLS, "tool_choice": named("fly")}, "tool_choice"),
                              ({"tools": [{"type": "function"}]}, "tools"), ({"tools": TOOLS, "reasoning_format": "none"}, "reasoning_format"),
                              ({"reasoning_format": "what"}, "reasoning_format"), ({"functions": [{"name": "f"}]}, "functions")):
            with self.subTest(fields=fields):
                self.assertEqual(self.server.json("POST", CHAT, body | fields, 400)["error"]["param"], param)
        error = self.server.json("POST", "/v1/completions", {"prompt": "x", "tools": TOOLS}, 400)["error"]
        self.assertEqual(error["param"], "tools")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
