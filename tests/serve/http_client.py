"""Common code of the tests of the HTTP server: http_test_server, and clients of raw sockets."""
import json
import re
import socket
import struct
import subprocess
import sys
import time

SERVER = sys.argv[1]
PATIENCE = 60  # time limit of a waiting test, seconds


class Server:
    """http_test_server; times in milliseconds, cors: an origin."""

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
        """Everything received until the server closes."""
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
    """The first answer in these bytes; `rest`: the following bytes."""

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
    """The received bytes, without interim responses."""
    while received.startswith(GO_ON):
        received = received[len(GO_ON):]
    return received
