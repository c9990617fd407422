#!/usr/bin/env python3
"""The Debian packages: dpkg installs them into an empty root with the machine's dependencies, and rejects them without
these. An external program is built with the installed files, by CMake and by pkg-config; the program runs.
usage: debian_test.py SOURCE_DIR BUILD_DIR SCRATCH_DIR COMPILER"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

SOURCE, BUILD, SCRATCH, COMPILER = map(pathlib.Path, sys.argv[1:])
CONSUMER = SOURCE / "tests" / "packaging" / "consumer"
TARGET = SOURCE / "examples" / "demo_pair" / "target"
TEXT = "def add(a, b):"
VERSION = ".".join(re.findall(r"^#define SLM_VERSION_\w+ (\d+)$", (SOURCE / "include/slm/core/macros.hpp").read_text(), re.M))
AS_ROOT = [] if os.getuid() == 0 else ["unshare", "--map-root-user"]


def run(*command, expected=0, stdin="", **environment):
    done = subprocess.run(list(map(str, command)), env=os.environ | environment, text=True, input=stdin,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != expected:
        sys.exit(f"ended with {done.returncode}: {' '.join(map(str, command))}\n{done.stdout[-5000:]}")
    return done.stdout


def installed_into(root, packages, status, expected=0):
    """The output of dpkg for an installation into a root whose list of packages is `status`."""
    for folder in ("info", "updates", "triggers"):
        (root / "var/lib/dpkg" / folder).mkdir(parents=True)
    (root / "var/lib/dpkg/status").write_text(status)
    # The root has no shell for the script that calls ldconfig.
    return run(*AS_ROOT, "dpkg", f"--root={root}", "--force-script-chrootless", "--install", *packages,
               expected=expected, LC_ALL="C", PATH=os.environ["PATH"] + ":/usr/sbin:/sbin")


class Packages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        shutil.rmtree(SCRATCH, ignore_errors=True)
        run("cpack", "--config", BUILD / "CPackConfig.cmake", "-B", SCRATCH)
        cls.packages = {path.name.split("_")[0]: path for path in SCRATCH.glob("*.deb")}
        cls.root = SCRATCH / "root"
        installed_into(cls.root, cls.packages.values(), pathlib.Path("/var/lib/dpkg/status").read_text())
        cls.found = {"PKG_CONFIG_LIBDIR": f"{cls.root}/usr/share/pkgconfig:/usr/share/pkgconfig"}
        cls.answer = run(cls.root / "usr/bin/slm", "tokenize", TARGET, stdin=TEXT)

    def field(self, package, name):
        return run("dpkg-deb", "--field", self.packages[package], name).strip()

    def check_consumer(self, program):
        ids = re.findall(r"\d+", self.answer)
        self.assertEqual(run(program, TARGET, TEXT).split(), [f"{VERSION}:", *ids])

    def test_names_and_versions(self):
        architecture = run("dpkg", "--print-architecture").strip()
        self.assertEqual({path.name for path in self.packages.values()},
                         {f"libslm-dev_{VERSION}_all.deb", f"slm_{VERSION}_{architecture}.deb", f"libslm1_{VERSION}_{architecture}.deb"})

    def test_dependencies_are_named(self):
        self.assertIn("nlohmann-json3-dev (>= 3.10)", self.field("libslm-dev", "Depends"))
        for library in ("libc6", "libstdc++6", "zlib1g"):
            self.assertRegex(self.field("slm", "Depends"), rf"(^|, ){re.escape(library)} ")
        for library in ("libc6", "libstdc++6"):
            self.assertRegex(self.field("libslm1", "Depends"), rf"(^|, ){re.escape(library)} ")

    def test_without_its_dependency_the_library_is_not_installed(self):
        said = installed_into(SCRATCH / "bare", [self.packages["libslm-dev"]], "", expected=1)
        self.assertIn("Package nlohmann-json3-dev is not installed", said)

    def test_the_library_contains_the_files_of_an_installation(self):
        prefix = SCRATCH / "prefix"
        run("cmake", "--install", BUILD, "--prefix", prefix)
        listed = run("dpkg-deb", "--contents", self.packages["libslm-dev"])
        files = set(re.findall(r" \./usr/(.*[^/\n])$", listed, re.M))
        self.assertEqual(files, {str(path.relative_to(prefix)) for path in prefix.rglob("*") if path.is_file()})

    def test_an_external_program_builds_with_cmake(self):
        build = SCRATCH / "consumer"
        run("cmake", "-S", CONSUMER, "-B", build, "-G", "Ninja", "-D", f"CMAKE_CXX_COMPILER={COMPILER}", "-D",
            f"CMAKE_PREFIX_PATH={self.root}/usr", "-D", "CMAKE_BUILD_TYPE=Debug")
        self.assertIn(f"slm_DIR:PATH={self.root}/usr/share/cmake/slm", (build / "CMakeCache.txt").read_text())
        run("cmake", "--build", build)
        self.check_consumer(build / "consumer")

    def test_an_external_program_builds_with_pkg_config(self):
        self.assertEqual(run("pkg-config", "--modversion", "slm", **self.found).strip(), VERSION)
        flags = run("pkg-config", "--cflags", "--libs", "slm", **self.found).split()
        run(COMPILER, "-std=c++20", CONSUMER / "main.cpp", "-o", SCRATCH / "by_pkg_config", *flags)
        self.check_consumer(SCRATCH / "by_pkg_config")

    def test_a_c_program_builds_with_pkg_config(self):
        found = {"PKG_CONFIG_LIBDIR": f"{self.root}/usr/lib/pkgconfig"}
        flags = run("pkg-config", "--cflags", "--libs", "slm_c", **found).split()
        program = SCRATCH / "c_program"
        run("cc", "-std=c99", SOURCE / "examples/c/generate.c", "-o", program, *flags)
        self.assertTrue(run(program, TARGET, TEXT, LD_LIBRARY_PATH=f"{self.root}/usr/lib").startswith(TEXT))

    def test_the_program_contains_its_data_files(self):
        pair = self.root / "usr/share/slm/examples/demo_pair"
        self.assertIn(str(pair), run(self.root / "usr/bin/slm", "demo", "--help"))
        self.assertIn('"identical":true', run(self.root / "usr/bin/slm", "demo", "--json", "--repeats", "1", "--max-new-tokens", "8"))


if __name__ == "__main__":
    missing = [tool for tool in ("dpkg", "dpkg-shlibdeps", "file", "pkg-config") if not shutil.which(tool)]
    if missing:
        print(f"SKIPPED: the packages for Debian: there is no {', '.join(missing)}")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
