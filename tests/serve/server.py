"""Common code of the tests of slm serve: a running server, and the command line for comparison."""
import contextlib
import http.client
import json
import pathlib
import subprocess
import sys
import tempfile

PROGRAM, SOURCE = sys.argv[1], pathlib.Path(sys.argv[2])
PAIR = SOURCE / "examples" / "demo_pair"
PATIENCE = 120  # time limit of an event, seconds
PROMPT = "def read_config(path):"
# The parameters of a function that the tests of tools offer.
MOVE = {"type": "object", "properties": {"to": {"enum": ["north", "south"]}, "steps": {"type": "integer", "minimum": 1, "maximum": 9}},
        "required": ["to", "steps"], "additionalProperties": False}
# A chat template with tools, calls and reasoning.
CALLING_TEMPLATE = """{% if tools %}<tools>{{ tools|tojson }}</tools>
{% endif %}{% for m in messages %}{{ m.role }}: {{ m.content }}{% for call in m.tool_calls or [] %}{{ '\\n' }}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments|tojson }}}
</tool_call>{% endfor %}{{ '\\n' }}{% endfor %}{% if add_generation_prompt %}assistant: {% if enable_thinking %}<think>
{% endif %}{% endif %}"""


class Server:
    """A running `slm serve`, by default on a free port. target: None: the arguments name the models."""

    def __init__(self, *arguments, target=PAIR / "target", port=0):
        target = [] if target is None else ["--target", target]
        command = [PROGRAM, "serve", *target, "--port", port, "--json", *arguments]
        self.process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        line = self.process.stdout.readline()
        if not line:
            fault = self.process.stderr.read()
            self.__exit__()
            raise AssertionError(fault)
        self.started = json.loads(line)
        self.port = self.started["port"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()

    def open(self, method, path, body=None, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        if body is not None and not isinstance(body, (str, bytes)):
            body = json.dumps(body)
        all_headers = {} if body is None else {"Content-Type": "application/json"}
        connection.request(method, path, body, all_headers | (headers or {}))
        return connection, connection.getresponse()

    def ask(self, method, path, body=None, headers=None):
        connection, response = self.open(method, path, body, headers)
        with contextlib.closing(connection):
            return response, response.read()

    def json(self, method, path, body=None, status=200, headers=None):
        response, text = self.ask(method, path, body, headers)
        if response.status != status:
            raise AssertionError(f"{response.status} instead of {status}: {text}")
        return json.loads(text)

    def complete(self, **fields):
        return self.json("POST", "/v1/completions", {"prompt": PROMPT, "temperature": 0} | fields)

    def chat(self, **fields):
        messages = [{"role": "user", "content": PROMPT}]
        return self.json("POST", "/v1/chat/completions", {"messages": messages, "temperature": 0, "max_tokens": 20} | fields)

    def stream(self, path, body):
        """The events of a stream without the last one, which is checked."""
        response, text = self.ask("POST", path, body | {"stream": True})
        assert response.status == 200, text
        assert response.headers["Content-Type"] == "text/event-stream; charset=utf-8", response.headers
        events = text.decode().split("\n\n")
        assert events[-2:] == ["data: [DONE]", ""], events[-3:]
        assert all(event.startswith("data: {") for event in events[:-2]), events
        return [json.loads(event[6:]) for event in events[:-2]]


    def named_events(self, path, body):
        """The events of a stream whose events are named by their types."""
        response, text = self.ask("POST", path, body | {"stream": True})
        assert response.status == 200, text
        events = text.decode().split("\n\n")
        assert events.pop() == "", text
        parsed = []
        for event in events:
            if event.startswith(":"):
                continue
            name, data = event.split("\n")
            parsed.append(json.loads(data.removeprefix("data: ")))
            assert name == "event: " + parsed[-1]["type"], event
        return parsed


def scratch_file(test, text):
    """The name of a file with this text, which the end of the class of tests removes."""
    file = tempfile.NamedTemporaryFile("w")
    test.addClassCleanup(file.close)
    file.write(text)
    file.flush()
    return file.name


def start_calling_server(test, *arguments):
    """A server of the demo pair whose template has tools, which the end of the class of tests stops."""
    server = Server("--draft", PAIR / "draft", "--chat-template", scratch_file(test, CALLING_TEMPLATE), *arguments)
    test.addClassCleanup(server.__exit__)
    return server


def slm(*arguments, stdin=None):
    result = subprocess.run([PROGRAM, *map(str, arguments)], input=stdin, capture_output=True, timeout=PATIENCE, check=True)
    return json.loads(result.stdout)


def generate(*arguments):
    return slm("generate", "--target", PAIR / "target", "--json", *arguments)
