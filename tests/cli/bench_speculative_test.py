#!/usr/bin/env python3
"""slm bench speculative on the command line: a tiny run, Ctrl-C, kill -9, folders of other runs, wrong inputs.
usage: bench_speculative_test.py PROGRAM SOURCE_DIR SCRATCH_DIR"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import unittest

from tiny_models import byte_level, sentencepiece

PROGRAM, SOURCE, SCRATCH = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
FIXTURES = SOURCE / "tests" / "fixtures" / "models"
DATA = pathlib.Path(os.environ.get("SLM_TEST_DATA", SOURCE / ".." / "shared" / "data"))
PATIENCE = 120  # time limit of an event, seconds
SMALL = ["--tasks", "2", "--sweep", "1", "--max-new-tokens", "24", "--threads", "1"]
ROWS = 2 * 4 * 2 + 9  # of a SMALL run: tasks, settings, kinds; the sweep


def command(*arguments):
    return [PROGRAM, "bench", "speculative", *map(str, arguments)]


def bench(*arguments):
    result = subprocess.run(command(*arguments), capture_output=True, timeout=300)
    result.out, result.err = result.stdout.decode(), result.stderr.decode()
    return result


def rows(folder):
    path = folder / "results.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def key(row):
    return tuple(row[name] for name in ("engine", "setup", "sampling", "kind", "draft_length", "repeat", "task_id"))


def task(number, prompt="def f(x):\n    '''Add one.'''\n"):
    return {"task_id": f"T/{number}", "prompt": prompt, "entry_point": "f", "canonical_solution": "    return x + 1\n",
            "test": "def check(candidate):\n    assert candidate(1) == 2\n"}


def fixture_with_tokenizer(name, tokenizer=byte_level):
    """A tiny model of some family with a tokenizer of its 97 ids."""
    folder = SCRATCH / f"{name}-{tokenizer.__name__}"
    shutil.copytree(FIXTURES / name, folder, dirs_exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer()))
    return folder


class BenchSpeculative(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        shutil.rmtree(SCRATCH, ignore_errors=True)
        SCRATCH.mkdir(parents=True)

    def file_of(self, name, *tasks):
        path = SCRATCH / name
        path.write_text("".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in tasks))
        return path

    def ok(self, *arguments):
        result = bench(*arguments)
        self.assertEqual(result.returncode, 0, result.err)
        return result

    def error(self, expected, *arguments, status=1):
        result = bench(*arguments)
        self.assertEqual(result.returncode, status, result.err)
        self.assertRegex(result.err, expected)
        return result

    def interrupted(self, folder, sent):
        """Starts a long run, sends a signal after the first measurement, and returns its end."""
        arguments = ["--sweep", "0", "--max-new-tokens", "80", "--threads", "1", "--out", folder]
        process = subprocess.Popen(command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            deadline = time.monotonic() + PATIENCE
            while not (folder / "results.jsonl").exists() or (folder / "results.jsonl").read_bytes().count(b"\n") < 3:
                self.assertIsNone(process.poll(), "the run ended before it could be interrupted")
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.02)
            process.send_signal(sent)
            out, err = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
            process.wait()
        kept = (folder / "results.jsonl").read_bytes()
        self.ok(*arguments)
        after = (folder / "results.jsonl").read_bytes()
        whole_lines = kept[: kept.rfind(b"\n") + 1]
        self.assertTrue(after.startswith(whole_lines))  # nothing was measured again
        measured = rows(folder)
        self.assertEqual(len(measured), 16 * 4 * 2)
        self.assertEqual(len({key(row) for row in measured}), len(measured))
        return process.returncode, out.decode(), err.decode()

    # ---- output

    def test_a_run_of_the_embedded_pair(self):
        folder = SCRATCH / "run"
        result = self.ok(*SMALL, "--out", folder)
        for published in ("AMD: FP32 MI250", "0.650", "2.98x", "33.54 / 33.54"):
            self.assertIn(published, result.out)
        self.assertIn("16 of 16 speculative texts equal the plain ones", result.out)
        self.assertIn("not run", result.out)  # pass@1
        measured = rows(folder)
        self.assertEqual(len(measured), ROWS)
        for row in measured:
            self.assertLessEqual(row["new_tokens"], 24)
            self.assertEqual(len(row["new_ids"]), row["new_tokens"])
            if row["kind"] == "speculative":  # a text may end with a drafted token
                self.assertIn(row["accepted"] + row["rounds"] - row["new_tokens"], (0, 1))
        report = (folder / "report.md").read_text()
        if "no pictures: " in result.out:
            self.assertIn("- no pictures: ", report)
        for picture in () if "no pictures: " in result.out else ("speedup-by-draft-length", "acceptance-by-position", "time-shares"):
            self.assertIn(f"({picture}.svg)", report)
            self.assertTrue((folder / f"{picture}.svg").read_text().startswith("<?xml"))
        prompts = [json.loads(line) for line in (folder / "prompts.jsonl").read_text().splitlines()]
        self.assertEqual([set(prompt) for prompt in prompts], [{"task_id", "ids", "text"}] * 2)
        samples = (folder / "samples" / "published-greedy-plain.jsonl").read_text().splitlines()
        self.assertEqual([json.loads(line)["task_id"] for line in samples], [prompt["task_id"] for prompt in prompts])

    def test_the_summary_agrees_with_the_rows(self):
        folder = SCRATCH / "json"
        result = self.ok(*SMALL, "--repeats", "2", "--out", folder, "--json")
        self.assertEqual(result.err, "")
        summary = json.loads(result.out)
        self.assertEqual(summary, json.loads((folder / "summary.json").read_text()))
        self.assertTrue(summary["complete"])
        self.assertEqual(len(summary["published"]), 10)
        self.assertEqual(len(summary["configurations"]), 4 + 8)
        for found in summary["configurations"]:
            chosen = [row for row in rows(folder) if row["kind"] == "speculative" and
                      all(row[name] == found[name] for name in ("setup", "sampling", "draft_length"))]
            drafted = sum(row["drafted"] for row in chosen)
            accepted = sum(row["new_tokens"] - row["rounds"] for row in chosen)
            self.assertAlmostEqual(found["acceptance"], accepted / drafted if drafted else 0)
            self.assertEqual(found["repeats"], 2)
            self.assertEqual(found["identical"]["equal"], found["identical"]["compared"])
        for repeat in (0, 1):  # the same texts in both
            self.assertEqual(*[[row["new_ids"] for row in rows(folder) if row["repeat"] == r and row["kind"] == "plain"]
                               for r in (0, repeat)])

    def test_a_finished_run_is_shown_again_without_measuring(self):
        folder = SCRATCH / "again"
        arguments = [*SMALL, "--sampling", "greedy", "--setup", "best", "--out", folder]
        first = self.ok(*arguments)
        before = (folder / "results.jsonl").read_bytes()
        second = self.ok(*arguments)
        self.assertEqual(first.out, second.out)
        self.assertEqual(before, (folder / "results.jsonl").read_bytes())
        self.assertIn("measurements exist", second.err)

    # ---- stopped

    def test_a_killed_run_continues(self):
        status, _, _ = self.interrupted(SCRATCH / "killed", signal.SIGKILL)
        self.assertEqual(status, -signal.SIGKILL)

    def test_an_interrupted_run_continues(self):
        for name, sent in (("ctrl-c", signal.SIGINT), ("batch", signal.SIGTERM)):
            status, out, err = self.interrupted(SCRATCH / name, sent)
            self.assertEqual(status, 1)
            self.assertRegex(err, r"interrupted\. \d+ of 128 measurements are kept .*same command.*bench\.stopped")
            self.assertEqual(out, "")

    # ---- folders

    def test_a_folder_of_another_run_is_refused(self):
        folder = SCRATCH / "other"
        base = ["--setup", "best", "--sampling", "greedy", *SMALL, "--out", folder]
        self.ok(*base)
        before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
        humaneval = self.file_of("two.jsonl", task(1), task(2))
        for changed, named in (
            (["--repeats", "2"], "'repeats' is 1, this run has 2"),
            (["--draft-length", "3"], r"'settings\[0\]\.draft_lengths\[0\]' is \"adaptive\""),
            (["--humaneval", humaneval], "'tasks.digest'"),
            (["--backend", "reference"], "'backend' is \"cpu\""),
            (["--draft-bits", "4"], "'draft_bits' is 0, this run has 4"),
            (["--target", SOURCE / "examples/demo_pair/target-int4", "--draft", SOURCE / "examples/demo_pair/draft",
              "--humaneval", humaneval], "'target.config'|'target.precision'|'target.weights'|'tasks.digest'"),
        ):
            with self.subTest(changed=changed):
                self.error(f"holds another run: {named}.*bench.other-run", *base, *changed)
        self.assertEqual(before, {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()})

    def test_a_damaged_row_is_named(self):
        folder = SCRATCH / "damaged"
        arguments = [*SMALL, "--sampling", "greedy", "--out", folder]
        self.ok(*arguments)
        lines = (folder / "results.jsonl").read_text().splitlines(keepends=True)
        (folder / "results.jsonl").write_text(lines[0] + "{rubbish\n" + "".join(lines[2:]))
        self.error("line 2: .*bench.broken-results", *arguments)
        (folder / "results.jsonl").write_text("".join(lines[:-1]) + lines[-1][:50])  # killed while it wrote
        self.ok(*arguments)
        self.assertEqual(len(rows(folder)), len(lines))

    def test_a_folder_with_other_files_is_refused(self):
        folder = SCRATCH / "full"
        folder.mkdir()
        (folder / "thesis.tex").write_text("x")
        self.error("bench.not-a-run", *SMALL, "--out", folder)
        self.error("io.unwritable", *SMALL, "--out", folder / "thesis.tex")
        self.assertEqual([path.name for path in folder.iterdir()], ["thesis.tex"])

    # ---- inputs

    def test_batches_of_sequences(self):
        small = ("--sequences", "1,3", "--max-new-tokens", 24, "--draft-length", 4, "--threads", 1)
        self.assertIn("| sequences |", self.ok(*small).out)
        found = json.loads(self.ok(*small, "--json").out)["batches"]
        self.assertEqual([entry["sequences"] for entry in found], [1, 3])
        for entry in found:
            self.assertTrue(entry["identical"])
            self.assertGreater(entry["plain_tokens_per_second"], 0)
            self.assertGreater(entry["acceptance_rate"], 0)
            self.assertGreater(entry["tokens_per_target_step"], 1)

    def test_mixed_prompts(self):
        small = ("--mixed", "--max-new-tokens", 12, "--threads", 1)
        shown = self.ok(*small).out
        self.assertIn("| python-intervals |", shown)
        self.assertIn("Lowest ratio to plain decoding", shown)
        target = SOURCE / "examples/demo_pair/target"
        for options in (["--sequences", "1,16"], ["--target", target]):
            found = json.loads(self.ok(*small, *options, "--json").out)
            self.assertEqual([entry["sequences"] for entry in found["batches"]], [1, 16] if options[0] == "--sequences" else [1])
            self.assertEqual([len(entry["prompts"]) for entry in found["batches"]], [24, 1][:len(found["batches"])])
            ratios = [row["ratio"] for entry in found["batches"] for row in entry["prompts"]]
            self.assertEqual(found["lowest_ratio"], min(ratios))
            self.assertGreater(min(ratios), 0)

    def test_wrong_inputs(self):
        pair = ["--target", SOURCE / "examples/demo_pair/target", "--draft", SOURCE / "examples/demo_pair/draft"]
        out = ["--out", SCRATCH / "wrong"]
        self.error("github.com/openai/human-eval.*--humaneval.*bench.no-humaneval", *pair, *out)
        self.error("io.unreadable", "--target", SCRATCH / "none", "--draft", SCRATCH / "none",
                   "--humaneval", self.file_of("one.jsonl", task(1)), *out)
        broken = self.file_of("broken.jsonl", task(1), "{\n", task(3))
        self.error("broken.jsonl.*2", *pair, "--humaneval", broken, *out)
        self.error("decode.unknown-draft-length", "--draft-length", "far", *SMALL, *out)
        other = fixture_with_tokenizer("llama-mha3h")
        self.error("bench.no-draft", "--target", other, *out)
        for usage in (["--draft", other], ["--setup", "fast"], ["--repeats", "0"], ["--tasks", "-1"], ["surplus"]):
            self.error(".", *usage, *out, status=2)
        self.assertFalse((SCRATCH / "wrong").exists())  # nothing was created

    def test_other_families_and_prompts_that_do_not_fit(self):
        humaneval = self.file_of("three.jsonl", task(1), task(2, "def g(caf\u00e9):\n    '''\u4f60\u597d'''\n"), task(3, "x"))
        for family, tokenizer in (("gpt2", byte_level), ("opt-preln", byte_level), ("llama3-gqa-scaled-tied", sentencepiece)):
            with self.subTest(family=family):
                model = fixture_with_tokenizer(family, tokenizer)
                summary = json.loads(self.ok("--target", model, "--draft", model, "--humaneval", humaneval, "--sweep", "1",
                                             "--out", SCRATCH / f"run-{family}", "--json").out)
                window = summary["run"]["window"]
                self.assertEqual(summary["run"]["max_new_tokens"], window // 2)
                self.assertEqual(summary["prompts_cut"], 3)
                for row in rows(SCRATCH / f"run-{family}"):
                    self.assertLessEqual(row["prompt_tokens"], window - window // 2)
                    self.assertLessEqual(row["prompt_tokens"] + row["new_tokens"], window)
                for found in summary["configurations"]:
                    self.assertEqual(found["identical"]["equal"], found["identical"]["compared"])
                    if found["sampling"] == "greedy" and found["setup"] != "best":  # the target drafts alone
                        self.assertIn(found["acceptance_per_token"], (1, None))

    def test_a_trained_model_as_its_own_draft(self):
        model, humaneval = DATA / "models" / "tinystories-656k-bf16", DATA / "humaneval" / "HumanEval.jsonl.gz"
        if not model.exists() or not humaneval.exists():
            self.skipTest(f"{model} and {humaneval} are not here")
        summary = json.loads(self.ok("--target", model, "--draft", model, "--humaneval", humaneval, "--tasks", "2", "--sweep",
                                     "1", "--out", SCRATCH / "stories", "--json").out)
        for found in summary["configurations"]:
            self.assertEqual(found["identical"]["equal"], found["identical"]["compared"])
            if found["setup"] != "best":  # lookup does not draft beside the target itself
                self.assertIn(found["acceptance_per_token"], (1, None))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
