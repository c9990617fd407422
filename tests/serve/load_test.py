#!/usr/bin/env python3
"""slm serve under the load of 64 clients with schemas, tools and free text on every route: no error, the answers of single
requests, and behind the load the memory, threads and descriptors of the server after its warm-up.
usage: load_test.py PROGRAM SOURCE_DIR [SECONDS]"""
import json
import os
import pathlib
import random
import re
import sys
import tempfile
import threading
import time
import unittest

from server import CALLING_TEMPLATE, PAIR, PATIENCE, PROMPT, Server

SECONDS = float(sys.argv[3]) if len(sys.argv) > 3 else 10
CLIENTS = 64
DISTINCT = 200 if SECONDS >= 60 else 50  # requests
GROWTH = 24 << 20  # bytes that the allocator may keep

SCHEMAS = [
    {"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer", "minimum": 0, "maximum": 120}},
     "required": ["name", "age"], "additionalProperties": False},
    {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "minItems": 1, "maxItems": 3},
    {"anyOf": [{"const": "yes"}, {"type": "object", "properties": {"why": {"type": "string", "maxLength": 6}}, "required": ["why"],
                                  "additionalProperties": False}]},
    {"type": "object", "properties": {"on": {"type": "boolean"}, "at": {"type": "string", "pattern": "^[0-2][0-9]:[0-5][0-9]$"}},
     "required": ["on", "at"], "additionalProperties": False},
]
TOOLS = [{"name": f"tool_{i}", "description": "a tool", "parameters": schema if schema.get("type") == "object" else
          {"type": "object", "properties": {"value": schema}, "required": ["value"], "additionalProperties": False}}
         for i, schema in enumerate(SCHEMAS)]


def request_of(number):
    """A route and a body; the same number gives the same request."""
    choose = random.Random(number)
    messages = [{"role": "user", "content": PROMPT + "\n" * choose.randrange(3)}]
    sampling = {"temperature": choose.choice((0, 0.9)), "seed": number, "stream": choose.random() < 0.5}
    chat = {"messages": messages, "max_tokens": 200} | sampling
    kind = choose.randrange(9)
    if kind == 0:
        return "/v1/completions", {"prompt": PROMPT * choose.randrange(1, 6), "max_tokens": choose.choice((4, 32))} | sampling
    if kind == 1:
        return "/v1/chat/completions", chat | {"max_tokens": 24}
    if kind == 2:
        schema = {"name": "answer", "schema": choose.choice(SCHEMAS)}
        return "/v1/chat/completions", chat | {"response_format": {"type": "json_schema", "json_schema": schema}}
    if kind == 3:
        return "/v1/completions", {"prompt": PROMPT, "max_tokens": 40, "guided_regex": "(ab|c)[0-9]{2,5}"} | sampling
    if kind == 4:
        return "/v1/chat/completions", chat | {"guided_choice": ["left", "right", "neither"]}
    if kind in (5, 6):
        tools = [{"type": "function", "function": tool} for tool in choose.sample(TOOLS, 2)]
        return "/v1/chat/completions", chat | {"tools": tools, "tool_choice": "required" if kind == 5 else "auto", "max_tokens": 80}
    if kind == 7:
        return "/v1/messages", {"messages": messages, "max_tokens": 200, "temperature": sampling["temperature"], "seed": number,
                                "stream": sampling["stream"], "tool_choice": {"type": "any"},
                                "tools": [{"name": tool["name"], "input_schema": tool["parameters"]} for tool in choose.sample(TOOLS, 2)]}
    return "/v1/responses", {"input": PROMPT, "max_output_tokens": 200,
                             "text": {"format": {"type": "json_schema", "name": "answer", "schema": choose.choice(SCHEMAS)}}} | sampling


def without_ids(value):
    """An answer without what two answers to one request may differ in."""
    differing = ("id", "created", "created_at", "usage", "item_id", "slm", "completed_at")
    if isinstance(value, dict):
        return {name: without_ids(part) for name, part in value.items() if name not in differing}
    return [without_ids(part) for part in value] if isinstance(value, list) else value


def joined(events):
    """A stream as the texts of its events without what depends on the moment: tokens of one step share an event."""
    texts, end = {}, []

    def walk(value, path):
        if isinstance(value, dict):
            for name, part in value.items():
                walk(part, path + (name,))
        elif isinstance(value, list):
            for part in value:
                walk(part, path)
        elif isinstance(value, str) and path[-1] in ("text", "content", "delta", "partial_json", "arguments", "name"):
            texts[path] = texts.get(path, "") + value
        elif value is not None and path[-1] in ("finish_reason", "stop_reason", "status"):
            end.append(value)

    for event in events:
        walk(event, ())
    return texts, end


class LoadTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        template = pathlib.Path(folder.name) / "template.jinja"
        template.write_text(CALLING_TEMPLATE)
        self.server = Server("--draft", PAIR / "draft", "--cache-memory", "8MiB", "--max-running", 16, "--chat-template", template)
        self.addCleanup(self.server.__exit__)
        self.faults, self.answered = [], 0
        self.lock = threading.Lock()

    def answer(self, number):
        path, body = request_of(number)
        response, text = self.server.ask("POST", path, body)
        self.assertEqual(response.status, 200, text)
        if not body["stream"]:
            said = without_ids(json.loads(text))
            self.check(path, body, said)
            return said
        events = [json.loads(line[6:]) for line in text.decode().split("\n") if line.startswith("data: {")]
        self.assertFalse([event for event in events if "error" in event], text)
        return joined(events)

    def check(self, path, body, said):
        """Calls and structured answers that were not cut are complete."""
        calls = []  # names and arguments
        if path == "/v1/messages" and said["stop_reason"] == "tool_use":
            calls = [(block["name"], block["input"]) for block in said["content"] if block["type"] == "tool_use"]
        elif path == "/v1/responses" and said["status"] == "completed":
            json.loads(said["output"][-1]["content"][0]["text"])
        elif path == "/v1/chat/completions":
            choice = said["choices"][0]
            if choice["finish_reason"] == "tool_calls":
                calls = [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in choice["message"]["tool_calls"]]
            elif "response_format" in body and choice["finish_reason"] == "stop":
                json.loads(choice["message"]["content"])
        for name, given in calls:
            self.assertLessEqual(set(next(tool["parameters"] for tool in TOOLS if tool["name"] == name)["required"]), set(given), said)

    def client(self, seed):
        choose = random.Random(seed)
        try:
            while time.monotonic() < self.end and not self.faults:
                number = choose.randrange(DISTINCT)
                said = self.answer(number)
                self.assertEqual(said, self.alone[number], f"request {number}: {request_of(number)}")
                with self.lock:
                    self.answered += 1
        except BaseException as fault:
            self.faults.append(fault)

    def load(self, seconds, seed):
        self.end = time.monotonic() + seconds
        clients = [threading.Thread(target=self.client, args=(seed + i,)) for i in range(CLIENTS)]
        for one in clients:
            one.start()
        for one in clients:
            one.join()
        if self.faults:
            raise self.faults[0]

    def used(self):
        """Bytes of memory, threads and descriptors of the idle server."""
        process = pathlib.Path("/proc") / str(self.server.process.pid)
        end = time.monotonic() + PATIENCE
        while self.value("slm:open_connections") > 1 or self.value("vllm:kv_cache_usage_perc") > 0:
            self.assertLess(time.monotonic(), end, "requests are stuck, or pages are not free")
            time.sleep(0.05)
        if not process.exists():
            return None
        status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
        descriptors = []
        for _ in range(20):  # connections of the last questions may still close
            time.sleep(0.05)
            descriptors.append(len(os.listdir(process / "fd")))
        return int(status["VmRSS"].split()[0]) << 10, int(status["Threads"]), min(descriptors)

    def value(self, name):
        text = self.server.ask("GET", "/metrics")[1].decode()
        return sum(float(value) for value in re.findall(rf"^{name}(?:\{{.*\}})? (\S+)$", text, re.M))

    def test_answers_are_those_of_single_requests_and_nothing_leaks(self):
        self.alone = [self.answer(number) for number in range(DISTINCT)]
        self.load(SECONDS / 4, 0)
        before = self.used()
        self.load(SECONDS, CLIENTS)
        after = self.used()
        self.assertGreater(self.answered, 2 * CLIENTS)
        print(f"{self.answered} answers as alone in {SECONDS:.0f} s; bytes, threads, descriptors: {before} before, {after} after")
        if before is not None:
            self.assertLess(after[0], before[0] + GROWTH)
            self.assertEqual(after[1], before[1])
            self.assertLessEqual(after[2], before[2])
        self.server.process.terminate()
        self.assertEqual(self.server.process.wait(PATIENCE), 0, self.server.process.stderr.read())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
