#!/usr/bin/env python3
"""The archive for Windows, unpacked: slm.exe finds its models in it, and a C program is built with its library libslm and
runs, both under Wine.
usage: package_test.py SOURCE_DIR BUILD_DIR SCRATCH_DIR WINEPREFIX C_COMPILER OBJDUMP SLM [unittest options]"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest
import zipfile

SOURCE, BUILD, SCRATCH = map(pathlib.Path, sys.argv[1:4])
PREFIX, COMPILER, OBJDUMP, LINUX = sys.argv[4:8]
PROMPT = "def read_config(path):"


def run(*command, expected=0):
    environment = os.environ | {"WINEPREFIX": PREFIX, "WINEDEBUG": "-all", "LC_ALL": "C.UTF-8"}
    environment.pop("DISPLAY", None)
    done = subprocess.run(list(map(str, command)), env=environment, text=True, timeout=300, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE)
    if done.returncode != expected:
        raise AssertionError(f"ended with {done.returncode}: {command}\n{(done.stdout + done.stderr)[-3000:]}")
    return done.stdout


class Archive(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        shutil.rmtree(SCRATCH, ignore_errors=True)
        run("cpack", "--config", BUILD / "CPackConfig.cmake", "-B", SCRATCH)
        archive = next(SCRATCH.glob("slm-*-windows-x86_64.zip"))
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(SCRATCH / "unpacked")
        cls.root = SCRATCH / "unpacked" / archive.stem

    def test_the_program_finds_its_models(self):
        program = self.root / "bin" / "slm.exe"
        self.assertIn('"identical":true', run("wine", program, "demo", "--json", "--repeats", "1", "--max-new-tokens", "8"))

    def test_the_library_exports_the_functions_of_its_header(self):
        declared = set(re.findall(r"SLM_API [^;(]*?(slm_\w+)\(", (self.root / "include/slm/slm.h").read_text()))
        listed = run(OBJDUMP, "-p", self.root / "bin/libslm.dll").partition("[Ordinal/Name Pointer] Table")[2]
        self.assertEqual(set(re.findall(r"\] (\w+)$", listed, re.M)), declared)
        self.assertGreater(len(declared), 40)

    def test_a_c_program(self):
        target = self.root / "share/slm/examples/demo_pair/target"
        linux = run(LINUX, "generate", "--target", target, "--prompt", PROMPT, "--max-new-tokens", "48")
        # Shared and static, with the libraries that pkg-config names.
        for name, options in (("shared", ["-lslm"]), ("static", ["-l:libslm.a", "-lstdc++", "-lm", "-pthread", "-static"])):
            program = self.root / "bin" / f"{name}.exe"
            run(COMPILER, "-std=c99", SOURCE / "examples/c/generate.c", "-o", program, f"-I{self.root}/include",
                f"-L{self.root}/lib", *options)
            text = run("wine", program, target, PROMPT)
            self.assertTrue(text.startswith(linux.rstrip("\n")), text)


if __name__ == "__main__":
    for needed in ("wine", "cpack"):
        if shutil.which(needed) is None:
            print(f"SKIPPED: no {needed}")
            sys.exit(77)
    if not pathlib.Path(LINUX).exists():
        print(f"SKIPPED: {LINUX} is not built")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1] + sys.argv[8:])
