#!/usr/bin/env python3
"""The HTTP server as honest and hostile clients see it: raw sockets against http_test_server.

usage: http_test.py SERVER [TEST...]
"""
import json
import pathlib
import random
import re
import resource
import socket
import struct
import subprocess
import sys
import time
import unittest

SERVER = sys.argv[1]
PATIENCE = 60  # seconds until a test that waits has failed


class Server:
    """http_test_server; times in milliseconds."""

    def __init__(self, **limits):
        self.process = subprocess.Popen([SERVER, *(f"{name}={number}" for name, number in limits.items())],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.status = self.process.wait(PATIENCE)
        self.process.stdout.close()
        assert self.status == 0, f"the server ended with {self.status}"

    def command(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def counters(self):
        return self.command("counters")

    def wait_for(self, **wanted):
        end = time.monotonic() + PATIENCE
        while True:
            counters = self.counters()
            if all(counters[name] == number for name, number in wanted.items()):
                return counters
            assert time.monotonic() < end, f"{wanted} never came: {counters}"
            time.sleep(0.01)

    def connect(self, receive_buffer=None):
        client = socket.socket()
        if receive_buffer:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        client.settimeout(PATIENCE)
        client.connect(("127.0.0.1", self.port))
        return client

    def send(self, request):
        client = self.connect()
        client.sendall(request)
        return client

    def exchange(self, request):
        """All that comes back until the server closes."""
        with self.send(request) as client:
            return read_all(client)


def read_all(client):
    received = b""
    while piece := client.recv(1 << 16):
        received += piece
    return received


def read_until(client, end):
    received = b""
    while end not in received:
        piece = client.recv(1 << 16)
        assert piece, f"the connection has ended behind {received!r}"
        received += piece
    return received


class Answer:
    """The first answer in these bytes; `rest` is what follows it."""

    def __init__(self, received, head_only=False):
        head, _, self.rest = received.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        self.status = int(re.fullmatch(r"HTTP/1\.1 (\d{3}) .*", lines[0]).group(1))
        self.headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines[1:])}
        self.body = b""
        if "content-length" in self.headers and not head_only:
            length = int(self.headers["content-length"])
            self.body, self.rest = self.rest[:length], self.rest[length:]
        elif self.headers.get("transfer-encoding") == "chunked" and not head_only:
            while True:
                size, _, self.rest = self.rest.partition(b"\r\n")
                piece, self.rest = self.rest[:int(size, 16)], self.rest[int(size, 16) + 2:]
                self.body += piece
                if not piece:
                    break


def get(path, *fields, version="1.1"):
    return "\r\n".join([f"GET {path} HTTP/{version}", "Host: a", *fields, "", ""]).encode()


def post(path, body, *fields):
    return "\r\n".join([f"POST {path} HTTP/1.1", "Host: a", f"Content-Length: {len(body)}", *fields, "", ""]).encode() + body


CLOSE = "Connection: close"
GO_ON = b"HTTP/1.1 100 Continue\r\n\r\n"


def reset(client):
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def without_interim(received):
    """What was received, but for what says that an answer will come."""
    while received.startswith(GO_ON):
        received = received[len(GO_ON):]
    return received


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


class Hostile(unittest.TestCase):
    """Requests that two programs could read differently are refused, and what follows them is not looked at."""

    def refused(self, server, request, status):
        received = server.exchange(request)
        answer = Answer(received)
        self.assertEqual(answer.status, status, request[:200])
        self.assertEqual(answer.headers["connection"], "close")
        self.assertEqual(json.loads(answer.body)["error"]["code"], status)
        self.assertEqual(answer.rest, b"", request[:200])

    def test_refused(self):
        smuggled = get("/echo?smuggled")
        fields = {
            "both lengths": "Content-Length: 5\r\nTransfer-Encoding: chunked",
            "both lengths, turned": "Transfer-Encoding: chunked\r\nContent-Length: 5",
            "two lengths": "Content-Length: 5\r\nContent-Length: 0",
            "a list of lengths": "Content-Length: 5, 5",
            "a signed length": "Content-Length: +5",
            "another coding": "Transfer-Encoding: gzip\r\nContent-Length: 5",
            "two codings": "Transfer-Encoding: gzip, chunked",
            "a hidden coding": "Transfer-Encoding : chunked",
            "a coding behind a tab": "Transfer-Encoding: \x0bchunked",
            "a bare CR": "X: a\rContent-Length: 5",
            "a bare LF": "X: a\nContent-Length: 5",
            "folding": "X: a\r\n b: c",
            "a second host": "Host: b",
            "a NUL": "X: a\0b",
        }
        with Server() as server:
            for name, field in fields.items():
                with self.subTest(name):
                    self.refused(server, b"POST /echo HTTP/1.1\r\nHost: a\r\n" + field.encode() + b"\r\n\r\n0\r\n\r\n" + smuggled, 400)
            chunks = [b"5;" + b"a" * 100_000, b"5;a=\"\n\"\r\nabcde\r\n0\r\n\r\n", b"FFFFFFFFFFFFFFFFF\r\n", b"5\r\nabcdeXX0\r\n\r\n",
                      b"0\r\n" + b"a: b\r\n" * 10_000]
            for chunk in chunks:
                with self.subTest(chunk[:20]):
                    self.refused(server, b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk + smuggled, 400)
            self.refused(server, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400)  # TLS
            self.refused(server, b"GET / HTTP/1.1\r\n\r\n" + smuggled, 400)
            self.refused(server, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400)
            self.refused(server, b"POST /echo HTTP/1.1\r\nHost: a\r\n\r\n" + smuggled, 411)  # a body whose length was forgotten
            self.refused(server, get("/echo", "Expect: something"), 417)
            self.refused(server, get("/" + "a" * 10_000), 414)
            self.refused(server, get("/", "X: " + "a" * 20_000), 431)
            self.refused(server, get("/", *["X: a"] * 64), 431)
            self.assertEqual(server.wait_for(requests=0)["made"], 0)

    def test_a_body_that_is_too_large_is_refused_before_it_has_come(self):
        with Server(body_bytes=1000) as server:
            self.refused(server, b"POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 1001\r\n\r\n", 413)
            self.refused(server, post("/echo", b"x" * 1_000_000), 413)
            self.refused(server, b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
                         + b"100\r\n" + b"x" * 256 + b"\r\n" + b"FFFF\r\n" + b"x" * 100, 413)
            self.assertEqual(Answer(server.exchange(post("/echo", b"x" * 1000, CLOSE))).status, 200)

    def test_bodies_that_are_too_large_together_are_refused(self):
        with Server(all_body_bytes=1000, threads=1) as server:
            with server.send(post("/echo", b"x" * 900)[:-1]) as first:
                self.refused(server, post("/echo", b"x" * 200)[:-1], 503)
                first.sendall(b"x")
                self.assertEqual(Answer(read_until(first, b"||||" + b"x" * 900)).status, 200)
            with server.send(post("/echo", b"x" * 900, CLOSE)[:-1]) as second:
                second.sendall(b"x")
                self.assertEqual(Answer(read_all(second)).status, 200)

    def test_slow_heads_and_bodies_are_given_up(self):
        with Server(head_time=300, body_time=300) as server:
            with server.connect() as silent:
                self.assertEqual(read_all(silent), b"")
            with server.connect() as slow:  # each byte comes in time, the head does not
                received = b""
                slow.settimeout(0.05)
                for byte in get("/echo", "X: " + "a" * 1000):
                    try:
                        slow.sendall(bytes([byte]))
                        received += slow.recv(1 << 16)
                        break
                    except TimeoutError:
                        continue
                    except OSError:
                        break
                self.assertEqual(Answer(received).status, 408)
            self.refused(server, b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc", 408)
        with Server(body_time=1000, body_speed=100) as server:
            with server.send(b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\nConnection: close\r\n\r\n") as steady:
                for _ in range(10):  # longer than the time of all bodies, but faster than is asked
                    steady.sendall(b"x" * 100)
                    time.sleep(0.15)
                self.assertEqual(Answer(read_all(steady)).status, 200)

    def test_a_connection_without_a_next_request_is_closed(self):
        with Server(idle_time=300) as server:
            with server.send(get("/echo")) as client:
                self.assertEqual(Answer(read_all(client)).status, 200)

    def test_a_client_that_vanishes_takes_its_exchange_with_it(self):
        requests = {
            "nothing sent": b"",
            "in the head": b"GET /echo HT",
            "in the body": b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc",
            "while the answer is made": get("/never"),
            "in a quiet stream": get("/quiet"),
            "in a stream that comes": get("/ticks?1000000"),
            "in a stream that nobody reads": get("/flood"),
            "with a pipelined request": get("/never") + get("/echo"),
            "with more of them than are read": get("/never") + get("/echo") * 2000,
        }
        with Server(silence=200) as server:  # so that it looks often
            for name, request in requests.items():
                for leave in (socket.socket.close, reset):
                    with self.subTest(name, leave=leave):
                        client = server.send(request)
                        server.wait_for(connections=1)
                        if b"/never" in request or b"/quiet" in request or b"/ticks" in request or b"/flood" in request:
                            server.wait_for(alive=1)
                        leave(client)
                        server.wait_for(connections=0, alive=0, requests=0, streams=0)
                        client.close()

    def test_a_client_that_has_ended_its_side_is_waited_for_until_it_vanishes(self):
        with Server(silence=100) as server:
            for path, sign in ("/never", GO_ON), ("/quiet", b": keep-alive\n\n"):
                for leave in (socket.socket.close, reset):
                    with self.subTest(path, leave=leave):
                        client = server.send(get(path))
                        server.wait_for(alive=1)
                        client.shutdown(socket.SHUT_WR)
                        received = b""
                        while received.count(sign) < 3:  # it is asked time and again whether it is there
                            received += client.recv(1 << 16)
                        self.assertEqual(server.counters()["alive"], 1)
                        leave(client)
                        server.wait_for(connections=0, alive=0, requests=0, streams=0)

    def test_what_a_client_sends_during_its_answer_is_bounded(self):
        with Server() as server:
            with server.send(get("/never")) as client:
                client.settimeout(0.5)
                sent = 0
                with self.assertRaises(TimeoutError):
                    while sent < 1 << 30:
                        sent += client.send(get("/echo") * 1000)
                memory = resident(server.process.pid)
            self.assertLess(sent, 32 << 20)
            self.assertLess(memory, 64 << 20)

    def test_a_reader_that_stops_is_closed_and_counted_and_others_read_on(self):
        with Server(write_time=2000, unread_bytes=100_000) as server:
            with server.connect(receive_buffer=4096) as stuck, server.connect() as reader:
                stuck.sendall(get("/flood"))
                reader.sendall(get("/flood"))
                received = 0
                memory = 0
                end = time.monotonic() + PATIENCE
                while server.counters()["slow_readers"] == 0 and time.monotonic() < end:
                    received += len(reader.recv(1 << 20))
                    memory = max(memory, resident(server.process.pid))
                self.assertGreater(received, 1 << 20)
                self.assertLess(memory, 64 << 20)
                counters = server.wait_for(slow_readers=1, connections=1, alive=1, streams=1)
                self.assertEqual(counters["made"], 2)

    def test_silent_connections_do_not_keep_an_honest_request_waiting(self):
        wanted = 4000
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard < wanted + 100:
            self.skipTest(f"only {hard} files may be open")
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted + 100), hard))
        with Server(head_time=PATIENCE * 1000) as server:
            before = resident(server.process.pid)
            silent = [server.connect() for _ in range(wanted)]
            try:
                server.wait_for(connections=wanted)
                self.assertEqual(Answer(server.exchange(get("/echo", CLOSE))).status, 200)
                for client in silent:
                    client.sendall(get("/quiet"))
                server.wait_for(streams=wanted)
                self.assertEqual(Answer(server.exchange(get("/echo", CLOSE))).status, 200)
                each = (resident(server.process.pid) - before) / wanted
                self.assertLess(each, 32 << 10)
            finally:
                for client in silent:
                    client.close()
            server.wait_for(connections=0, alive=0)

    def test_whatever_clients_do_nothing_is_left_of_them(self):
        chance = random.Random(7)
        requests = [get("/echo"), post("/echo", b"x" * 20_000), get("/never"), get("/quiet"), get("/flood"), get("/ticks?50"), get("/later?3"),
                    get("/breaks"), get("/throws"), get("/events?100"), get("/bytes?2000000"), get("/nowhere"), b"GET\n",
                    b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n"]
        with Server(head_time=200, body_time=200, idle_time=200, silence=50, write_time=200, linger_time=100, threads=4) as server:
            clients = []
            for turn in range(3000):
                action = chance.randrange(6)
                try:
                    if action < 2 or not clients:
                        clients.append(server.connect())
                        clients[-1].setblocking(False)
                    elif action == 2:
                        request = b"".join(chance.choices(requests, k=chance.randrange(1, 4)))
                        chance.choice(clients).send(request[:chance.randrange(1, len(request) * 2)])
                    elif action == 3:
                        chance.choice(clients).recv(chance.randrange(1, 1 << 16))
                    elif action == 4:
                        chance.choice(clients).shutdown(socket.SHUT_WR)
                    else:
                        chance.choice((socket.socket.close, reset))(clients.pop(chance.randrange(len(clients))))
                except OSError:  # it would block, or the server has closed
                    pass
                if turn % 500 == 0:
                    self.assertEqual(Answer(server.exchange(get("/echo", CLOSE))).status, 200)
            for client in clients:
                client.close()
            server.wait_for(connections=0, requests=0, streams=0, alive=0)
            self.assertEqual(Answer(server.exchange(post("/echo", b"x" * 20_000, CLOSE))).status, 200)

    def test_a_connection_too_many_is_told_so(self):
        with Server(connections=2) as server:
            first, second = server.connect(), server.connect()
            server.wait_for(connections=2)
            answer = Answer(server.exchange(get("/echo")))
            self.assertEqual((answer.status, answer.headers["retry-after"]), (503, "1"))
            first.close()
            server.wait_for(connections=1)
            self.assertEqual(Answer(server.exchange(get("/echo", CLOSE))).status, 200)
            second.close()

    def test_where_files_run_out_a_client_is_told_so_and_later_served(self):
        with Server() as server:
            clients = [server.connect()]
            server.wait_for(connections=1)
            open_files = len(list(pathlib.Path(f"/proc/{server.process.pid}/fd").iterdir()))
            _, hard = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
            resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (open_files + 3, hard))
            clients += [server.connect() for _ in range(3)]
            server.wait_for(connections=4)
            self.assertEqual(Answer(server.exchange(get("/echo", CLOSE))).status, 503)
            for client in clients:
                client.close()
            server.wait_for(connections=0)
            self.assertEqual(Answer(server.exchange(get("/echo", CLOSE))).status, 200)


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


def resident(process):
    with open(f"/proc/{process}/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


if __name__ == "__main__":
    unittest.main(argv=["http_test.py", *sys.argv[2:]], verbosity=2)
