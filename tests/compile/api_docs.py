#!/usr/bin/env python3
"""Doxygen generates the library's pages without a warning, and they contain every name in docs/reference/api.md.
usage: api_docs.py ROOT DOXYFILE DOXYGEN"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as tree


def documented(root, doxyfile, doxygen, *more):
    """(warnings, names) of a run into a separate folder; `more`: lines for the Doxyfile."""
    with tempfile.TemporaryDirectory() as scratch:
        settings = doxyfile.read_text() + "".join(line + "\n" for line in (
            f"OUTPUT_DIRECTORY = {scratch}", f"WARN_LOGFILE = {scratch}/warnings", f"GENERATE_TAGFILE = {scratch}/tag", *more))
        subprocess.run([doxygen, "-"], input=settings, text=True, check=True, cwd=root)
        names = set()
        for compound in tree.parse(f"{scratch}/tag").getroot().iter("compound"):
            scope = compound.findtext("name")
            names.add(scope)
            names.update(f"{scope}::{member.findtext('name')}" for member in compound.iter("member"))
        return pathlib.Path(scratch, "warnings").read_text().splitlines(), names


def main():
    root, doxyfile, doxygen = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
    if not os.access(doxygen, os.X_OK):
        print("no doxygen here")
        return 77
    warnings, names = documented(root, doxyfile, doxygen)
    wanted = set(re.findall(r"`(slm::[\w:]+)`", (root / "docs/reference/api.md").read_text()))
    faults = warnings + [f"docs/reference/api.md: there is no page of {name}" for name in sorted(wanted - names)]
    with tempfile.NamedTemporaryFile("w", suffix=".hpp") as planted:
        planted.write("/// A \\fault.\nint planted();\n")
        planted.flush()
        if not documented(root, doxyfile, doxygen, f'INPUT = "{planted.name}"')[0]:
            faults.append("a planted fault gave no warning")
    print("\n".join(faults))
    print(f"{len(names)} names, {len(faults)} faults")
    return 1 if faults else 0


sys.exit(main())
