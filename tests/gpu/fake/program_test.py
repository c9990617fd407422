#!/usr/bin/env python3
"""The program slm as ranks with one GPU each, without GPUs: its own code up to the vendor's library and NCCL, which are replaced
by libraries that compute nothing. Logits are all zero, so the test checks the calls and the end.
usage: program_test.py PROGRAM SOURCE_DIR SCRATCH_DIR"""
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(sys.argv[2]) / "tests" / "support"))
import rank_program  # noqa: E402
from rank_program import ENVIRONMENT, MPIRUN, PAIR, PROGRAM, SCRATCH, RanksTest, run, words  # noqa: E402

LAYERS = json.loads((PAIR / "target" / "config.json").read_text())["num_hidden_layers"]
LOGITS = ["logits", PAIR / "target", "--ids", "5,90,17", "--backend"]
GENERATE = ["generate", "--target", PAIR / "target", "--prompt", "def", "--max-new-tokens", "20", "--threads", "1",
            "--json", "--backend"]
DRAFT = ["--draft", PAIR / "draft"]


def on_ranks(count, *arguments, **environment):
    return rank_program.on_ranks(count, *arguments, SLM_FAKE_NOTES=str(SCRATCH), **environment)


def notes():
    """For each rank: the communicators that it has opened, as (rank, size, device, process), and the calls of each."""
    found = {}
    for file in SCRATCH.iterdir():
        lines = file.read_text().splitlines()
        opened = [tuple(map(int, re.findall(r"\d+", line))) for line in lines if line.startswith("opened")]
        closed = [int(line.split()[2]) for line in lines if line.startswith("closed")]
        found[int(file.name)] = opened, closed
    return found


class Program(RanksTest):
    def well(self, result, devices):
        """Each rank with a GPU used that device, and closed its communicators."""
        self.assertEqual(result.returncode, 0, result.stderr)
        found = notes()
        self.assertEqual(sorted(found), sorted(devices))
        for rank, (opened, closed) in found.items():
            self.assertEqual({device for _, _, device, _ in opened}, {devices[rank]})
            self.assertEqual(len(closed), len(opened))
        return found

    def test_each_rank_uses_the_device_of_its_number_on_the_host(self):
        alone = run([PROGRAM, *LOGITS, "gpu"]).stdout
        self.assertEqual(len(alone.splitlines()), 3)
        found = self.well(result := on_ranks(2, *LOGITS, "gpu"), {0: 0, 1: 1})
        self.assertEqual(result.stdout, alone)
        for rank, (opened, closed) in found.items():
            self.assertEqual([one[:3] for one in opened], [(rank, 2, rank)])
            self.assertGreater(closed[0], 4 * LAYERS)  # four gathers per layer
        self.assertEqual(found[0][1], found[1][1])

    def test_the_number_of_a_backend_is_the_device_of_the_first_rank_of_a_host(self):
        self.well(on_ranks(2, *LOGITS, "gpu:2", SLM_FAKE_DEVICES="4"), {0: 2, 1: 3})

    def test_a_rank_that_sees_one_device_uses_it(self):
        own = [word for bus in (7, 9) for word in (":", "-n", 1, "env", f"SLM_FAKE_BUS={bus}", PROGRAM, *LOGITS, "gpu")]
        result = run([*MPIRUN, *own[1:]], SLM_FAKE_NOTES=str(SCRATCH), SLM_FAKE_DEVICES="1")
        self.well(result, {0: 0, 1: 0})

    def test_stages_pass_rows_on_between_devices(self):
        for ranks, devices in ((2, "2"), (4, "4")):
            self.setUp()
            self.well(on_ranks(ranks, *LOGITS, "gpu", "--pipeline", 2, SLM_FAKE_DEVICES=devices),
                      {rank: rank for rank in range(ranks)})

    def test_texts_drafts_and_their_devices(self):
        for options, ranks, devices in (([], 2, {0: 0, 1: 1}),
                                        (DRAFT, 2, {0: 0, 1: 1}),
                                        ([*DRAFT, "--pipeline", 2], 2, {0: 0, 1: 1}),
                                        ([*DRAFT, "--draft-backend", "cpu"], 2, {0: 0, 1: 1}),
                                        ([*DRAFT, "--draft-backend", "gpu:2"], 2, {0: 0, 1: 1}),
                                        ([*DRAFT, "--draft-ranks", 1, "--draft-backend", "cpu"], 3, {0: 0, 1: 1}),
                                        ([*DRAFT, "--draft-ranks", 1], 3, {0: 0, 1: 1, 2: 2}),
                                        ([*DRAFT, "--draft-ranks", 2], 3, {0: 0, 1: 1, 2: 2})):
            self.setUp()
            with self.subTest(options=options):
                result = on_ranks(ranks, *GENERATE, "gpu", *options, SLM_FAKE_DEVICES="3")
                self.well(result, devices)
                self.assertEqual(json.loads(result.stdout)["ids"], [0])  # the first of equal logits, which ends the text
        self.setUp()
        draft = [*GENERATE, "cpu", *DRAFT, "--draft-ranks", 1, "--draft-backend", "gpu"]
        result = on_ranks(2, *draft)
        self.well(result, {0: 0, 1: 1})
        self.assertEqual(json.loads(result.stdout)["ids"], json.loads(run([PROGRAM, *GENERATE, "cpu"]).stdout)["ids"])

    def test_a_file_has_the_perplexity_of_one_device(self):
        text = SCRATCH.with_suffix(".txt")
        text.write_text("def read(path):\n" * 20)
        command = ["perplexity", PAIR / "target", text, "--backend", "gpu"]
        result = on_ranks(2, *command)
        self.well(result, {0: 0, 1: 1})
        self.assertEqual(result.stdout, run([PROGRAM, *command]).stdout)

    def test_a_server_over_gpus_answers_and_drains(self):
        command = [*MPIRUN, "-n", 2, PROGRAM, "serve", "--target", PAIR / "target", "--backend", "gpu", "--port", "0",
                   "--json"]
        process = subprocess.Popen(words(command), env=ENVIRONMENT | {"SLM_FAKE_NOTES": str(SCRATCH)}, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
        try:
            port = json.loads(process.stdout.readline())["port"]
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=100)
            body = json.dumps({"prompt": "def", "max_tokens": 5, "temperature": 0})
            connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
            answer = json.loads(connection.getresponse().read())
            connection.close()
            self.assertEqual(answer["usage"]["completion_tokens"], 1)
            os.kill(notes()[0][0][0][3], signal.SIGTERM)
            said = process.communicate(timeout=60)[1]
        finally:
            process.kill()
            process.communicate()
        self.assertEqual(process.returncode, 0, said)
        self.assertEqual(sorted(notes()), [0, 1])

    def test_more_ranks_than_devices_are_rejected_with_both_and_the_remedy(self):
        self.refused(on_ranks(3, *LOGITS, "gpu"), "ranks.devices", "rank 2, number 2 on its host", "sees 2 devices",
                     "--map-by ppr:N:node")
        self.refused(on_ranks(2, *LOGITS, "gpu:1"), "ranks.devices", "rank 1", "device 2")
        self.refused(on_ranks(2, *LOGITS, "gpu", SLM_FAKE_DEVICES="1"), "ranks.devices",
                     "rank 0 and rank 1 share one device: Fake One")
        self.refused(on_ranks(2, *LOGITS, "gpu", SLM_FAKE_DEVICES="0"), "gpu.no-device")


if __name__ == "__main__":
    if not shutil.which("mpirun"):
        print("SKIPPED: mpirun is not here (Debian: openmpi-bin, libopenmpi-dev)")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
