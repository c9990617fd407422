#!/usr/bin/env python3
"""Four replicas of slm serve behind HAProxy with examples/cluster/haproxy.cfg: the selection of a replica, and the behaviour
for clients when one is killed, drained or full.  usage: haproxy_test.py PROGRAM SOURCE_DIR"""
import collections
import concurrent.futures
import contextlib
import csv
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(sys.argv[2]) / "tests" / "serve"))
from server import PAIR, PATIENCE, SOURCE, Server  # noqa: E402

HAPROXY = shutil.which("haproxy", path=os.environ["PATH"] + ":/usr/sbin")
SKIPPED = 77
CONFIGURATION = SOURCE / "examples" / "cluster"
NAMES = ("one", "two", "three", "four")  # in replicas.cfg
CLIENTS = 24


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def until(ready):
    end = time.monotonic() + PATIENCE
    while not (found := ready()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)
    return found


class Replica(Server):
    def __init__(self, *arguments, port=0):
        super().__init__("--threads", "1", "--served-model-name", "slm", "--template", "plain", "--drain-delay", "3", *arguments, port=port)

    def metric(self, name):
        lines = self.ask("GET", "/metrics")[1].decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(name + "{") or line.startswith(name + " "))


class Proxy(Server):
    """HAProxy with the files of examples/cluster and the given number of replicas."""

    def __init__(self, replicas, change=("", ""), **environment):
        self.port, self.stats_port = free_port(), free_port()
        environment |= {"SLM_BIND": f"127.0.0.1:{self.port}", "SLM_STATS": f"127.0.0.1:{self.stats_port}"}
        environment |= {f"SLM_REPLICA_{number}": f"127.0.0.1:{replica.port}" for number, replica in enumerate(replicas, 1)}
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="slm-haproxy-"))
        for name in ("haproxy.cfg", "replicas.cfg"):
            lines = (CONFIGURATION / name).read_text().replace(*change).splitlines(keepends=True)
            left_out = tuple(f"server {server} " for server in NAMES[len(replicas):])
            (self.folder / name).write_text("".join(line for line in lines if not line.strip().startswith(left_out)))
        with open(self.folder / "log", "w") as log:
            self.process = subprocess.Popen([HAPROXY, "-f", "haproxy.cfg", "-f", "replicas.cfg"], cwd=self.folder,
                                            env=os.environ | environment, stdout=log, stderr=log)
        try:
            until(self.answers)
        except AssertionError:
            self.__exit__()
            raise

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder)

    def answers(self):
        if self.process.poll() is not None:
            raise AssertionError((self.folder / "log").read_text())
        with contextlib.suppress(OSError):
            return self.ask("GET", "/health")[0].status == 200

    def page(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.stats_port, timeout=PATIENCE)
        with contextlib.closing(connection):
            connection.request("GET", path)
            return connection.getresponse().read().decode()

    def statistics(self):
        """name -> columns of HAProxy's table, for the replicas and their sum (BACKEND)."""
        rows = csv.DictReader(self.page("/;csv").lstrip("# ").splitlines())
        return {row["svname"]: row for row in rows if row["pxname"] == "slm"}

    def requests(self):
        """The count of each replica so far."""
        table = self.statistics()
        return {name: int(table[name]["stot"]) for name in NAMES}

    def is_idle(self):
        return int(self.statistics()["BACKEND"]["scur"]) == 0

    def is_up(self, name):
        return self.statistics()[name]["status"].startswith("UP")


Outcome = collections.namedtuple("Outcome", "kind text replica")  # kind: whole, broken, or the error before an answer began


def prompts():
    """More than a page of the prefix cache, so that cached pages show."""
    texts = [path.read_text() for path in sorted((PAIR / "prompts").iterdir())]
    return [(f"# {index}: functions of a small library, one after the other\n" + "".join(texts[index:] + texts[:index]))[:600]
            for index in range(len(texts))]


def body_of(prompt, stream=False):
    return {"model": "slm", "prompt": prompt, "max_tokens": 300, "temperature": 0, "ignore_eos": True, "stream": stream}


def ask(server, prompt, stream):
    """The view of a client without retries."""
    replica = None
    try:
        connection, response = server.open("POST", "/v1/completions", body_of(prompt, stream))
    except (OSError, http.client.HTTPException) as error:
        return Outcome(repr(error), "", None)
    with contextlib.closing(connection):
        replica, text, done = response.headers["X-Served-By"], "", not stream
        if response.status != 200:
            return Outcome(f"{response.status}: {response.read()}", "", replica)
        try:
            if not stream:
                return Outcome("whole", json.loads(response.read())["choices"][0]["text"], replica)
            for line in response:
                if line == b"data: [DONE]\n":
                    done = True
                elif line.startswith(b"data: "):
                    text += json.loads(line[6:])["choices"][0]["text"]
        except (OSError, http.client.HTTPException):
            done = False
        return Outcome("whole" if done else "broken", text, replica)


class Load:
    """Clients that send one request after another, streams and whole answers, until they are stopped."""

    def __init__(self, proxy, asked):
        self.outcomes, self.stopped = [], threading.Event()
        self.threads = [threading.Thread(target=self.client, args=(proxy, asked, index)) for index in range(CLIENTS)]
        for thread in self.threads:
            thread.start()

    def client(self, proxy, asked, index):
        while not self.stopped.is_set():
            which = index % len(asked)
            self.outcomes.append((which, ask(proxy, asked[which], stream=index % 3 != 0)))
            index += 7

    def more(self, count):
        enough = len(self.outcomes) + count
        until(lambda: len(self.outcomes) >= enough)

    def stop(self):
        self.stopped.set()
        for thread in self.threads:
            thread.join()


class Replicas(unittest.TestCase):
    maxDiff = None

    def start(self, *arguments):
        replica = Replica(*arguments)
        self.addCleanup(replica.__exit__)
        return replica

    def proxy(self, replicas, **how):
        proxy = Proxy(list(replicas), **how)
        self.addCleanup(proxy.__exit__)
        return proxy

    def test_a_key_selects_the_replica_with_the_cached_prefix(self):
        replicas = dict(zip(NAMES, [self.start("--served-model-name", "adapter") for _ in NAMES]))
        proxy = self.proxy(replicas.values())

        def served_by(path="/v1/completions", **fields):
            response, text = proxy.ask("POST", path, {"model": "slm", "max_tokens": 1} | fields)
            self.assertEqual(response.status, 200, text)
            until(proxy.is_idle)
            return response.headers["X-Served-By"]

        homes = []
        for prompt in prompts():
            before = {name: replica.metric("vllm:prefix_cache_hits_total") for name, replica in replicas.items()}
            (home,) = {served_by(prompt=prompt + end) for end in ("", " # one", " # another", " # \u00e9\u4e2d\"}{")}
            after = {name: replica.metric("vllm:prefix_cache_hits_total") for name, replica in replicas.items()}
            self.assertEqual([name for name in NAMES if after[name] > before[name]], [home])
            homes.append(home)
        self.assertEqual(set(homes), set(NAMES))  # which share the prompts

        # A chat stays on its replica. The first question distinguishes chats with the same instruction.
        homes = []
        for question in range(12):
            messages = [{"role": "system", "content": "Answer } \"briefly\"."}, {"role": "user", "content": f"{{{question}}} \u00e9?"}]
            visited = set()
            for turn in range(3):
                visited.add(served_by("/v1/chat/completions", messages=messages))
                messages += [{"role": "assistant", "content": f"Answer {turn}"}, {"role": "user", "content": f"And {turn}?"}]
            self.assertEqual(len(visited), 1)
            homes += visited
        self.assertGreater(len(set(homes)), 1)

        # Requests with the same client key or adapter have one replica, for any prompts.
        self.assertEqual(len({served_by(prompt=prompt, prompt_cache_key="mine") for prompt in prompts()}), 1)
        self.assertEqual(len({served_by(prompt=prompt, model="adapter") for prompt in prompts()}), 1)
        # Other requests have none.
        self.assertGreater(len({proxy.ask("GET", "/v1/models")[0].headers["X-Served-By"] for _ in range(30)}), 1)

        # A popular key does not overload one replica.
        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as clients:
            outcomes = list(clients.map(lambda index: ask(proxy, prompts()[0], index % 2 == 0), range(CLIENTS)))
        self.assertEqual({outcome.kind for outcome in outcomes}, {"whole"})
        self.assertEqual(len({outcome.text for outcome in outcomes}), 1)
        counts = collections.Counter(outcome.replica for outcome in outcomes)
        self.assertGreaterEqual(len(counts), 3, counts)
        self.assertLess(max(counts.values()), CLIENTS / 2, counts)

        # A replica's own pages are not available through the proxy.
        for path in ("/metrics", "/load"):
            self.assertEqual(proxy.ask("GET", path)[0].status, 404)
        self.assertIn('haproxy_server_status{proxy="slm",server="four",state="UP"} 1', proxy.page("/metrics"))

    def test_only_started_answers_are_lost_when_a_replica_is_killed_and_one_drains(self):
        replicas = dict(zip(NAMES, [self.start() for _ in NAMES]))
        proxy = self.proxy(replicas.values())
        asked = prompts()
        alone = [ask(replicas["one"], prompt, stream=False).text for prompt in asked]
        load = Load(proxy, asked)
        self.addCleanup(load.stop)
        load.more(CLIENTS)

        def busiest(*without):
            open_streams = {name: replicas[name].metric("slm:open_streams") for name in NAMES if name not in without}
            name = max(open_streams, key=open_streams.get)
            return name if open_streams[name] >= 2 else None

        killed = until(busiest)
        replicas[killed].process.kill()
        replicas[killed].process.wait()
        drained = until(lambda: busiest(killed))
        replicas[drained].process.send_signal(signal.SIGTERM)
        until(lambda: not proxy.is_up(drained))
        at_drain = proxy.requests()
        self.assertEqual(replicas[drained].process.wait(PATIENCE), 0)
        load.more(CLIENTS)
        self.assertFalse(proxy.is_up(killed))
        after = proxy.requests()
        self.assertEqual(after[drained], at_drain[drained])  # no new request arrived
        self.assertGreater(sum(after.values()), sum(at_drain.values()))

        # A restarted one is used again.
        replicas[killed] = Replica(port=replicas[killed].port)
        self.addCleanup(replicas[killed].__exit__)
        until(lambda: proxy.is_up(killed))
        until(lambda: replicas[killed].metric("vllm:request_success_total") >= 5)
        load.stop()

        kinds = collections.Counter(outcome.kind for _, outcome in load.outcomes)
        print(f"{kinds}, requests at the drain {at_drain}, after it {after}", flush=True)
        self.assertEqual(set(kinds), {"whole", "broken"}, "a request was lost that had not begun to be answered")
        for which, outcome in load.outcomes:
            if outcome.kind == "whole":
                self.assertEqual(outcome.text, alone[which])
            else:  # it reports the error, and the received part was correct
                self.assertEqual(outcome.replica, killed)
                self.assertEqual(outcome.text, alone[which][:len(outcome.text)])
        self.assertLessEqual(kinds["broken"], CLIENTS)

    def test_without_retries_requests_would_be_lost(self):
        for change, lost in ((("", ""), False), (("retries 2", "retries 0"), True)):
            stays, killed = self.start(), self.start()
            proxy = self.proxy([stays, killed], change=change)
            killed.process.kill()
            killed.process.wait()
            with concurrent.futures.ThreadPoolExecutor(8) as clients:
                kinds = {outcome.kind for outcome in clients.map(lambda prompt: ask(proxy, prompt, True), prompts()[:8])}
            self.assertEqual(kinds != {"whole"}, lost, kinds)

    def test_a_full_replica_passes_requests_on_and_full_ones_report_it(self):
        busy, free = self.start("--max-requests", "1"), self.start("--max-requests", "1")
        proxy = self.proxy([busy, free])
        with contextlib.ExitStack() as streams:
            def occupy(replica):
                connection, response = replica.open("POST", "/v1/completions", body_of("def", True) | {"max_tokens": 1000})
                streams.callback(connection.close)
                self.assertEqual(response.status, 200)

            occupy(busy)
            for prompt in prompts()[:6]:
                self.assertEqual(proxy.ask("POST", "/v1/completions", body_of(prompt) | {"max_tokens": 1})[0].status, 200)
            self.assertGreater(int(proxy.statistics()["BACKEND"]["wredis"]), 0)
            self.assertGreater(busy.metric("vllm:num_requests_running"), 0)
            occupy(free)
            response, text = proxy.ask("POST", "/v1/completions", body_of("def"))
            self.assertEqual(response.status, 503)
            self.assertIn("Retry-After", response.headers)
            self.assertIn("error", json.loads(text))

    def test_tokens_are_sent_one_by_one(self):
        replica = self.start()
        for change, singly in ((("", ""), True), (("option http-no-delay", ""), False)):  # HAProxy collects them by default
            proxy = self.proxy([replica], change=change)
            body = json.dumps(body_of("def", stream=True)).encode()
            request = b"POST /v1/completions HTTP/1.1\r\nHost: slm\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
            pieces = []
            with socket.create_connection(("127.0.0.1", proxy.port), PATIENCE) as connection:
                connection.sendall(request % len(body) + body)
                while not pieces or b"[DONE]" not in pieces[-1]:
                    pieces.append(connection.recv(1 << 16))
                    self.assertTrue(pieces[-1], "the stream has broken off")
            events = b"".join(pieces).count(b"data: {")
            self.assertEqual(len(pieces) > events / 4, singly, f"{events} events in {len(pieces)} pieces")

    def test_a_request_ends_with_its_client(self):
        replica = self.start()
        proxy = self.proxy([replica])
        for stream in (True, False):
            connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=PATIENCE)
            body = body_of("def", stream) | {"max_tokens": 1000, "n": 8}
            connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
            if stream:
                self.assertTrue(connection.getresponse().readline().startswith(b"data: {"))
            until(lambda: replica.metric("vllm:num_requests_running") > 0)
            connection.close()
            until(lambda: replica.metric("vllm:num_requests_running") == 0)
        over = {reason: replica.metric(f'vllm:request_success_total{{engine="0",model_name="slm",finished_reason="{reason}"}}')
                for reason in ("abort", "length")}
        self.assertGreater(over["abort"], 0)
        self.assertEqual(over["length"], 0)

    def test_the_proxy_is_healthy_with_one_replica_and_limits_the_rate(self):
        replica = self.start()
        proxy = self.proxy([replica], SLM_RATE="20")
        statuses = [proxy.ask("GET", "/v1/models")[0].status for _ in range(40)]
        self.assertEqual((statuses[0], statuses[-1]), (200, 429))
        replica.process.kill()
        until(lambda: proxy.ask("GET", "/health")[0].status == 503)


if __name__ == "__main__":
    if not HAPROXY:
        print("SKIPPED: no haproxy here (Debian: apt-get install haproxy)")
        sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1], verbosity=2)
