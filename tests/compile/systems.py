#!/usr/bin/env python3
"""Headers outside of core/os/ contain no conditional of an operating system and include none of its headers.
usage: systems.py ROOT"""
import pathlib
import re
import sys

SYSTEM = re.compile(
    r"^[ \t]*#[ \t]*(?:if|ifdef|ifndef|elif)\b.*\b(?:__linux__|_WIN32|__APPLE__|__unix__|__MINGW32__|_POSIX_\w+)\b|"
    r"^[ \t]*#[ \t]*include[ \t]*<(?:sys/\S+|(?:unistd|fcntl|sched|pthread|signal|dirent|dlfcn|poll|ucontext|windows)\.h)>", re.M)


def faults_of(files):
    """files: contents by path below include/slm."""
    for name, text in sorted(files.items()):
        found = SYSTEM.search(text)
        if found and not name.startswith("core/os/"):
            yield f"{name}:{text.count(chr(10), 0, found.start()) + 1}: move this to core/os/: {found[0].strip()}"


def main():
    root = pathlib.Path(sys.argv[1]) / "include/slm"
    planted = {"a.hpp": "#if defined(_WIN32)\n", "b.hpp": "\n#include <unistd.h>\n", "core/os/c.hpp": "#include <sys/mman.h>\n",
               "d.hpp": "// <unistd.h>\n#include <vector>\n"}
    if len(list(faults_of(planted))) != 2:
        print("planted faults are not found: " + "; ".join(faults_of(planted)))
        return 1
    files = {str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.suffix in (".hpp", ".inc")}
    faults = list(faults_of(files))
    print("\n".join(faults))
    print(f"{len(files)} headers, {len(faults)} faults")
    return 1 if faults else 0


sys.exit(main())
