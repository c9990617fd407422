#!/usr/bin/env python3
"""llama.cpp's own tests of its server against `slm serve`, through llama_server.py. As many tests of a file must pass as
llama_cpp_tests.json says for the model. `./test --all` fetches the tests: they are in the source package of PyPI's llama-cpp-python.
usage: llama_cpp_test.py PROGRAM SOURCE_DIR [--write]
environment: SLM_STORIES: stories260K.gguf, or a model in its place, of which fewer tests pass; default: another small model of stories"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

PROGRAM, SOURCE = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
HERE = pathlib.Path(__file__).resolve().parent
LLAMA = pathlib.Path(os.environ.get("SLM_LLAMA_CPP", SOURCE / "build" / "clients" / "llama.cpp"))
DATA = pathlib.Path(os.environ.get("SLM_TEST_DATA", SOURCE / ".." / "shared" / "data"))
STORIES = pathlib.Path(os.environ.get("SLM_STORIES", DATA / "models" / "tinystories-656k-f32"))
COUNTS = HERE / "llama_cpp_tests.json"
CONFTEST = """import pytest
from utils import *


@pytest.fixture(autouse=True)
def stop_servers():
    yield
    for server in set(server_instances):
        server.stop()
"""


def run(folder, files):
    """The numbers of passed and of all tests by file."""
    report = folder / "report.xml"
    environment = os.environ | {"LLAMA_SERVER_BIN_PATH": str(HERE / "llama_server.py"), "SLM_PROGRAM": str(PROGRAM),
                                "SLM_STORIES": str(STORIES), "SLM_CONTEXT": "2048" if STORIES.suffix == ".gguf" else "512", "PORT": os.environ.get("PORT", "18090"),
                                "TMPDIR": str(folder)}
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider", "--tb=line", f"--junitxml={report}", *files]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if not report.exists():
        sys.exit(done.stdout[-3000:] + done.stderr[-3000:])
    counts = {}
    for case in ElementTree.parse(report).iter("testcase"):
        if case.find("skipped") is not None:
            continue
        name = case.get("classname").split(".")[1] + ".py"
        passed, total = counts.get(name, (0, 0))
        failed = case.find("failure") is not None or case.find("error") is not None
        if failed:
            print("failed:", name, case.get("name"), (list(case)[0].get("message") or "").split("\n")[0][:150])
        counts[name] = (passed + (not failed), total + 1)
    return counts


def main():
    tests = LLAMA / "tools" / "server" / "tests"
    if not tests.is_dir() or not STORIES.exists():
        print(f"SKIPPED: {tests} or {STORIES} is absent")
        sys.exit(77)
    counts_of = json.loads(COUNTS.read_text())
    known = counts_of["stories260K" if STORIES.suffix == ".gguf" else "other"]
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary) / "tools" / "server" / "tests"  # the tests open ../../../models
        shutil.copytree(tests, folder)
        (pathlib.Path(temporary) / "models").symlink_to(LLAMA / "models")
        (folder / "conftest.py").write_text(CONFTEST)
        (folder / "wget.py").write_text("def download(url, out):\n    pass\n")  # nothing is downloaded
        counts = run(folder, [f"unit/{name}" for name in known])
    for name, (passed, total) in counts.items():
        print(f"{name}: {passed} of {total}, expected {known[name]}")
    print(f"{sum(passed for passed, _ in counts.values())} of {sum(total for _, total in counts.values())} tests pass")
    if sys.argv[3:] == ["--write"]:
        known |= {name: counts.get(name, (0, 0))[0] for name in known}
        COUNTS.write_text(json.dumps(counts_of, indent=2) + "\n")
    sys.exit(any(counts.get(name, (0, 0))[0] < passed for name, passed in known.items()))


if __name__ == "__main__":
    main()
