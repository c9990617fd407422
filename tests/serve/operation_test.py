#!/usr/bin/env python3
"""What who runs slm serve sees: keys, a full server, health, how it ends.
usage: operation_test.py PROGRAM SOURCE_DIR"""
import json
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from server import PAIR, PATIENCE, PROGRAM, PROMPT, Server


class Operation(unittest.TestCase):
    def test_keys_guard_what_computes(self):
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

    def test_a_full_server_says_when_to_come_again(self):
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

    def test_sigterm_lets_texts_end_and_a_deadline_ends_them(self):
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

    def test_health_fails_while_the_server_drains(self):
        with Server("--drain-delay", "3600") as server:
            server.process.send_signal(signal.SIGTERM)
            deadline = time.monotonic() + PATIENCE
            while server.ask("GET", "/health")[0].status == 200:
                self.assertLess(time.monotonic(), deadline)
            self.assertEqual(server.ask("GET", "/health")[0].status, 503)
            server.complete(max_tokens=1)  # still served
            server.process.send_signal(signal.SIGTERM)  # the second one ends it at once
            self.assertEqual(server.process.wait(PATIENCE), 0)

    def test_a_public_address_wants_keys(self):
        result = subprocess.run([PROGRAM, "serve", "--target", PAIR / "target", "--host", "0.0.0.0", "--port", "0"],
                                capture_output=True, timeout=PATIENCE)
        self.assertEqual(result.returncode, 1)
        self.assertIn(b"[serve.exposed]", result.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
