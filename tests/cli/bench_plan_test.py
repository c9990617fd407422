#!/usr/bin/env python3
"""slm bench plan on the command line, alone and under mpirun.  usage: bench_plan_test.py PROGRAM SOURCE_DIR SCRATCH_DIR"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import unittest

PROGRAM, SOURCE, SCRATCH = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
TARGET = SOURCE / "examples" / "demo_pair" / "target"
ENVIRONMENT = os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def slm(*arguments, launcher=()):
    command = [*launcher, PROGRAM, "bench", "plan", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, env=ENVIRONMENT, stdin=subprocess.DEVNULL)


class Plan(unittest.TestCase):
    def ok(self, *arguments, launcher=()):
        done = slm(*arguments, launcher=launcher)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def plans(self, *arguments, launcher=()):
        return json.loads(self.ok(*arguments, "--json", launcher=launcher))

    def error(self, expected, *arguments, status=1):
        done = slm(*arguments)
        self.assertEqual(done.returncode, status, done.stderr)
        self.assertRegex(done.stderr, expected)

    def test_layers_that_a_plan_does_not_count_are_named(self):
        models = SOURCE / "tests" / "fixtures" / "models"
        for model, what in (("lfm2", "recurrent layers"), ("qwen3moe", "a mixture of experts"),
                            ("gemma4-e2b", "layers of different shapes"), ("deepseek-v2-lite", "a mixture of experts")):
            for path in (models / model, models / model / "config.json"):
                with self.subTest(path=path):
                    self.error(rf"has {what}, which a plan does not count.*\[bench\.plan-layers\]", "--model", path, "--device", "H200")

    def test_every_layout_has_bytes_times_and_support(self):
        found = self.plans("--model", "Llama-2-7B", "--device", "MI250", "--device", "H200", "--ranks", 4)
        self.assertEqual([plan["device"]["name"] for plan in found["plans"]], ["MI250", "H200"])
        for plan in found["plans"]:
            self.assertRegex(plan["device"]["origin"], "^stated, not measured: data sheet")
            self.assertFalse(plan["device"]["measured"])
            ways = {(way["replicas"], way["tensor"], way["stages"]): way for way in plan["ways"]}
            self.assertEqual(len(ways), 6)
            self.assertEqual(ways[4, 1, 1]["step"]["weight_bytes"], 2 * (6738415616 - 32000 * 4096 - 65 * 4096 + 4096))
            self.assertEqual(ways[4, 1, 1]["step"]["traffic_bytes"], 0)
            self.assertEqual(ways[1, 4, 1]["step"]["messages"], 131)
            self.assertAlmostEqual(ways[1, 4, 1]["weight_bytes"] / ways[4, 1, 1]["weight_bytes"], 0.25, places=2)
            self.assertEqual({way["today"] for way in ways.values()}, {"has not run"})
        slow, fast = ([way["tokens_per_second"] for way in plan["ways"]] for plan in found["plans"])
        self.assertTrue(all(a < b for a, b in zip(slow, fast)))

    def test_tables_say_the_same(self):
        table = self.ok("--model", "Llama-2-7B", "--device", "MI300X", "--ranks", 2, "--requests-per-day", 3500000, "--sequences", 64)
        self.assertTrue(table.startswith("An estimate, not a measurement: Llama-2-7B, bf16"))
        for part in ("stated, not measured: data sheet", "## Memory and traffic per device", "## Time of a step", "## Requests",
                     "| 2 replicas | 2 | has not run |", "| tensor 2 | 2 | has not run |", "| pipeline 2 | 2 | has not run |"):
            self.assertIn(part, table)

    def test_figures_can_be_replaced(self):
        plan = self.plans("--model", "200B", "--format", "int4", "--device", "H100", "--bandwidth", 1000, "--share", 1, "--latency", 5)
        device, way = plan["plans"][0]["device"], plan["plans"][0]["ways"][0]
        self.assertEqual(device["given"], ["bandwidth", "latency", "share"])
        self.assertAlmostEqual(device["latency"], 5e-6, places=12)
        self.assertFalse(way["fits"])
        step = way["step"]
        self.assertAlmostEqual(step["memory_seconds"], (step["weight_bytes"] + step["cache_bytes"]) / 1e12, places=9)

    def test_a_folder_and_a_config_are_models(self):
        stored, named = (self.plans("--model", model, "--device", "H200", "--context", 64) for model in (TARGET, TARGET / "config.json"))
        self.assertEqual(stored["format"], "BF16")
        self.assertEqual(stored["parameters"], named["parameters"])
        self.assertEqual(stored["plans"][0]["ways"], named["plans"][0]["ways"])
        wider = self.plans("--model", TARGET, "--format", "f32", "--device", "H200", "--context", 64)
        ratio = wider["plans"][0]["ways"][0]["step"]["weight_bytes"] / stored["plans"][0]["ways"][0]["step"]["weight_bytes"]
        self.assertAlmostEqual(ratio, 2, places=4)

    def test_this_processor_is_measured(self):
        plan = self.plans("--model", TARGET, "--device", "measured", "--threads", 1)["plans"][0]
        self.assertTrue(plan["device"]["measured"])
        self.assertFalse(plan["device"]["messages_measured"])
        self.assertGreater(min(plan["device"][figure] for figure in ("memory", "bandwidth", "arithmetic")), 0)
        self.assertEqual([way["today"] for way in plan["ways"]], ["runs"])

    def test_under_mpirun_messages_are_measured(self):
        if not shutil.which("mpirun"):
            self.skipTest("mpirun is not here")
        launcher = ["mpirun", "--oversubscribe", "-n", "2"]
        done = slm("--model", TARGET, "--device", "measured", "--threads", 1, "--json", launcher=launcher)
        if "ranks.no-mpi" in done.stderr:
            self.skipTest("built without MPI")
        self.assertEqual(done.returncode, 0, done.stderr)
        plan = json.loads(done.stdout)["plans"][0]  # of one rank only
        self.assertTrue(plan["device"]["messages_measured"])
        self.assertIn("2 ranks at the same time", plan["device"]["origin"])
        self.assertTrue(0 < plan["device"]["latency"] < 1)
        self.assertEqual({(way["replicas"], way["tensor"], way["stages"]): way["today"] for way in plan["ways"]},
                         {(2, 1, 1): "runs", (1, 2, 1): "runs", (1, 1, 2): "runs"})
        other = subprocess.run([*launcher, PROGRAM, "bench", "decode"], capture_output=True, text=True, timeout=100, env=ENVIRONMENT)
        self.assertIn("[ranks.command]", other.stderr)

    def test_wrong_arguments(self):
        self.error("--model", "--device", "H200", status=2)
        self.error("--device", "--model", "Llama-2-7B", status=2)
        self.error("--device", "--model", "Llama-2-7B", "--device", "abacus", status=2)
        for option, value in (("--ranks", -1), ("--sequences", 0), ("--share", 2), ("--bandwidth", 0), ("--requests-per-day", -5),
                              ("--format", "int3"), ("--cache-format", "f64")):
            self.error(option, "--model", "Llama-2-7B", "--device", "H200", option, value, status=2)
        self.error(r"GPT-5.*\[bench.unknown-shape\]", "--model", "GPT-5", "--device", "H200")
        self.error(r"\[bench.no-way\]", "--model", "Llama-2-7B", "--device", "H200", "--ranks", 4, "--replicas", 3)
        self.error(r"\[bench.no-way\]", "--model", "Llama-2-7B", "--device", "H200", "--ranks", 64, "--pipeline", 64)
        SCRATCH.mkdir(parents=True, exist_ok=True)
        (SCRATCH / "broken.json").write_text("{")
        self.error(r"\[json.malformed\]", "--model", SCRATCH / "broken.json", "--device", "H200")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
