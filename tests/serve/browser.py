"""A headless Chromium for the tests of the page of slm serve, controlled by its own protocol, and pages in it."""
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

from server import PATIENCE

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
if CHROMIUM is None:
    print("SKIPPED: there is no chromium here")
    sys.exit(77)


KEYS = {"Enter": 13, "Escape": 27, "Tab": 9}


class Browser:

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
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)

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

    def press(self, key, shift=False):
        """Presses a key as the keyboard does."""
        text = {"Enter": "\r"}.get(key, "")
        fields = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key], "modifiers": 8 if shift else 0}
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **fields)
        self.call("Input.dispatchKeyEvent", type="keyUp", **fields)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def screenshot(self, path):
        pathlib.Path(path).write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))


class PageCase(unittest.TestCase):
    """Opens the page of `cls.port` for each test."""

    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        cls.addClassCleanup(scratch.cleanup)
        cls.browser = Browser(scratch.name)
        cls.addClassCleanup(cls.browser.close)

    def setUp(self):
        self.browser.events.clear()
        self.open()
        self.browser.run("localStorage.clear()")
        self.open()

    def open(self):
        self.browser.call("Page.navigate", url=f"http://127.0.0.1:{self.port}/")
        self.wait_until_ready()

    def reload(self):
        self.browser.run("window.isOld = true")
        self.browser.call("Page.reload")
        self.browser.wait("!window.isOld")
        self.wait_until_ready()

    def wait_until_ready(self):
        self.browser.wait("document.readyState === 'complete' && document.getElementById('model').textContent !== ''")

    def tearDown(self):
        """No violation of the page's policy, no exception, no request to another server."""
        for event in self.browser.events:
            self.assertNotIn(event["method"], ("Runtime.exceptionThrown",), event)
            if event["method"] == "Log.entryAdded":
                self.assertNotIn(event["params"]["entry"]["source"], ("security",), event)
            if event["method"] == "Network.requestWillBeSent":
                url = event["params"]["request"]["url"]
                self.assertTrue(url.startswith((f"http://127.0.0.1:{self.port}/", "blob:")), event)

    def set(self, **fields):
        """Changes fields as a user does."""
        for name, value in fields.items():
            member, value = ("checked", value) if isinstance(value, bool) else ("value", str(value))
            self.browser.run(f"{{const field = document.getElementById({json.dumps(name)}); field.{member} = {json.dumps(value)};"
                             "field.dispatchEvent(new Event('input', {bubbles: true}))}")

    def ask(self, text, **fields):
        self.set(input=text, **fields)
        self.browser.run("document.getElementById('form').requestSubmit()")

    def wait_for_answer(self):
        self.browser.wait("document.getElementById('send').textContent === 'Send' && !!document.querySelector('article')")

    def click(self, selector):
        self.browser.run(f"document.querySelector({json.dumps(selector)}).click()")

    def text(self, selector):
        return self.browser.run(f"document.querySelector({json.dumps(selector)}).textContent")

    def texts(self, selector):
        return self.browser.run(f"[...document.querySelectorAll({json.dumps(selector)})].map(found => found.textContent)")

    def count(self, selector):
        return self.browser.run(f"document.querySelectorAll({json.dumps(selector)}).length")
