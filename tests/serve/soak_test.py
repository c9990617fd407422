#!/usr/bin/env python3
"""slm serve with clients of every kind, with little memory for its cache: correct ones, whose answers equal those of single
requests, and some that disconnect, stop reading or send invalid data. At the end nothing is running, and all memory is free.
usage: soak_test.py PROGRAM SOURCE_DIR [SECONDS]"""
import http.client
import json
import random
import re
import socket
import sys
import threading
import time
import unittest

from server import PAIR, PATIENCE, PROMPT, Server

SECONDS = float(sys.argv[3]) if len(sys.argv) > 3 else 15
CLIENTS = 12
RUBBISH = [b"GET / HTTP/1.1\r\n\r\n", b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
           b"\x16\x03\x01\x02\x00\x01", b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{\"prompt",
           b"A" * 20000, b"GET /metrics HTTP/1.1\r\nHost: x\r\n : y\r\n\r\n"]
BODIES = [b"{", b"[" * 5000, b'{"prompt": 3}', b'{"prompt": "a", "n": 1000}', b'{"prompt": "a", "temperature": 1e999}', b"\xff", b'{"prompt": [[]]}']


def request_of(number):
    """One of fifty requests with shared prefixes, short and long, greedy and sampled."""
    choose = random.Random(number)
    return {"prompt": (PROMPT + "\n") * choose.choice((1, 1, 4, 12)) + "x" * choose.randrange(3), "max_tokens": choose.choice((1, 8, 40, 120)),
            "temperature": choose.choice((0, 0.9)), "seed": number, "logprobs": 1, "ignore_eos": True, "echo": choose.random() < 0.2}


class SoakTest(unittest.TestCase):
    def setUp(self):
        self.server = Server("--draft", PAIR / "draft", "--cache-memory", "3MiB", "--max-running", 8, "--max-requests", 64, "--template", "plain")
        self.addCleanup(self.server.__exit__)
        self.faults, self.answered, self.refused = [], 0, 0
        self.lock = threading.Lock()

    def answer(self, number):
        response, text = self.server.ask("POST", "/v1/completions", request_of(number))
        if response.status == 503:
            with self.lock:
                self.refused += 1
            return None
        self.assertEqual(response.status, 200, text)
        choice = json.loads(text)["choices"][0]
        return choice["text"], choice["logprobs"]["token_logprobs"]

    def honest(self, choose):
        number = choose.randrange(50)
        said = self.answer(number)
        if said is not None:
            self.assertEqual(said, self.alone[number])
            with self.lock:
                self.answered += 1

    def leaver(self, choose):
        connection, response = self.server.open("POST", "/v1/completions", request_of(choose.randrange(50)) | {"stream": True, "max_tokens": 300})
        response.read(choose.randrange(400))
        connection.close()
        response.close()

    def sluggish(self, choose):
        with socket.create_connection(("127.0.0.1", self.server.port), PATIENCE) as raw:
            body = json.dumps(request_of(choose.randrange(50)) | {"stream": True, "max_tokens": 400}).encode()
            raw.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            time.sleep(choose.random())

    def rubbish(self, choose):
        with socket.create_connection(("127.0.0.1", self.server.port), PATIENCE) as raw:
            raw.sendall(choose.choice(RUBBISH))
            if choose.random() < 0.5:
                raw.settimeout(0.2)
                try:
                    raw.recv(1000)
                except OSError:
                    pass

    def wrong(self, choose):
        response, text = self.server.ask("POST", choose.choice(("/v1/completions", "/v1/chat/completions", "/v1/embeddings", "/tokenize")),
                                         choose.choice(BODIES))
        self.assertLess(response.status, 500, text)

    def client(self, seed):
        choose = random.Random(seed)
        kinds = [self.honest] * 6 + [self.leaver, self.leaver, self.sluggish, self.rubbish, self.wrong]
        try:
            while time.monotonic() < self.end and not self.faults:
                try:
                    choose.choice(kinds)(choose)
                except (ConnectionError, http.client.RemoteDisconnected):
                    pass  # of clients that cause it
        except BaseException as fault:
            self.faults.append(fault)

    def test_every_client_gets_its_answer_and_nothing_remains(self):
        self.alone = [self.answer(number) for number in range(50)]
        self.end = time.monotonic() + SECONDS
        clients = [threading.Thread(target=self.client, args=(seed,)) for seed in range(CLIENTS)]
        for one in clients:
            one.start()
        for one in clients:
            one.join()
        if self.faults:
            raise self.faults[0]
        end = time.monotonic() + PATIENCE
        while self.server.json("GET", "/load")["server_load"] > 0:
            self.assertLess(time.monotonic(), end, "a request is stuck")
            time.sleep(0.05)
        text = self.server.ask("GET", "/metrics")[1].decode()
        samples = dict(re.findall(r"^([\w:]+\{[^}]*\}) (\S+)$", text, re.M))
        value = lambda name: sum(float(samples[key]) for key in samples if key.startswith(name + "{"))
        self.assertEqual(value("vllm:kv_cache_usage_perc"), 0)
        self.assertEqual(value("vllm:iteration_tokens_total_sum"), value("vllm:prompt_tokens_total") + value("vllm:generation_tokens_total"))
        began = value("vllm:request_queue_time_seconds_count")
        self.assertEqual(value("vllm:e2e_request_latency_seconds_count"), began)
        self.assertGreaterEqual(value("vllm:request_success_total"), began)  # some disconnect before they start
        self.assertGreater(self.answered, 10)
        print(f"{self.answered} answers as alone, {self.refused} refused, {value('vllm:num_preemptions_total'):.0f} preemptions in {SECONDS:.0f} s")
        self.server.process.terminate()
        self.assertEqual(self.server.process.wait(PATIENCE), 0, self.server.process.stderr.read())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
