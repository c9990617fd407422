#!/usr/bin/env python3
"""slm serve for its operator: keys, a full server, health, shutdown.
usage: operation_test.py PROGRAM SOURCE_DIR"""
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from server import PAIR, PATIENCE, PROGRAM, PROMPT, Server


class Operation(unittest.TestCase):
    def test_computing_routes_require_keys(self):
        with tempfile.NamedTemporaryFile("w") as keys:
            keys.write("first-key\nsecond-key\n")
            keys.flush()
            with Server("--api-key-file", keys.name) as server:
                self.assertEqual(server.ask("GET", "/health")[0].status, 200)
                for key in (None, "", "Bearer", "Bearer first", "Bearer first-key2", "first-key"):
                    headers = {} if key is None else {"Authorization": key}
                    error = server.json("GET", "/v1/models", status=401, headers=headers)["error"]
                    self.assertEqual((error["type"], error["code"]), ("authentication_error", "invalid_api_key"))
                for key in ("first-key", "second-key"):
                    server.json("GET", "/v1/models", headers={"Authorization": f"Bearer {key}"})

    def test_the_start_reports_that_chats_are_rejected(self):
        question = {"messages": [{"role": "user", "content": "x"}]}
        for arguments, error in (([], "chat.unrecognised"), (["--template", "chatml"], "chat.missing-token")):
            with self.subTest(error=error), Server(*arguments) as server:
                self.assertIsNone(server.started["chat_template"])
                self.assertIn(error, server.started["chat_notice"])
                self.assertIn(error, json.dumps(server.json("POST", "/v1/chat/completions", question, status=400)))
        with Server("--template", "plain") as server:
            self.assertEqual((server.started["chat_template"], server.started["chat_notice"]), ("plain", None))

    def test_pages_of_allowed_origins_can_use_keys_and_read_errors_and_streams(self):
        origin = {"Origin": "https://page.example"}
        with tempfile.NamedTemporaryFile("w") as keys:
            keys.write("key\n")
            keys.flush()
            origins = ("--cors-origin", "HTTPS://Page.Example:443", "--cors-origin", "http://b")
            with Server("--api-key-file", keys.name, *origins) as server:
                asks = {"Access-Control-Request-Method": "POST",
                        "Access-Control-Request-Headers": "authorization, content-type"}
                preflight, _ = server.ask("OPTIONS", "/v1/completions", headers=origin | asks)
                self.assertEqual(preflight.status, 200)
                self.assertEqual(preflight.headers["Access-Control-Allow-Headers"], "authorization, content-type")
                body = {"prompt": "x", "max_tokens": 2, "stream": True}
                key = {"Authorization": "bearer  key"}
                path = "/v1/completions"
                for status, headers, path, fields in ((401, {}, path, body), (404, key, "/none", body),
                                                      (400, key, path, {}), (200, key, path, body)):
                    response, _ = server.ask("POST", path, fields, headers=origin | headers)
                    self.assertEqual(response.status, status)
                    self.assertEqual(response.headers["Access-Control-Allow-Origin"], "https://page.example")
                options, _ = server.ask("OPTIONS", "/v1/models")
                self.assertEqual((options.status, options.headers["Allow"]), (200, "GET, HEAD, OPTIONS"))
        wrong = subprocess.run([PROGRAM, "serve", "--target", PAIR / "target", "--cors-origin", "example.org"],
                               capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(wrong.returncode, 2)
        self.assertIn("SCHEME://HOST", wrong.stderr)

    def test_a_server_without_the_page_answers_on_several_addresses(self):
        with Server("--no-page", "--no-slots", "--no-metrics", "--host", "127.0.0.1,127.0.0.2", "--cors-origin", "localhost") as server:
            self.assertEqual(server.started["address"], f"http://127.0.0.1:{server.port}")
            for address in ("127.0.0.1", "127.0.0.2"):
                with socket.create_connection((address, server.port), PATIENCE) as raw:
                    raw.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                    self.assertIn(b" 200 ", raw.recv(100))
            self.assertEqual([server.ask("GET", path)[0].status for path in ("/", "/slots", "/metrics")], [404, 501, 501])
            for origin in ("http://localhost:8080", "http://[::1]"):
                response, _ = server.ask("GET", "/health", headers={"Origin": origin})
                self.assertEqual(response.headers["Access-Control-Allow-Origin"], origin)
            self.assertIsNone(server.ask("GET", "/health", headers={"Origin": "http://a"})[0].headers["Access-Control-Allow-Origin"])

    def test_names_are_percent_encoded(self):
        with Server("--served-model-name", "org/my model", "--served-model-name", "m\u00f6del%") as server:
            for escaped in ("org%2Fmy%20model", "org/my%20model", "m%C3%B6del%25", "m%c3%b6del%25"):
                server.json("GET", f"/v1/models/{escaped}")
            server.json("GET", "/v1/models/org%252Fmy%2520model", status=404)
            error = server.json("GET", "/v1/models/m%C3%B6del%", status=400)["error"]
            self.assertEqual(error["slm_id"], "serve.bad-http")

    def test_a_model_has_the_name_in_its_path(self):
        with tempfile.TemporaryDirectory() as scratch:
            snapshots = pathlib.Path(scratch) / "models--org--tiny" / "snapshots"
            snapshots.mkdir(parents=True)
            link = snapshots / "0a1b2c"
            link.symlink_to((PAIR / "target").resolve())
            mine = pathlib.Path(scratch) / "mine"
            mine.symlink_to(link)
            for target, name in ((f"{link}", "tiny"), (f"{link}/", "tiny"), (f"{mine}", "mine"), (f"{mine}/.", "mine")):
                with self.subTest(target), Server(target=target) as server:
                    self.assertEqual(server.json("GET", "/v1/models")["data"][0]["id"], name)

    def test_loopback_addresses_need_no_key_in_any_form(self):
        try:
            with socket.socket(socket.AF_INET6) as probe:
                probe.bind(("::1", 0))
        except OSError:
            self.skipTest("this machine has no ::1")
        for host in ("localhost", "[::1]", "0:0:0:0:0:0:0:1", "::ffff:127.0.0.1"):
            with self.subTest(host), Server("--host", host) as server:
                text = host.strip("[]")
                shown = f"[{text}]" if ":" in text else text
                self.assertEqual(server.started["address"], f"http://{shown}:{server.port}")
        for host in ("[::]", "0.0.0.0", "::ffff:0.0.0.0"):
            with self.subTest(host), self.assertRaisesRegex(AssertionError, "serve.exposed"):
                Server("--host", host)

    def test_a_full_server_sends_retry_after(self):
        with Server("--max-requests", "2") as server:
            body = {"prompt": PROMPT, "stream": True, "max_tokens": 900, "ignore_eos": True, "temperature": 0, "n": 2}
            connection, response = server.open("POST", "/v1/completions", body)
            refused, text = server.ask("POST", "/v1/completions", {"prompt": "x"})
            self.assertEqual(refused.status, 503, text)
            self.assertLessEqual(int(refused.headers["Retry-After"]), 120)
            self.assertEqual(json.loads(text)["error"]["code"], "overloaded")
            self.assertEqual(response.status, 200)
            self.assertIn(b"data: [DONE]", response.read())
            connection.close()
            server.complete(max_tokens=1)

    def test_sigterm_completes_texts_until_a_deadline(self):
        body = {"prompt": PROMPT, "stream": True, "max_tokens": 300, "ignore_eos": True, "temperature": 0}
        with Server() as server:
            connection, response = server.open("POST", "/v1/completions", body)
            response.read(10)
            server.process.send_signal(signal.SIGTERM)
            text = response.read()
            self.assertTrue(text.endswith(b"data: [DONE]\n\n"))
            self.assertIn(b'"finish_reason":"length"', text)
            connection.close()
            self.assertEqual(server.process.wait(PATIENCE), 0)
        with Server("--drain-timeout", "0") as server:
            connection, response = server.open("POST", "/v1/completions", body | {"max_tokens": 1000})
            response.read(10)
            server.process.send_signal(signal.SIGTERM)
            text = response.read().decode()
            self.assertIn('data: {"error":', text)
            self.assertTrue(text.endswith("data: [DONE]\n\n"))
            connection.close()
            self.assertEqual(server.process.wait(PATIENCE), 0)

    def test_sigterm_ends_a_load(self):
        def hold_signal():  # it is pending before the program starts, which finds it while the model loads
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
            os.kill(os.getpid(), signal.SIGTERM)

        ended = subprocess.run([PROGRAM, "serve", "--target", PAIR / "target", "--port", "0", "--json"], preexec_fn=hold_signal,
                               capture_output=True, timeout=PATIENCE)
        self.assertEqual((ended.returncode, ended.stdout, ended.stderr), (0, b"", b""))

    def test_health_fails_while_the_server_drains(self):
        with Server("--drain-delay", "3600") as server:
            server.process.send_signal(signal.SIGTERM)
            deadline = time.monotonic() + PATIENCE
            while server.ask("GET", "/health")[0].status == 200:
                self.assertLess(time.monotonic(), deadline)
            self.assertEqual(server.ask("GET", "/health")[0].status, 503)
            server.complete(max_tokens=1)  # still served
            server.process.send_signal(signal.SIGTERM)  # the second signal ends it immediately
            self.assertEqual(server.process.wait(PATIENCE), 0)

    def test_a_public_address_requires_keys(self):
        result = subprocess.run([PROGRAM, "serve", "--target", PAIR / "target", "--host", "0.0.0.0", "--port", "0"],
                                capture_output=True, timeout=PATIENCE)
        self.assertEqual(result.returncode, 1)
        self.assertIn(b"[serve.exposed]", result.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
