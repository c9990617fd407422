#!/usr/bin/env python3
"""The HTTP server for correct clients, and its shutdown: raw sockets against http_test_server.
usage: http_test.py SERVER [TEST...]"""
import json
import resource
import socket
import subprocess
import sys
import time
import unittest

from http_client import CLOSE, GO_ON, PATIENCE, SERVER, Answer, Server, get, post, read_all, read_until, without_interim


class Honest(unittest.TestCase):
    """Guarantees for clients."""

    @classmethod
    def setUpClass(cls):
        cls.server = Server(silence=200)

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__()

    def test_an_answer_is_the_handlers_output(self):
        answer = Answer(self.server.exchange(post("/echo?7", b"{}", "Content-Type: Application/JSON; a=b", "Authorization: Bearer k",
                                                  "X-Request-Id: mine", CLOSE)))
        self.assertEqual((answer.status, answer.body), (200, b"POST|7|application/json|Bearer k|{}"))
        self.assertEqual(answer.headers["x-request-id"], "mine")
        self.assertEqual(answer.headers["connection"], "close")
        self.assertRegex(answer.headers["date"], r"^\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT$")

    def test_a_request_without_a_valid_id_gets_one(self):
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

    def test_a_stream_is_sent_in_chunks_immediately(self):
        with self.server.send(get("/ticks?5")) as client:
            received = read_until(client, b"0\r\n\r\n")
        answer = Answer(received)
        self.assertEqual(answer.headers["content-type"], "text/event-stream")
        self.assertEqual(answer.body, b"".join(b"data: %d\n\n" % number for number in range(5)))

    def test_data_written_together_is_sent_together(self):
        with self.server.send(get("/events?50")) as client:
            self.assertIn(b"data: 49\n\n\r\n0\r\n\r\n", client.recv(1 << 16))

    def test_a_quiet_stream_sends_heartbeats(self):
        with self.server.send(get("/quiet")) as client:
            received = read_until(client, b": keep-alive\n\n")
            received += read_until(client, b": keep-alive\n\n")
        self.assertEqual(received.count(b"keep-alive"), 2)

    def test_chunked_and_expected_bodies_are_accepted(self):
        with self.server.send(b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n") as client:
            self.assertEqual(read_until(client, b"\r\n\r\n"), b"HTTP/1.1 100 Continue\r\n\r\n")
            client.sendall(b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nTrailer: a\r\n\r\n")
            self.assertEqual(Answer(read_until(client, b"|||abcde")).status, 200)

    def test_a_large_body_is_echoed(self):
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

    def test_a_client_that_closes_its_sending_side_reads_its_answers(self):
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

    def test_one_of_http_1_0_reads_a_started_answer(self):
        for path, begins in ("/ticks?50", True), ("/later?50", False):
            with self.server.send(get(path, version="1.0")) as client:
                received = read_until(client, b"\r\n\r\n") if begins else b""
                client.shutdown(socket.SHUT_WR)
                received += read_all(client)
            self.assertEqual(received.endswith(b"data: 49\n\n"), begins)
            self.assertEqual(received == b"", not begins)

    def test_a_throwing_handler_is_a_500_without_details(self):
        for path in ("/throws", "/unhandled"):
            answer = Answer(self.server.exchange(get(path)))
            self.assertEqual(answer.status, 500)
            self.assertEqual(json.loads(answer.body)["error"]["code"], 500)
            self.assertNotIn(b"secret", answer.body)
        received = self.server.exchange(get("/breaks"))
        self.assertFalse(received.endswith(b"0\r\n\r\n"))


CHUNKED = "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
# Raw requests, and the handler's reading: METHOD|query|type|authorization|body, or its lines for an unknown
# path.
GOOD = {
    "an absolute URI": ("GET http://a/echo?1 HTTP/1.1\r\nHost: a\r\n\r\n", "GET|1|||"),
    "of another host than Host": ("GET http://b:80/echo?1 HTTP/1.1\r\nHost: a\r\n\r\n", "GET|1|||"),
    "in capitals": ("GET HTTP://A.B/echo HTTP/1.1\r\nHost: a\r\n\r\n", "GET||||"),
    "with an address of IPv6": ("GET http://[::1]:8080/echo HTTP/1.0\r\n\r\n", "GET||||"),
    "without a path": ("GET https://a HTTP/1.1\r\nHost: a\r\n\r\n", "GET\n/\n\n"),
    "without a path, with a query": ("GET http://a?b/c HTTP/1.1\r\nHost: a\r\n\r\n", "GET\n/\nb/c\n"),
    "OPTIONS of the server": ("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", "OPTIONS\n*\n\n"),
    "OPTIONS of the server by a URI": ("OPTIONS http://a HTTP/1.1\r\nHost: a\r\n\r\n", "OPTIONS\n*\n\n"),
    "OPTIONS of a path": ("OPTIONS /echo HTTP/1.1\r\nHost: a\r\n\r\n", "OPTIONS||||"),
    "escapes": ("GET /a%20%2f%C3%A8?%zz HTTP/1.1\r\nHost: a\r\n\r\n", "GET\n/a%20%2f%C3%A8\n%zz\n"),
    "a path that begins with two slashes": ("GET //a/b HTTP/1.1\r\nHost: a\r\n\r\n", "GET\n//a/b\n\n"),
    "an empty line before": ("\r\nGET /echo HTTP/1.1\r\nHost: a\r\n\r\n", "GET||||"),
    "empty lines before": ("\r\n\r\n\r\nGET /echo HTTP/1.1\r\nHost: a\r\n\r\n", "GET||||"),
    "an empty Host": ("GET /echo HTTP/1.1\r\nHost:\r\n\r\n", "GET||||"),
    "names of fields in capitals": ("POST /echo HTTP/1.1\r\nHOST: a\r\nCONTENT-LENGTH: 1\r\n\r\nx", "POST||||x"),
    "blanks around values": ("POST /echo HTTP/1.1\r\nHost:\ta \r\nContent-Length: \t1\t\r\n\r\nx", "POST||||x"),
    "no blank before a value": ("GET /echo HTTP/1.1\r\nHost:a\r\nAuthorization:bearer  k\r\n\r\n", "GET|||bearer  k|"),
    "a type in capitals": ("GET /echo HTTP/1.1\r\nHost: a\r\nContent-Type: A/PLAIN;a=B\r\n\r\n", "GET||a/plain||"),
    "a coding in capitals": ("POST /echo HTTP/1.1\r\nHost: a\r\ntransfer-encoding: CHUNKED\r\n\r\n0\r\n\r\n",
                             "POST||||"),
    "an expectation in capitals": ("GET /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-CONTINUE\r\n\r\n", "GET||||"),
    "a blank behind a size": (CHUNKED + "3 \r\nabc\r\n0 \r\n\r\n", "POST||||abc"),
    "blanks before an extension": (CHUNKED + "3 \t;a=b\r\nabc\r\n0\t;c\r\n\r\n", "POST||||abc"),
    "blanks in extensions": (CHUNKED + "3; a = b\t; c\t=\t\"d e\"\r\nabc\r\n0\r\n\r\n", "POST||||abc"),
    "zeros before a size": (CHUNKED + "0003\r\nabc\r\n000\r\n\r\n", "POST||||abc"),
    "trailers": (CHUNKED + "3\r\nabc\r\n0\r\nA: b\r\nC:\r\n\r\n", "POST||||abc"),
}
BAD = {
    "no such form of a target": "GET a HTTP/1.1\r\nHost: a\r\n\r\n",
    "an authority": "GET a:80 HTTP/1.1\r\nHost: a\r\n\r\n",
    "CONNECT": "CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n",
    "the whole server by another method": "GET * HTTP/1.1\r\nHost: a\r\n\r\n",
    "a URI without a host": "GET http:///echo HTTP/1.1\r\nHost: a\r\n\r\n",
    "a URI with a user": "GET http://b@a/echo HTTP/1.1\r\nHost: a\r\n\r\n",
    "a URI of another scheme": "GET ftp://a/echo HTTP/1.1\r\nHost: a\r\n\r\n",
    "a URI and no Host": "GET http://a/echo HTTP/1.1\r\n\r\n",
    "a bad escape": "GET /echo%4 HTTP/1.1\r\nHost: a\r\n\r\n",
    "a bad escape in a URI": "GET http://a/%xy HTTP/1.1\r\nHost: a\r\n\r\n",
    "an empty line of LF": "\nGET /echo HTTP/1.1\r\nHost: a\r\n\r\n",
    "a blank line before": " \r\nGET /echo HTTP/1.1\r\nHost: a\r\n\r\n",
    "a blank before the method": " GET /echo HTTP/1.1\r\nHost: a\r\n\r\n",
    "two origins": "GET /echo HTTP/1.1\r\nHost: a\r\nOrigin: http://a\r\nOrigin: http://b\r\n\r\n",
    "a blank before a size": CHUNKED + " 3\r\nabc\r\n0\r\n\r\n",
    "a blank in a size": CHUNKED + "0 3\r\nabc\r\n0\r\n\r\n",
    "a word behind a size": CHUNKED + "3 a\r\nabc\r\n0\r\n\r\n",
    "many blanks behind a size": CHUNKED + "3" + " " * 65 + "\r\nabc\r\n0\r\n\r\n",
    "a control byte behind a size": CHUNKED + "3 \v\r\nabc\r\n0\r\n\r\n",
    "a line of LF behind blanks": CHUNKED + "3 \nabc\r\n0\r\n\r\n",
}


class Forms(unittest.TestCase):
    """A corpus of requests: the forms of RFC 9110 and 9112 that clients use are answered, others are rejected."""

    def test_valid_requests_are_answered_in_turn_and_invalid_ones_rejected(self):
        with Server() as server:
            for name, (request, read) in GOOD.items():
                with self.subTest(name):
                    answers = server.exchange(request.encode() + get("/echo?next", CLOSE)).replace(GO_ON, b"")
                    answer = Answer(answers)
                    self.assertEqual(answer.body.decode(), read)
                    if "HTTP/1.0" not in request:
                        self.assertEqual(Answer(answer.rest).body, b"GET|next|||")
            made = server.counters()["made"]
            for name, request in BAD.items():
                with self.subTest(name):
                    answer = Answer(server.exchange(request.encode() + get("/echo?next", CLOSE)))
                    self.assertEqual((answer.status, answer.rest, answer.headers["connection"]), (400, b"", "close"))
            self.assertEqual(server.counters()["made"], made)

    def test_empty_lines_after_a_request_neither_disturb_the_next_nor_keep_the_connection(self):
        with Server(idle_time=600, head_time=100) as server:
            with server.send(post("/echo", b"x") + b"\r\n") as client:  # as old browsers send
                read_until(client, b"||||x")
                time.sleep(0.3)
                client.sendall(get("/echo?1", CLOSE))
                self.assertEqual(Answer(read_all(client)).body, b"GET|1|||")
            with server.send(get("/echo") + b"\r\n") as client:
                read_until(client, b"||||")
                begin = time.monotonic()
                client.settimeout(0.1)
                with self.assertRaises(OSError):  # closed
                    while time.monotonic() - begin < PATIENCE:
                        client.sendall(b"\r\n")
                        try:
                            if not client.recv(1):
                                raise OSError
                        except TimeoutError:
                            pass
                self.assertLess(time.monotonic() - begin, PATIENCE)


class CrossOrigin(unittest.TestCase):
    """Pages of other origins, whose browsers let them read answers that allow them."""

    ORIGIN = "Origin: https://page.example"
    ASKS = ("Access-Control-Request-Method: POST", "Access-Control-Request-Headers: authorization, content-type")

    def allowed(self, server, request):
        return Answer(server.exchange(request)).headers.get("access-control-allow-origin")

    def preflight(self, path, *fields):
        return get(path, CLOSE, *fields).replace(b"GET", b"OPTIONS", 1)

    def test_without_the_option_no_header_is_sent(self):
        with Server() as server:
            self.assertNotIn(b"Access-Control", server.exchange(get("/echo", CLOSE, self.ORIGIN)))
            self.assertNotIn(b"Access-Control", server.exchange(self.preflight("/echo", self.ORIGIN, *self.ASKS)))

    def test_every_answer_contains_the_origin(self):
        requests = {"an answer": get("/echo", CLOSE, self.ORIGIN), "unknown": get("/unknown", CLOSE, self.ORIGIN),
                    "a stream": get("/events?2", CLOSE, self.ORIGIN), "a fault": get("/throws", CLOSE, self.ORIGIN),
                    "a body that is too large": post("/echo", b"x" * 2000, CLOSE, self.ORIGIN),
                    "no body": self.preflight("/empty", self.ORIGIN)}
        with Server(cors="https://page.example", body_bytes=1000) as one, \
                Server(cors="*", body_bytes=1000) as all_origins:
            for name, request in requests.items():
                with self.subTest(name):
                    self.assertEqual(self.allowed(one, request), "https://page.example")
                    self.assertEqual(self.allowed(all_origins, request), "*")
                    self.assertEqual(Answer(one.exchange(request)).headers["vary"], "Origin")
                    self.assertIsNone(self.allowed(one, request.replace(b"page.", b"other.")))
            self.assertIsNone(self.allowed(one, get("/echo", CLOSE)))
            self.assertEqual(self.allowed(all_origins, b"GET /\n"), "*")

    def test_a_preflight_is_answered_before_the_handler(self):
        with Server(cors="https://page.example") as server:
            answer = Answer(server.exchange(self.preflight("/throws", self.ORIGIN, *self.ASKS)))
            self.assertEqual((answer.status, answer.rest), (200, b""))
            self.assertEqual(answer.headers["access-control-allow-origin"], "https://page.example")
            self.assertIn("POST", answer.headers["access-control-allow-methods"])
            self.assertEqual(answer.headers["access-control-allow-headers"], "authorization, content-type")
            self.assertEqual(server.counters()["made"], 0)
            other = self.preflight("/echo", self.ORIGIN.replace("page", "other"), *self.ASKS)
            self.assertNotIn(b"Access-Control", server.exchange(other))  # the handler's answer
            self.assertEqual(server.counters()["made"], 1)


class Listening(unittest.TestCase):
    """The listening addresses of a server."""

    def reaches(self, port, address):
        try:
            with socket.create_connection((address, port), PATIENCE) as client:
                client.sendall(get("/echo", CLOSE))
                return Answer(read_all(client)).status == 200
        except ConnectionRefusedError:
            return False

    def setUp(self):
        try:
            with socket.socket(socket.AF_INET6) as probe:
                probe.bind(("::1", 0))
        except OSError:
            self.skipTest("this machine has no ::1")

    def test_a_name_listens_on_all_its_addresses(self):
        for host in ("localhost", "LOCALHOST."):
            with Server(host=host) as server:
                self.assertTrue(self.reaches(server.port, "127.0.0.1"))
                self.assertTrue(self.reaches(server.port, "::1"))

    def test_addresses_of_ipv6_may_have_brackets(self):
        for host in ("[::1]", "::1", "0:0:0:0:0:0:0:1", "[::]"):
            with self.subTest(host), Server(host=host) as server:
                self.assertTrue(self.reaches(server.port, "::1"))

    def test_a_port_in_use_at_one_address_is_reported(self):
        with Server(host="::1") as server:
            second = subprocess.run([SERVER, f"port={server.port}", "host=localhost"], capture_output=True, text=True,
                                    timeout=PATIENCE)
            self.assertIn("[serve.port-taken]", second.stderr)

    def test_draining_closes_all_addresses(self):
        with Server(host="localhost") as server:
            self.assertIs(server.command("drain 1000"), True)
            self.assertEqual([self.reaches(server.port, address) for address in ("127.0.0.1", "::1")], [False, False])


class Ending(unittest.TestCase):
    """The shutdown of a server."""

    def test_draining_completes_answers_and_rejects_new_requests(self):
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

    def test_draining_has_a_time_limit_and_stopping_ends_running_answers(self):
        with Server() as server:
            with server.send(get("/never")) as never, server.send(get("/quiet")) as quiet:
                server.wait_for(alive=2, streams=1)
                self.assertIs(server.command("drain 100"), False)
                self.assertEqual(server.command("stop"), 0)
                self.assertEqual(read_all(never), b"")
                self.assertFalse(read_all(quiet).endswith(b"0\r\n\r\n"))

    def test_a_port_in_use_is_reported(self):
        with Server() as server:
            second = subprocess.run([SERVER, f"port={server.port}"], capture_output=True, text=True, timeout=PATIENCE)
            self.assertEqual(second.returncode, 1)
            self.assertIn("[serve.port-taken]", second.stderr)

    def test_threads_that_cannot_be_started_are_reported(self):
        _, hard = resource.getrlimit(resource.RLIMIT_STACK)
        if hard != resource.RLIM_INFINITY:
            self.skipTest("the size of stacks is limited")
        most = 1 << 46  # a stack of this size cannot be allocated
        second = subprocess.run([SERVER], capture_output=True, text=True, timeout=PATIENCE, stdin=subprocess.DEVNULL,
                                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_STACK, (most, hard)))
        self.assertIn("[backend.no-thread]", second.stderr)
        self.assertEqual(second.returncode, 1)

    def test_too_few_files_for_the_connections_are_reported(self):
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        second = subprocess.run([SERVER, f"connections={hard}"], capture_output=True, text=True, timeout=PATIENCE)
        self.assertIn("[serve.descriptors]", second.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
