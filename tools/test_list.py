#!/usr/bin/env python3
"""Prints the tests of the configured build trees, by module and by kind (ctest's labels).
usage: test_list.py BUILD_FOLDER"""
import collections
import json
import pathlib
import subprocess
import sys
import textwrap
import xml.etree.ElementTree

BUILD = pathlib.Path(sys.argv[1])


def labels_of(tree):
    """{test: labels} of a build tree."""
    listing = subprocess.run(["ctest", "--test-dir", tree, "--show-only=json-v1"], check=True, capture_output=True, text=True).stdout
    return {test["name"]: sum((property["value"] for property in test.get("properties", []) if property["name"] == "LABELS"), [])
            for test in json.loads(listing)["tests"]}


def seconds_of(report):
    """{test: seconds} from ctest's report."""
    cases = xml.etree.ElementTree.parse(report).getroot().iter("testcase")
    return {case.get("name"): float(case.get("time")) for case in cases if case.get("status") in ("run", "fail")}


def main():
    labels = {}
    for tree in sorted(path.parent for path in BUILD.glob("*/CTestTestfile.cmake")):
        labels |= labels_of(tree)
    if not labels:
        sys.exit("no build tree has tests. Run ./test --quick")
    modules = collections.defaultdict(list)
    for name in sorted(labels):
        module, _, test = name.rpartition("/")
        modules[module or name].append(test)
    for module, tests in sorted(modules.items()):
        print(f"{module} ({len(tests)})")
        print(textwrap.fill(", ".join(tests), 118, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False))

    reports = {path.parent.name: seconds_of(path) for path in sorted(BUILD.glob("*/junit.xml"))}
    print("\nBy kind, with the seconds of the last ./test in each build tree:" if reports else "\nBy kind:")
    print(f"{'kind':<12}{'tests':>6}" + "".join(f"{tree:>8}" for tree in reports))
    for kind in sorted({label for some in labels.values() for label in some}):
        names = {name for name in labels if kind in labels[name]}
        cells = ""
        for seconds in reports.values():
            ran = names & seconds.keys()
            cells += f"{sum(seconds[name] for name in ran):>8.0f}" if ran else f"{'-':>8}"
        print(f"{kind:<12}{len(names):>6}{cells}")


if __name__ == "__main__":
    main()
