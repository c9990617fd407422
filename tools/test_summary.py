#!/usr/bin/env python3
"""Adds up JUnit reports of ctest: one last line "N passed, N failed, N skipped"; exit status 1 unless none failed.

A Catch2 program counts by its test cases, any other test as one. A test case without its input prints "SKIPPED: reason"
and counts as skipped, not as passed.
"""
import argparse
import pathlib
import re
import sys
import xml.etree.ElementTree

ALL_PASSED = re.compile(r"All tests passed \(.*? in (\d+) test cases?\)")
SOME_FAILED = re.compile(r"^test cases:\s*(\d+)\s*\|(?:\s*(\d+) passed\s*\|)?\s*(\d+) failed", re.M)
SKIP = re.compile(r"^\s*SKIPPED: (.+)$", re.M)
NO_DEVICE = re.compile(r"^(.*\[gpu\.no-device\].*)$", re.M)  # reported by the program itself


def count(case):
    """(passed, failed, skipped reasons) of one ctest entry"""
    output = case.findtext("system-out") or ""
    reasons = SKIP.findall(output)
    status = case.get("status")
    if status in ("notrun", "disabled") and case.find("skipped") is not None:
        message = case.find("skipped").get("message", "")
        # ctest also reports "not run" for a test that it could not start: a failure
        if "SKIP" in message.upper():
            return 0, 0, reasons or NO_DEVICE.findall(output)[:1] or [message]
        return 0, 1, []
    some = SOME_FAILED.search(output)
    if some:
        total, failed = int(some.group(1)), int(some.group(3))
        return max(0, total - failed - len(reasons)), failed, reasons
    if status != "run":
        return 0, 1, reasons
    everything = ALL_PASSED.search(output)
    total = int(everything.group(1)) if everything else 1
    return max(0, total - len(reasons)), 0, reasons


def main():
    parser = argparse.ArgumentParser(description=__doc__, fromfile_prefix_chars="@")  # @FILE has an argument a line
    parser.add_argument("--report", action="append", default=[])
    parser.add_argument("--failed", action="append", default=[], help="another failure, such as a build")
    parser.add_argument("--skipped", action="append", default=[], help="reason why a step did not run")
    arguments = parser.parse_args()

    passed, failed = 0, len(arguments.failed)
    skipped = {reason: 1 for reason in arguments.skipped}
    for name in arguments.failed:
        print(f"FAILED: {name}")
    for name in arguments.report:
        path = pathlib.Path(name)
        if not path.exists():
            print(f"FAILED: no report {path.name} in {path.parent.name}: nothing ran there")
            failed += 1
            continue
        for case in xml.etree.ElementTree.parse(path).getroot().iter("testcase"):
            case_passed, case_failed, reasons = count(case)
            passed += case_passed
            failed += case_failed
            if case_failed:
                print(f"FAILED: {path.parent.name}: {case.get('name')}")
            for reason in reasons:
                skipped[reason] = skipped.get(reason, 0) + 1
    for reason, times in sorted(skipped.items()):
        print(f"SKIPPED: {reason}" + (f" ({times} tests)" if times > 1 else ""))
    print(f"{passed} passed, {failed} failed, {sum(skipped.values())} skipped")
    sys.exit(1 if failed or not passed else 0)


if __name__ == "__main__":
    main()
