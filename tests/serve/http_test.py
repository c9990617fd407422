#!/usr/bin/env python3
"""The HTTP server as honest clients see it, and how it ends: raw sockets against http_test_server.
usage: http_test.py SERVER [TEST...]"""
import json
import resource
import socket
import subprocess
import sys
import unittest

from http_client import CLOSE, PATIENCE, SERVER, Answer, Server, get, post, read_all, read_until, without_interim


class Honest(unittest.TestCase):
    """What clients may expect."""

    @classmethod
    def setUpClass(cls):
        cls.server = Server(silence=200)

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__()

    def test_an_answer_is_what_the_handler_says(self):
        answer = Answer(self.server.exchange(post("/echo?7", b"{}", "Content-Type: Application/JSON; a=b", "Authorization: Bearer k",
                                                  "X-Request-Id: mine", CLOSE)))
        self.assertEqual((answer.status, answer.body), (200, b"POST|7|application/json|Bearer k|{}"))
        self.assertEqual(answer.headers["x-request-id"], "mine")
        self.assertEqual(answer.headers["connection"], "close")
        self.assertRegex(answer.headers["date"], r"^\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT$")

    def test_a_request_without_a_sound_id_gets_one(self):
        ids = {Answer(self.server.exchange(get("/echo", CLOSE, *fields))).headers["x-request-id"]
               for fields in ([], [], ["X-Request-Id: a b"], ["X-Request-Id: " + "x" * 129])}
        self.assertEqual(len(ids), 4)
        for name in ids:
            self.assertRegex(name, "^[0-9a-f]{32}$")

    def test_headers_of_an_answer_cannot_be_split(self):
        self.assertEqual(Answer(self.server.exchange(get("/bytes?1", CLOSE))).headers["x-extra"], "a  b")

    def test_a_connection_is_kept_for_the_next_request(self):
        with self.server.connect() as client:
            for number in range(3):
                client.sendall(get(f"/echo?{number}"))
                answer = Answer(read_until(client, b"|||"))
                self.assertEqual(answer.body, f"GET|{number}|||".encode())
                self.assertNotIn("connection", answer.headers)

    def test_pipelined_requests_are_answered_in_turn(self):
        received = self.server.exchange(get("/later?3") + post("/echo?1", b"body") + get("/events?2") + get("/echo?2", CLOSE) + get("/echo?3"))
        bodies = []
        while received:
            answer = Answer(received)
            bodies.append(answer.body)
            received = answer.rest
        self.assertEqual(bodies, [b"late", b"POST|1|||body", b"data: 0\n\ndata: 1\n\n", b"GET|2|||"])

    def test_thousands_of_pipelined_requests_are_answered(self):
        received = self.server.exchange(get("/echo") * 5000 + get("/echo", CLOSE))
        self.assertEqual(received.count(b"GET||||"), 5001)

    def test_a_stream_comes_in_chunks_as_it_is_made(self):
        with self.server.send(get("/ticks?5")) as client:
            received = read_until(client, b"0\r\n\r\n")
        answer = Answer(received)
        self.assertEqual(answer.headers["content-type"], "text/event-stream")
        self.assertEqual(answer.body, b"".join(b"data: %d\n\n" % number for number in range(5)))

    def test_what_is_written_at_once_is_sent_at_once(self):
        with self.server.send(get("/events?50")) as client:
            self.assertIn(b"data: 49\n\n\r\n0\r\n\r\n", client.recv(1 << 16))

    def test_a_quiet_stream_shows_that_it_lives(self):
        with self.server.send(get("/quiet")) as client:
            received = read_until(client, b": keep-alive\n\n")
            received += read_until(client, b": keep-alive\n\n")
        self.assertEqual(received.count(b"keep-alive"), 2)

    def test_chunked_and_expected_bodies_are_taken(self):
        with self.server.send(b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n") as client:
            self.assertEqual(read_until(client, b"\r\n\r\n"), b"HTTP/1.1 100 Continue\r\n\r\n")
            client.sendall(b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nTrailer: a\r\n\r\n")
            self.assertEqual(Answer(read_until(client, b"|||abcde")).status, 200)

    def test_a_large_body_comes_back(self):
        body = bytes(range(256)) * (8 << 12)
        received = self.server.exchange(post("/echo", body, CLOSE))
        self.assertEqual(Answer(received).body, b"POST||||" + body)

    def test_http_1_0_ends_by_closing(self):
        answer = Answer(self.server.exchange(get("/echo", "Connection: keep-alive", version="1.0")))
        self.assertEqual((answer.body, answer.headers["connection"]), (b"GET||||", "close"))
        received = self.server.exchange(get("/ticks?2", version="1.0"))
        self.assertNotIn(b"chunked", received)
        self.assertTrue(received.endswith(b"\r\n\r\ndata: 0\n\ndata: 1\n\n"))

    def test_head_has_the_headers_of_get_and_no_body(self):
        received = self.server.exchange(b"HEAD /bytes?10 HTTP/1.1\r\nHost: a\r\n\r\nHEAD /events?3 HTTP/1.1\r\nHost: a\r\n\r\n" + get("/echo", CLOSE))
        answer = Answer(received, head_only=True)
        self.assertEqual((answer.status, answer.headers["content-length"]), (200, "10"))
        answer = Answer(answer.rest, head_only=True)
        self.assertEqual(answer.headers["transfer-encoding"], "chunked")
        self.assertEqual(Answer(answer.rest).body, b"GET||||")

    def test_other_methods_reach_the_handler_and_204_has_no_body(self):
        received = self.server.exchange(b"OPTIONS /empty HTTP/1.1\r\nHost: a\r\n\r\n" + get("/echo", CLOSE))
        answer = Answer(received, head_only=True)
        self.assertEqual(answer.status, 204)
        self.assertNotIn("content-length", answer.headers)
        self.assertEqual(Answer(answer.rest).status, 200)

    def test_a_client_that_only_ends_its_own_side_reads_its_answers(self):
        with self.server.send(get("/echo?1") + get("/bytes?3000000")) as client:
            client.shutdown(socket.SHUT_WR)
            received = read_all(client)
        self.assertEqual(len(Answer(Answer(received).rest).body), 3000000)
        with self.server.send(get("/later?20") + get("/ticks?50") + get("/echo?1") + get("/ec")[:-1]) as client:
            client.shutdown(socket.SHUT_WR)
            received, bodies = read_all(client), []
        while received:
            answer = Answer(without_interim(received))
            bodies.append(answer.body)
            received = answer.rest
        self.assertEqual(bodies, [b"late", b"".join(b"data: %d\n\n" % number for number in range(50)), b"GET|1|||"])

    def test_one_of_http_1_0_reads_what_has_begun(self):
        for path, begins in ("/ticks?50", True), ("/later?50", False):
            with self.server.send(get(path, version="1.0")) as client:
                received = read_until(client, b"\r\n\r\n") if begins else b""
                client.shutdown(socket.SHUT_WR)
                received += read_all(client)
            self.assertEqual(received.endswith(b"data: 49\n\n"), begins)
            self.assertEqual(received == b"", not begins)

    def test_a_handler_that_throws_is_told_as_500_and_tells_nothing(self):
        for path in ("/throws", "/unhandled"):
            answer = Answer(self.server.exchange(get(path)))
            self.assertEqual(answer.status, 500)
            self.assertEqual(json.loads(answer.body)["error"]["code"], 500)
            self.assertNotIn(b"secret", answer.body)
        received = self.server.exchange(get("/breaks"))
        self.assertFalse(received.endswith(b"0\r\n\r\n"))


class Ending(unittest.TestCase):
    """How a server ends."""

    def test_draining_lets_answers_end_and_refuses_new_requests(self):
        with Server() as server:
            waiting = server.send(get("/echo"))
            read_until(waiting, b"||||")
            running = server.send(get("/ticks?300"))
            half = server.send(b"GET /ec")
            server.wait_for(streams=1, connections=3)
            server.process.stdin.write("drain 60000\n")
            server.process.stdin.flush()
            self.assertEqual(read_all(waiting), b"")
            half.sendall(b"ho HTTP/1.1\r\nHost: a\r\n\r\n")
            self.assertEqual(Answer(read_all(half)).status, 503)
            with self.assertRaises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", server.port))
            self.assertIn(b"data: 299\n\n", read_all(running))
            self.assertEqual(server.process.stdout.readline(), "true\n")
            for client in (waiting, running, half):
                client.close()

    def test_draining_gives_up_in_time_and_stopping_ends_what_runs(self):
        with Server() as server:
            with server.send(get("/never")) as never, server.send(get("/quiet")) as quiet:
                server.wait_for(alive=2, streams=1)
                self.assertIs(server.command("drain 100"), False)
                self.assertEqual(server.command("stop"), 0)
                self.assertEqual(read_all(never), b"")
                self.assertFalse(read_all(quiet).endswith(b"0\r\n\r\n"))

    def test_a_port_that_is_taken_is_said(self):
        with Server() as server:
            second = subprocess.run([SERVER, f"port={server.port}"], capture_output=True, text=True, timeout=PATIENCE)
            self.assertEqual(second.returncode, 1)
            self.assertIn("[serve.port-taken]", second.stderr)

    def test_too_few_files_for_the_connections_are_said(self):
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        second = subprocess.run([SERVER, f"connections={hard}"], capture_output=True, text=True, timeout=PATIENCE)
        self.assertIn("[serve.descriptors]", second.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
