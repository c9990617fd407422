#!/usr/bin/env python3
"""Only core/os/ and the programs' files named system* contain conditionals of an operating system. Headers of the library
outside of core/os/ include none of its headers.
usage: systems.py ROOT"""
import pathlib
import re
import sys

CONDITIONAL = re.compile(
    r"^[ \t]*#[ \t]*(?:if|ifdef|ifndef|elif)\b.*\b(?:__linux__|_WIN32|_WIN64|WIN32|__APPLE__|__unix__|__MINGW32__|__MINGW64__|"
    r"__CYGWIN__|__FreeBSD__|_POSIX_\w+)\b", re.M)
INCLUDE = re.compile(
    r"^[ \t]*#[ \t]*include[ \t]*<(?:sys/\S+|(?:unistd|fcntl|sched|pthread|signal|dirent|dlfcn|poll|ucontext|windows)\.h)>", re.M)
FOLDERS = ("include", "tools", "examples", "bench", "tests", "cmake")
SUFFIXES = (".hpp", ".inc", ".h", ".cpp", ".c", ".in", ".cu")


def may_name_systems(name):
    folder, _, file = name.rpartition("/")
    return folder == "include/slm/core/os" or (file.startswith("system") and folder.startswith(("tools", "examples")))


def faults_of(files):
    """files: contents by path."""
    for name, text in sorted(files.items()):
        if may_name_systems(name):
            continue
        for pattern in (CONDITIONAL, INCLUDE) if name.startswith("include/") else (CONDITIONAL,):
            for found in pattern.finditer(text):
                yield f"{name}:{text.count(chr(10), 0, found.start()) + 1}: move this to core/os/: {found[0].strip()}"


def main():
    root = pathlib.Path(sys.argv[1])
    planted = {"include/slm/a.hpp": "#if defined(_WIN32)\n#endif\n# ifdef __linux__\n", "include/slm/b.hpp": "\n#include <unistd.h>\n",
               "include/slm/core/os/c.hpp": "#include <sys/mman.h>\n", "include/slm/d.hpp": "// <unistd.h>\n#include <vector>\n",
               "include/slm/slm.h": "#elif defined(_WIN32)\n", "examples/system.hpp": "#ifdef _WIN32\n", "tools/e.hpp": "#ifdef _WIN32\n",
               "tools/f.cpp": "#include <unistd.h>\n"}
    if len(list(faults_of(planted))) != 5:
        print("planted faults are not found: " + "; ".join(faults_of(planted)))
        return 1
    files = {str(path.relative_to(root)): path.read_text()
             for folder in FOLDERS for path in (root / folder).rglob("*") if path.suffix in SUFFIXES and path.is_file()}
    faults = list(faults_of(files))
    print("\n".join(faults))
    print(f"{len(files)} files, {len(faults)} faults")
    return 1 if faults else 0


sys.exit(main())
