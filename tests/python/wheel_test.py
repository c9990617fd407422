#!/usr/bin/env python3
"""pip builds the wheel; a fresh environment has slm from it, with the library, its types and no other package.
usage: wheel_test.py SOURCE_DIR SCRATCH_DIR PROGRAM PYTHON, the last with scikit-build-core and mypy"""
import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

SOURCE, SCRATCH, PROGRAM, PYTHON = map(pathlib.Path, sys.argv[1:])
TYPED = """import slm

model: slm.Model = slm.Model("path", threads=2)
answer: slm.Answer = model.stream([{"role": "user", "content": "Hi"}], schema={"type": "object"})
pieces: list[str] = list(answer)
text: str = model.chat("Hi", temperature=0.8)
values: list[float] = model.embed(text)
"""


def run(*command, expected=0, **environment):
    variables = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SLM_LIBRARY")}
    done = subprocess.run(list(map(str, command)), env=variables | environment, text=True, cwd=SCRATCH,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != expected:
        sys.exit(f"ended with {done.returncode}: {' '.join(map(str, command))}\n{done.stdout[-5000:]}")
    return done.stdout


def has(module):
    return PYTHON.exists() and subprocess.run([PYTHON, "-c", f"import {module}"], capture_output=True).returncode == 0


def main():
    if not has("scikit_build_core"):
        print("SKIPPED: the wheel: build/clients has no scikit-build-core, which ./test --all fetches")
        sys.exit(77)
    shutil.rmtree(SCRATCH, ignore_errors=True)
    SCRATCH.mkdir(parents=True)
    # The kernels keep their own -O2, as in ./test.
    launcher = {"CMAKE_CXX_COMPILER_LAUNCHER": "ccache"} if shutil.which("ccache") else {}
    run(PYTHON, "-m", "pip", "wheel", SOURCE, "--no-deps", "--no-build-isolation", "--wheel-dir", SCRATCH,
        f"--config-settings=build-dir={SCRATCH}/build", "--config-settings=cmake.define.CMAKE_CXX_FLAGS_RELEASE=-O1 -DNDEBUG",
        PIP_DISABLE_PIP_VERSION_CHECK="1", **launcher)
    wheel = next(SCRATCH.glob("slm-*-py3-none-*.whl"))
    names = [name for name in zipfile.ZipFile(wheel).namelist() if not name.partition("/")[0].endswith(".dist-info")]
    expected = ["slm/__init__.py", "slm/__init__.pyi", "slm/_library.py", "slm/libslm.so", "slm/py.typed"]
    assert sorted(names) == sorted(expected), names

    run(sys.executable, "-m", "venv", SCRATCH / "venv")
    python = SCRATCH / "venv/bin/python"
    run(python, "-m", "pip", "install", "--no-index", "--no-deps", wheel)
    print(run(python, "-B", SOURCE / "tests/python/package_test.py", SOURCE, PROGRAM, SOURCE / "examples/python/stream.py"))

    if not has("mypy"):
        print("the types are not checked: build/clients has no mypy")
        return
    (SCRATCH / "typed.py").write_text(TYPED)
    (SCRATCH / "wrong.py").write_text(TYPED.replace("threads=2", 'threads="2"'))
    packages = next((SCRATCH / "venv/lib").glob("python3*/site-packages"))
    checker = [PYTHON, "-m", "mypy", "--strict", f"--python-executable={python}"]
    run(*checker, "typed.py")
    run(*checker, "wrong.py", expected=1)
    # Not public: the module of ctypes, how Model makes an Answer, and the library itself, which is no module of Python.
    (SCRATCH / "allowed").write_text("slm\\._library.*\nslm\\.Answer\\.__init__\nslm\\.libslm\n")
    print(run(PYTHON, "-m", "mypy.stubtest", "slm", "--allowlist", "allowed", MYPYPATH=str(packages), PYTHONPATH=str(packages)))


main()
