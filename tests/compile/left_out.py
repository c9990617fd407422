#!/usr/bin/env python3
"""Programs without parts of the library (SLM_NO_...): they generate the text that the whole program generates with the same
kernels, reject the other format, and do not link with a source that has all parts."""
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
  auto model = slm::load(arguments[1], device);
  auto tokenizer = slm::Tokenizer::from(arguments[1]);
  auto prompt = tokenizer.encode(arguments[2]);
  slm::TextStream text{tokenizer, prompt, std::cout};
  slm::AutoregressiveDecoder decoder{model};
  decoder.generate(prompt, {.max_new_tokens = 24, .temperature = 0}, text);
} catch (const slm::Error& error) {
  std::cout << error.id() << '\\n';
}
"""
TOKENIZER = """#include <slm/text/tokenizer.hpp>
#include <iostream>
int main(int, char** arguments) try {
  std::cout << slm::Tokenizer::from(arguments[1]).vocab() << '\\n';
} catch (const slm::Error& error) {
  std::cout << error.id() << '\\n';
}
"""
PROMPT = "def f(x):"
FOLDER, GGUF = "examples/demo_pair/target", "tests/fixtures/gguf/all-types.gguf"
# Macros of a program, the model that it reads, the one that it rejects, and its best kernels.
PROGRAMS = [
    (("SLM_NO_GGUF", "SLM_NO_AVX512"), FOLDER, GGUF, "avx2"),
    (("SLM_NO_FOLDERS", "SLM_NO_AVX2"), GGUF, FOLDER, "portable"),
]


def run(*command):
    result = subprocess.run([str(part) for part in command], text=True, capture_output=True, timeout=600)
    return result.returncode, result.stdout, result.stderr


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--program", required=True, help="the whole program slm")
    arguments = parser.parse_args()
    failures = []

    def compile_source(case):
        source, macros, output = case
        path = output.with_suffix(".cpp")
        path.write_text(source)
        status, _, messages = run(arguments.compiler, "-std=c++20", "-O0", "-Wall", "-Wextra", f"-I{arguments.root}/include",
                                  *(f"-D{macro}" for macro in macros), "-c", path, "-o", output)
        if status != 0 or messages:
            failures.append(f"{macros}: expected no message of the compiler, found\n{messages[:2000]}")

    def link(name, *objects):
        status, _, messages = run(arguments.compiler, *objects, "-o", scratch / name, "-pthread")
        return None if status else scratch / name, messages

    with tempfile.TemporaryDirectory() as folder:
        scratch = pathlib.Path(folder)
        cases = [(MAIN, (), scratch / "whole.o")]
        for number, (macros, *_) in enumerate(PROGRAMS):
            cases += [(FUNCTIONS, macros, scratch / f"functions{number}.o"), (MAIN, macros, scratch / f"main{number}.o"),
                      (TOKENIZER, macros, scratch / f"tokenizer{number}.o")]
        in_parallel(compile_source, cases)
        for number, (macros, read, rejected, kernels) in enumerate([] if failures else PROGRAMS):
            functions = scratch / f"functions{number}.o"
            program, messages = link(f"program{number}", scratch / f"main{number}.o", functions)
            tokenizer, more = link(f"tokenizer{number}", scratch / f"tokenizer{number}.o")
            if program is None or tokenizer is None:
                failures.append(f"{macros}: expected programs, found\n{messages[:2000]}{more[:2000]}")
                continue
            model = arguments.root / read
            available = run(arguments.program, "info", "--help")  # a program that starts
            expected = run(arguments.program, "generate", "--target", model, "--prompt", PROMPT, "--max-new-tokens", 24,
                           "--threads", 1, "--temperature", 0, "--isa", kernels)
            found = run(program, model, PROMPT)[1]
            if available[0] != 0 or len(found) < 8 or found not in expected[1]:
                failures.append(f"{macros}: expected the text of slm generate --isa {kernels}\n{expected[1]}{expected[2]}found\n{found}")
            for name in (program, tokenizer):
                found = run(name, arguments.root / rejected, PROMPT)[1]
                if found != "io.format-left-out\n":
                    failures.append(f"{macros}: expected io.format-left-out for {rejected}, found '{found}'")
            mixed, messages = link(f"mixed{number}", scratch / "whole.o", functions)
            if mixed is not None or "undefined reference" not in messages:
                failures.append(f"{macros}: a source with all parts must not link with one without: {messages[:2000]}")
    print("\n".join(failures))
    print(f"{len(PROGRAMS)} programs without parts, {len(failures)} wrong")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
