#!/usr/bin/env python3
"""The HTTP server under hostile clients: raw sockets against http_test_server.
usage: http_hostile_test.py SERVER [TEST...]"""
import json
import pathlib
import random
import resource
import socket
import sys
import time
import unittest

from http_client import CLOSE, GO_ON, PATIENCE, Answer, Server, get, post, read_all, read_until, reset


class Hostile(unittest.TestCase):
    """Ambiguous requests are rejected, and the following bytes are ignored."""

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
            self.refused(server, b"POST /echo HTTP/1.1\r\nHost: a\r\n\r\n" + smuggled, 411)  # a body without a length
            self.refused(server, get("/echo", "Expect: something"), 417)
            self.refused(server, get("/" + "a" * 10_000), 414)
            self.refused(server, get("/", "X: " + "a" * 20_000), 431)
            self.refused(server, get("/", *["X: a"] * 64), 431)
            self.assertEqual(server.wait_for(requests=0)["made"], 0)

    def test_a_too_large_body_is_rejected_before_it_is_complete(self):
        with Server(body_bytes=1000) as server:
            self.refused(server, b"POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 1001\r\n\r\n", 413)
            self.refused(server, post("/echo", b"x" * 1_000_000), 413)
            self.refused(server, b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
                         + b"100\r\n" + b"x" * 256 + b"\r\n" + b"FFFF\r\n" + b"x" * 100, 413)
            self.assertEqual(Answer(server.exchange(post("/echo", b"x" * 1000, CLOSE))).status, 200)

    def test_bodies_that_are_too_large_in_total_are_rejected(self):
        with Server(all_body_bytes=1000, threads=1) as server:
            with server.send(post("/echo", b"x" * 900)[:-1]) as first:
                self.refused(server, post("/echo", b"x" * 200)[:-1], 503)
                first.sendall(b"x")
                self.assertEqual(Answer(read_until(first, b"||||" + b"x" * 900)).status, 200)
            with server.send(post("/echo", b"x" * 900, CLOSE)[:-1]) as second:
                second.sendall(b"x")
                self.assertEqual(Answer(read_all(second)).status, 200)

    def test_slow_headers_and_bodies_time_out(self):
        with Server(head_time=300, body_time=300) as server:
            with server.connect() as silent:
                self.assertEqual(read_all(silent), b"")
            with server.connect() as slow:  # each byte is in time, the header is not
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
                for _ in range(10):  # longer than the time of all bodies, but faster than the minimum rate
                    steady.sendall(b"x" * 100)
                    time.sleep(0.15)
                self.assertEqual(Answer(read_all(steady)).status, 200)

    def test_a_connection_without_a_next_request_is_closed(self):
        with Server(idle_time=300) as server:
            with server.send(get("/echo")) as client:
                self.assertEqual(Answer(read_all(client)).status, 200)

    def test_a_client_that_disconnects_ends_its_exchange(self):
        requests = {
            "nothing sent": b"",
            "in the head": b"GET /echo HT",
            "in the body": b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc",
            "while the answer is made": get("/never"),
            "in a quiet stream": get("/quiet"),
            "in a stream that comes": get("/ticks?1000000"),
            "in a stream without a reader": get("/flood"),
            "with a pipelined request": get("/never") + get("/echo"),
            "with more of them than are read": get("/never") + get("/echo") * 2000,
        }
        with Server(silence=200) as server:  # for frequent checks
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

    def test_a_client_that_closed_its_sending_side_is_served_until_it_disconnects(self):
        with Server(silence=100) as server:
            for path, sign in ("/never", GO_ON), ("/quiet", b": keep-alive\n\n"):
                for leave in (socket.socket.close, reset):
                    with self.subTest(path, leave=leave):
                        client = server.send(get(path))
                        server.wait_for(alive=1)
                        client.shutdown(socket.SHUT_WR)
                        received = b""
                        while received.count(sign) < 3:  # the server checks repeatedly whether it still exists
                            received += client.recv(1 << 16)
                        self.assertEqual(server.counters()["alive"], 1)
                        leave(client)
                        server.wait_for(connections=0, alive=0, requests=0, streams=0)

    def test_data_sent_during_an_answer_is_bounded(self):
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

    def test_a_stalled_reader_is_closed_and_counted_and_others_continue(self):
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

    def test_silent_connections_do_not_delay_a_correct_request(self):
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

    def test_any_clients_leave_nothing_behind(self):
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

    def test_a_connection_beyond_the_limit_gets_an_error(self):
        with Server(connections=2) as server:
            first, second = server.connect(), server.connect()
            server.wait_for(connections=2)
            answer = Answer(server.exchange(get("/echo")))
            self.assertEqual((answer.status, answer.headers["retry-after"]), (503, "1"))
            first.close()
            server.wait_for(connections=1)
            self.assertEqual(Answer(server.exchange(get("/echo", CLOSE))).status, 200)
            second.close()

    def test_without_file_descriptors_a_client_gets_an_error_and_later_an_answer(self):
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


def resident(process):
    with open(f"/proc/{process}/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
