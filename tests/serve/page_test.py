#!/usr/bin/env python3
"""The page of slm serve in a headless Chromium: a chat is streamed and can be stopped, drafted tokens are tinted, the server's
figures are live, dark and light; nothing is loaded from other servers.
usage: page_test.py PROGRAM SOURCE_DIR [SCREENSHOT.png]"""
import base64
import json
import pathlib
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

from server import PAIR, PATIENCE, PROMPT, Server

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
if CHROMIUM is None:
    print("SKIPPED: there is no chromium here")
    sys.exit(77)


class Browser:
    """A headless Chromium, controlled by its own protocol."""

    def __init__(self, scratch):
        self.process = subprocess.Popen(
            [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-port=0",
             f"--user-data-dir={scratch}", "--window-size=1000,760", "about:blank"], stderr=subprocess.PIPE, text=True)
        port = None
        for line in self.process.stderr:
            found = re.search(r"ws://127\.0\.0\.1:(\d+)/", line)
            if found:
                port = int(found[1])
                break
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=PATIENCE) as answer:
            page = next(target for target in json.load(answer) if target["type"] == "page")
        path = page["webSocketDebuggerUrl"].split(f":{port}", 1)[1]
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self.socket.sendall((f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                             "Sec-WebSocket-Key: c2xtIHNlcnZlIHRlc3Rlcg==\r\nSec-WebSocket-Version: 13\r\n\r\n").encode())
        self.stream = self.socket.makefile("rb")
        while self.stream.readline().strip():
            pass
        self.number, self.events = 0, []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def close(self):
        self.socket.close()
        self.process.kill()
        self.process.wait()
        self.process.stderr.close()

    def receive(self):
        payload, last = b"", False
        while not last:
            first, second = self.stream.read(2)
            last, length = first & 0x80, second & 0x7F
            if length == 126:
                length, = struct.unpack(">H", self.stream.read(2))
            elif length == 127:
                length, = struct.unpack(">Q", self.stream.read(8))
            payload += self.stream.read(length)
        return json.loads(payload)

    def call(self, method, **parameters):
        self.number += 1
        text = json.dumps({"id": self.number, "method": method, "params": parameters}).encode()
        length = bytes([0x80 | len(text)]) if len(text) < 126 else b"\xfe" + struct.pack(">H", len(text))
        self.socket.sendall(b"\x81" + length + b"\0\0\0\0" + text)  # a mask of zeros
        while True:
            message = self.receive()
            if message.get("id") == self.number:
                if "error" in message:
                    raise AssertionError(message["error"])
                return message["result"]
            self.events.append(message)

    def run(self, script):
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise AssertionError(result["exceptionDetails"])
        return result["result"].get("value")

    def wait(self, script):
        end = time.monotonic() + PATIENCE
        while not self.run(script):
            if time.monotonic() > end:
                raise AssertionError(f"never true: {script}")
            time.sleep(0.05)

    def screenshot(self, path):
        pathlib.Path(path).write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))


class PageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--draft", PAIR / "draft", "--draft-length", 4, "--template", "plain")
        cls.addClassCleanup(cls.server.__exit__)
        cls.scratch = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        cls.addClassCleanup(cls.scratch.cleanup)
        cls.browser = Browser(cls.scratch.name)
        cls.addClassCleanup(cls.browser.close)

    def setUp(self):
        self.browser.events.clear()
        self.browser.call("Page.navigate", url=f"http://127.0.0.1:{self.server.port}/")
        self.browser.wait("document.readyState === 'complete' && document.getElementById('model').textContent !== ''")

    def tearDown(self):
        """No violation of the page's policy, no exception, no request to another server."""
        for event in self.browser.events:
            self.assertNotIn(event["method"], ("Runtime.exceptionThrown",), event)
            if event["method"] == "Log.entryAdded":
                self.assertNotIn(event["params"]["entry"]["source"], ("security",), event)
            if event["method"] == "Network.requestWillBeSent":
                self.assertTrue(event["params"]["request"]["url"].startswith(f"http://127.0.0.1:{self.server.port}/"), event)

    def set(self, **fields):
        for name, value in fields.items():
            self.browser.run(f"document.getElementById({json.dumps(name)}).value = {json.dumps(str(value))}")

    def ask(self, text, **fields):
        self.set(input=text, temperature=0, **fields)
        self.browser.run("document.getElementById('form').requestSubmit()")

    def test_a_chat_is_streamed_with_its_drafted_tokens_tinted(self):
        self.ask(PROMPT, max_tokens=60)
        self.browser.wait("document.getElementById('send').textContent === 'Send' && !!document.querySelector('article footer')")
        said = self.browser.run("[...document.querySelectorAll('article.assistant span')].map(span => span.textContent).join('')")
        answer = self.server.json("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": PROMPT}],
                                                                   "temperature": 0, "max_tokens": 60, "top_p": 0.95})
        self.assertEqual(said, answer["choices"][0]["message"]["content"])
        self.assertGreater(self.browser.run("document.querySelectorAll('article .drafted').length"), 10)
        self.assertRegex(self.browser.run("document.querySelector('article footer').textContent"),
                         r"tokens/s · \d+ % of \d+ drafted tokens accepted · .* tokens per step")
        self.browser.wait("document.getElementById('acceptance').textContent.endsWith('%')")
        self.browser.wait("document.getElementById('running').textContent === '0'")
        if len(sys.argv) > 3:
            self.browser.screenshot(sys.argv[3])

    def test_stop_ends_an_answer(self):
        self.ask(PROMPT, max_tokens=100000, mode="text")
        self.browser.wait("document.querySelectorAll('article.assistant span').length > 3")
        if self.browser.run("document.getElementById('send').textContent") == "Stop":
            self.browser.run("document.getElementById('send').click()")
        self.browser.wait("document.getElementById('send').textContent === 'Send'")
        self.browser.wait("document.getElementById('running').textContent === '0'")

    def test_an_error_is_shown(self):
        self.ask("word " * 5000)
        self.browser.wait("!!document.querySelector('.fault')")
        self.assertIn("maximum context length", self.browser.run("document.querySelector('.fault').textContent"))

    def test_a_models_text_is_escaped(self):
        self.ask("<img src=x onerror=\"document.title = 'taken'\">", max_tokens=3)
        self.browser.wait("document.getElementById('send').textContent === 'Send'")
        self.assertEqual(self.browser.run("[document.title, document.querySelectorAll('img').length]"), ["slm", 0])

    def test_dark_and_light(self):
        colour = "getComputedStyle(document.body).backgroundColor"
        before = self.browser.run(colour)
        self.browser.run("document.getElementById('theme').click()")
        self.assertNotEqual(self.browser.run(colour), before)

    def test_the_policy_is_strict(self):
        response, page = self.server.ask("GET", "/")
        policy = response.headers["Content-Security-Policy"]
        nonce = re.search(r"script-src 'nonce-([^']+)'", policy)[1]
        self.assertIn("default-src 'none'", policy)
        self.assertNotIn("unsafe", policy)
        self.assertEqual(page.decode().count(f'nonce="{nonce}"'), 2)
        self.assertNotIn(nonce.encode(), self.server.ask("GET", "/")[1])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
