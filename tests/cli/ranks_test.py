#!/usr/bin/env python3
"""The program slm as several ranks under mpirun: the answers of one rank, and no hang when a rank is killed, stopped or
different.  usage: ranks_test.py PROGRAM SOURCE_DIR SCRATCH_DIR"""
import contextlib
import http.client
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(sys.argv[2]) / "tests" / "support"))
from in_turn import in_turn  # noqa: E402
from rank_program import ENVIRONMENT, MPIRUN, PAIR, PROGRAM, SCRATCH, RanksTest, on_ranks, run, words  # noqa: E402

LONG = ["generate", "--target", PAIR / "target", "--prompt", "def", "--max-new-tokens", "100000", "--threads", "1"]


def processes():
    """rank -> process id of the running ranks of this program."""
    found = {}
    for folder in pathlib.Path("/proc").iterdir():
        try:
            if not folder.name.isdigit() or os.readlink(folder / "exe") != os.path.realpath(PROGRAM):
                continue
            variables = dict(part.split("=", 1) for part in (folder / "environ").read_text().split("\0") if "=" in part)
            if variables.get("SLM_TEST_RANKS") == str(os.getpid()):
                found[int(variables["OMPI_COMM_WORLD_RANK"])] = int(folder.name)
        except (OSError, KeyError, UnicodeDecodeError):
            continue
    return found


# Adaptive lengths, and the choice between sources, depend on the time of steps.
SAME_DRAFTS = ["--draft-length", "4"]
MODEL_DRAFTS = ["--drafter", "model"]


class Ranks(RanksTest):
    def test_any_number_of_ranks_has_the_answers_of_one(self):
        for options in (["--target", PAIR / "target", "--temperature", "0.9", "--seed", "4"],
                        ["--target", PAIR / "target-int4", "--draft", PAIR / "draft-int4", *MODEL_DRAFTS],
                        ["--target", PAIR / "target", "--draft", PAIR / "draft", "--temperature", "0.7", *MODEL_DRAFTS]):
            command = ["generate", *options, "--prompt", "def read", "--max-new-tokens", "40", "--json", *SAME_DRAFTS]
            alone = json.loads(run([PROGRAM, *command]).stdout)
            self.assertEqual(len(alone["ids"]), 40)
            for count in in_turn(2, 3):
                result = on_ranks(count, *command)
                self.assertEqual(result.returncode, 0, result.stderr)
                answer = json.loads(result.stdout)  # of one rank only
                self.assertEqual(answer["ids"], alone["ids"])
                self.assertEqual(answer["text"], alone["text"])
                self.assertEqual(answer["statistics"]["accepted"], alone["statistics"]["accepted"])

    def test_pipeline_stages_have_the_answers_of_one_rank(self):
        for options in (["--target", PAIR / "target", "--temperature", "0.9", "--seed", "4"],
                        ["--target", PAIR / "target-int4", "--draft", PAIR / "draft-int4", *MODEL_DRAFTS]):
            command = ["generate", *options, "--prompt", "def read" * 60, "--max-new-tokens", "30", "--json", *SAME_DRAFTS]
            alone = json.loads(run([PROGRAM, *command]).stdout)
            for count, stages in in_turn((2, 2), (3, 3), (4, 2)):
                result = on_ranks(count, *command, "--pipeline", stages)
                self.assertEqual(result.returncode, 0, result.stderr)
                answer = json.loads(result.stdout)
                self.assertEqual(answer["ids"], alone["ids"])
                self.assertEqual(answer["statistics"]["accepted"], alone["statistics"]["accepted"])

    def test_ranks_with_partial_sums_agree_plainly_and_speculatively(self):
        ids = ["logits", PAIR / "target", "--ids", "5,90,17,300"]
        alone = json.loads(run([PROGRAM, *ids]).stdout)
        # Each of two sums in six layers, of at most 640 products, differs by at most twice 640 * 2^-24 in another order.
        allowed = 6 * 2 * 2 * 640 * 2.0 ** -24 * max(abs(value) for row in alone for value in row)
        for count, options in ((2, []), (3, []), (4, ["--pipeline", 2])):
            result = on_ranks(count, *ids, "--fast-reduce", *options)
            self.assertEqual(result.returncode, 0, result.stderr)
            rows = json.loads(result.stdout)
            self.assertNotEqual(rows, alone)
            for row, expected in zip(rows, alone, strict=True):
                for value, wanted in zip(row, expected, strict=True):
                    self.assertAlmostEqual(value, wanted, delta=allowed)
            command = ["generate", "--target", PAIR / "target", "--prompt", "def read", "--max-new-tokens", "40",
                       "--json", "--temperature", "0.7", "--fast-reduce", *options]
            plain, speculative = (on_ranks(count, *command, *draft) for draft in ([], ["--draft", PAIR / "draft"]))
            self.assertEqual(plain.returncode, 0, plain.stderr)
            self.assertEqual(json.loads(plain.stdout)["ids"], json.loads(speculative.stdout)["ids"], speculative.stderr)

    def test_ranks_without_partial_sums_are_rejected_by_name(self):
        target = ["generate", "--prompt", "def", "--target", PAIR / "target", "--fast-reduce"]
        self.refused(run([PROGRAM, *target]), "ranks.fast-reduce", "one rank")
        self.refused(on_ranks(2, *target, "--pipeline", 2), "ranks.fast-reduce", "one rank")
        apart = [*target, "--draft", PAIR / "draft", "--threads", 1, "--draft-ranks", 1]
        self.refused(on_ranks(2, *apart), "ranks.fast-reduce", "one rank")
        self.assertEqual(on_ranks(3, *apart).returncode, 0)

    def test_a_draft_on_separate_ranks_has_the_answers_of_one_rank(self):
        pair = ["--target", PAIR / "target", "--draft", PAIR / "draft", *MODEL_DRAFTS]
        for options in ([*pair, *SAME_DRAFTS], [*pair, "--temperature", "0.8", "--rule", "ratio", "--draft-length", "3"],
                        ["--target", PAIR / "target", "--draft", PAIR / "target-int4", "--draft-length", "heuristic",
                         *MODEL_DRAFTS]):
            command = ["generate", *options, "--prompt", "def read", "--max-new-tokens", "60", "--json"]
            alone = json.loads(run([PROGRAM, *command]).stdout)
            for count, drafts, more in in_turn((2, 1, []), (3, 1, []), (3, 2, ["--draft-threads", 1]),
                                               (3, 1, ["--pipeline", 2])):
                result = on_ranks(count, *command, "--threads", 1, "--draft-ranks", drafts, *more)
                self.assertEqual(result.returncode, 0, result.stderr)
                answer = json.loads(result.stdout)
                self.assertEqual(answer["ids"], alone["ids"])
                self.assertEqual(answer["statistics"]["accepted"], alone["statistics"]["accepted"])
                self.assertGreater(answer["statistics"]["drafts_ahead"], 0)
            answer = json.loads(run([PROGRAM, *command, "--threads", 1, "--draft-threads", 1]).stdout)
            self.assertEqual(answer["ids"], alone["ids"])
            self.assertEqual(answer["statistics"]["accepted"], alone["statistics"]["accepted"])
            self.assertGreater(answer["statistics"]["drafts_ahead"], 0)

    def test_many_requests_and_saved_texts_do_not_depend_on_the_ranks_of_the_draft(self):
        lines = SCRATCH / "requests"
        lines.write_text("".join(json.dumps({"prompt": "def " + name, "max_new_tokens": 20}) + "\n"
                                 for name in ("read", "write", "open", "close")))
        pair = ["generate", "--target", PAIR / "target", "--draft", PAIR / "draft", "--json"]
        apart = ["--threads", 1, "--draft-ranks", 1]
        many = [*pair, "--prompts", lines]
        texts = [[json.loads(line)["ids"] for line in result.stdout.splitlines()]
                 for result in (run([PROGRAM, *many]), on_ranks(2, *many, *apart))]
        self.assertEqual(len(texts[0]), 4)
        self.assertEqual(texts[0], texts[1])
        first = [*pair, "--prompt", "def", "--max-new-tokens", "20", "--save"]
        self.assertEqual(on_ranks(3, *first, SCRATCH / "apart", *apart).returncode, 0)
        run([PROGRAM, *first, SCRATCH / "alone"])
        self.assertEqual((SCRATCH / "apart").read_bytes(), (SCRATCH / "alone").read_bytes())

    def test_too_many_draft_ranks_are_rejected_by_name(self):
        pair = ["generate", "--prompt", "def", "--target", PAIR / "target", "--draft", PAIR / "draft", "--draft-ranks"]
        self.refused(on_ranks(2, *pair, 2), "ranks.draft", "2 of 2 ranks")
        self.refused(run([PROGRAM, *pair, 1]), "ranks.draft", "1 of 1 ranks")
        self.refused(on_ranks(3, *pair, 1, "--pipeline", 3), "ranks.pipeline", "2 ranks")
        self.assertEqual(on_ranks(2, *LONG, "--draft-ranks", 1).returncode, 2)  # without a draft

    def test_stages_that_do_not_fit_are_rejected_by_name(self):
        target = ["generate", "--prompt", "def", "--target", PAIR / "target", "--pipeline"]
        self.refused(on_ranks(2, *target, 3), "ranks.pipeline", "2 ranks")
        self.refused(on_ranks(3, *target, 2), "ranks.pipeline", "3 ranks")
        self.refused(run([PROGRAM, *target, 2]), "ranks.pipeline", "one rank")

    def test_a_draft_length_that_depends_on_time_has_the_same_answers(self):
        command = ["generate", "--target", PAIR / "target", "--draft", PAIR / "draft", "--draft-length", "adaptive",
                   "--prompt", "def read", "--max-new-tokens", "60", "--json"]
        result = on_ranks(2, *command)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(json.loads(result.stdout)["ids"], json.loads(run([PROGRAM, *command]).stdout)["ids"])

    def test_logits_have_the_same_bits(self):
        command = ["logits", PAIR / "target", "--ids", "5,90,17,300"]
        result = on_ranks(2, *command)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout, run([PROGRAM, *command]).stdout)

    def test_a_text_saved_by_ranks_continues_on_one_rank_and_vice_versa(self):
        command = ["generate", "--target", PAIR / "target", "--json"]
        first = [*command, "--prompt", "def", "--max-new-tokens", "20", "--save"]
        on_ranks(2, *first, SCRATCH / "of_ranks")
        run([PROGRAM, *first, SCRATCH / "alone"])
        self.assertEqual((SCRATCH / "of_ranks").read_bytes(), (SCRATCH / "alone").read_bytes())
        on_ranks(3, *first, SCRATCH / "of_stages", "--pipeline", 3)
        self.assertEqual((SCRATCH / "of_stages").read_bytes(), (SCRATCH / "alone").read_bytes())
        more = [*command, "--max-new-tokens", "20", "--resume", SCRATCH / "alone"]
        self.assertEqual(json.loads(on_ranks(2, *more).stdout)["ids"], json.loads(run([PROGRAM, *more]).stdout)["ids"])

    def test_a_rank_with_another_file_is_named(self):
        # The same path is a different folder for each rank, as on nodes with different mounts.
        model = SCRATCH / "model"
        shutil.copytree(PAIR / "target", model)
        private = ["unshare", "-m", "sh", "-c", 'mount --bind "$0" "$1" && shift && exec "$@"', PAIR / "draft", model]
        if run([*private, "true"]).returncode != 0:
            self.skipTest("this user may not mount")
        command = [PROGRAM, "generate", "--prompt", "def", "--threads", "1", "--target", model]
        self.refused(run([*MPIRUN, "-n", 1, *command, ":", "-n", 1, *private, *command]), "ranks.different", "rank 1",
                     "checkpoint")

    def test_a_draft_on_another_device_is_on_the_first_rank(self):
        command = ["generate", "--target", PAIR / "target", "--draft", PAIR / "draft", "--prompt", "def read",
                   "--max-new-tokens", "20", "--json", "--draft-backend", "reference", *SAME_DRAFTS, *MODEL_DRAFTS]
        alone = json.loads(run([PROGRAM, *command]).stdout)
        for more in ([], ["--pipeline", 2]):
            result = on_ranks(2, *command, "--threads", 1, *more)
            self.assertEqual(result.returncode, 0, result.stderr)
            answer = json.loads(result.stdout)
            self.assertEqual(answer["ids"], alone["ids"])
            self.assertEqual(answer["statistics"]["accepted"], alone["statistics"]["accepted"])
            self.assertGreater(answer["statistics"]["drafts_ahead"], 0)

    def test_unsupported_settings_of_ranks_are_rejected_by_name(self):
        target = ["generate", "--prompt", "def", "--target", PAIR / "target"]
        self.refused(on_ranks(2, "info", PAIR / "target"), "ranks.command", "2 ranks")
        for backend in ("reference", "lanes32"):
            self.refused(on_ranks(2, *target, "--backend", backend), "ranks.backend", backend)
            self.refused(on_ranks(2, *target, "--draft", PAIR / "draft", "--draft-ranks", 1, "--threads", 1,
                                  "--draft-backend", backend), "ranks.backend", backend)
        self.assertEqual(on_ranks(2, "generate", "--no-such-option").returncode, 2)
        self.assertEqual(on_ranks(1, "tokenize", PAIR / "target", "--text", "a").returncode,
                         run([PROGRAM, "tokenize", PAIR / "target", "--text", "a"]).returncode)

    def test_missing_gpu_support_is_reported_once_and_ends_all_ranks(self):
        target = ["generate", "--prompt", "def", "--target", PAIR / "target", "--threads", "1"]
        draft = ["--draft", PAIR / "draft"]
        for options in (["--backend", "gpu"], ["--backend", "gpu:1", "--pipeline", 2],
                        ["--backend", "gpu", *draft, "--draft-backend", "cpu"],
                        ["--backend", "gpu", *draft, "--draft-ranks", 1],
                        [*draft, "--draft-backend", "gpu", "--draft-ranks", 1], [*draft, "--draft-backend", "gpu"]):
            result = on_ranks(2, *target, *options)
            self.assertNotEqual(result.returncode, 0)
            said = [line for line in result.stderr.splitlines() if line.startswith("slm: ")]
            self.assertEqual(len(said), 1, result.stderr)
            self.assertRegex(said[0], r"\[(cli\.no-gpu|ranks\.no-nccl|gpu\.no-device)\]")
            if "cli.no-gpu" in said[0]:
                self.assertIn("cmake --preset cuda", result.stderr)

    def test_a_contradictory_environment_is_reported(self):
        command = [PROGRAM, *LONG]
        self.refused(run(command, OMPI_COMM_WORLD_SIZE="2", OMPI_COMM_WORLD_RANK="2"), "ranks.launcher")
        self.refused(run(command, OMPI_COMM_WORLD_SIZE="two", OMPI_COMM_WORLD_RANK="0"), "ranks.launcher")
        self.refused(run(command, OMPI_COMM_WORLD_SIZE="2", OMPI_COMM_WORLD_RANK="0", OMPI_COMM_WORLD_LOCAL_RANK="2"),
                     "ranks.launcher", "OMPI_COMM_WORLD_LOCAL_RANK='2'")
        self.refused(run(command, SLURM_STEP_NUM_TASKS="2"), "ranks.launcher")
        # The environment of srun without MPI: each process would be a single rank.
        self.refused(run(command, SLURM_STEP_NUM_TASKS="4", SLURM_PROCID="1"), "ranks.launcher", "rank 1 of 4",
                     "rank 0 of 1")

    def interrupted(self, number, rank=1, command=LONG, ask=lambda process: process.stdout.read(20), at_its_end=False,
                    **environment):
        """Ends or stops a rank while it works, or while the first one ends by itself. Returns the launcher's status, its output
        and the seconds. ask(process) shows that the ranks are working."""
        shared = set(os.listdir("/dev/shm"))
        process = subprocess.Popen(words([*MPIRUN, "-n", 2, PROGRAM, *command]), stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL,
                                   env=ENVIRONMENT | {"SLM_TEST_RANKS": str(os.getpid())} | environment)
        try:
            self.assertNotEqual(ask(process), "")
            ranks = processes()
            os.kill(ranks[rank], number)
            if at_its_end:
                os.kill(ranks[0], signal.SIGTERM)
            began = time.monotonic()
            said = process.communicate(timeout=60)[1]
            took = time.monotonic() - began
        finally:
            process.kill()
            process.communicate()
        for _ in range(50):
            if not processes():
                break
            time.sleep(0.1)
        self.assertEqual(processes(), {})
        self.assertEqual(set(os.listdir("/dev/shm")) - shared, set())
        return process.returncode, said, took

    def test_a_killed_rank_ends_all(self):
        status, _, took = self.interrupted(signal.SIGKILL)
        self.assertNotEqual(status, 0)
        self.assertLess(took, 20)

    def test_a_stalled_rank_is_named(self):
        status, said, took = self.interrupted(signal.SIGSTOP, SLM_RANK_TIMEOUT="2")
        self.assertNotEqual(status, 0)
        self.assertIn("rank 1 did not arrive within 2000 ms", said)
        self.assertIn("[ranks.failed]", said)
        self.assertLess(took, 30)

    def test_a_stalled_first_rank_is_named(self):
        status, said, took = self.interrupted(signal.SIGSTOP, rank=0, SLM_RANK_TIMEOUT="2")
        self.assertNotEqual(status, 0)
        self.assertIn("rank 0 did not arrive within 2000 ms", said)
        self.assertLess(took, 30)

    def test_a_killed_or_stalled_rank_of_the_draft_ends_all(self):
        lines = SCRATCH / "requests"
        lines.write_text(100 * (json.dumps({"prompt": "def", "max_new_tokens": 1000}) + "\n"))
        apart = ["generate", "--target", PAIR / "target", "--draft", PAIR / "draft", "--draft-ranks", "1",
                 "--threads", "1", "--prompts", lines, "--json", "--sequential"]
        status, _, took = self.interrupted(signal.SIGKILL, command=apart)
        self.assertNotEqual(status, 0)
        self.assertLess(took, 20)
        for rank in (0, 1):
            status, said, took = self.interrupted(signal.SIGSTOP, rank=rank, command=apart, SLM_RANK_TIMEOUT="2")
            self.assertNotEqual(status, 0)
            self.assertIn(f"rank {rank} did not arrive within 2000 ms", said)
            self.assertIn("[ranks.failed]", said)
            self.assertLess(took, 30)

    def asked(self, process):
        """The text of a server that runs over ranks."""
        self.port = json.loads(process.stdout.readline())["port"]
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=100)
        with contextlib.closing(connection):
            body = {"prompt": "def read", "max_tokens": 30, "temperature": 0}
            connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
            return json.loads(connection.getresponse().read())["choices"][0]["text"]

    def test_a_server_has_the_answers_of_one_rank_and_ends_with_any_rank(self):
        pair = ["--target", PAIR / "target", "--draft", PAIR / "draft"]
        alone = run([PROGRAM, "generate", *pair, "--prompt", "def read", "--max-new-tokens", "30", "--json"])
        expected = json.loads(alone.stdout)
        serve = ["serve", *pair, "--port", "0", "--json", "--threads", "1"]
        apart = [*serve, "--draft-ranks", "1", "--draft-length", "4"]

        def asked(process):
            text = self.asked(process)
            self.assertEqual(text, expected["text"])
            time.sleep(1)  # idle
            return text
        for command in (serve, apart):
            status, said, took = self.interrupted(signal.SIGSTOP, command=command, ask=asked, SLM_RANK_TIMEOUT="2")
            self.assertNotEqual(status, 0)
            self.assertIn("rank 1 did not arrive within 2000 ms", said)
            self.assertLess(took, 30)
            status, said, took = self.interrupted(signal.SIGSTOP, command=command, ask=asked, at_its_end=True,
                                                  SLM_RANK_TIMEOUT="4")
            self.assertNotEqual(status, 0)
            self.assertIn("rank 1 did not arrive within 4000 ms", said)
            self.assertLess(took, 30)
            status, said, took = self.interrupted(signal.SIGTERM, rank=0, command=command, ask=asked)  # drains
            self.assertEqual(status, 0, said)
            self.assertLess(took, 30)


if __name__ == "__main__":
    if not shutil.which("mpirun"):
        print("SKIPPED: mpirun is not here (Debian: openmpi-bin, libopenmpi-dev)")
        sys.exit(77)
    if "ranks.no-mpi" in run([PROGRAM, *LONG], OMPI_COMM_WORLD_SIZE="2", OMPI_COMM_WORLD_RANK="0").stderr:
        print("SKIPPED: this slm was built without MPI")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
