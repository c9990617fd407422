#!/usr/bin/env python3
"""slm bench check on the command line.  usage: bench_check_test.py PROGRAM SOURCE_DIR SCRATCH_DIR"""
import json
import pathlib
import shutil
import subprocess
import sys
import unittest

PROGRAM, SOURCE, SCRATCH = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
TASKS = SOURCE / "tests" / "fixtures" / "humaneval" / "tasks.jsonl"
RIGHT = {"task_id": "own/0", "completion": "    return max(low, min(value, high))\n"}
WRONG = {"task_id": "own/1", "completion": "    return {}\n"}
ENDLESS = {"task_id": "own/2", "completion": "    while True: pass\n"}
JUDGE = ("--run-programs", "--seconds", "100")


def check(samples, *options):
    path = SCRATCH / "samples.jsonl"
    path.write_text("".join(json.dumps(sample) + "\n" for sample in samples))
    return subprocess.run([PROGRAM, "bench", "check", path, "--humaneval", TASKS, *options], text=True, capture_output=True,
                          stdin=subprocess.DEVNULL, timeout=300)


class Check(unittest.TestCase):
    def test_nothing_runs_without_permission(self):
        run = check([RIGHT])
        self.assertEqual(run.returncode, 1)
        self.assertIn("[bench.programs-not-allowed]", run.stderr)
        self.assertEqual(run.stdout, "")

    def test_verdicts(self):
        run = check([RIGHT, WRONG, ENDLESS], *JUDGE, "--json", "--processor-seconds", "1")
        self.assertEqual(run.returncode, 0, run.stderr)
        found = json.loads(run.stdout)
        self.assertAlmostEqual(found["pass_at_1"], 1 / 3)
        self.assertEqual([verdict["verdict"] for verdict in found["verdicts"]], ["passed", "failed", "timed out"])
        self.assertEqual(found["verdicts"][1]["detail"], "AssertionError: assert candidate(['a', 'b', 'a']) == {'a': [0, 2]}")
        self.assertEqual(found["without_sample"], [])

    def test_the_table_names_missing_samples(self):
        run = check([RIGHT], *JUDGE)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("pass@1 100.00 % of 1 tasks\n2 of 3 tasks have no sample and are not counted, from own/1 on\n", run.stdout)

    def test_a_sample_of_another_file_is_reported(self):
        run = check([{"task_id": "HumanEval/0", "completion": ""}], *JUDGE)
        self.assertEqual(run.returncode, 1)
        self.assertIn("[bench.unknown-task]", run.stderr)


if __name__ == "__main__":
    shutil.rmtree(SCRATCH, ignore_errors=True)
    SCRATCH.mkdir(parents=True)
    probe = check([RIGHT], *JUDGE)
    if "[sandbox." in probe.stderr:
        print(f"SKIPPED: {probe.stderr.strip()}")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1], verbosity=2)
