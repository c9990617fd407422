#!/usr/bin/env python3
"""slm bench decode, kernels and compare on the command line.  usage: bench_test.py PROGRAM SOURCE_DIR SCRATCH_DIR"""
import copy
import json
import os
import pathlib
import shutil
import subprocess
import sys
import unittest
import xml.dom.minidom

PROGRAM, SCRATCH = sys.argv[1], pathlib.Path(sys.argv[3])


def slm(*arguments, **environment):
    return subprocess.run([PROGRAM, "bench", *map(str, arguments)], capture_output=True, text=True, timeout=300,
                          env={**os.environ, **environment})


def result(benchmark, rows, seconds, model="AMD-Llama-135M", form="bf16", **numbers):
    return {"benchmark": benchmark, "model": model, "format": form, "rows": rows, "seconds": seconds, "bytes": 2.7e8, "bandwidth": 5e10,
            "numbers": numbers}


def report(name, backend="hip", threads=0, factor=1.0):
    """Example data."""
    return {
        "schema": "slm-bench-2", "version": "0.1.0", "date": "2026-11-22T00:00:00Z",
        "device": {"name": name, "architecture": "gfx90a", "driver": "HIP 6.2", "backend": backend, "memory_bytes": 2**36, "cores": 104,
                   "threads": threads},
        "results": [result("decode", 1, 0.01 * factor, tokens_per_second=100 / factor, times_one_row=1, share_of_bandwidth=0.54),
                    result("decode", 5, 0.012 * factor, tokens_per_second=416 / factor, times_one_row=1.2),
                    result("prefill", 512, 0.5 * factor, tokens_per_second=1024 / factor, flop_per_second=1e12),
                    result("speculative", 1, 0.005, model="large + small", speedup=1.8),
                    dict(result("speculative", 1, 0.005, model="large + small", speedup=2.25), bandwidth=0),
                    result("kernel-qkv", 1, 0.0001, times_one_row=1)],
        "failures": []}


class Bench(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        shutil.rmtree(SCRATCH, ignore_errors=True)
        SCRATCH.mkdir(parents=True)

    def write(self, name, content):
        path = SCRATCH / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    def ok(self, *arguments):
        done = slm(*arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def error(self, expected, *arguments, status=1):
        done = slm(*arguments)
        self.assertEqual(done.returncode, status, done.stderr)
        self.assertRegex(done.stderr, expected)
        return done

    # ---- compare

    def test_two_devices_side_by_side(self):
        a, b = self.write("a.json", report("Card A")), self.write("b.json", report("Processor B", "cpu", 8, factor=10))
        done = self.ok("compare", a, b, "--svg", SCRATCH / "c.svg", "--markdown", SCRATCH / "c.md")
        for line in ("| model | Card A | Processor B, 8 threads |", "| AMD-Llama-135M, bf16 | 100 | 10 |", "| AMD-Llama-135M, bf16 | 54 % | 54 % |",
                     "| AMD-Llama-135M, bf16 | 1.2 | 1.2 |", "| large + small, bf16 | 2.25 | 2.25 |"):
            self.assertIn(line, done.stdout)
        self.assertEqual((SCRATCH / "c.md").read_text(), done.stdout)
        if "no pictures: " in done.stderr:
            self.skipTest(done.stderr.strip())
        svg = (SCRATCH / "c.svg").read_text()
        xml.dom.minidom.parseString(svg)
        self.assertIn("Processor B, 8 threads", svg)

    def test_without_matplotlib_there_are_tables_and_a_hint(self):
        (SCRATCH / "without").mkdir()
        (SCRATCH / "without" / "matplotlib.py").write_text("raise ImportError")
        arguments = ("compare", self.write("a.json", report("Card A")), "--svg", SCRATCH / "none.svg", "--markdown", SCRATCH / "none.md")
        done = slm(*arguments, PYTHONPATH=str(SCRATCH / "without"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, "^no pictures: .*apt-get install python3-matplotlib")
        self.assertEqual((SCRATCH / "none.md").read_text(), done.stdout)
        self.assertFalse((SCRATCH / "none.svg").exists())

    def test_missing_results_of_a_device_are_reported(self):
        short = report("Card B")
        short["results"] = short["results"][:1]
        short["failures"] = ["decode/CodeLlama-7B: no memory"]
        done = self.ok("compare", self.write("a.json", report("Card A")), self.write("b.json", short))
        self.assertIn("| AMD-Llama-135M, bf16 | 1.2 | not measured |", done.stdout)
        self.assertIn("Card B: 1 measurement failed there, the first: decode/CodeLlama-7B: no memory", done.stdout)

    def test_two_runs_of_one_device_are_separate(self):
        done = self.ok("compare", self.write("old.json", report("Card A")), self.write("new.json", report("Card A", factor=2)))
        self.assertIn("| model | Card A (old.json) | Card A (new.json) |", done.stdout)
        self.assertIn("come from the same device: their columns are two runs", done.stdout)

    def test_two_tables_of_one_device_are_one_column(self):
        first, second = report("Card A"), report("Card A")
        first["results"], second["results"] = first["results"][:2], second["results"][2:]
        done = self.ok("compare", self.write("decode.json", first), self.write("rest.json", second))
        self.assertIn("| model | Card A |", done.stdout)
        self.assertIn("| large + small, bf16 | 2.25 |", done.stdout)

    def test_emulated_devices_are_refused(self):
        self.error(r"times have no meaning.*\[bench.emulated\]", "compare", self.write("a.json", report("host lanes", "lanes32")))

    def test_invalid_reports(self):
        whole = report("Card A")
        other = dict(whole, schema="slm-bench-1")
        self.error(r"schema 'slm-bench-1', expected schema 'slm-bench-2'.*\[bench.other-schema\]", "compare", self.write("x.json", other))
        damaged = copy.deepcopy(whole)
        damaged["results"][1]["seconds"] = "fast"
        self.error(r"'results\[1\].seconds' is \"fast\", expected a finite number.*\[bench.bad-report\]", "compare", self.write("x.json", damaged))
        self.error(r"\[json.malformed\]", "compare", self.write("x.json", json.dumps(whole)[:-5]))
        self.error(r"\[io.unreadable\]", "compare", SCRATCH / "none.json")
        self.error(r"\[io.unreadable\]", "compare", self.write("x.json", ""))
        kernels = dict(whole, results=whole["results"][-1:])
        self.error(r"\[bench.nothing-to-compare\]", "compare", self.write("x.json", kernels))
        self.error("FILES", "compare", status=2)

    def test_a_failure_writes_nothing(self):
        self.error(r"\[bench.other-schema\]", "compare", self.write("x.json", "{}"), "--svg", SCRATCH / "no.svg", "--markdown", SCRATCH / "no.md")
        self.assertFalse((SCRATCH / "no.svg").exists() or (SCRATCH / "no.md").exists())
        self.error(r"\[io.unwritable\]", "compare", self.write("a.json", report("Card A")), "--markdown", SCRATCH / "none" / "c.md")
        done = slm("compare", self.write("a.json", report("Card A")), "--svg", SCRATCH / "none" / "c.svg")
        self.assertRegex(done.stderr, r"no pictures: |\[io.unwritable\]")

    def test_untrusted_names_are_escaped(self):
        done = self.ok("compare", self.write("a.json", report("A | <b>card</b> & `more`")), "--svg", SCRATCH / "c.svg")
        self.assertIn("A \\| \\<b>card\\</b> & \\`more\\`", done.stdout)
        if "no pictures: " in done.stderr:
            self.skipTest(done.stderr.strip())
        self.assertNotIn("<b>", (SCRATCH / "c.svg").read_text())
        xml.dom.minidom.parse(str(SCRATCH / "c.svg"))

    # ---- decode, kernels

    def test_wrong_arguments(self):
        self.error("subcommand", status=2)
        self.error("--model", "decode", "--model", "GPT-5", status=2)
        self.error("--backend", "kernels", "--backend", "quantum", status=2)
        self.error("--threads", "decode", "--threads", "-1", status=2)
        for sequences in ("0", "1,x", "2000"):
            self.error("--sequences", "decode", "--sequences", sequences, status=2)
        self.error("--sequences", "kernels", "--sequences", "1", status=2)

    def test_a_dry_run_measures_decoding(self):
        done = slm("decode", "--backend", "lanes32", "--json", SCRATCH / "dry.json", "--markdown", SCRATCH / "dry.md")
        if "[bench.no-harness]" in done.stderr:
            self.assertIn("libbenchmark-dev", done.stderr)
            self.skipTest("built without Google Benchmark")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("the times have no meaning", done.stdout)
        self.assertRegex(done.stderr, "decode/tiny/bf16/rows:1 ")
        written = json.loads((SCRATCH / "dry.json").read_text())
        self.assertEqual(written["device"]["backend"], "lanes32")
        seen = {(entry["benchmark"], entry["format"], entry["rows"]) for entry in written["results"]}
        self.assertEqual(seen, {("decode", form, rows) for form in ("bf16", "w4a16") for rows in (1, 2, 3)} |
                         {("prefill", form, 40) for form in ("bf16", "w4a16")})
        self.assertEqual((SCRATCH / "dry.md").read_text(), done.stdout)
        self.error(r"\[bench.emulated\]", "compare", SCRATCH / "dry.json")

    def test_a_dry_run_measures_many_sequences(self):
        done = slm("decode", "--backend", "lanes32", "--format", "bf16", "--sequences", "1,3", "--json", SCRATCH / "many.json")
        if "[bench.no-harness]" in done.stderr:
            self.skipTest("built without Google Benchmark")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, "batch/tiny/bf16/rows:3 ")
        self.assertRegex(done.stdout, r"\| tiny \| bf16 \| 3 \| ")
        written = json.loads((SCRATCH / "many.json").read_text())["results"]
        self.assertEqual([(entry["benchmark"], entry["rows"]) for entry in written], [("batch", 1), ("batch", 3)])
        for entry in written:
            numbers = entry["numbers"]
            self.assertAlmostEqual(numbers["tokens_per_second"] * entry["seconds"], entry["rows"], places=6)
            self.assertTrue({"share_of_bandwidth", "times_one_sequence", "times_one_row", "share_of_rows"} <= set(numbers))
        # Two more sequences: keys and values of two layers, each of two heads of 64 numbers, at 9 positions.
        self.assertIn((written[1]["bytes"] - written[0]["bytes"]) / (2 * 2 * 2 * 2 * 64 * 9), (2, 4))

    def test_a_killed_run_keeps_its_results(self):
        path = SCRATCH / "killed.json"
        run = subprocess.Popen([PROGRAM, "bench", "decode", "--backend", "lanes32", "--json", str(path)], stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True)
        with run:
            first = run.stderr.readline()
            if "[bench.no-harness]" in first:
                self.skipTest("built without Google Benchmark")
            run.stderr.readline()  # a second result: the first is in the file
            run.kill()
        self.assertIn("decode/tiny/bf16/rows:1", first)
        self.assertGreaterEqual(len(json.loads(path.read_text())["results"]), 1)

    def test_an_unwritable_file_is_reported_before_the_measurements(self):
        done = slm("decode", "--backend", "lanes32", "--json", SCRATCH / "none" / "x.json")
        if "[bench.no-harness]" not in done.stderr:
            self.assertRegex(done.stderr, r"^slm: cannot write .*\[io.unwritable\]")

    def test_a_dry_run_measures_kernels(self):
        done = slm("kernels", "--backend", "lanes32", "--format", "int4", "--json", SCRATCH / "dry.json")
        if "[bench.no-harness]" in done.stderr:
            self.skipTest("built without Google Benchmark")
        self.assertEqual(done.returncode, 0, done.stderr)
        written = json.loads((SCRATCH / "dry.json").read_text())
        self.assertEqual({entry["benchmark"] for entry in written["results"]}, {"kernel-qkv", "kernel-project", "kernel-gated_mlp", "kernel-down"})

    def test_many_adapters_are_measured(self):
        target = pathlib.Path(sys.argv[2]) / "examples/demo_pair/draft"
        found = json.loads(self.ok("adapters", "--target", target, "--adapters", 40, "--samples", 1, "--threads", 1, "--json").stdout)
        self.assertEqual((found["adapters"], found["rank"]), (40, 8))
        self.assertGreater(found["resident"]["with_all"] - found["resident"]["before"], 0.9 * 40 * found["adapter_bytes"])
        self.assertLessEqual(found["switch"]["median"], found["switch"]["p99"])
        self.assertEqual([batch["texts"] for batch in found["batches"]], [1, 32])
        self.assertEqual(found["traffic"]["capacity"], 4)
        self.assertTrue(0 < found["traffic"]["hits"] <= 1)
        for turns in (*found["batches"], found["traffic"]):
            self.assertGreater(min(turns["share"], turns["share_of_processor"]), 0)
        self.error(r"\[bench.no-memory\]", "adapters", "--target", target, "--adapters", 1000000, "--rank", 128)

    def test_formats_that_a_backend_lacks(self):
        done = slm("decode", "--backend", "lanes32", "--format", "w4a8")
        if "[bench.no-harness]" not in done.stderr:
            self.assertRegex(done.stderr, r"\[bench.nothing-measured\]")
        self.assertEqual(done.returncode, 1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
