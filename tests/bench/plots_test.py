#!/usr/bin/env python3
"""bench/command/plots.py: every kind of row is drawn, and untrusted text is escaped.

usage: plots_test.py SOURCE_DIR        skips (exit code 77) without matplotlib
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.dom.minidom

PLOTS = pathlib.Path(sys.argv[1]) / "bench" / "command" / "plots.py"
SKIPPED = 77


def ask(request, **environment):
    done = subprocess.run([sys.executable, "-B", PLOTS], input=json.dumps(request) + "\n", text=True, capture_output=True,
                          timeout=300, env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def texts(svg):
    """All texts in the picture; fails if it is not XML."""
    return ["".join(node.data for node in element.childNodes if node.nodeType == node.TEXT_NODE)
            for element in xml.dom.minidom.parseString(svg).getElementsByTagName("text")]


def configuration(setup, sampling="greedy", draft_length="adaptive", **changed):
    seconds = {"prompt": 0.5, "draft": 0.25, "verify": 1.0, "choose": 0.01, "total": 2.0}
    return {"engine": "slm", "setup": setup, "sampling": sampling, "draft_length": draft_length,
            "decode_speedup": {"median": 1.5, "least": 1.4, "most": 1.6}, "predicted_speedup": 1.7,
            "predicted_speedup_from_counts": 1.6, "acceptance_by_position": [0.9, 0.8, 0.5],
            "drafted_by_position": [100, 90, 3], "new_tokens": {"plain": 1000, "speculative": 500},
            "seconds": {"plain": seconds, "speculative": seconds}, **changed}


def summary():
    """Example data: each setup, a sweep, and engines, one without speculation."""
    engine = {"engine": "llama.cpp", "sampling": "greedy", "decode_tokens_per_second": {"plain": 12.5, "speculative": 25.0}}
    plainly = {"engine": "other", "sampling": "sampled", "decode_tokens_per_second": {"plain": 7.0, "speculative": None}}
    sweep = [configuration("sweep", draft_length=str(m)) for m in (1, 2, 8)]
    return {"configurations": [configuration("published"), configuration("best", "sampled"), *sweep,
                               configuration("published", engine="llama.cpp")],
            "engines": [engine, plainly]}


def figure(kind="Decoding", **changed):
    return {"title": kind, "unit": "tokens/s", "series": ["Card A", "Processor B"],
            "groups": [{"label": "AMD-Llama-135M, bf16", "values": [312.4, 4123]},
                       {"label": "large + small", "values": [4.2, None]}], **changed}


class Plots(unittest.TestCase):
    def pictures(self, request):
        answer = ask(request)
        self.assertNotIn("error", answer)
        return {name: texts(svg) for name, svg in answer["pictures"].items()}

    def assert_shown(self, wanted, shown):
        for one in wanted:
            self.assertIn(one, shown)

    def test_a_run_has_four_pictures(self):
        found = self.pictures({"summary": summary()})
        self.assertEqual(set(found), {"speedup-by-draft-length.svg", "acceptance-by-position.svg", "time-shares.svg",
                                      "other-engines.svg"})
        self.assert_shown(["Speedup by draft length", "measured", "predicted from counts", "8"], found["speedup-by-draft-length.svg"])
        self.assert_shown(["published, greedy", "best, sampled", "1", "2"], found["acceptance-by-position.svg"])
        self.assertNotIn("3", found["acceptance-by-position.svg"])  # too few rounds drafted it
        self.assert_shown(["prompt", "draft", "verify (target)", "choose", "published, greedy, plain", "1.76", "3.52"],
                          found["time-shares.svg"])
        self.assert_shown(["llama.cpp, greedy", "other, sampled", "12.5", "25", "7", "not measured"], found["other-engines.svg"])

    def test_missing_measurements_have_no_picture(self):
        self.assertEqual(self.pictures({"summary": {"configurations": [], "engines": []}}), {})
        bare = configuration("sweep", draft_length="4", decode_speedup=None, predicted_speedup=None, predicted_speedup_from_counts=None)
        self.assertEqual(self.pictures({"summary": {"configurations": [bare]}}), {})
        short = configuration("best", drafted_by_position=[], acceptance_by_position=[], new_tokens={"plain": 0, "speculative": 0})
        self.assertEqual(set(self.pictures({"summary": {"configurations": [short]}})),
                         {"acceptance-by-position.svg", "time-shares.svg"})

    def test_a_comparison_is_one_picture(self):
        shown = self.pictures({"figures": [figure(), figure("Reading a prompt", series=["Card A"])]})["figures.svg"]
        self.assert_shown(["Decoding", "Reading a prompt", "tokens/s", "Card A", "Processor B", "large + small", "312", "4123", "4.2",
                           "not measured"], shown)

    def test_any_numbers_are_drawn(self):
        for values in ([], [None, None], [0, 0], [1e300, -1], [1e-300, 5], [-0.0]):
            shown = self.pictures({"figures": [figure(groups=[{"label": "m", "values": values}])]})["figures.svg"]
            self.assertIn("Decoding", shown)
        self.pictures({"figures": [figure(groups=[], series=[])]})

    def test_untrusted_names_are_escaped(self):
        hostile = "</text><script>x</script> $\\frac{1}$ & \x01\x1b[31m \U0001f600"
        svg = ask({"figures": [figure(hostile, series=[hostile, "b"], groups=[{"label": hostile, "values": [1, 2]}])]})["pictures"]["figures.svg"]
        self.assertNotIn("<script", svg)
        self.assertFalse([c for c in svg if ord(c) < 32 and c != "\n"])
        self.assertIn("$\\frac{1}$", " ".join(texts(svg)))
        self.pictures({"figures": [figure("W" * 3000, unit="", groups=[{"label": "m " * 900, "values": [1, 2]}])]})

    def test_the_same_rows_give_the_same_picture(self):
        self.assertEqual(ask({"summary": summary()}), ask({"summary": summary()}))

    def test_called_by_hand_it_redraws_a_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "summary.json").write_text(json.dumps(summary()))
            subprocess.run([sys.executable, "-B", PLOTS, folder], check=True, stdout=subprocess.DEVNULL, timeout=300)
            self.assertEqual(len(list(pathlib.Path(folder).glob("*.svg"))), 4)

    def test_without_matplotlib_it_names_the_package(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "matplotlib.py").write_text("raise ImportError")
            answer = ask({"summary": summary()}, PYTHONPATH=folder)
            self.assertEqual(set(answer), {"error"})
            self.assertIn("apt-get install python3-matplotlib", answer["error"])


if __name__ == "__main__":
    probe = ask({"figures": [figure()]})
    if "error" in probe:
        print(f"SKIPPED: {probe['error']}")
        sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1], verbosity=2)
