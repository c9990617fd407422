#!/usr/bin/env python3
"""The installed C library: it exports the functions of slm.h and nothing else; C programs are built with it by CMake and by
pkg-config, shared and static; the examples in C and Python write the same text.
usage: package_test.py SOURCE_DIR BUILD_DIR SCRATCH_DIR C_COMPILER"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

SOURCE, BUILD, SCRATCH, COMPILER = map(pathlib.Path, sys.argv[1:])
TARGET = SOURCE / "examples/demo_pair/target"
PROMPT = "def read_config(path):"
SCHEMA = json.dumps({"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 9}}, "required": ["n"],
                     "additionalProperties": False})
PROJECT = """cmake_minimum_required(VERSION 3.25)
project(consumer LANGUAGES C)
find_package(slm_c 0.1 REQUIRED)
add_executable(consumer "{source}")
target_link_libraries(consumer PRIVATE slm::c)
"""


def run(*command, expected=0, **environment):
    done = subprocess.run(list(map(str, command)), env=os.environ | environment, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    if done.returncode != expected:
        raise AssertionError(f"ended with {done.returncode}: {' '.join(map(str, command))}\n{done.stdout[-3000:]}")
    return done.stdout


def text_of(output):
    """Without the statistics, since the number of steps depends on measured times."""
    return output[:output.rindex("---")]


class CInterface(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        shutil.rmtree(SCRATCH, ignore_errors=True)
        cls.prefix = SCRATCH / "prefix"
        run("cmake", "--install", BUILD, "--component", "c", "--prefix", cls.prefix)
        cls.shared = next(cls.prefix.rglob("libslm.so"))
        cls.library_path = {"LD_LIBRARY_PATH": str(cls.shared.parent)}
        cls.text = run(BUILD / "bin/example-c-generate", TARGET, PROMPT)

    def test_exported_symbols(self):
        header = (SOURCE / "include/slm/slm.h").read_text()
        declared = set(re.findall(r"SLM_API [^;(]*?(slm_\w+)\(", header))
        defined = run("nm", "-D", "--defined-only", self.shared).splitlines()
        exported = {line.split()[2].split("@")[0] for line in defined if line.split()[1] != "A"}
        self.assertEqual(exported, declared)
        self.assertGreater(len(declared), 40)

    def test_soname(self):
        self.assertRegex(run("objdump", "-p", self.shared), r"SONAME +libslm\.so\.1\n")

    def test_cmake(self):
        build = SCRATCH / "project"
        build.mkdir()
        (build / "CMakeLists.txt").write_text(PROJECT.format(source=SOURCE / "examples/c/generate.c"))
        run("cmake", "-S", build, "-B", build / "build", f"-DCMAKE_PREFIX_PATH={self.prefix}", f"-DCMAKE_C_COMPILER={COMPILER}")
        run("cmake", "--build", build / "build")
        self.assertEqual(text_of(run(build / "build/consumer", TARGET, PROMPT)), text_of(self.text))

    @unittest.skipUnless(shutil.which("pkg-config"), "pkg-config is not installed")
    def test_pkg_config(self):
        paths = {"PKG_CONFIG_LIBDIR": str(self.shared.parent / "pkgconfig")}
        source = SOURCE / "examples/c/generate.c"
        for name, options in (("shared", []), ("static", ["--static"])):
            flags = run("pkg-config", "--cflags", "--libs", *options, "slm_c", **paths).split()
            if options:
                flags = [flag.replace("-lslm", "-l:libslm.a") for flag in flags]
            run(COMPILER, "-std=c99", source, "-o", SCRATCH / name, *flags)
            self.assertEqual(text_of(run(SCRATCH / name, TARGET, PROMPT, **self.library_path)), text_of(self.text))

    def test_batch(self):
        answers = run(BUILD / "bin/example-c-batch", TARGET, PROMPT, "class Point:").split("\n---\n")
        own = next(answer for answer in answers if answer.startswith(PROMPT))
        self.assertTrue(self.text.startswith(own.rstrip()), own)

    def test_python(self):
        program = [sys.executable, "-B", SOURCE / "examples/c/generate.py", self.shared]
        text = run(*program, TARGET, PROMPT)
        self.assertEqual(text, text_of(self.text))
        answer = run(*program, TARGET, "# JSON", SCHEMA).removeprefix("# JSON")
        self.assertEqual(list(json.loads(answer)), ["n"])
        self.assertIn("[checkpoint.no-folder]", run(*program, "/nowhere", PROMPT, expected=1))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
