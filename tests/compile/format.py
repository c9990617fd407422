#!/usr/bin/env python3
"""Every source has the format of clang-format 14."""
import argparse
import pathlib
import re
import shutil
import subprocess
import sys


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root")
    parser.add_argument("--clang-format", default="clang-format")
    arguments = parser.parse_args()
    tool = shutil.which(arguments.clang_format)
    version = subprocess.run([tool, "--version"], text=True, capture_output=True).stdout if tool else ""
    if not re.search(r"version 14\.", version):
        print(f"SKIPPED: clang-format 14 is not here (found: {version.strip() or 'none'})")
        sys.exit(77)
    root = pathlib.Path(arguments.root)
    sources = [str(path) for folder in ("include", "tests", "bench", "cmake", "examples", "tools") for path in sorted((root / folder).rglob("*.[ch]pp"))]
    result = subprocess.run([tool, "--dry-run", "-Werror", *sources], text=True, capture_output=True)
    wrong = sorted(set(re.findall(r"^(\S+?):\d+:\d+: error: code should be clang-formatted", result.stderr, re.M)))
    print("\n".join(f"{name}: run clang-format -i" for name in wrong))
    print(f"{len(sources)} sources, {len(wrong)} not formatted")
    sys.exit(1 if result.returncode else 0)


if __name__ == "__main__":
    main()
