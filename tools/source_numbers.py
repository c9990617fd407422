#!/usr/bin/env python3
"""Prints size figures of the source tree: headers and lines per module, kernels, and the size of the built program. With
--trace, also the functions between the README's program and a kernel.
usage: source_numbers.py [ROOT] [--trace] [--compiler c++]"""
import argparse
import collections
import pathlib
import re
import resource
import subprocess
import tempfile


def lines_by_module(root):
    """{module: (files, lines)} of include/slm; the public headers belong to none."""
    modules = collections.defaultdict(lambda: (0, 0))
    for path in sorted((root / "include" / "slm").rglob("*.*")):
        parts = path.relative_to(root / "include" / "slm").parts
        module = parts[0] if len(parts) > 1 else "public headers"
        files, lines = modules[module]
        modules[module] = files + 1, lines + path.read_text().count("\n")
    return modules


def gpu_kernels(root):
    """Kernels of tests/compile/gpu_kernels.cpp, each with all keys for which it is compiled."""
    text = (root / "tests/compile/gpu_kernels.cpp").read_text()
    counts = {}
    for name, body in re.findall(r"^int (count_of_\w+)\(\) \{\n  return (.*?);\n\}", text, re.M | re.S):
        counts[name] = 0
        for called, arguments in re.findall(r"(count_of\w*)<(.*?)>\(\)", body, re.S):
            depth = [arguments[:i].count("<") - arguments[:i].count(">") for i in range(len(arguments))]
            own = 1 + sum(letter == "," and not depth[i] for i, letter in enumerate(arguments))
            counts[name] += own if called == "count_of" else counts[called]
    return counts["count_of_kernels"]


def cpu_kernels(root):
    """Functions in the table of the CPU kernels. Every instruction set has all of them."""
    table = (root / "include/slm/backend/cpu/kernel_table.hpp").read_text()
    return sum(int(number or 1) for number in re.findall(r"\(\*\w+(?:\[(\d+)\])?\)\(", table))


def readme_program(root):
    return re.search(r"^```cpp\n(.*?)^```", (root / "README.md").read_text(), re.M | re.S)[1]


def compiled(root, compiler, out, *flags):
    """Compiles the README's first program. Returns its processor seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([compiler, "-std=c++20", f"-I{root}/include", *flags, "-x", "c++", "-", "-o", out],
                   input=readme_program(root), text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def without_arguments(function):
    """The plain name of a function from gdb's output; a lambda has the name of its enclosing function."""
    while (shorter := re.sub(r"<[^<>]*>", "", function)) != function:
        function = shorter
    return function.split("(")[0].strip()


def functions_to_a_kernel(root, compiler):
    """The functions on the stack of the unoptimised README program at its first matrix product, each name once."""
    with tempfile.TemporaryDirectory() as scratch:
        compiled(root, compiler, f"{scratch}/app", "-O0", "-g1", "-no-pie", "-pthread")
        symbols = subprocess.run(["nm", "-C", f"{scratch}/app"], check=True, capture_output=True, text=True).stdout
        kernels = re.findall(r"^(\w+) [tW] (?:\w+ )*slm::(?:v\d+_\d+::)?backend::cpu::\w+::matmul\w*[<(]", symbols, re.M)
        script = ["set width 0", "set print frame-arguments none", "break main", "run", *(f"break *0x{kernel} thread 1" for kernel in kernels), "continue", "bt"]
        pair = root / "examples" / "demo_pair"
        shown = subprocess.run(["gdb", "-q", "-batch", *(f"-ex={line}" for line in script), "--args", f"{scratch}/app", pair / "draft", pair / "target", "def add(a, b):"],
                               check=True, capture_output=True, text=True).stdout
    names = [without_arguments(name) for name in re.findall(r"^#\d+ +(?:0x\w+ in )?(.*)$", shown, re.M)]
    return list(dict.fromkeys(name for name in reversed(names) if name.startswith("slm::")))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", nargs="?", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[1])
    parser.add_argument("--trace", action="store_true", help="count the functions from the README's program to a kernel, with gdb")
    parser.add_argument("--compiler", default="c++")
    arguments = parser.parse_args()
    root = arguments.root

    modules = lines_by_module(root)
    print(f"{'module':<16}{'headers':>8}{'lines':>8}")
    for module, (files, lines) in [*sorted(modules.items()), ("all", tuple(map(sum, zip(*modules.values()))))]:
        print(f"{module:<16}{files:>8}{lines:>8}")
    print(f"\nGPU kernels, with all keys: {gpu_kernels(root)}")
    print(f"CPU kernels per instruction set: {cpu_kernels(root)}")
    program = root / "build/cpu/bin/slm"
    if program.exists():
        print(f"the program slm: {program.stat().st_size / 1e6:.1f} MB")
    if arguments.trace:
        names = functions_to_a_kernel(root, arguments.compiler)
        print(f"functions from the README's program to the first kernel: {len(names)}\n  " + "\n  ".join(names))


if __name__ == "__main__":
    main()
