#!/usr/bin/env python3
"""One binary on older CPUs, emulated by qemu: each uses its own instruction set, with the same results except the last bits.
usage: processors_test.py PROGRAM SOURCE_DIR SCRATCH_DIR"""
import json
import pathlib
import platform
import shutil
import subprocess
import sys
import unittest

PROGRAM, SOURCE = sys.argv[1], pathlib.Path(sys.argv[2])
QEMU = shutil.which("qemu-x86_64")
PAIR = SOURCE / "examples" / "demo_pair"
# qemu 7.2 supports neither AVX-512 nor AMX; unit tests run these kernels on CPUs that have them.
PROCESSORS = {"SSE2": "Opteron_G1", "AVX2": "Haswell"}

if QEMU is None or platform.machine() != "x86_64":
    print("SKIPPED: no qemu-x86_64 (Debian: qemu-user), or another processor than x86-64")
    sys.exit(77)


def slm(processor, *arguments):
    emulator = [] if processor is None else [QEMU, "-cpu", PROCESSORS[processor]]
    result = subprocess.run([*emulator, PROGRAM, *map(str, arguments), "--json"], stdin=subprocess.DEVNULL, capture_output=True,
                            text=True, timeout=300, check=True)
    return json.loads(result.stdout)


class Processors(unittest.TestCase):
    def test_logits_equal_those_of_this_cpu_within_the_tolerance_of_the_goldens(self):
        for model in (PAIR / "draft", PAIR / "draft-int4", SOURCE / "tests" / "fixtures" / "gguf" / "all-types.gguf"):
            rows = lambda processor, ids="1,5,7,9": slm(processor, "logits", model, "--ids", ids)["logits"]
            here, other = rows(None), rows(None, "1,5,7,8")
            # Each set is within 1e-4 of exact logits, of the largest where weights have four bits.
            allowed = 2e-4 * max(1, max(abs(value) for row in here for value in row))
            apart = lambda a, b: max(abs(x - y) for one, two in zip(a, b) for x, y in zip(one, two))
            self.assertGreater(apart(here, other), 100 * allowed)
            for processor in PROCESSORS:
                with self.subTest(model=model.name, processor=processor):
                    self.assertLess(apart(rows(processor), here), allowed)

    def test_each_cpu_uses_its_own_instruction_set(self):
        bits = {json.dumps(slm(processor, "logits", PAIR / "draft", "--ids", "1,5,7")["logits"]) for processor in PROCESSORS}
        self.assertEqual(len(bits), len(PROCESSORS))

    def test_the_option_computes_like_an_older_cpu(self):
        ask = ["logits", PAIR / "draft", "--ids", "1,5,7"]
        for processor, isa in (("SSE2", "portable"), ("AVX2", "avx2")):
            self.assertEqual(slm(None, *ask, "--isa", isa)["logits"], slm(processor, *ask)["logits"])
        result = subprocess.run([QEMU, "-cpu", PROCESSORS["AVX2"], PROGRAM, *map(str, ask), "--isa", "avx512"],
                                stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
        self.assertEqual(result.returncode, 1)
        self.assertIn("[backend.unsupported-instruction-set]", result.stderr)

    def test_speculation_changes_no_token(self):
        for processor in PROCESSORS:
            with self.subTest(processor=processor):
                ask = ["generate", "--target", PAIR / "target-int4", "--prompt", "def read(", "--max-new-tokens", 16]
                self.assertEqual(slm(processor, *ask)["ids"], slm(processor, *ask, "--draft", PAIR / "draft")["ids"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
