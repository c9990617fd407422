#!/usr/bin/env python3
"""./demo with missing packages: it lists the packages, and installs them after consent. Simulated, with an apt-get that records
its arguments. And the output of ./test --list.
usage: scripts_test.py SOURCE_DIR SCRATCH_DIR"""
import os
import pathlib
import pty
import shutil
import subprocess
import sys
import unittest

SOURCE, SCRATCH = map(pathlib.Path, sys.argv[1:])
TOOLS = ["bash", "dirname", "env", "mkdir", "tail"]
SCRIPTS = {"cmake": "", "ninja": "", "nproc": "echo 1", "id": "echo 0", "apt-get": f'echo "$@" >>{SCRATCH}/asked'}
MISSING = "g++ nlohmann-json3-dev libcli11-dev zlib1g-dev libboost1.81-dev"


def write_script(path, text):
    path.write_text(f"#!{shutil.which('bash')}\n{text}\n")
    path.chmod(0o755)


class Asking(unittest.TestCase):
    def setUp(self):
        shutil.rmtree(SCRATCH, ignore_errors=True)
        for folder in ("tools", "bin", "build/cpu/bin", "docs/reference"):
            (SCRATCH / folder).mkdir(parents=True)
        shutil.copy(SOURCE / "demo", SCRATCH)
        shutil.copy(SOURCE / "tools/prepare.sh", SCRATCH / "tools")
        shutil.copy(SOURCE / "docs/reference/command-line.md", SCRATCH / "docs/reference")
        for tool in TOOLS:
            (SCRATCH / "bin" / tool).symlink_to(shutil.which(tool))
        for name, text in SCRIPTS.items():
            write_script(SCRATCH / "bin" / name, text)
        write_script(SCRATCH / "build/cpu/bin/slm", 'echo "slm $*"')

    def demo(self, *arguments, typed=None, **environment):
        """(exit status, stdout, stderr) of ./demo, at a terminal with typed input."""
        command = ["bash", "./demo", *arguments]
        environment = {"PATH": str(SCRATCH / "bin")} | environment
        if typed is None:
            done = subprocess.run(command, cwd=SCRATCH, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
            return done.returncode, done.stdout, done.stderr
        master, slave = pty.openpty()
        os.write(master, typed)
        done = subprocess.run(command, cwd=SCRATCH, env=environment, stdin=slave, stdout=subprocess.PIPE, stderr=slave, text=True)
        os.close(slave)
        said = b""
        try:
            while part := os.read(master, 4096):
                said += part
        except OSError:  # the other end is closed
            pass
        os.close(master)
        return done.returncode, done.stdout, said.decode()

    def installed(self):
        asked = SCRATCH / "asked"
        return asked.read_text().splitlines()[-1] if asked.exists() else None

    def check_installs(self, result):
        status, printed, said = result
        self.assertEqual((status, printed), (0, "slm demo --json\n"), said)
        self.assertEqual(self.installed(), f"install -y --no-install-recommends {MISSING}")

    def check_refuses(self, result):
        status, printed, said = result
        self.assertEqual((status, printed, self.installed()), (1, "", None))
        self.assertIn(f"to be installed with apt-get: {MISSING}", said)
        self.assertIn("nothing was installed", said)
        return said

    def test_without_a_terminal_it_refuses_and_names_the_option(self):
        self.assertIn("no terminal to ask for consent. Run ./demo --yes", self.check_refuses(self.demo("--json")))

    def test_an_unknown_option_is_rejected_before_anything_is_installed_or_built(self):
        for option in ("--jsn", "--cache-dir", "--draft-lengths=3", "--"):
            status, printed, said = self.demo(option, CI="true")
            self.assertEqual((status, printed, self.installed()), (2, "", None))
            self.assertIn(f"unknown option {option}. ./demo --help prints the options", said)

    def test_yes_is_accepted_anywhere_and_is_not_passed_on(self):
        self.check_installs(self.demo("--json", "--yes"))

    def test_a_ci_machine_is_not_asked(self):
        self.check_installs(self.demo("--json", CI="true"))
        shutil.rmtree(SCRATCH)
        self.setUp()
        self.check_refuses(self.demo("--json", CI=""))

    def test_at_a_terminal_the_answer_decides(self):
        for typed in (b"\n", b"y\n", b"Yes\n"):
            with self.subTest(typed=typed):
                self.check_installs(self.demo("--json", typed=typed))
                (SCRATCH / "asked").unlink()
        for typed in (b"n\n", b"no\n", b"what?\n", b"\x04"):  # the last ends the input
            with self.subTest(typed=typed):
                self.check_refuses(self.demo("--json", typed=typed))

    def test_without_missing_packages_it_does_not_ask(self):
        write_script(SCRATCH / "bin/c++", "")
        self.assertEqual(self.demo("--json"), (0, "slm demo --json\n", ""))
        self.assertIsNone(self.installed())


    def test_without_options_the_small_program_runs(self):
        write_script(SCRATCH / "bin/c++", "")
        write_script(SCRATCH / "build/cpu/bin/example-demo", 'echo "example-demo $*"')
        self.assertEqual(self.demo(), (0, "example-demo examples/demo_pair\n", ""))


class List(unittest.TestCase):
    def setUp(self):
        shutil.rmtree(SCRATCH, ignore_errors=True)
        (SCRATCH / "tools").mkdir(parents=True)
        for name in ("test", "tools/test_list.py"):
            shutil.copy(SOURCE / name, SCRATCH / name)

    def list(self):
        return subprocess.run(["./test", "--list"], cwd=SCRATCH, stdin=subprocess.DEVNULL, capture_output=True, text=True)

    def test_modules_and_the_time_of_each_kind(self):
        (SCRATCH / "CMakeLists.txt").write_text("""cmake_minimum_required(VERSION 3.25)
project(rooms NONE)
enable_testing()
foreach(name unit/text/bpe unit/text/chat packaging)
  add_test(NAME ${name} COMMAND "${CMAKE_COMMAND}" -E sleep 0.6)
endforeach()
set_tests_properties(unit/text/bpe PROPERTIES LABELS unit)
set_tests_properties(unit/text/chat PROPERTIES LABELS "unit;threads")
set_tests_properties(packaging PROPERTIES LABELS packaging)
""")
        subprocess.run(["cmake", "-S", SCRATCH, "-B", SCRATCH / "build/cpu"], check=True, capture_output=True)
        self.assertEqual(self.list().stdout, """packaging (1)
  packaging
unit/text (2)
  bpe, chat

By kind:
kind         tests
packaging        1
threads          1
unit             2
""")
        subprocess.run(["ctest", "--test-dir", "build/cpu", "-L", "unit", "--output-junit", SCRATCH / "build/cpu/junit.xml"],
                       cwd=SCRATCH, check=True, capture_output=True)
        self.assertRegex(self.list().stdout, r"\nkind +tests +cpu\npackaging +1 +-\nthreads +1 +1\nunit +2 +[1-9]\d*\n\Z")

    def test_without_a_build_tree_it_states_the_command(self):
        done = self.list()
        self.assertEqual((done.returncode, done.stdout, done.stderr), (1, "", "no build tree has tests. Run ./test --quick\n"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
