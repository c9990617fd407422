"""The page of slm serve with a server that answers chats by scripts."""
import http.server
import json
import threading

from browser import PageCase
from server import PATIENCE, Server

BODY = "article.assistant > .body"


class Script(http.server.BaseHTTPRequestHandler):
    """Answers each chat with the next script: a list of deltas, and of events to wait for."""
    page, policy, scripts, bodies = b"", "", [], []

    def log_message(self, *_):
        pass

    def handle_one_request(self):
        try:
            super().handle_one_request()
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # the page has stopped an answer, or was left

    def reply(self, kind, body, **headers):
        self.send_response(200)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path == "/":
            self.reply("text/html; charset=utf-8", self.page, Content_Security_Policy=self.policy)
        elif self.path == "/v1/models":
            self.reply("application/json", json.dumps({"data": [{"id": "scripted"}, {"id": "scripted-adapter"}]}).encode())
        else:
            self.reply("text/plain", b"")

    def do_POST(self):
        self.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.end_headers()
        for step in self.scripts.pop(0):
            if isinstance(step, threading.Event):
                step.wait(PATIENCE)
                continue
            drafted = step.pop("drafted", False)
            self.event({"index": 0, "delta": step, "finish_reason": None, **({"slm": {"drafted": True}} if drafted else {})})
        self.event({"index": 0, "delta": {}, "finish_reason": "stop", "slm": {"statistics": {"drafted": 0}}})
        self.wfile.write(b"data: [DONE]\n\n")

    def event(self, choice):
        self.wfile.write(f"data: {json.dumps({'choices': [choice]})}\n\n".encode())
        self.wfile.flush()


class ScriptedCase(PageCase):
    @classmethod
    def setUpClass(cls):
        with Server() as server:
            response, Script.page = server.ask("GET", "/")
            Script.policy = response.headers["Content-Security-Policy"]
        scripted = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Script)
        cls.port = scripted.server_port
        threading.Thread(target=scripted.serve_forever, daemon=True).start()
        cls.addClassCleanup(scripted.server_close)
        cls.addClassCleanup(scripted.shutdown)
        super().setUpClass()
        cls.browser.call("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])

    def setUp(self):
        Script.scripts, Script.bodies = [], []
        super().setUp()

    def answer(self, question, *deltas):
        """Asks, with these deltas as the answer; texts are deltas of the content."""
        Script.scripts.append([{"content": delta} if isinstance(delta, str) else delta for delta in deltas])
        self.ask(question)
        self.wait_for_answer()
