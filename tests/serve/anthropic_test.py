#!/usr/bin/env python3
"""slm serve with Anthropic's client: messages, streams, tools, counts and errors.
usage: anthropic_test.py PROGRAM SOURCE_DIR, by a Python that has the package anthropic"""
import sys
import typing
import unittest

try:
    import anthropic
    import pydantic
except ImportError:
    print("SKIPPED: this Python has no package anthropic")
    sys.exit(77)

from server import MOVE, PATIENCE, PROMPT, scratch_file, start_calling_server

MESSAGES = [{"role": "user", "content": PROMPT}]
TOOL = {"name": "move", "description": "Moves a piece.", "input_schema": MOVE}


class AnthropicTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = start_calling_server(cls, "--api-key-file", scratch_file(cls, "secret\n"))
        cls.client = cls.client_of("secret")
        cls.model = cls.server.started["model"]

    @classmethod
    def client_of(cls, key):
        return anthropic.Anthropic(base_url=f"http://127.0.0.1:{cls.server.port}", api_key=key, timeout=PATIENCE, max_retries=0)

    def fields(self, **more):
        return {"model": self.model, "messages": MESSAGES, "max_tokens": 20, "extra_body": {"temperature": 0}} | more

    def create(self, **fields):
        return self.client.messages.create(**self.fields(**fields))

    def stream(self, **fields):
        return self.client.messages.stream(**self.fields(**fields))

    def test_a_message_has_its_documented_shape(self):
        message = self.create(system="Write Python.")
        message = type(message).model_validate(message.model_dump())
        self.assertEqual((message.role, message.stop_reason, message.usage.output_tokens), ("assistant", "max_tokens", 20))
        self.assertEqual([block.type for block in message.content], ["text"])

    def test_a_stream_adds_up_to_the_whole_message(self):
        whole = self.create()
        with self.stream() as stream:
            text = "".join(stream.text_stream)
            final = stream.get_final_message()
        self.assertEqual(text, whole.content[0].text)
        self.assertEqual(final.content[0].text, text)
        self.assertEqual((final.stop_reason, final.usage.output_tokens), (whole.stop_reason, whole.usage.output_tokens))

    def test_stop_sequences(self):
        text = self.create(max_tokens=40).content[0].text
        stop = text[8:12]
        stopped = self.create(max_tokens=40, stop_sequences=[stop, "never"])
        self.assertEqual((stopped.content[0].text, stopped.stop_reason, stopped.stop_sequence),
                         (text[:text.index(stop)], "stop_sequence", stop))

    def test_a_loop_of_tools(self):
        fields = {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "move"}, "max_tokens": 80}
        with self.stream(**fields) as stream:
            call, = stream.get_final_message().content
        whole = self.create(**fields)
        self.assertEqual((call.type, call.name, call.input), ("tool_use", "move", whole.content[0].input))
        self.assertEqual(whole.stop_reason, "tool_use")
        self.assertIn(call.input["to"], ("north", "south"))
        messages = MESSAGES + [{"role": "assistant", "content": whole.content}, {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": whole.content[0].id, "content": "done"}, {"type": "text", "text": "And now?"}]}]
        self.assertEqual(self.create(messages=messages, tools=[TOOL], tool_choice={"type": "none"}, max_tokens=5).usage.output_tokens, 5)

    def test_thinking_with_a_budget(self):
        with self.stream(thinking={"type": "enabled", "budget_tokens": 8}, max_tokens=40) as stream:
            thinking, text = stream.get_final_message().content
        self.assertEqual((thinking.type, text.type), ("thinking", "text"))
        self.assertTrue(thinking.thinking and text.text)

    def test_a_structured_message_is_parsed(self):
        class Access(pydantic.BaseModel):
            kind: typing.Literal["read", "write"]
            granted: bool

        message = self.client.messages.parse(**self.fields(max_tokens=80), output_format=Access)
        self.assertIn(message.parsed_output.kind, ("read", "write"))

    def test_tokens_are_counted(self):
        usage = self.create(tools=[TOOL], max_tokens=1).usage
        count = self.client.messages.count_tokens(model=self.model, messages=MESSAGES, tools=[TOOL])
        self.assertEqual(count.input_tokens, usage.input_tokens + usage.cache_read_input_tokens)

    def test_errors_have_the_clients_classes(self):
        with self.assertRaises(anthropic.BadRequestError) as caught:
            self.create(messages=[{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "x"}}]}])
        self.assertEqual(caught.exception.body["error"]["type"], "invalid_request_error")
        with self.assertRaises(anthropic.AuthenticationError):
            self.client_of("wrong").messages.create(model=self.model, messages=MESSAGES, max_tokens=1)
        with self.assertRaises(anthropic.NotFoundError):
            self.create(model="another")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
