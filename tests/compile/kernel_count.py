#!/usr/bin/env python3
"""Adding a model adds no kernel: a program of one config and one of two hold the same functions of slm::backend.

Compiled with -O0, so that none hides by being inlined. As a control, a kernel that is keyed on the config must be seen.
"""
import argparse
import pathlib
import re
import subprocess
import sys


def is_kernel(symbol):
    """Whether a demangled function itself, not one of its arguments, is in slm::backend."""
    depth, own = 0, ""
    for index, letter in enumerate(symbol):
        if letter == "(" and depth == 0:
            break
        depth += {"<": 1, ">": -1}.get(letter, 0) if symbol[index - 1 : index + 1] != "->" else 0
        own += letter if depth == 0 else ""
    # A step's record() only calls back the model that issues the operations.
    return re.search(r"(^|\s)slm::(v\d+_\d+::)?backend::(?!\w+Step::record\b)", own) is not None


def kernels(arguments, source, models):
    """The kernels of tests/compile/<source> with this many configs, and the size of the object in bytes."""
    path = pathlib.Path(arguments.root) / "tests" / "compile" / source
    compiled = pathlib.Path(arguments.scratch) / f"{path.stem}_{models}.o"
    flags = ["-std=c++20", "-O0", "-DSLM_IMPLEMENTATION=0", f"-I{arguments.root}/include", f"-DSLM_MODELS={models}"]
    subprocess.run([arguments.compiler, *flags, "-c", str(path), "-o", str(compiled)], check=True)
    listing = subprocess.run(["nm", "-C", "--defined-only", str(compiled)], check=True, text=True, capture_output=True).stdout
    names = [line.split(" ", 2)[2] for line in listing.splitlines() if re.match(r"[0-9a-f]+ [tTwWuV] ", line)]
    return {name for name in names if is_kernel(name)}, compiled.stat().st_size


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root")
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--scratch", required=True)
    arguments = parser.parse_args()

    one, one_size = kernels(arguments, "kernel_count.cpp", 1)
    two, two_size = kernels(arguments, "kernel_count.cpp", 2)
    for name in sorted(one ^ two)[:40]:
        print(f"only with {1 if name in one else 2} config(s): {name}")
    print(f"kernel functions: {len(one)} with 1 config ({one_size} bytes), {len(two)} with 2 configs ({two_size} bytes)")

    planted = [len(kernels(arguments, "kernel_count_control.cpp", models)[0]) for models in (1, 2)]
    if planted != [1, 2]:
        print(f"the control failed: {planted} kernels seen of a kernel keyed on 1 and on 2 configs")
    sys.exit(0 if one and one == two and planted == [1, 2] else 1)


if __name__ == "__main__":
    main()
