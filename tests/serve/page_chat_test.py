#!/usr/bin/env python3
"""The page of slm serve with scripted answers, in a headless Chromium: copy, edit and regenerate, reasoning, calls and their
results, the schema box, kept chats, the keyboard alone, and the width of a phone.
usage: page_chat_test.py PROGRAM SOURCE_DIR [FOLDER_OF_SCREENSHOTS]"""
import json
import pathlib
import sys
import threading
import unittest

from scripted import BODY, Script, ScriptedCase

CALL = {"tool_calls": [{"index": 0, "id": "call00001", "type": "function", "function": {"name": "weather", "arguments": ""}}]}
ARGUMENTS = {"tool_calls": [{"index": 0, "function": {"arguments": '{"city": "Oslo"}'}}]}
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]


class PageChatTest(ScriptedCase):
    def screenshot(self, name):
        if len(sys.argv) > 3:
            self.browser.screenshot(pathlib.Path(sys.argv[3]) / name)

    def clipboard(self):
        return self.browser.run("navigator.clipboard.readText()")

    def test_copy(self):
        self.answer("q", "Some *text*\n```py\nif a:\n    b\n```")
        self.click(f"{BODY} figure button")
        self.browser.wait(f"document.querySelector('{BODY} figure button').textContent === 'Copied'")
        self.assertEqual(self.clipboard(), "if a:\n    b")
        self.click("article.assistant .actions button")
        self.browser.wait("document.querySelector('article.assistant .actions button').textContent === 'Copied'")
        self.assertEqual(self.clipboard(), "Some *text*\n```py\nif a:\n    b\n```")

    def test_edit_and_regenerate(self):
        self.answer("one", "first")
        self.answer("two", "second")
        Script.scripts.append([{"content": "third"}])
        self.click("article:nth-child(4) .actions button:nth-child(3)")
        self.browser.wait("document.querySelectorAll('article > .body')[3].textContent === 'third'")
        self.assertEqual(Script.bodies[-1]["messages"], Script.bodies[-2]["messages"])
        Script.scripts.append([{"content": "fourth"}])
        self.click("article.user .actions button:nth-child(2)")
        self.browser.run("document.activeElement.value = 'new one'")
        self.browser.press("Enter")
        self.browser.wait("document.querySelectorAll('article').length === 2 && document.querySelectorAll('article > .body')[1].textContent === 'fourth'")
        self.assertEqual(Script.bodies[-1]["messages"], [{"role": "user", "content": "new one"}])
        self.wait_for_answer()
        self.click("article.assistant .actions button:nth-child(2)")
        self.browser.run("document.activeElement.value = 'my *words*'")
        self.browser.press("Enter")
        self.assertEqual(self.texts("article > .body"), ["new one", "my words"])
        self.answer("more", "fifth")
        self.assertEqual(Script.bodies[-1]["messages"], [{"role": "user", "content": "new one"}, {"role": "assistant", "content": "my *words*"},
                                                         {"role": "user", "content": "more"}])

    def test_reasoning_is_folded(self):
        gate = threading.Event()
        Script.scripts.append([{"reasoning_content": "I *think*"}, gate, {"content": "Yes."}])
        self.ask("q")
        self.browser.wait("document.querySelector('.reasoning em') && document.querySelector('.reasoning summary').textContent === 'Reasoning…'")
        self.assertFalse(self.browser.run("document.querySelector('.reasoning').open"))
        self.assertEqual(self.text(".reasoning em"), "think")
        gate.set()
        self.wait_for_answer()
        self.assertEqual(self.texts("article.assistant summary") + self.texts(BODY), ["Reasoning", "Yes."])
        self.answer("q", "No thought.")
        self.assertEqual(Script.bodies[-1]["messages"][1], {"role": "assistant", "content": "Yes.", "reasoning_content": "I *think*"})
        self.assertEqual(self.browser.run("[...document.querySelectorAll('.reasoning')].map(found => found.hidden)"), [False, True])

    def test_calls_and_results(self):
        self.set(tools=json.dumps(TOOLS), tool_choice="auto")
        self.answer("Weather?", {"content": "Looking."}, dict(CALL), dict(ARGUMENTS))
        self.assertEqual((Script.bodies[-1]["tools"], Script.bodies[-1]["tool_choice"]), (TOOLS, "auto"))
        self.assertEqual(self.text(".call summary"), "Call of weather")
        self.assertEqual(self.text(".call pre"), '{\n  "city": "Oslo"\n}')
        self.screenshot("calls.png")
        Script.scripts.append([{"content": "It rains."}])
        self.browser.run("document.querySelector('.results textarea').focus()")
        self.browser.type("rain <b>")
        self.browser.press("Enter")
        self.browser.wait("document.querySelectorAll('article').length === 4")
        self.wait_for_answer()
        call = {"id": "call00001", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
        self.assertEqual(Script.bodies[-1]["messages"], [
            {"role": "user", "content": "Weather?"}, {"role": "assistant", "content": "Looking.", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call00001", "content": "rain <b>"}])
        self.assertEqual(self.text(".result"), "Result of weatherrain <b>")
        self.assertEqual(self.count(".results"), 0)
        self.set(use_tools=False)
        self.answer("Thanks", "Yes.")
        self.assertNotIn("tools", Script.bodies[-1])

    def test_the_schema_box_and_settings(self):
        schema = {"type": "object"}
        self.answer("q", "{}")
        self.assertNotIn("response_format", Script.bodies[-1])
        self.set(schema=json.dumps(schema), system="Be brief.", seed=7, top_k=40, min_p=0.1, max_tokens=99, thinking="off", budget=5,
                 model="scripted-adapter")
        self.assertEqual(self.text("#schema_open"), "Schema: on")
        self.answer("q", "{}")
        body = Script.bodies[-1]
        self.assertEqual(body["response_format"], {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}})
        self.assertEqual([body[name] for name in ("seed", "top_k", "min_p", "max_tokens", "enable_thinking", "reasoning_budget_tokens", "model")],
                         [7, 40, 0.1, 99, False, 5, "scripted-adapter"])
        self.assertEqual(body["messages"][0], {"role": "system", "content": "Be brief."})
        self.reload()
        self.assertEqual(self.browser.run("['seed', 'system', 'schema', 'model'].map(name => document.getElementById(name).value)"),
                         ["7", "Be brief.", json.dumps(schema), "scripted-adapter"])
        self.set(schema="{")
        self.assertNotEqual(self.text("#schema_fault"), "")
        self.ask("q")
        self.browser.wait("[...document.querySelectorAll('article .fault')].at(-1).textContent.startsWith('The schema is no JSON')")

    def test_chats_are_kept(self):
        self.answer("first question", "first *answer*", {"content": " drafted", "drafted": True})
        self.click("#clear")
        self.assertEqual(self.count("article"), 0)
        self.answer("second question", "second answer")
        self.assertEqual(self.texts("#chats li button:first-child"), ["second question", "first question"])
        self.reload()
        self.assertEqual(self.texts("article > .body"), ["second question", "second answer"])
        self.click("#chats li:nth-child(2) button")
        self.assertEqual(self.texts("article > .body"), ["first question", "first answer drafted"])
        self.assertEqual(self.texts("#talk .drafted"), [" drafted"])
        self.answer("more", "again")
        self.assertEqual(len(Script.bodies[-1]["messages"]), 3)
        self.assertEqual(self.texts("#chats li button:first-child"), ["first question", "second question"])
        self.browser.run("""window.saved = new Promise(resolve => {
            const make = URL.createObjectURL;
            URL.createObjectURL = blob => { resolve(blob.text()); return make(blob); }}); null""")
        self.click("#export")
        chats = json.loads(self.browser.run("window.saved"))["conversations"]
        self.assertEqual([[message["content"] for message in chat["messages"]] for chat in chats],
                         [["first question", "first *answer* drafted", "more", "again"], ["second question", "second answer"]])
        self.click("#chats li:nth-child(2) button:last-child")
        self.assertEqual(self.count("#chats li"), 2)
        self.click("#chats li:nth-child(2) button:last-child")
        self.assertEqual(self.texts("#chats li button:first-child"), ["first question"])
        self.reload()
        self.assertEqual(self.texts("#chats li button:first-child"), ["first question"])
        self.browser.run("localStorage.setItem('slm.chat.x', '{'); localStorage.setItem('slm.chat.y', '[1]');"
                         "localStorage.setItem('slm.settings', 'null')")
        self.reload()
        self.assertEqual(self.texts("#chats li button:first-child"), ["first question"])

    def test_a_full_storage_is_reported(self):
        self.browser.run("for (let size = 1 << 22; size > 16; size >>= 1) for (let k = 0; k < 2; ++k)"
                         "try { localStorage.setItem('fill' + size + k, 'x'.repeat(size)) } catch {}")
        self.answer("q" * 200, "a")
        self.assertIn("keeps no more chats", self.text("#notice"))
        self.browser.run("localStorage.clear()")
        self.answer("q", "a")
        self.assertEqual(self.text("#notice"), "")

    def test_the_keyboard_alone(self):
        self.assertEqual(self.browser.run("document.activeElement.id"), "input")
        gate = threading.Event()
        Script.scripts.append([{"content": "part"}, gate, {"content": "never"}])
        self.browser.type("line")
        self.browser.press("Enter", shift=True)
        self.browser.type("two")
        self.browser.press("Enter")
        self.browser.wait(f"document.querySelector('{BODY}')?.textContent === 'part'")
        self.browser.press("Escape")
        self.wait_for_answer()
        gate.set()
        self.assertEqual(Script.bodies[-1]["messages"][0]["content"], "line\ntwo")
        self.assertEqual((self.text(BODY), self.text("article.assistant footer")), ("part", "stopped"))
        focus = "document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent"
        seen = []
        for _ in range(30):
            self.browser.press("Tab")
            seen.append(self.browser.run(focus))
            self.assertTrue(self.browser.run("document.activeElement === document.body ||"
                                             "getComputedStyle(document.activeElement).outlineStyle !== 'none'"), seen)
            if seen[-1] == "Regenerate the answer":
                break
        Script.scripts.append([{"content": "whole"}])
        self.browser.press("Enter")
        self.browser.wait(f"document.querySelector('{BODY}')?.textContent === 'whole'")
        self.wait_for_answer()
        self.assertEqual(self.browser.run("document.activeElement.id"), "input")
        for name in ("settings", "schema", "tools"):
            self.browser.run(f"document.getElementById('{name}_open').focus()")
            self.browser.press("Enter")
            self.assertTrue(self.browser.run(f"document.getElementById('{name}_dialog').open"))
            self.screenshot(name + ".png")
            self.browser.press("Escape")
            self.assertFalse(self.browser.run(f"document.getElementById('{name}_dialog').open"))
            self.assertEqual(self.browser.run("document.activeElement.id"), name + "_open")
        unnamed = self.browser.run("""[...document.querySelectorAll("button, input, textarea, select")].filter(found =>
            !found.getAttribute("aria-label") && !found.textContent.trim() && !found.labels?.length).map(found => found.outerHTML)""")
        self.assertEqual(unnamed, [])

    def test_the_width_of_a_phone(self):
        self.browser.call("Emulation.setDeviceMetricsOverride", width=360, height=740, deviceScaleFactor=2, mobile=True)
        self.addCleanup(self.browser.call, "Emulation.clearDeviceMetricsOverride")
        self.reload()
        self.answer("A question with a" + " long" * 20 + " text and a" + "long" * 50 + "word",
                    "# A heading\n\nSome text with `code`, **bold**, and " + "y" * 200 + "\n\n```py\n" + "x = " + "1 + " * 60 + "1\n```\n\n"
                    "| a | b | c | d | e | f |\n|-|-|-|-|-|-|\n|" + "some words |" * 6 + "\n\n- one\n- two\n  - three\n", dict(CALL),
                    dict(ARGUMENTS))
        widths = "[document.documentElement.scrollWidth, document.getElementById('main').scrollWidth]"
        self.assertEqual(self.browser.run(widths), [360, 360])
        self.assertEqual(self.browser.run("getComputedStyle(document.getElementById('nav')).display"), "none")
        self.screenshot("phone.png")
        self.browser.run("document.getElementById('main').scrollTop = 0")
        self.screenshot("phone_top.png")
        self.click("#menu")
        self.assertEqual(self.browser.run("document.getElementById('menu').getAttribute('aria-expanded')"), "true")
        self.screenshot("phone_menu.png")
        self.browser.press("Escape")
        self.assertEqual(self.browser.run("getComputedStyle(document.getElementById('nav')).display"), "none")
        self.click("#settings_open")
        self.assertLessEqual(self.browser.run("document.getElementById('settings_dialog').scrollWidth"), 360)
        self.screenshot("phone_settings.png")
        self.assertGreaterEqual(self.browser.run("Math.min(...[...document.querySelectorAll('#form button')].map(found => found.offsetHeight))"), 28)

    def test_pictures(self):
        """A chat to look at, light and dark."""
        self.answer("Show me what you can do.", {"reasoning_content": "The user wants an overview."},
                    "## Overview\n\nText with **bold**, *italic*, `code` and a [link](https://example.org).\n\n",
                    {"content": "1. Numbered\n2. Items\n   - nested\n\n> A quote.\n\n", "drafted": True},
                    "```python\ndef read(path):\n    with open(path) as file:\n        return file.read()\n```\n\n| name | value |\n|---|--:|\n| a | 1 |\n"
                    "| b | 22 |\n")
        self.answer("And a second question?", "A short answer.")
        for scheme in ("light", "dark"):
            self.browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
            self.screenshot(scheme + ".png")
        self.browser.call("Emulation.setEmulatedMedia", features=[])
        self.assertEqual(self.count("#talk figure"), 1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
