#!/usr/bin/env python3
"""Every header compiles alone, included twice, with warnings as errors; or all of them together, which is faster."""
import argparse
import pathlib
import re
import shutil
import sys
import tempfile

from compiling import in_parallel, precompile, syntax_only

# These need the compiler and the headers of a vendor, and GPU builds compile them; or they need MPI's or NCCL's headers.
VENDORS = re.compile(r"(backend/gpu/[a-z]+/(lane|runtime)_(cuda|hip|vendor)|ranks/(mpi|nccl))\.hpp$")

# Headers that many headers include, the largest last. They are precompiled once for those that include them anyway.
BASES = ["slm/io/json.hpp", "slm/io/checkpoint.hpp", "slm/text/tokenizer.hpp", "slm/backend/cpu/cpu.hpp",
         "slm/awq/float_layer.hpp", "slm/model/load.hpp"]

# The shapes of the known models are checked where their list is used.
USE_OF_ALL = "int main() { return slm::visit(slm::KnownModels{}, slm::ModelConfig{}, [](auto...) {}) ? 1 : 0; }"


def includes_of(include):
    """Every header, with its direct and indirect includes."""
    texts = {path.relative_to(include).as_posix(): path.read_text() for path in include.rglob("*.hpp")}
    found = {}

    def reach(header):
        if header not in found:
            found[header] = set()
            for other in re.findall(r'^#include "([^"]+\.hpp)"', texts[header], re.M):
                found[header] |= {other} | reach(other)
        return found[header]

    return {header: reach(header) for header in texts}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root")
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--together", action="store_true", help="one source with every header, not one for each")
    parser.add_argument("--libcxx", action="store_true", help="with libc++, LLVM's standard library")
    parser.add_argument("--host-headers", action="store_true", help="with this machine's JSON library, for a cross compiler")
    arguments = parser.parse_args()
    if not shutil.which(arguments.compiler):
        print(f"SKIPPED: no compiler '{arguments.compiler}'")
        sys.exit(77)
    library = ["-stdlib=libc++"] if arguments.libcxx else []
    if library and syntax_only(arguments.compiler, arguments.root, "#include <version>\n", *library)[0]:
        print(f"SKIPPED: '{arguments.compiler}' has no libc++")
        sys.exit(77)

    includes = includes_of(pathlib.Path(arguments.root) / "include")
    headers = sorted(header for header in includes if not VENDORS.search(header))
    sources = [headers] if arguments.together else [[header] for header in headers]

    with tempfile.TemporaryDirectory() as scratch:
        if arguments.host_headers:  # its folder has the headers of the system too
            pathlib.Path(scratch, "nlohmann").symlink_to("/usr/include/nlohmann")
            library += ["-isystem", scratch]

        def precompiled(base):
            return pathlib.Path(scratch, base.replace("/", "_"))

        def compile_one(source_headers):
            text = "".join(f'#include "{header}"\n' for header in source_headers)
            bases = [base for base in BASES if len(source_headers) == 1 and base in includes[source_headers[0]]]
            main_function = USE_OF_ALL if arguments.together else "int main() {}"
            return syntax_only(arguments.compiler, arguments.root, f"{text}{text}{main_function}\n", "-Werror", *library,
                               *(["-include", str(precompiled(bases[-1]))] if bases else []))

        if not arguments.together:
            in_parallel(lambda base: precompile(arguments.compiler, arguments.root, base, precompiled(base)), BASES)
        outcomes = in_parallel(compile_one, sources)
    failed = 0
    for source, (status, messages) in zip(sources, outcomes):
        if status:
            failed += 1
            name = source[0] if len(source) == 1 else f"{len(source)} headers in one source"
            print(f"--- {name}: does not compile\n{messages}")
    print(f"{len(headers)} headers in {len(sources)} sources, {failed} failed ({' '.join([arguments.compiler, *library])})")
    sys.exit(1 if failed or not headers else 0)


if __name__ == "__main__":
    main()
