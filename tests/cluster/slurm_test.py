#!/usr/bin/env python3
"""The batch files of examples/cluster, submitted to a SLURM of two nodes on this machine.
usage: slurm_test.py PROGRAM SOURCE_DIR"""
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

for folder in ("serve", "slurm"):
    sys.path.insert(0, str(pathlib.Path(sys.argv[2]).resolve() / "tests" / folder))
from one_machine import Slurm, free_port, missing  # noqa: E402
from server import PAIR, PATIENCE, PROGRAM, PROMPT, SOURCE, Server, generate  # noqa: E402

SKIPPED = 77
KEY = "the-key"
AS_RANK = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}
WITHOUT_MPI = "ranks.no-mpi" in subprocess.run([PROGRAM, "logits", "-"], env=os.environ | AS_RANK, text=True, capture_output=True).stderr
needs_mpi = unittest.skipIf(WITHOUT_MPI, "this slm was built without MPI")


def until(ready, what):
    end = time.monotonic() + PATIENCE
    while not (found := ready()):
        assert time.monotonic() < end, what()
        time.sleep(0.1)
    return found


def processes(job):
    """rank -> process id of the program in a job."""
    found = {}
    for folder in pathlib.Path("/proc").iterdir():
        try:
            if not folder.name.isdigit() or os.readlink(folder / "exe") != os.path.realpath(PROGRAM):
                continue
            variables = dict(part.split("=", 1) for part in (folder / "environ").read_text().split("\0") if "=" in part)
            if variables.get("SLURM_JOB_ID") == job:
                found[int(variables["SLURM_PROCID"])] = int(folder.name)
        except (OSError, KeyError, UnicodeDecodeError):
            continue
    return found


class Served(Server):
    """The server of a job at a port."""

    def __init__(self, port):
        self.port = port

    def is_well(self):
        try:
            return self.ask("GET", "/health")[0].status == 200
        except OSError:
            return False

    def begin_long(self):
        """A stream that has started."""
        body = {"prompt": PROMPT, "max_tokens": 900, "stream": True, "ignore_eos": True}
        connection, response = self.open("POST", "/v1/completions", body, {"Authorization": f"Bearer {KEY}"})
        assert response.readline().startswith(b"data: {")
        return connection, response


class Jobs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="slm-slurm-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.files = shutil.copytree(SOURCE / "examples" / "cluster", cls.folder / "cluster")
        (cls.folder / "keys").write_text(KEY + "\n")
        cls.slurm = Slurm(cls.folder, nodes=2)
        cls.addClassCleanup(cls.slurm.stop)

    def submit(self, options, *words, **environment):
        environment["SLM"] = os.path.realpath(PROGRAM)
        command = ["sbatch", "--parsable", "--cpus-per-task=1", "--output=%x.log", *options, *map(str, words)]
        run = subprocess.run(command, cwd=self.files, env=self.slurm.environment | environment, text=True, capture_output=True)
        self.assertEqual(run.returncode, 0, run.stderr)
        return run.stdout.strip()

    def state(self, job):
        return re.search("JobState=([A-Z]+)", self.slurm.run("scontrol", "show", "job", job))[1]

    def logs(self):
        return "".join(f"{path.name}:\n{path.read_text()[-2000:]}\n" for path in sorted(self.files.glob("*.log")))

    def ended(self, job, state="COMPLETED"):
        until(lambda: self.state(job) not in ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING"), self.logs)
        self.assertEqual(self.state(job), state, self.logs())

    def test_replicas_answer_restart_and_drain(self):
        port, stats, first = free_port(), free_port(), free_port()
        job = self.submit(["--nodes=2"], "replicas.sbatch", "--target", PAIR / "target", "--api-key-file", self.folder / "keys",
                          SLM_BIND=f"127.0.0.1:{port}", SLM_STATS=f"127.0.0.1:{stats}", SLM_PORT=str(first))
        proxy, page = Served(port), Served(stats)
        names = [f"node{index}-{first + index - 1}" for index in (1, 2)]

        def up():
            rows = [line.split(",") for line in page.ask("GET", "/;csv")[1].decode().splitlines()]
            return {row[1] for row in rows if row[0] == "slm" and row[1] in names and row[17].startswith("UP")}

        def ask(prompt, **fields):
            headers = {"Authorization": f"Bearer {KEY}"}
            return proxy.ask("POST", "/v1/completions", {"prompt": prompt, "temperature": 0} | fields, headers)

        until(proxy.is_well, self.logs)
        until(lambda: up() == set(names), self.logs)
        expected = generate("--prompt", PROMPT, "--max-new-tokens", 40)["text"]
        self.assertEqual(proxy.ask("POST", "/v1/completions", {"prompt": PROMPT})[0].status, 401)
        served_by = set()
        for index in range(12):
            response, text = ask(PROMPT, max_tokens=40, prompt_cache_key=str(index))
            self.assertEqual(response.status, 200, text)
            self.assertEqual(json.loads(text)["choices"][0]["text"], expected)
            served_by.add(response.headers["X-Served-By"])
        self.assertEqual(served_by, set(names))

        # The job restarts a killed replica.
        self.slurm.run("scancel", "--signal=KILL", f"{job}.0")
        until(lambda: len(up()) == 1, self.logs)
        until(lambda: up() == set(names), self.logs)
        self.assertEqual(ask(PROMPT, max_tokens=1)[0].status, 200)

        # The job ends when all started answers are complete.
        connection, response = proxy.begin_long()
        self.slurm.run("scancel", "--batch", "--signal=TERM", job)
        self.assertTrue(response.read().endswith(b"data: [DONE]\n\n"))
        connection.close()
        self.ended(job)
        self.assertFalse(proxy.is_well())

    @needs_mpi
    def test_ranks_print_the_text_of_one_rank(self):
        words = ["--draft", PAIR / "draft", "--prompt", PROMPT, "--max-new-tokens", "40", "--temperature", "0.8", "--seed", "3"]
        alone = generate(*words)
        for options in (["--nodes=1", "--ntasks=2"], ["--nodes=2", "--ntasks=2"], ["--nodes=2", "--ntasks=3"]):
            with self.subTest(options=options):
                self.ended(self.submit(options, "ranks.sbatch", "generate", "--target", PAIR / "target", "--json", *words))
                answer = json.loads((self.files / "slm-ranks.log").read_text())  # of one rank only
                self.assertEqual((answer["ids"], answer["text"]), (alone["ids"], alone["text"]))

    def serve_on_ranks(self):
        served = Served(free_port())
        job = self.submit(["--nodes=2", "--ntasks=2"], "ranks.sbatch", "serve", "--target", PAIR / "target", "--port", served.port)
        until(served.is_well, self.logs)
        return job, served

    @needs_mpi
    def test_ranks_serve_and_drain(self):
        job, served = self.serve_on_ranks()
        expected = generate("--prompt", PROMPT, "--max-new-tokens", 40)["text"]
        self.assertEqual(served.complete(max_tokens=40)["choices"][0]["text"], expected)
        connection, response = served.begin_long()
        self.slurm.run("scancel", "--signal=TERM", job)
        self.assertTrue(response.read().endswith(b"data: [DONE]\n\n"))
        connection.close()
        self.ended(job)

    @needs_mpi
    def test_a_killed_rank_ends_the_job(self):
        job, served = self.serve_on_ranks()
        connection, response = served.begin_long()
        os.kill(processes(job)[1], signal.SIGKILL)
        try:  # an error or nothing, but never a complete answer
            self.assertIn(b'"error"', response.read())
        except (OSError, http.client.HTTPException):
            pass
        connection.close()
        self.ended(job, "FAILED")
        self.assertEqual(processes(job), {})


if __name__ == "__main__":
    if why := missing("haproxy"):
        print(f"SKIPPED: {why}")
        sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1], verbosity=2)
