#!/usr/bin/env python3
"""A program without model folders and AVX2 (SLM_NO_FOLDERS, SLM_NO_AVX2): it generates the text of the whole program with
the portable kernels, rejects a folder, and does not link with a source that has all parts. The test packaging builds a
program without GGUF and AVX-512."""
import argparse
import pathlib
import subprocess
import sys
import tempfile

from compiling import in_parallel

FUNCTIONS = "#include <slm/speculative.hpp>\n"
MAIN = """#define SLM_IMPLEMENTATION 0
#include <slm/speculative.hpp>
#include <iostream>
int main(int, char** arguments) try {
  slm::backend::Cpu device(slm::backend::CpuOptions{.threads = 1});
  auto tokenizer = slm::Tokenizer::from(arguments[1]);
  auto model = slm::load(arguments[2], device);
  auto prompt = tokenizer.encode(arguments[3]);
  slm::TextStream text{tokenizer, prompt, std::cout};
  slm::AutoregressiveDecoder decoder{model};
  decoder.generate(prompt, {.max_new_tokens = 24, .temperature = 0}, text);
} catch (const slm::Error& error) {
  std::cout << error.id() << '\\n';
}
"""
MACROS = ("SLM_NO_FOLDERS", "SLM_NO_AVX2")
PROMPT = "def f(x):"


def run(*command):
    result = subprocess.run([str(part) for part in command], text=True, capture_output=True, timeout=600)
    return result.returncode, result.stdout, result.stderr


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--program", required=True, help="the whole program slm")
    arguments = parser.parse_args()
    model, folder = arguments.root / "tests/fixtures/gguf/all-types.gguf", arguments.root / "examples/demo_pair/target"
    failures = []

    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)

        def compile_source(case):
            name, source, macros = case
            (scratch / f"{name}.cpp").write_text(source)
            status, _, messages = run(arguments.compiler, "-std=c++20", "-O0", "-Wall", "-Wextra", f"-I{arguments.root}/include",
                                      *(f"-D{macro}" for macro in macros), "-c", scratch / f"{name}.cpp", "-o", scratch / f"{name}.o")
            if status != 0 or messages:
                failures.append(f"{name}: expected no message of the compiler, found\n{messages[:2000]}")

        in_parallel(compile_source, [("functions", FUNCTIONS, MACROS), ("main", MAIN, MACROS), ("whole", MAIN, ())])

        def link(main):
            return run(arguments.compiler, scratch / f"{main}.o", scratch / "functions.o", "-o", scratch / main, "-pthread")

        if not failures:
            status, _, messages = link("main")
            if status != 0:
                sys.exit(f"expected a program, found\n{messages[:2000]}")
            found = run(scratch / "main", model, model, PROMPT)[1]
            expected = run(arguments.program, "generate", "--target", model, "--prompt", PROMPT, "--max-new-tokens", 24,
                           "--threads", 1, "--temperature", 0, "--isa", "portable")
            if len(found) < 8 or found not in expected[1]:
                failures.append(f"expected the text of slm generate --isa portable, {expected[1:]}, found\n{found}")
            for models in ((folder, model), (model, folder)):
                found = run(scratch / "main", *models, PROMPT)[1]
                if found != "io.format-left-out\n":
                    failures.append(f"expected io.format-left-out for a folder, found '{found}'")
            status, _, messages = link("whole")
            if status == 0 or "undefined reference to `slm::v0_1::" not in messages:
                failures.append(f"a source with all parts must not link with one without: {messages[:2000]}")
    print("\n".join(failures))
    print(f"a program with {' and '.join(MACROS)}, {len(failures)} wrong")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
