#!/usr/bin/env python3
"""slm serve with fields that constrain answers, on the demo pair.
usage: structured_test.py PROGRAM SOURCE_DIR"""
import json
import pathlib
import shutil
import sys
import tempfile
import unittest

from server import PAIR, PROMPT, Server

CHAT = "/v1/chat/completions"
SCHEMA = {"type": "object", "properties": {"name": {"enum": ["read", "write"]}, "count": {"type": "integer", "minimum": 0, "maximum": 99}},
          "required": ["name", "count"], "additionalProperties": False}
FORMAT = {"type": "json_schema", "json_schema": {"name": "call", "strict": True, "schema": SCHEMA}}


def fits(text):
    value = json.loads(text)
    return list(value) == ["name", "count"] and value["name"] in ("read", "write") and 0 <= value["count"] <= 99


class StructuredTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--draft", PAIR / "draft", "--template", "plain")
        cls.addClassCleanup(cls.server.__exit__)

    def test_answers_fit_the_schema_in_chats_and_completions(self):
        for fields in ({"response_format": FORMAT}, {"structured_outputs": {"json": SCHEMA}}, {"guided_json": SCHEMA},
                       {"json_schema": SCHEMA}):
            with self.subTest(field=list(fields)):
                for choice in self.server.complete(max_tokens=60, **fields)["choices"]:
                    self.assertTrue(fits(choice["text"]), choice)
                    self.assertEqual(choice["finish_reason"], "stop")
                choice, = self.server.chat(max_tokens=60, **fields)["choices"]
                self.assertTrue(fits(choice["message"]["content"]), choice)

    def test_choices_and_streams_have_the_text_of_the_grammar(self):
        body = {"prompt": PROMPT, "max_tokens": 60, "temperature": 1.5, "seed": 4, "n": 4, "response_format": FORMAT}
        whole = self.server.json("POST", "/v1/completions", body)
        for choice in whole["choices"]:
            self.assertTrue(fits(choice["text"]), choice)
        texts = [""] * 4
        for chunk in self.server.stream("/v1/completions", body):
            for choice in chunk["choices"]:
                texts[choice["index"]] += choice["text"]
        self.assertEqual(texts, [choice["text"] for choice in whole["choices"]])
        with Server("--template", "plain", "--drafter", "none") as plain:
            self.assertEqual([choice["text"] for choice in plain.json("POST", "/v1/completions", body)["choices"]], texts)

    def test_texts_that_a_grammar_forces(self):
        for fields, text in (({"json_schema": {"const": "42"}}, '"42"'), ({"grammar": 'root ::= "a"{5,5}'}, "aaaaa"),
                             ({"guided_grammar": 'root ::= "a"{5,5}'}, "aaaaa"), ({"guided_regex": "a{5}"}, "aaaaa"),
                             ({"guided_choice": ["aaaaa"]}, "aaaaa"), ({"structured_outputs": {"choice": ["aaaaa"]}}, "aaaaa"),
                             ({"structured_outputs": {"regex": "a{5}"}}, "aaaaa")):
            with self.subTest(fields=fields):
                choice, = self.server.complete(max_tokens=40, **fields)["choices"]
                self.assertEqual((choice["text"], choice["finish_reason"]), (text, "stop"))
                choice, = self.server.chat(max_tokens=40, **fields)["choices"]
                self.assertEqual((choice["message"]["content"], choice["finish_reason"]), (text, "stop"))
        choice, = self.server.complete(max_tokens=1, grammar='root ::= "a"{50,50}')["choices"]
        self.assertRegex(choice["text"], "^a+$")
        self.assertEqual(choice["finish_reason"], "length")
        self.assertEqual(json.loads(self.server.complete(max_tokens=100, response_format={"type": "json_object", "schema": SCHEMA})
                                    ["choices"][0]["text"]).keys(), {"name", "count"})

    def test_a_wrong_grammar_is_named(self):
        for field, value, slm_id in (
                ("grammar", "root ::= (", "grammar.syntax"), ("json_schema", {"type": "what"}, "grammar.schema"),
                ("guided_regex", "[", "grammar.syntax"), ("guided_json", 5, "serve.bad-field"),
                ("response_format", {"type": "what"}, "serve.bad-field"),
                ("response_format", {"type": "json_schema", "json_schema": {"schema": {"minimum": "x"}}}, "grammar.schema"),
                ("structured_outputs", {"structural_tag": "x"}, "serve.unsupported")):
            with self.subTest(field=field, value=value):
                error = self.server.json("POST", "/v1/completions", {"prompt": PROMPT, field: value}, 400)["error"]
                self.assertEqual((error["param"], error["slm_id"]), (field, slm_id))
                self.assertIn(field, error["message"])

    def test_a_grammar_whose_bytes_have_no_token_is_a_wrong_request(self):
        with tempfile.TemporaryDirectory() as scratch:
            target = pathlib.Path(scratch) / "target"
            shutil.copytree(PAIR / "target", target)
            tokenizer = json.loads((target / "tokenizer.json").read_text())
            first = "\u00c3"  # byte-level BPE's name of the first byte of \u00e9
            vocab, merges = tokenizer["model"]["vocab"], tokenizer["model"]["merges"]
            tokenizer["model"]["vocab"] = {f"<unused{i}>" if first in name else name: i for name, i in vocab.items()}
            tokenizer["model"]["merges"] = [pair for pair in merges if first not in "".join(pair)]
            (target / "tokenizer.json").write_text(json.dumps(tokenizer))
            with Server("--template", "plain", target=target) as server:
                for fields in ({"guided_regex": "\u00e9"}, {"json_schema": {"const": "\u00e9"}},
                               {"response_format": {"type": "json_object", "schema": {"const": "\u00e9"}}}):
                    for path, question in (("/v1/completions", {"prompt": "a"}), ("/completion", {"prompt": "a"}),
                                           (CHAT, {"messages": [{"role": "user", "content": "a"}]})):
                        if path == "/completion" and "guided_regex" in fields:
                            continue
                        with self.subTest(path=path, fields=fields):
                            body = question | {"max_tokens": 10} | fields
                            error = server.json("POST", path, body, 400)["error"]
                            self.assertEqual((error["type"], error["slm_id"]), ("invalid_request_error", "structured.no-token"))
                            self.assertIn("permits no token", error["message"])
                            streamed = server.ask("POST", path, body | {"stream": True})[1]
                            self.assertIn(b'"invalid_request_error"', streamed)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
