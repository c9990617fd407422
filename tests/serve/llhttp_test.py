#!/usr/bin/env python3
"""Thousands of damaged requests, read by the server and by llhttp, the parser of Node.js: requests that the server answers,
llhttp parses identically. The server may reject requests that llhttp accepts.
usage: llhttp_test.py SERVER, by a Python that has the package httptools, which holds llhttp"""
import contextlib
import importlib.util
import random
import re
import socket
import subprocess
import sys
import unittest

if importlib.util.find_spec("httptools") is None:
    print("SKIPPED: this Python has no package httptools")
    sys.exit(77)

import httptools

CASES = 4000
SOUND = [
    b"GET /a?b=c HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /first HTTP/1.1\r\nHost: a.b:80\r\nAccept: */*\r\nConnection: keep-alive\r\n\r\nGET /second HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST /sized HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 5\r\n\r\nabcdeGET /next HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST /chunked HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n00A;x=\"y\"\r\n0123456789\r\n0\r\nT: u\r\n\r\n"
    b"GET /next HTTP/1.1\r\nHost: a\r\n\r\n",
    b"PUT /expected HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 28\r\n\r\nGET /inner HTTP/1.1\r\nHost: a\r\n",
    b"GET /old HTTP/1.0\r\nX-Request-Id: 7\r\n\r\n",
    b"GET HTTP://b:80/uri?c HTTP/1.1\r\nHost: a\r\n\r\nOPTIONS http://b HTTP/1.1\r\nHost: a\r\n\r\nGET https://b?c HTTP/1.1\r\nHost: a\r\n\r\n",
    b"\r\n\r\nGET /behind-empty-lines HTTP/1.1\r\nHost: a\r\n\r\n\r\nOPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST /blanks HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3 \r\nabc\r\n2\t; a = b\r\nde\r\n0 \r\n\r\n",
    b"OPTIONS /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\nGET /behind HTTP/1.1\r\nHost: a\r\n\r\n",
]
PIECES = [
    b"\r\n", b"\r", b"\n", b"\n\r", b"\r\n\r\n", b"\n\n", b"\r\r\n", b" ", b"\t", b"\0", b"\x0b", b"\x7f", b"\x80", b"\xff", b":", b";", b",", b"\"",
    b"0", b"1", b"+", b"-", b"0x", b"a", b"/", b"*", b"%", b"?", b"#", b"http://b/"]
LINES = [
    b"\r\n", b"HTTP/1.1", b"HTTP/1.0", b"HTTP/2.0", b"HTTP/1.10", b"GET ", b"POST ", b"CONNECT ", b"PRI ", b"DESCRIBE ", b"Host: b\r\n",
    b"Content-Length: 3\r\n", b"Content-Length: 0\r\n", b"Content-Length: 3, 3\r\n", b"Content-Length:\r\n", b"content-length : 3\r\n",
    b"Content-Length: 0x3\r\n", b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: chunked, chunked\r\n", b"Upgrade: a\r\n",
    b"Transfer-Encoding: gzip, chunked\r\n", b"Transfer-Encoding:\r\n chunked\r\n", b"Transfer-Encoding: xchunked\r\n",
    b"Transfer-Encoding: identity\r\n", b"X: y\r\n z: v\r\n", b"Connection: close\r\n", b"Connection: upgrade\r\nUpgrade: a\r\n",
    b"Expect: 100-continue\r\n", b"0\r\n\r\n", b"1\r\nx\r\n", b"5;a=b\r\n", b"5 \r\n", b"FFFFFFFFFFFFFFFF1\r\n", b"-1\r\n"]


def damaged(choose):
    """One or two valid requests with one to three changes."""
    data = bytearray(b"".join(choose.choices(SOUND, k=choose.choice((1, 1, 1, 2)))))
    for _ in range(choose.choice((1, 1, 1, 2, 3))):
        lines = [0] + [found.end() for found in re.finditer(rb"\r\n", data)]
        begin, place, length = choose.choice(lines), choose.randrange(len(data)), choose.choice((1, 1, 2, 8))
        kind = choose.randrange(6)
        if kind < 2:
            data[begin:begin] = choose.choice(LINES)
        elif kind == 2:
            data[place:place] = choose.choice(PIECES)
        elif kind == 3:
            data[place:place + length] = choose.choice(PIECES)
        elif kind == 4:
            del data[place:place + length]
        else:  # a line once more, somewhere
            again = choose.choice(lines)
            data[begin:begin] = data[again:data.find(b"\r\n", again) + 2]
    return bytes(data)


def path_of(target, method):
    """The path of a target: llhttp keeps URIs unchanged, the server uses their path."""
    path = re.sub(rb"^https?://[^/?]*", b"", target, flags=re.I)
    if path != target and not path:
        return b"*" if method == b"OPTIONS" else b"/"
    return b"/" + path if path.startswith(b"?") else path


def read_by_llhttp(data, **leniencies):
    """The parsed requests, and the exception at which it stops, or None."""
    class Requests(list):
        def on_message_begin(self):
            self.target, self.body = b"", b""

        def on_url(self, piece):
            self.target += piece

        def on_body(self, piece):
            self.body += piece

        def on_message_complete(self):
            path, _, query = path_of(self.target, parser.get_method()).partition(b"?")
            self.append((parser.get_method(), path, query, self.body))

    requests = Requests()
    parser = httptools.HttpRequestParser(requests)
    if leniencies:
        parser.set_dangerous_leniencies(**leniencies)
    try:
        parser.feed_data(data)
    except httptools.HttpParserError as fault:
        return requests, fault
    except httptools.HttpParserUpgrade as fault:
        return requests, fault
    return requests, None


def answered(port, data):
    """The requests that the server answers, and the status of its rejection, or None. Unknown paths are answered with the parsed request."""
    with socket.create_connection(("127.0.0.1", port), 60) as client:
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        received = b""
        while piece := client.recv(1 << 16):
            received += piece
    requests = []
    while received:
        head, _, received = received.partition(b"\r\n\r\n")
        status = int(head.split()[1])
        if status == 100:
            continue
        length = int(re.search(rb"Content-Length: (\d+)", head)[1])
        body, received = received[:length], received[length:]
        if body.startswith(b"{"):
            assert received == b"", received
            return requests, status
        requests.append(tuple(body.split(b"\n", 3)))
    return requests, None


def without_what_is_dropped(data):
    """The server ignores chunk extensions of any plain characters, spaces after sizes, and trailers with any name. llhttp checks
    extensions, rejects spaces there, and interprets trailers that would frame a body or end a connection like header
    fields."""
    data = re.sub(rb"(?<=\r\n)([0-9A-Fa-f]{1,8})(?:[ \t]{1,64}|[ \t]{0,64};[\t -~\x80-\xff]{0,64})(?=\r\n)", rb"\1", data)
    return re.sub(rb"(?<=\r\n)0+\r\n([^\r\n]+\r\n)+",
                  lambda trailers: re.sub(rb"(?im)^(Content-Length|Transfer-Encoding|Connection|Upgrade):", b"X:", trailers[0]), data)


def difference(answers, data):
    """The first answered request that llhttp has parsed differently, or not at all; None: there is none."""
    return compare(answers, data) and compare(answers, without_what_is_dropped(data))


def compare(answers, data):
    requests, fault = read_by_llhttp(data)
    upgrades = isinstance(fault, httptools.HttpParserUpgrade)  # the last request, whose body llhttp does not read
    for i, answer in enumerate(answers):
        if i < len(requests):
            compared = 3 if upgrades and i == len(requests) - 1 else 4
            if answer[:compared] != requests[i][:compared]:
                return f"{answer} is {requests[i]} to llhttp"
            continue
        # RFC 9110 allows any word as a method, and allows a server to ignore Upgrade; llhttp has a fixed list, and stops.
        if isinstance(fault, httptools.HttpParserInvalidMethodError) or "Invalid method" in str(fault):
            return None
        if upgrades and requests[-1][0] != b"CONNECT":
            return None
        return f"{answer} is {fault!r} to llhttp"
    return None


class LlhttpTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        choose = random.Random(1)
        cls.cases = SOUND + [damaged(choose) for _ in range(CASES)]

    def test_answered_requests_are_those_of_llhttp(self):
        with contextlib.ExitStack() as stack:
            server = stack.enter_context(subprocess.Popen([sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
            stack.callback(server.stdin.close)
            port = int(server.stdout.readline())
            taken = stricter = refused = 0
            for data in self.cases:
                answers, refusal = answered(port, data)
                self.assertIsNone(difference(answers, data), data)
                requests, fault = read_by_llhttp(data)
                taken += len(answers) > 0 and refusal is None
                refused += refusal is not None
                stricter += refusal is not None and fault is None and len(requests) > len(answers)
            print(f"{len(self.cases)} cases: {taken} answered, {refused} refused, {stricter} of them taken by llhttp")
            self.assertGreater(taken, CASES // 10)
            self.assertGreater(refused, CASES // 4)
        self.assertEqual(server.returncode, 0)

    def test_a_lenient_parser_would_be_detected(self):
        for leniency in ("lenient_headers", "lenient_transfer_encoding", "lenient_optional_lf_after_cr",
                         "lenient_optional_cr_before_lf"):
            with self.subTest(leniency):
                found = sum(difference(read_by_llhttp(data, **{leniency: True})[0], data) is not None for data in self.cases)
                self.assertGreater(found, 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
