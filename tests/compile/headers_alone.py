#!/usr/bin/env python3
"""Every header compiles alone, twice included, with warnings as errors."""
import argparse
import pathlib
import re
import shutil
import sys

from compiling import in_parallel, syntax_only

# These need the compiler and the headers of a vendor; the trees built for a GPU compile them.
VENDORS = re.compile(r"backend/gpu/(lane|runtime)_(cuda|hip|vendor)\.hpp$")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root")
    parser.add_argument("--compiler", required=True)
    arguments = parser.parse_args()
    if not shutil.which(arguments.compiler):
        print(f"SKIPPED: no compiler '{arguments.compiler}'")
        sys.exit(77)

    include = pathlib.Path(arguments.root) / "include"
    headers = sorted(path.relative_to(include).as_posix() for path in include.rglob("*.hpp"))
    headers = [header for header in headers if not VENDORS.search(header)]

    def compile_alone(header):
        source = f'#include "{header}"\n#include "{header}"\nint main() {{}}\n'
        return syntax_only(arguments.compiler, arguments.root, source, "-Werror")

    failed = 0
    for header, (status, messages) in zip(headers, in_parallel(compile_alone, headers)):
        if status:
            failed += 1
            print(f"--- {header} does not compile alone\n{messages}")
    print(f"{len(headers)} headers, {failed} failed ({arguments.compiler})")
    sys.exit(1 if failed or not headers else 0)


if __name__ == "__main__":
    main()
