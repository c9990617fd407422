#!/usr/bin/env python3
"""The recipes of cmake/packages/: Conan creates a package, with which an external program is built and runs; the port of
vcpkg, run by functions that simulate vcpkg's, installs the files of an installation.
usage: recipes_test.py SOURCE_DIR BUILD_DIR SCRATCH_DIR CONAN"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

SOURCE, BUILD, SCRATCH, CONAN = map(pathlib.Path, sys.argv[1:])
PACKAGES = SOURCE / "cmake" / "packages"
VERSION = ".".join(re.findall(r"^#define SLM_VERSION_\w+ (\d+)$", (SOURCE / "include/slm/core/macros.hpp").read_text(), re.M))
# The JSON library is the machine's, since nothing is downloaded.
PROFILE = """include(default)
[settings]
build_type=Debug
[conf]
tools.cmake.cmaketoolchain:generator=Ninja
[platform_requires]
nlohmann_json/"""


def run(*command, **environment):
    done = subprocess.run(list(map(str, command)), env=os.environ | environment, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        sys.exit(f"failed ({done.returncode}): {' '.join(map(str, command))}\n{done.stdout[-5000:]}")
    return done.stdout


def files_below(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


class Recipes(unittest.TestCase):
    def setUp(self):
        shutil.rmtree(SCRATCH, ignore_errors=True)
        SCRATCH.mkdir(parents=True)

    def test_the_conan_package_is_used(self):
        if not CONAN.exists() or not shutil.which("pkg-config"):
            print("SKIPPED: the recipe of Conan: there is no build/clients/bin/conan (./test fetches it from PyPI) or no pkg-config")
            self.skipTest("no Conan")
        shutil.copytree(SOURCE / "tests/packaging/consumer", SCRATCH / "consumer")  # Conan builds inside of it
        (SCRATCH / "profile").write_text(PROFILE + run("pkg-config", "--modversion", "nlohmann_json"))
        environment = {"CONAN_HOME": str(SCRATCH / "home"), "CONSUMER_MODEL": str(SOURCE / "examples/demo_pair/target"),
                       "CONSUMER_TEXT": "def add(a, b):"}
        run(CONAN, "profile", "detect", **environment)
        said = run(CONAN, "create", PACKAGES / "conan", "--no-remote", "--profile:all", SCRATCH / "profile",
                   "--test-folder", SCRATCH / "consumer", **environment)
        self.assertIn(f"slm/{VERSION} (test package): RUN: ", said)
        self.assertRegex(said, rf"\n{re.escape(VERSION)}:( \d+)+\n")

    def test_the_changelog_begins_with_this_version(self):
        self.assertEqual(re.search(r"^## ([\d.]+)", (SOURCE / "CHANGELOG.md").read_text(), re.M)[1], VERSION)

    def test_the_vcpkg_port_installs_the_files_of_an_installation(self):
        port = PACKAGES / "vcpkg" / "slm"
        self.assertEqual(json.loads((port / "vcpkg.json").read_text())["version"], VERSION)
        run("cmake", "-D", f"PORT={port}", "-D", f"SCRATCH={SCRATCH}/vcpkg", "-P", SOURCE / "tests/packaging/played_vcpkg.cmake")
        run("cmake", "--install", BUILD, "--prefix", SCRATCH / "prefix")
        places = {"share/cmake/slm": "share/slm", "share/doc/libslm-dev": "share/slm"}
        installed = set()
        for name in files_below(SCRATCH / "prefix"):
            folder, _, file = name.rpartition("/")
            installed.add(f"{places.get(folder, folder)}/{file}")
        self.assertEqual(files_below(SCRATCH / "vcpkg/packages"), installed)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
