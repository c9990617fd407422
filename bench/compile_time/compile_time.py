#!/usr/bin/env python3
"""Seconds and bytes of building one program per number of compile-time configs: a Markdown table.

    python3 bench/compile_time/compile_time.py --compiler g++ --flags=-O2
"""
import argparse
import pathlib
import subprocess
import tempfile
import time

CONFIGS = ["AmdLlama_135M", "SmolLM2_135M", "Llama32_1B", "Llama2_7B", "Llama2_13B", "Llama3_8B", "TinyLlama_1B", "CodeLlama_7B"]

EMPTY = "int main() {}\n"
KERNELS = """#include "slm/backend/cpu/cpu.hpp"
int main() {{ slm::backend::Cpu device; {uses} }}
"""
PROGRAM = """#include "slm/speculative.hpp"
template <class Shape> void use(const char* folder) {{
  slm::Session model(slm::Model<Shape, slm::Bf16, slm::backend::Cpu>::load(folder));
  const slm::Token token = 1;
  model.forward({{&token, 1}}, 1);
}}
int main(int, char** arguments) {{
{uses}}}
"""
LOAD = """#include "slm/speculative.hpp"
int main(int, char** arguments) {
  slm::Session model(slm::load(arguments[1]));
  const slm::Token token = 1;
  model.forward({&token, 1}, 1);
}
"""


def program(count):
    uses = "".join(f"  use<slm::configs::{name}>(arguments[1]);\n" for name in CONFIGS[:count])
    return PROGRAM.format(uses=uses)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compiler", default="g++")
    parser.add_argument("--flags", default="-O2")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    root = pathlib.Path(__file__).resolve().parents[2]
    cases = [("nothing", EMPTY), ("backend::Cpu, no model", KERNELS.format(uses=""))]
    cases += [(f"{count} config{'s' if count > 1 else ''}, bf16", program(count)) for count in (1, 2, 4, 8)]
    cases += [("slm::load: every config, f32 + f16 + bf16", LOAD)]
    print(f"`{arguments.compiler} -std=c++20 {arguments.flags}`, best of {arguments.repeats}, one job at a time\n")
    print("| program | seconds | stripped size |")
    print("|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        source, binary = pathlib.Path(folder) / "main.cpp", pathlib.Path(folder) / "main"
        for name, code in cases:
            source.write_text(code)
            command = [arguments.compiler, "-std=c++20", *arguments.flags.split(), f"-I{root / 'include'}", str(source), "-o", str(binary), "-pthread"]
            best = float("inf")
            for _ in range(arguments.repeats):
                start = time.monotonic()
                subprocess.run(command, check=True)
                best = min(best, time.monotonic() - start)
            subprocess.run(["strip", str(binary)], check=True)
            print(f"| {name} | {best:.1f} | {binary.stat().st_size / 1024:.0f} KiB |", flush=True)


if __name__ == "__main__":
    main()
