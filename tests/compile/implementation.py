#!/usr/bin/env python3
"""Programs of one and of two sources, with each value of SLM_IMPLEMENTATION: those that must link print the same, and the
others are rejected by a message that names the remedy."""
import argparse
import pathlib
import subprocess
import sys
import tempfile

from compiling import in_parallel

HEADER = "slm/text/tokenizer.hpp"
FUNCTION = """#include <{header}>
#include <cstddef>
std::size_t {name}(const char* folder) {{ return slm::Tokenizer::from(folder).encode("def f(x):").size(); }}
"""
MAIN = """#include <cstddef>
#include <iostream>
std::size_t count(const char* folder);
std::size_t other(const char* folder);
int main(int, char** arguments) { std::cout << count(arguments[1]) << other(arguments[1]) << '\\n'; }
"""
# The lines before the includes of a source.
STARTS = {
    "default": "",
    "1": "#define SLM_IMPLEMENTATION 1\n",
    "0": "#define SLM_IMPLEMENTATION 0\n",
    "template": "#include <slm/text/jinja/template.hpp>\n",
    "template_0": "#define SLM_IMPLEMENTATION 0\n#include <slm/text/jinja/template.hpp>\n",
    "late": f"#include <{HEADER}>\n#define SLM_IMPLEMENTATION 0\n#include <slm/speculative.hpp>\n",
}

# The starts of the two sources, and the expected message of the compiler or the linker; None: the program links.
PROGRAMS = [
    ("default", "default", None),
    ("default", "0", None),
    ("1", "0", None),
    ("template", "template_0", None),
    ("default", "template_0", "one_source_must_include_slm_text_jinja_template_hpp_without_SLM_IMPLEMENTATION_0"),
    ("0", "0", "one_source_must_include_slm_text_tokenizer_hpp_without_SLM_IMPLEMENTATION_0"),
    ("1", "1", "two_sources_of_this_program_define_SLM_IMPLEMENTATION_1"),
    ("default", "late", "a header of slm was included before SLM_IMPLEMENTATION was defined: define it first"),
]


def run(command):
    result = subprocess.run(command, text=True, capture_output=True, timeout=600)
    return result.returncode, result.stdout, result.stderr


class Builder:
    def __init__(self, compiler, root, scratch):
        self.compiler, self.root, self.scratch = compiler, root, scratch

    def compile(self, source):
        """(object, messages) of ("name", text)"""
        name, text = source
        path = self.scratch / f"{name}.cpp"
        path.write_text(text)
        output = self.scratch / f"{name}.o"
        status, _, messages = run([self.compiler, "-std=c++20", "-Wall", "-Wextra", f"-I{self.root}/include", "-c", str(path),
                                   "-o", str(output)])
        return (output if status == 0 else None), messages

    def link(self, objects):
        program = self.scratch / "program"
        program.unlink(missing_ok=True)
        status, _, messages = run([self.compiler, *map(str, objects), "-o", str(program), "-pthread"])
        return (program if status == 0 else None), messages


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root")
    parser.add_argument("--compiler", required=True)
    arguments = parser.parse_args()
    folder = f"{arguments.root}/examples/demo_pair/target"
    with tempfile.TemporaryDirectory() as scratch:
        builder = Builder(arguments.compiler, arguments.root, pathlib.Path(scratch))
        sources = {"main": MAIN}
        for starts in PROGRAMS:
            for function, start in zip(("count", "other"), starts):
                sources[f"{function}_{start}"] = STARTS[start] + FUNCTION.format(header=HEADER, name=function)
        compiled = dict(zip(sources, in_parallel(builder.compile, sources.items())))
        failures, printed = [], set()
        for first, second, expected in PROGRAMS:
            parts = [compiled["main"], compiled[f"count_{first}"], compiled[f"other_{second}"]]
            messages = "".join(part[1] for part in parts)
            program = None
            if all(part[0] for part in parts):
                program, messages = builder.link([part[0] for part in parts])
            if expected is None and program is None:
                failures.append(f"'{first}' and '{second}' must link: {messages[:2000]}")
            elif expected is None:
                printed.add(run([str(program), folder])[1])
            elif program is not None or expected not in messages:
                failures.append(f"'{first}' and '{second}' must be refused by '{expected}': {messages[:2000]}")
    if len(printed) != 1 or "" in printed:
        failures.append(f"programs print different things: {sorted(printed)}")
    print("\n".join(failures))
    print(f"{len(PROGRAMS)} programs of two sources, {len(failures)} wrong")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
