#!/usr/bin/env python3
"""The page of slm serve on the demo pair, in a headless Chromium: a chat is streamed and can be stopped, drafted tokens are
tinted, the server's figures are live, schemas and tools constrain answers, dark and light; nothing is loaded from other
servers. page_chat_test.py tests the page with scripted answers.
usage: page_test.py PROGRAM SOURCE_DIR [SCREENSHOT.png]"""
import json
import pathlib
import re
import sys
import tempfile
import unittest

from browser import PageCase
from server import CALLING_TEMPLATE, PAIR, PROMPT, Server

SCHEMA = {"type": "object", "properties": {"side": {"enum": ["left", "right"]}}, "required": ["side"], "additionalProperties": False}
TOOLS = [{"type": "function", "function": {"name": "turn", "parameters": SCHEMA}}]
BODY = "article.assistant > .body"


class PageTest(PageCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        template = pathlib.Path(scratch.name) / "template.jinja"
        template.write_text(CALLING_TEMPLATE)
        cls.server = Server("--draft", PAIR / "draft", "--draft-length", 4, "--chat-template", template)
        cls.addClassCleanup(cls.server.__exit__)
        cls.port = cls.server.port
        super().setUpClass()

    def ask(self, text, **fields):
        super().ask(text, **{"temperature": 0, "markdown": False} | fields)

    def test_a_chat_is_streamed_with_its_drafted_tokens_tinted(self):
        self.ask(PROMPT, max_tokens=60)
        self.wait_for_answer()
        answer = self.server.json("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": PROMPT}],
                                                                   "temperature": 0, "max_tokens": 60, "top_p": 0.95})
        self.assertEqual(self.text(BODY), answer["choices"][0]["message"]["content"])
        self.assertGreater(self.count("article .drafted"), 5)
        self.assertRegex(self.text("article.assistant footer"),
                         r"tokens/s · \d+ % of \d+ drafted tokens accepted · .* tokens per step · prompt of \d+ tokens")
        self.browser.wait("document.getElementById('acceptance').textContent.endsWith('%')")
        self.browser.wait("document.getElementById('running').textContent === '0'")
        if len(sys.argv) > 3:
            self.set(input="")
            self.browser.screenshot(sys.argv[3])

    def test_a_text_is_continued(self):
        self.ask(PROMPT, max_tokens=20, mode="text")
        self.wait_for_answer()
        answer = self.server.complete(max_tokens=20, top_p=0.95)
        self.assertEqual(self.text(".prompt"), PROMPT)
        self.assertEqual(self.texts(BODY)[1], answer["choices"][0]["text"])

    def test_stop_ends_an_answer(self):
        self.ask(PROMPT, max_tokens=100000, mode="text")
        self.browser.wait("(document.querySelectorAll('article.assistant > .body')[1]?.textContent.length ?? 0) > 3")
        if self.text("#send") == "Stop":
            self.click("#send")
        self.wait_for_answer()
        self.browser.wait("document.getElementById('running').textContent === '0'")

    def test_an_error_is_shown_and_the_question_can_be_asked_again(self):
        self.ask("word " * 5000)
        self.browser.wait("document.querySelector('article.assistant .fault')?.textContent")
        self.assertIn("maximum context length", self.text("article.assistant .fault"))
        self.browser.run("talk.edit(talk.messages[0], 'content', 'word')")
        self.wait_for_answer()
        self.assertEqual(self.text("article.assistant .fault"), "")
        self.assertNotEqual(self.text(BODY), "")

    def test_schemas_and_calls(self):
        self.ask("x", schema=json.dumps(SCHEMA))
        self.wait_for_answer()
        self.assertIn(json.loads(self.text(BODY))["side"], ("left", "right"))
        self.set(schema="", tools=json.dumps(TOOLS), tool_choice="required")
        self.ask("y")
        self.browser.wait("!!document.querySelector('.results textarea')")
        self.assertEqual(self.text(".call summary"), "Call of turn")
        self.assertIn(json.loads(self.text(".call pre"))["side"], ("left", "right"))
        self.browser.run("document.querySelector('.results textarea').value = 'done'")
        self.set(tool_choice="none", max_tokens=5)
        self.browser.run("document.querySelector('.results').requestSubmit()")
        self.browser.wait("document.querySelectorAll('article').length === 6")
        self.wait_for_answer()
        self.assertEqual(self.texts("article .fault"), [""] * 6)
        self.assertEqual(self.text(".result summary"), "Result of turn")

    def test_dark_and_light(self):
        colour = "getComputedStyle(document.body).backgroundColor"
        colours = []
        for system in ("light", "dark"):
            self.browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": system}])
            self.set(theme="")
            colours.append(self.browser.run(colour))
            for theme, expected in (("light", 0), ("dark", -1)):
                self.set(theme=theme)
                if system == "dark":
                    self.assertEqual(self.browser.run(colour), colours[expected])
        self.browser.call("Emulation.setEmulatedMedia", features=[])
        self.assertNotEqual(*colours)

    def test_the_policy_is_strict(self):
        response, page = self.server.ask("GET", "/")
        policy = response.headers["Content-Security-Policy"]
        nonce = re.search(r"script-src 'nonce-([^']+)'", policy)[1]
        self.assertIn("default-src 'none'", policy)
        self.assertNotIn("unsafe", policy)
        self.assertEqual(page.decode().count(f'nonce="{nonce}"'), 2)
        self.assertNotIn(nonce.encode(), self.server.ask("GET", "/")[1])
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "{{"):
            self.assertNotIn(word, page.decode())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
