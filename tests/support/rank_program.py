"""Common code of the tests of slm as ranks under mpirun, called as NAME_test.py PROGRAM SOURCE_DIR SCRATCH_DIR."""
import os
import pathlib
import shutil
import subprocess
import sys
import unittest

PROGRAM, SOURCE, SCRATCH = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
PAIR = SOURCE / "examples" / "demo_pair"
MPIRUN = [shutil.which("mpirun") or "mpirun", "--oversubscribe"]
ENVIRONMENT = os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def words(command):
    return [str(word) for word in command]


def run(command, **environment):
    return subprocess.run(words(command), env=ENVIRONMENT | environment, capture_output=True, text=True, timeout=100,
                          stdin=subprocess.DEVNULL)


def on_ranks(count, *arguments, **environment):
    return run([*MPIRUN, "-n", count, PROGRAM, *arguments], **environment)


class RanksTest(unittest.TestCase):
    def setUp(self):
        shutil.rmtree(SCRATCH, ignore_errors=True)
        SCRATCH.mkdir(parents=True)

    def refused(self, result, name, *sentences):
        self.assertNotEqual(result.returncode, 0)
        self.assertIn(f"[{name}]", result.stderr)
        for sentence in sentences:
            self.assertIn(sentence, result.stderr)
