#!/usr/bin/env python3
"""slm serve with LiteLLM's client: chats, streams, tools, completions, embeddings and errors.
usage: litellm_test.py PROGRAM SOURCE_DIR, by a Python that has the package litellm"""
import json
import os
import sys
import unittest

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # no table of prices is fetched
try:
    import litellm
except ImportError:
    print("SKIPPED: this Python has no package litellm")
    sys.exit(77)

from server import MOVE, PATIENCE, PROMPT, scratch_file, start_calling_server

MESSAGES = [{"role": "user", "content": PROMPT}]
TOOL = {"type": "function", "function": {"name": "move", "description": "Moves a piece.", "parameters": MOVE}}


class LitellmTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = start_calling_server(cls, "--api-key-file", scratch_file(cls, "secret\n"))
        cls.common = {"api_base": f"http://127.0.0.1:{cls.server.port}/v1", "api_key": "secret", "timeout": PATIENCE, "max_retries": 0}
        cls.model = cls.server.started["model"]

    def chat(self, **fields):
        return litellm.completion(model="openai/" + self.model, **self.common | {"messages": MESSAGES, "temperature": 0, "max_tokens": 12} | fields)

    def test_a_chat_and_its_stream_say_the_same(self):
        whole = self.chat()
        self.assertEqual((whole.choices[0].finish_reason, whole.usage.completion_tokens), ("length", 12))
        chunks = list(self.chat(stream=True, stream_options={"include_usage": True}))
        self.assertEqual("".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices), whole.choices[0].message.content)
        built = litellm.stream_chunk_builder(chunks, messages=MESSAGES)
        self.assertEqual(built.choices[0].message.content, whole.choices[0].message.content)
        self.assertEqual(built.usage.completion_tokens, 12)

    def test_tools_are_called_and_their_results_are_read(self):
        fields = {"tools": [TOOL], "tool_choice": "required", "max_tokens": 80}
        said = self.chat(**fields).choices[0]
        call, = said.message.tool_calls
        arguments = json.loads(call.function.arguments)
        self.assertEqual((said.finish_reason, call.function.name), ("tool_calls", "move"))
        self.assertIn(arguments["to"], ("north", "south"))
        streamed = litellm.stream_chunk_builder(list(self.chat(**fields, stream=True)), messages=MESSAGES)
        again, = streamed.choices[0].message.tool_calls
        self.assertEqual(again.function.arguments, call.function.arguments)
        after = MESSAGES + [said.message.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": call.id, "content": "moved"}]
        self.assertTrue(self.chat(messages=after, tools=[TOOL]).choices[0].message.content)

    def test_a_schema_binds_the_answer(self):
        form = {"type": "json_schema", "json_schema": {"name": "move", "strict": True, "schema": MOVE}}
        answer = json.loads(self.chat(response_format=form, max_tokens=80).choices[0].message.content)
        self.assertEqual(set(answer), {"to", "steps"})

    def test_other_routes(self):
        text = litellm.text_completion(model="text-completion-openai/" + self.model, prompt=PROMPT, temperature=0, max_tokens=8, **self.common)
        alone = self.server.json("POST", "/v1/completions", {"prompt": PROMPT, "temperature": 0, "max_tokens": 8},
                                 headers={"Authorization": "Bearer secret"})
        self.assertEqual(text.choices[0].text, alone["choices"][0]["text"])
        vectors = litellm.embedding(model="openai/" + self.model, input=[PROMPT, "x"], **self.common)
        self.assertEqual(len(vectors.data), 2)

    def test_anthropics_route(self):
        common = self.common | {"api_base": self.common["api_base"].removesuffix("/v1")}
        said = litellm.completion(model="anthropic/" + self.model, messages=MESSAGES, temperature=0, max_tokens=12, **common)
        self.assertEqual(said.choices[0].message.content, self.chat().choices[0].message.content)

    def test_errors_are_its_own(self):
        with self.assertRaises(litellm.AuthenticationError):
            self.chat(api_key="wrong")
        with self.assertRaises(litellm.BadRequestError):
            self.chat(extra_body={"top_p": 7})
        with self.assertRaises(litellm.ContextWindowExceededError):
            self.chat(messages=[{"role": "user", "content": PROMPT * 2000}])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
