#!/usr/bin/env python3
"""docs/licences.md names every data file of the repository, its paths exist, and its licences are SPDX identifiers."""
import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1])
KNOWN = {"Apache-2.0", "MIT", "Unicode-3.0"}
SOURCE_TYPES = {".cpp", ".hpp", ".inc", ".c", ".h", ".cu", ".py", ".pyi", ".md", ".txt", ".cmake", ".sh", ".in", ".conf"}


def faults(page, files):
    rows = re.findall(r"^\| `([^`]+)` \| (.+) \| ([^|]+) \|$", page.split("## Libraries")[0], re.M)
    for path, _, licence in rows:
        if not (ROOT / path).exists():
            yield f"{path}: there is no such file"
        for identifier in re.split(r" (?:AND|OR) ", licence.strip()):
            if identifier not in KNOWN:
                yield f"{path}: '{identifier}' is not a known SPDX identifier"
    for file in files:
        if not any(file == path or (path.endswith("/") and file.startswith(path)) for path, _, _ in rows):
            yield f"{file}: docs/licences.md does not name its licence"


def data_files():
    for folder in ("examples", "tests", "docs", "include"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and path.suffix not in SOURCE_TYPES and "__pycache__" not in path.parts:
                yield str(path.relative_to(ROOT))


found = [file for file in data_files() if not file.startswith(("tests/packaging/", "tests/compile/"))]
page = (ROOT / "docs/licences.md").read_text()
wrong = list(faults(page, found))
print("\n".join(wrong))
controls = [(page, ["examples/new/model.safetensors"]), (page.replace("`docs/`", "`absent/`"), []), (page.replace("| MIT |", "| free |"), [])]
if not all(any(faults(*control)) for control in controls):
    sys.exit("the check finds no fault where there is one")
print(f"{len(found)} data files, {len(wrong)} faults")
sys.exit(1 if wrong else 0)
