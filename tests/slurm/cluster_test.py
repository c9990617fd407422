#!/usr/bin/env python3
"""bench/slurm/cluster over the nodes of a cluster, some of which fail.  usage: cluster_test.py SOURCE_DIR [SLM]
With SLM, a real SLURM of one node is created in a temporary folder and removed again; without, a simulation replaces sbatch
and squeue.
sbatch and squeue.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

from one_machine import Slurm, missing

SOURCE = pathlib.Path(sys.argv[1])
SLM = sys.argv[2] if len(sys.argv) > 2 else None
CLUSTER = SOURCE / "bench" / "slurm" / "cluster"
SKIPPED = 77
DECODE = "decode --quick --model AMD-Llama-135M --format bf16 --threads 1"
SPECULATIVE = "speculative --tasks 1 --max-new-tokens 8 --repeats 1 --sweep 0 --setup best --sampling greedy --threads 1"

# A replacement of slm: writes a report to the given path.
STUB = """#!/bin/sh
name=$2
while [ $# -gt 0 ]; do
  case $1 in --json) echo '{"schema": "slm-bench-2"}' >"$2" ;; --out) mkdir -p "$2"; echo '{}' >"$2/summary.json" ;; esac
  shift
done
[ "$name" != compare ] || echo compared
"""
SBATCH = """#!/usr/bin/env python3
import os, subprocess, sys
options = dict(word.split("=", 1) for word in sys.argv[1:] if word.startswith("--") and "=" in word)
if options["--partition"] == "absent":
    sys.exit("sbatch: error: invalid partition specified: absent")
for index in range(int(options["--array"].split("-")[1]) + 1):
    with open(options["--output"].replace("%a", str(index)), "w") as log:
        subprocess.Popen(["sh", "-c", sys.argv[sys.argv.index("--wrap") + 1]], stdout=log, stderr=log,
                         env=os.environ | {"SLURM_ARRAY_TASK_ID": str(index), "SLURMD_NODENAME": "node1"})
print("7")
"""
# Running jobs are in the queue.
SQUEUE = """#!/bin/sh
pgrep -f "cluster task $RESULTS_OF_TEST" || true
"""


def executable(path, text):
    path.write_text(text)
    path.chmod(0o755)
    return path


class Cluster(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="slm-slurm-"))
        self.results = self.folder / "results"
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        if SLM:
            slurm = Slurm(self.folder, partitions=("amd", "nvidia"))
            self.addCleanup(slurm.stop)
            self.environment, self.program = slurm.environment, SLM
        else:
            executable(self.folder / "sbatch", SBATCH)
            executable(self.folder / "squeue", SQUEUE)
            self.environment = os.environ | {"PATH": f"{self.folder}:{os.environ['PATH']}", "RESULTS_OF_TEST": str(self.results)}
            self.program = executable(self.folder / "slm", STUB)

    def cluster(self, *arguments):
        return subprocess.run([CLUSTER, *map(str, arguments)], env=self.environment, text=True, capture_output=True, timeout=300)

    def nodes(self, text):
        path = self.folder / "nodes"
        path.write_text(text)
        return path

    def test_reports_are_collected_and_missing_ones_named(self):
        # A GPU that fails, and a node that fails after its first report: the task dies without a message.
        broken = executable(self.folder / "broken", "#!/bin/sh\necho 'no device here' >&2\nexit 3\n")
        gone = executable(self.folder / "gone", f'#!/bin/sh\n[ "$2" = speculative ] || "{self.program}" "$@"\nkill -9 $PPID\n')
        nodes = self.nodes(f"# a comment\nmi250 {self.program} --partition=amd\nh200 {self.program} --partition=nvidia\n"
                           f"broken {broken} --partition=nvidia\n\ngone {gone} --partition=amd\nabsent {self.program} --partition=absent\n")
        run = self.cluster("submit", nodes, self.results, "--wait", DECODE, SPECULATIVE)
        said = run.stdout + run.stderr
        self.assertEqual(run.returncode, 1, said)
        collected = json.loads((self.results / "collected.json").read_text())
        names = {kind: sorted((entry["place"], entry["benchmark"].split()[0]) for entry in collected[kind]) for kind in ("reports", "partial", "missing")}
        self.assertEqual(names["reports"], sorted((place, name) for place in ("mi250", "h200") for name in ("decode", "speculative")), said)
        self.assertEqual(names["partial"], [("gone", "decode")], said)
        self.assertEqual(names["missing"], sorted([("gone", "speculative")] + [(place, name) for place in ("broken", "absent") for name in ("decode", "speculative")]), said)
        why = {(entry["place"], entry["benchmark"].split()[0]): entry["why"] for entry in collected["missing"]}
        self.assertRegex(why["broken", "decode"], "^status 3 on .*: no device here$")
        self.assertRegex(why["gone", "speculative"], "did not end")
        self.assertRegex(why["absent", "decode"], "sbatch refused it: .*nvalid partition")
        self.assertIn("4 of 10 reports are whole, 1 are partial", run.stdout)
        if SLM:
            table = (self.results / "compare.md").read_text()
            self.assertIn("AMD-Llama-135M", table)
            self.assertTrue((self.results / "compare.svg").exists() or "no pictures: " in said)

        # A damaged report counts as missing, and another run does not mix with this one.
        (self.results / "mi250-0-decode.json").write_text('{"schema": ')
        again = self.cluster("collect", self.results)
        self.assertEqual(again.returncode, 1)
        self.assertIn("missing  mi250: decode", again.stdout)
        self.assertIn("3 of 10 reports are whole", again.stdout)
        other = self.cluster("submit", nodes, self.results, DECODE)
        self.assertEqual(other.returncode, 2)
        self.assertIn("results of another run", other.stderr)

    @unittest.skipIf(SLM, "done without SLURM")
    def test_invalid_tables_and_folders_are_reported(self):
        for text, sentence in (("", "names no nodes"), ("# nothing\n", "names no nodes"), ("lonely\n", ":1: expected a name"),
                               ("a/b slm\n", ":1: expected a name"), ("a slm\na slm\n", ":2: the name 'a' occurs twice"),
                               ("a 'slm\n", ":1: No closing quotation")):
            run = self.cluster("submit", self.nodes(text), self.results, "decode")
            self.assertEqual(run.returncode, 2)
            self.assertIn(sentence, run.stderr)
        self.assertEqual(self.cluster("submit", self.folder / "absent", self.results, "decode").returncode, 2)
        run = self.cluster("collect", self.folder)
        self.assertEqual(run.returncode, 2)
        self.assertIn("has no manifest.json", run.stderr)


if __name__ == "__main__":
    if SLM and missing():
        print(f"SKIPPED: {missing()}")
        sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1], verbosity=2)
