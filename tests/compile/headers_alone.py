#!/usr/bin/env python3
"""Every header compiles alone, twice included, with warnings as errors; or all of them together, which is quicker."""
import argparse
import pathlib
import re
import shutil
import sys

from compiling import in_parallel, syntax_only

# These need the compiler and the headers of a vendor; the trees built for a GPU compile them.
VENDORS = re.compile(r"backend/gpu/[a-z]+/(lane|runtime)_(cuda|hip|vendor)\.hpp$")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root")
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--together", action="store_true", help="one source with every header, not one for each")
    arguments = parser.parse_args()
    if not shutil.which(arguments.compiler):
        print(f"SKIPPED: no compiler '{arguments.compiler}'")
        sys.exit(77)

    include = pathlib.Path(arguments.root) / "include"
    headers = sorted(path.relative_to(include).as_posix() for path in include.rglob("*.hpp"))
    headers = [header for header in headers if not VENDORS.search(header)]

    def compile_one(source_headers):
        includes = "".join(f'#include "{header}"\n' for header in source_headers)
        return syntax_only(arguments.compiler, arguments.root, f"{includes}{includes}int main() {{}}\n", "-Werror")

    sources = [headers] if arguments.together else [[header] for header in headers]
    failed = 0
    for source, (status, messages) in zip(sources, in_parallel(compile_one, sources)):
        if status:
            failed += 1
            print(f"--- {' '.join(source)}: does not compile\n{messages}")
    print(f"{len(headers)} headers in {len(sources)} sources, {failed} failed ({arguments.compiler})")
    sys.exit(1 if failed or not headers else 0)


if __name__ == "__main__":
    main()
