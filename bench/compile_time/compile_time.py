#!/usr/bin/env python3
"""Processor seconds to compile programs with this checkout and with an earlier commit, alternating: a Markdown table.

    python3 bench/compile_time/compile_time.py --beside 517d98e

The earlier commit is checked out into a git worktree, which is removed at the end. `--program` also builds from scratch,
in a quarter of an hour, the program slm and the program that `./demo` runs first. `--parts` compiles the README's program
of this checkout without parts of the library instead of the other programs."""
import argparse
import contextlib
import os
import pathlib
import re
import resource
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOKENIZER = """#include <slm/text/tokenizer.hpp>
int main(int, char** arguments) {
  return static_cast<int>(slm::Tokenizer::from(arguments[1]).encode(arguments[2]).size());
}
"""


PARTS = ((), ("SLM_NO_GGUF",), ("SLM_NO_FOLDERS",), ("SLM_NO_AVX512",), ("SLM_NO_FOLDERS", "SLM_NO_AVX512"),
         ("SLM_NO_FOLDERS", "SLM_NO_AVX2"))


def readme_program(root):
    return re.search(r"```cpp\n(.*?)```", (root / "README.md").read_text(), re.S).group(1)


def flags_of_second_source(root):
    """The source contains declarations only; another source of the program or a library contains the functions."""
    one_mechanism = "SLM_IMPLEMENTATION" in (root / "include/slm/core/macros.hpp").read_text()
    return ["-DSLM_IMPLEMENTATION=0"] if one_mechanism else ["-DSLM_COMPILED", "-DSLM_EXTERN_CPU_KERNELS"]


def processor_seconds(command, **options):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True, **options)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def compile_seconds(arguments, root, source, *flags):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "main.cpp"
        path.write_text(source)
        command = [arguments.compiler, "-std=c++20", *arguments.flags.split(), f"-I{root / 'include'}", *flags]
        return processor_seconds([*command, "-c", str(path), "-o", str(path.with_suffix(".o"))])


def program_seconds(root, target):
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "CCACHE_DISABLE": "1"}
        configure = ["cmake", "-S", str(root), "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                     "-DCMAKE_CXX_FLAGS_RELEASE=-O2 -DNDEBUG", "-DSLM_BUILD_TESTS=OFF", "-DSLM_BUILD_BENCH=OFF"]
        subprocess.run(configure, check=True, capture_output=True, env=environment)
        return processor_seconds(["cmake", "--build", folder, "--target", target], env=environment)


@contextlib.contextmanager
def worktree(commit):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder) / "slm"
        subprocess.run(["git", "-C", str(ROOT), "worktree", "add", "--detach", str(root), commit], check=True, capture_output=True)
        try:
            yield root
        finally:
            subprocess.run(["git", "-C", str(ROOT), "worktree", "remove", "--force", str(root)], check=True)


def compare_parts(arguments):
    """The README's program of the earlier commit, and of this checkout without parts."""
    print(f"`{arguments.compiler} -std=c++20 {arguments.flags} -c`, median of {arguments.repeats}, processor seconds\n")
    print(f"| without | README's program | to {arguments.beside} |\n|---|---|---|", flush=True)
    with worktree(arguments.beside) as earlier:
        runs = {parts: [] for parts in PARTS}
        before = []
        for _ in range(arguments.repeats):
            before.append(compile_seconds(arguments, earlier, readme_program(earlier)))
            for parts in PARTS:
                flags = [f"-D{part}" for part in parts]
                runs[parts].append(compile_seconds(arguments, ROOT, readme_program(ROOT), *flags))
    for parts, seconds in runs.items():
        now = statistics.median(seconds)
        names = ", ".join(f"`{part}`" for part in parts) or "nothing"
        print(f"| {names} | {now:.1f} | {now / statistics.median(before):.2f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--beside", default="517d98e", metavar="COMMIT", help="default: %(default)s")
    parser.add_argument("--compiler", default="g++")
    parser.add_argument("--flags", default="-O2")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--program", action="store_true", help="also build the program slm, once")
    parser.add_argument("--parts", action="store_true", help="compile without parts of the library (SLM_NO_...)")
    arguments = parser.parse_args()
    if arguments.parts:
        return compare_parts(arguments)
    cases = {
        "the README's program": lambda root: compile_seconds(arguments, root, readme_program(root)),
        "a program with a tokenizer only": lambda root: compile_seconds(arguments, root, TOKENIZER),
        "a second source of the README's program":
            lambda root: compile_seconds(arguments, root, readme_program(root), *flags_of_second_source(root)),
    }
    print(f"`{arguments.compiler} -std=c++20 {arguments.flags} -c`, median of {arguments.repeats}, processor seconds\n")
    print(f"| | {arguments.beside} | this checkout | ratio |\n|---|---|---|---|", flush=True)
    with worktree(arguments.beside) as earlier:
        for name, seconds in cases.items():
            runs = [(seconds(earlier), seconds(ROOT)) for _ in range(arguments.repeats)]
            before, now = (statistics.median(side) for side in zip(*runs))
            print(f"| {name} | {before:.1f} | {now:.1f} | {now / before:.2f} |", flush=True)
        if arguments.program:
            before, now = program_seconds(earlier, "slm_program"), program_seconds(ROOT, "slm_program")
            print(f"| the program slm, from scratch | {before:.0f} | {now:.0f} | {now / before:.2f} |", flush=True)
            if "example-demo" not in (earlier / "demo").read_text():  # ./demo answered from the program slm
                now = program_seconds(ROOT, "example-demo")
                print(f"| the first answer of `./demo` | {before:.0f} | {now:.0f} | {now / before:.2f} |")


if __name__ == "__main__":
    main()
