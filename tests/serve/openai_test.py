#!/usr/bin/env python3
"""slm serve with OpenAI's client: every documented shape, streams, errors, retries.
usage: openai_test.py PROGRAM SOURCE_DIR, by a Python that has the package openai"""
import asyncio
import base64
import struct
import sys
import tempfile
import typing
import unittest

try:
    import openai
    import pydantic
except ImportError:
    print("SKIPPED: this Python has no package openai")
    sys.exit(77)

from server import PAIR, PATIENCE, PROMPT, Server

CHAT = [{"role": "system", "content": "Write Python."}, {"role": "user", "content": PROMPT}]


class OpenaiTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--draft", PAIR / "draft", "--template", "plain")
        cls.client = cls.client_of(cls.server)
        cls.model = cls.client.models.list().data[0].id

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__()

    @staticmethod
    def client_of(server, kind=openai.OpenAI, **settings):
        return kind(**({"base_url": f"http://127.0.0.1:{server.port}/v1", "api_key": "any", "timeout": PATIENCE,
                        "max_retries": 0} | settings))

    def complete(self, **fields):
        return self.client.completions.create(**({"model": self.model, "prompt": PROMPT, "temperature": 0, "max_tokens": 12} | fields))

    def chat(self, **fields):
        return self.client.chat.completions.create(**({"model": self.model, "messages": CHAT, "temperature": 0,
                                                       "max_completion_tokens": 12} | fields))

    def test_models(self):
        model = self.client.models.retrieve(self.model)
        self.assertEqual((model.id, model.object), (self.model, "model"))

    def test_a_completion_has_its_documented_shape(self):
        answer = self.complete(logprobs=3)
        answer = type(answer).model_validate(answer.model_dump())
        choice, = answer.choices
        self.assertEqual((answer.object, answer.model, choice.finish_reason), ("text_completion", self.model, "length"))
        self.assertEqual(answer.usage.completion_tokens, 12)
        self.assertEqual(answer.usage.total_tokens, answer.usage.prompt_tokens + 12)
        self.assertEqual("".join(choice.logprobs.tokens).strip(), choice.text.strip())
        for token, logprob, top in zip(choice.logprobs.tokens, choice.logprobs.token_logprobs, choice.logprobs.top_logprobs):
            self.assertEqual(top[token], logprob)
            self.assertEqual(max(top.values()), logprob)  # greedy

    def test_prompts_as_texts_ids_and_lists_of_either(self):
        ids = self.server.json("POST", "/tokenize", {"prompt": PROMPT})["tokens"]
        alone = self.complete().choices[0].text
        for prompt in (ids, [PROMPT, PROMPT], [ids, ids]):
            texts = [choice.text for choice in self.complete(prompt=prompt).choices]
            self.assertEqual(set(texts), {alone}, prompt)
        self.assertEqual(len(texts), 2)

    def test_n_choices_draw_with_seeds_that_follow_each_other(self):
        many = self.complete(n=3, seed=5, temperature=1)
        self.assertEqual([choice.index for choice in many.choices], [0, 1, 2])
        for i, choice in enumerate(many.choices):
            self.assertEqual(self.complete(seed=5 + i, temperature=1).choices[0].text, choice.text)

    def test_echo_has_the_prompts_log_probabilities(self):
        only = self.complete(echo=True, max_tokens=0, logprobs=1).choices[0]
        self.assertEqual(only.text, PROMPT)
        self.assertIsNone(only.logprobs.token_logprobs[0])
        self.assertTrue(all(value < 0 for value in only.logprobs.token_logprobs[1:]))
        more = self.complete(echo=True, max_tokens=1, logprobs=1).choices[0]
        self.assertEqual(more.logprobs.token_logprobs[:-1], only.logprobs.token_logprobs)
        self.assertTrue(more.text.startswith(PROMPT))

    def test_stop_and_logit_bias(self):
        text = self.complete(max_tokens=40).choices[0].text
        stop = text[8:12]
        stopped = self.complete(max_tokens=40, stop=[stop, "never"]).choices[0]
        self.assertEqual((stopped.text, stopped.finish_reason), (text[:text.index(stop)], "stop"))
        first = self.server.json("POST", "/v1/completions", {"prompt": PROMPT, "temperature": 0, "max_tokens": 1,
                                                             "return_token_ids": True})["choices"][0]["token_ids"][0]
        self.assertNotEqual(self.complete(logit_bias={str(first): -100}).choices[0].text, self.complete().choices[0].text)

    def test_a_stream_adds_up_to_the_whole_answer(self):
        whole = self.complete(seed=7, temperature=0.8, max_tokens=40)
        chunks = list(self.complete(seed=7, temperature=0.8, max_tokens=40, stream=True, stream_options={"include_usage": True}))
        self.assertEqual("".join(chunk.choices[0].text for chunk in chunks if chunk.choices), whole.choices[0].text)
        self.assertEqual(chunks[-1].usage.completion_tokens, whole.usage.completion_tokens)
        self.assertEqual({chunk.id for chunk in chunks}, {chunks[0].id})

    def test_chat(self):
        whole = self.chat(logprobs=True, top_logprobs=2)
        message = whole.choices[0].message
        self.assertEqual((message.role, whole.object), ("assistant", "chat.completion"))
        entries = whole.choices[0].logprobs.content
        self.assertEqual(b"".join(bytes(entry.bytes) for entry in entries).decode().strip(), message.content.strip())
        self.assertTrue(all(len(entry.top_logprobs) == 2 for entry in entries))
        chunks = list(self.chat(stream=True))
        self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
        self.assertEqual("".join(chunk.choices[0].delta.content or "" for chunk in chunks), message.content)
        self.assertEqual(chunks[-1].choices[0].finish_reason, whole.choices[0].finish_reason)

    def test_the_clients_own_helper_collects_a_stream(self):
        fields = {"max_completion_tokens": 200, "stop": ["\n"]}  # it treats an answer that ended by its length as an error
        with self.client.chat.completions.stream(model=self.model, messages=CHAT, temperature=0, **fields) as stream:
            final = stream.get_final_completion()
        self.assertEqual(final.choices[0].message.content, self.chat(**fields).choices[0].message.content)

    def test_embeddings_in_both_encodings(self):
        of = lambda **fields: self.client.embeddings.create(model=self.model, input=["def a():", PROMPT], **fields)
        floats = [item.embedding for item in of(encoding_format="float").data]
        packed = [item.embedding for item in of(encoding_format="base64").data]
        for numbers, text in zip(floats, packed):
            raw = base64.b64decode(text)
            self.assertEqual(list(struct.unpack(f"<{len(raw) // 4}f", raw)), [struct.unpack("f", struct.pack("f", x))[0] for x in numbers])
        self.assertEqual([item.embedding for item in of().data], floats)  # the client asks for base64 and decodes it

    def test_errors_have_the_clients_classes(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.complete(temperature=3)
        self.assertEqual(caught.exception.param, "temperature")
        with self.assertRaises(openai.BadRequestError) as caught:
            self.complete(prompt=[1] * 100000)
        self.assertEqual(caught.exception.code, "context_length_exceeded")
        self.assertIn("maximum context length is", str(caught.exception))
        with self.assertRaises(openai.NotFoundError) as caught:
            self.complete(model="another")
        self.assertEqual(caught.exception.code, "model_not_found")
        with self.assertRaises(openai.BadRequestError):
            self.chat(tools=[{"type": "function", "function": {"name": "f", "parameters": {}}}])
        with self.assertRaises(openai.BadRequestError):
            self.chat(response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "what"}}})

    def test_a_response(self):
        fields = {"model": self.model, "instructions": CHAT[0]["content"], "input": PROMPT, "temperature": 0, "max_output_tokens": 12}
        whole = self.client.responses.create(**fields)
        whole = type(whole).model_validate(whole.model_dump())
        self.assertEqual((whole.status, whole.incomplete_details.reason, whole.usage.output_tokens), ("incomplete", "max_output_tokens", 12))
        self.assertEqual(whole.output_text, self.chat().choices[0].message.content)
        self.assertEqual(self.client.responses.input_tokens.count(model=self.model, instructions=CHAT[0]["content"], input=PROMPT).input_tokens,
                         whole.usage.input_tokens)
        kinds, text = [], ""
        for event in self.client.responses.create(**fields, stream=True):
            kinds.append(event.type)
            text += event.delta if event.type == "response.output_text.delta" else ""
        self.assertEqual((kinds[0], kinds[-1], text), ("response.created", "response.incomplete", whole.output_text))
        with self.client.responses.stream(**fields | {"max_output_tokens": 200, "extra_body": {"stop": ["\n"]}}) as stream:
            final = stream.get_final_response() if "response.completed" in [event.type for event in stream] else None
        self.assertEqual(final.status, "completed")
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client.responses.create(**fields, previous_response_id=whole.id)
        self.assertEqual(caught.exception.param, "previous_response_id")

    def test_a_structured_response_is_parsed(self):
        class Access(pydantic.BaseModel):
            kind: typing.Literal["read", "write"]
            granted: bool

        answer = self.client.responses.parse(model=self.model, input=PROMPT, temperature=0, max_output_tokens=80, text_format=Access)
        self.assertIn(answer.output_parsed.kind, ("read", "write"))

    def test_a_structured_answer_is_parsed(self):
        class Access(pydantic.BaseModel):
            kind: typing.Literal["read", "write"]
            granted: bool

        answer = self.client.chat.completions.parse(model=self.model, messages=CHAT, temperature=0, max_completion_tokens=80,
                                                    response_format=Access)
        self.assertIsInstance(answer.choices[0].message.parsed, Access)

    def test_keys(self):
        with tempfile.NamedTemporaryFile("w") as keys:
            keys.write("right\n")
            keys.flush()
            with Server("--api-key-file", keys.name) as server:
                with self.assertRaises(openai.AuthenticationError):
                    self.client_of(server, api_key="wrong").models.list()
                self.client_of(server, api_key="right").models.list()

    def test_a_full_server_is_retried(self):
        with Server("--max-requests", 1, "--max-running", 1) as server:
            patient, hasty = self.client_of(server, max_retries=100), self.client_of(server)
            model = patient.models.list().data[0].id
            fields = {"model": model, "prompt": PROMPT, "temperature": 0}
            stream = hasty.completions.create(**fields, max_tokens=400, stream=True, extra_body={"ignore_eos": True})
            next(stream)
            with self.assertRaises(openai.InternalServerError) as caught:
                hasty.completions.create(**fields)
            self.assertEqual(caught.exception.status_code, 503)
            stream.close()
            self.assertTrue(patient.completions.create(**fields).choices[0].text)

    def test_the_request_id_is_returned(self):
        raw = self.client.completions.with_raw_response.create(model=self.model, prompt=PROMPT, max_tokens=1,
                                                               extra_headers={"X-Request-Id": "mine-7"})
        self.assertEqual(raw.headers["x-request-id"], "mine-7")

    def test_sixteen_concurrent_requests_have_the_same_answers_as_alone(self):
        def fields(i):
            return {"model": self.model, "prompt": PROMPT + "\n" * (i % 3), "max_tokens": 8 + i, "seed": i,
                    "temperature": 0 if i % 2 else 0.9, "logprobs": 1}

        async def together():
            async with self.client_of(self.server, openai.AsyncOpenAI) as client:
                return await asyncio.gather(*(client.completions.create(**fields(i)) for i in range(16)))

        for i, answer in enumerate(asyncio.run(together())):
            alone = self.client.completions.create(**fields(i)).choices[0]
            self.assertEqual(answer.choices[0].text, alone.text)
            self.assertEqual(answer.choices[0].logprobs.token_logprobs, alone.logprobs.token_logprobs)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
