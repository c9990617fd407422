#!/usr/bin/env python3
"""Measures `slm serve` over HTTP, optionally beside llama.cpp's server. Prints a Markdown table per measurement.

    python3 bench/serving/serving.py --slm build/cpu/bin/slm --target MODEL.gguf [--llama-server PATH] [--threads 2]

Clients are sockets of this process on loopback. A client sends a request, reads its stream to the end and repeats. The servers
alternate, `--repeats` times, and figures are medians. `--open 12800` opens this many streams before the first one ends, and reads
the server's count of them. `--prefix 2000` sends requests with that many common words to each server. `--first` measures the time that an idle
server adds to the model's own step until the first token after a one-token prompt.
`--beside` compares the tokens/s of 64 streams with those of `slm generate --prompts`.
"""
import argparse
import asyncio
import json
import pathlib
import random
import resource
import socket
import statistics
import subprocess
import tempfile
import time
import urllib.request

RUNNING = 64  # sequences that slm serve decodes at the same time
WORDS = "river stone morning letter window garden winter paper market silver harbour candle bridge forest mirror".split()


def prompt_of(words, seed):
    choose = random.Random(str(seed))
    return "Write about " + " ".join(choose.choice(WORDS) for _ in range(words)) + "."


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    def __init__(self, name, command, port):
        self.name, self.port = name, port
        self.process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 300
        while True:
            try:
                if asyncio.run(self.status()) == 200:
                    return
            except OSError:
                pass
            if self.process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"{name} did not start: {' '.join(map(str, command))}")
            time.sleep(0.05)

    async def status(self):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        line = await reader.readline()
        writer.close()
        return int(line.split()[1]) if line else 0

    def resident(self):
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        return 0

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()


async def stream(port, prompt, tokens, seed=0, opened=lambda: None, to_the_end=True):
    """Times of the request (first element) and of the events with text."""
    body = json.dumps({"prompt": prompt, "max_tokens": tokens, "temperature": 0, "seed": seed, "stream": True, "ignore_eos": to_the_end,
                       "cache_prompt": True}).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 16)
    moments = [time.perf_counter()]
    writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\n"
                 b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
    status = await reader.readline()
    if b" 200 " not in status:
        raise RuntimeError(status + await reader.read())
    opened()
    done = False
    while line := await reader.readline():
        if line.startswith(b"data: {") and b'"text":""' not in line:
            moments.append(time.perf_counter())
        done = done or line.startswith(b"data: [DONE]")
    writer.close()
    if not done:
        raise RuntimeError("a stream ended before its time")
    return moments


def share(values, part):
    ordered = sorted(values)
    return ordered[min(int(part * len(ordered)), len(ordered) - 1)] if ordered else float("nan")


async def load(port, clients, requests, words, tokens, turn):
    """Requests/s, tokens/s, and in ms: the median first token, the median and the 99th percentile between tokens."""
    total = 0

    async def client(number):
        nonlocal total
        answers = []
        for i in range(requests):
            seed = (turn, number, i)
            length = random.Random(str(seed)).randint(tokens // 2, tokens + tokens // 2)  # equal lengths would end at the same time
            total += length
            answers.append(await stream(port, prompt_of(words, seed), length))
        return answers

    began = time.perf_counter()
    answers = [moments for one in await asyncio.gather(*(client(i) for i in range(clients))) for moments in one]
    seconds = time.perf_counter() - began
    first = [moments[1] - moments[0] for moments in answers]
    gaps = [b - a for moments in answers for a, b in zip(moments[1:], moments[2:])]
    return [len(answers) / seconds, total / seconds, 1e3 * share(first, 0.5), 1e3 * share(gaps, 0.5), 1e3 * share(gaps, 0.99)]


def medians(runs):
    return [statistics.median(column) for column in zip(*runs)]


def beside(arguments, start):
    names = list(start)
    print("| clients | server | requests/s | tokens/s | first token, ms | between tokens, ms | 99th percentile, ms |\n|---|---|---|---|---|---|---|")
    for clients in arguments.clients:
        runs = {name: [] for name in names}
        for turn in range(arguments.repeats):
            for name in names:
                server = start[name](clients)
                try:
                    requests = arguments.requests or max(2, 16 // clients)
                    runs[name].append(asyncio.run(load(server.port, clients, requests, arguments.prompt_words, arguments.max_tokens, turn)))
                finally:
                    server.stop()
        for name in names:
            print(f"| {clients} | {name} | " + " | ".join(f"{value:.2f}" for value in medians(runs[name])) + " |", flush=True)


def sample(server, name):
    """The sum of a metric's samples."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics") as answer:
        return sum(float(line.split()[-1]) for line in answer.read().decode().splitlines() if line.startswith(name))


def many_open(server, count, tokens, first_tokens):
    """Opens all streams at the same time and measures the memory of each. The first sequences are so long that none ends before
    the last stream is open. The server reports the number of open streams."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    idle = server.resident()
    began = time.perf_counter()

    async def run():
        all_open, opened = asyncio.Event(), 0

        def open_one():
            nonlocal opened
            opened += 1
            if opened == count:
                all_open.set()

        streams = []
        for number in range(count):
            while number == RUNNING and opened < RUNNING and not any(task.done() for task in streams):
                await asyncio.sleep(0.001)  # until the long sequences are first in the server's queue
            length = first_tokens if number < RUNNING else tokens
            streams.append(asyncio.create_task(stream(server.port, "Once", length, number, open_one)))
            if number % 200 == 199:
                await asyncio.sleep(0.01)
        answers = asyncio.gather(*streams)  # raises an error that prevents the others from opening
        await asyncio.wait([asyncio.create_task(all_open.wait()), answers], return_when=asyncio.FIRST_COMPLETED)
        found = time.perf_counter() - began, sample(server, "slm:open_streams"), server.resident()
        await answers
        return found

    seconds, held, memory = asyncio.run(run())
    print(f"\n{count} streams asked for, the last of them open after {seconds:.1f} s, when the server held {held:.0f}; all answered in "
          f"{time.perf_counter() - began:.1f} s; {(memory - idle) / count / 1024:.1f} KiB of memory for each, those that are being written "
          "included")


def first_token(server):
    """Time until a client of an idle server has the first token after a one-token prompt, and the model's share of it."""
    waited, steps = [], []
    for i in range(100):
        time.sleep(0.02)
        before = sample(server, "slm:step_seconds_sum")
        moments = asyncio.run(stream(server.port, [100 + i], 1))
        waited.append(1e3 * (moments[1] - moments[0]))
        steps.append(1e3 * (sample(server, "slm:step_seconds_sum") - before))
    beyond = [wait - step for wait, step in zip(waited, steps)]
    print(f"\nFirst token of an idle server after a one-token prompt: {statistics.median(waited):.2f} ms, the model's own step "
          f"{statistics.median(steps):.2f} ms, beyond it {statistics.median(beyond):.2f} ms (least {min(beyond):.2f})")


def prefix(arguments, start):
    """The servers alternate; the second and later prompts of a server find the common words in its cache."""
    first, later = ({name: [] for name in start} for _ in range(2))
    for turn in range(arguments.repeats):
        common = prompt_of(arguments.prefix, ("common", turn))
        for name in start:
            server = start[name](1)
            try:
                for i in range(6):
                    moments = asyncio.run(stream(server.port, f"{common} {prompt_of(8, i)}", 4))
                    (later if i > 0 else first)[name].append(1e3 * (moments[1] - moments[0]))
            finally:
                server.stop()
    print(f"\n| first token after {arguments.prefix} common words and 8 others | first prompt, ms | later prompts, ms |\n|---|---|---|")
    for name in start:
        print(f"| {name} | {statistics.median(first[name]):.1f} | {statistics.median(later[name]):.1f} |", flush=True)


def beside_no_server(arguments, server):
    prompts = [prompt_of(arguments.prompt_words, ("beside", i)) for i in range(64)]

    async def all_streams():
        await asyncio.gather(*(stream(server.port, prompt, arguments.max_tokens, to_the_end=False) for prompt in prompts))

    with tempfile.TemporaryDirectory() as folder:
        lines = pathlib.Path(folder) / "prompts.jsonl"
        lines.write_text("".join(json.dumps({"id": i, "prompt": prompt, "max_new_tokens": arguments.max_tokens, "temperature": 0}) + "\n"
                                 for i, prompt in enumerate(prompts)))
        served, alone = [], []
        for _ in range(arguments.repeats):
            began = time.perf_counter()
            asyncio.run(all_streams())
            served.append(time.perf_counter() - began)
            output = subprocess.run([arguments.slm, "generate", "--target", arguments.target, "--prompts", lines, "--json", "--threads",
                                     str(arguments.threads)], capture_output=True, check=True, text=True).stdout
            alone.append(max(json.loads(line)["statistics"]["seconds"]["total"] for line in output.splitlines()))
    print(f"\n64 streams of {arguments.max_tokens} tokens: {statistics.median(served):.2f} s over HTTP, {statistics.median(alone):.2f} s by "
          "slm generate --prompts")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slm", default="build/cpu/bin/slm")
    parser.add_argument("--target", required=True)
    parser.add_argument("--draft", help="draft model (folder or file): also measure the server with it")
    parser.add_argument("--drafter", help="lookup, model, none: also measure the server with this drafter")
    parser.add_argument("--llama-server", help="path of llama.cpp's llama-server, for the same GGUF file")
    parser.add_argument("--clients", type=lambda text: [int(count) for count in text.split(",") if count], default=[1, 8, 32, 64],
                        help="empty: none")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prompt-words", type=int, default=24)
    parser.add_argument("--max-tokens", type=int, default=48, help="mean new tokens; each request has half of it to one and a half")
    parser.add_argument("--requests", type=int, default=0, help="requests per client; 0: at least two, and at least 16 in all")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--open", type=int, default=0)
    parser.add_argument("--open-tokens", type=int, default=16, help="new tokens of each stream except the first ones")
    parser.add_argument("--open-first-tokens", type=int, default=400, help=f"new tokens of the first {RUNNING} streams; enough for all others to open")
    parser.add_argument("--prefix", type=int, default=0)
    parser.add_argument("--first", action="store_true")
    parser.add_argument("--beside", action="store_true")
    arguments = parser.parse_args()

    def slm(_=0, *more):
        port = free_port()
        return Server("slm", [arguments.slm, "serve", "--target", arguments.target, "--port", port, "--threads", arguments.threads, *more], port)

    def llama(clients):
        port = free_port()
        return Server("llama.cpp", [arguments.llama_server, "-m", arguments.target, "--port", port, "-t", arguments.threads, "-np",
                                    clients, "-c", max(512 * clients, 4 * arguments.prefix), "--no-webui"], port)

    start = {"slm": slm}
    if arguments.draft:
        start["slm with a draft"] = lambda clients: slm(clients, "--draft", arguments.draft)
    if arguments.drafter:
        start[f"slm with {arguments.drafter}"] = lambda clients: slm(clients, "--drafter", arguments.drafter)
    if arguments.llama_server:
        start["llama.cpp"] = llama
    if arguments.clients:
        beside(arguments, start)
    if arguments.prefix:
        prefix(arguments, start)
    if arguments.open or arguments.first or arguments.beside:
        server = slm()
        try:
            if arguments.first:
                first_token(server)
            if arguments.beside:
                beside_no_server(arguments, server)
            if arguments.open:
                many_open(server, arguments.open, arguments.open_tokens, arguments.open_first_tokens)
        finally:
            server.stop()


if __name__ == "__main__":
    main()
