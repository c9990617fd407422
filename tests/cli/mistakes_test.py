#!/usr/bin/env python3
"""Common mistakes of new users: the program reports what it found and the remedy, in one sentence each.
usage: mistakes_test.py PROGRAM SOURCE_DIR SCRATCH_DIR"""
import json
import pathlib
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import unittest

PROGRAM, SOURCE, SCRATCH = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
PAIR = SOURCE / "examples" / "demo_pair"


class Mistakes(unittest.TestCase):
    def model(self):
        """A valid copy of the embedded target, to be damaged."""
        folder = SCRATCH / self.id().rsplit(".", 1)[1]
        return pathlib.Path(shutil.copytree(PAIR / "target", folder))

    def says(self, found, mend, *arguments, before=None):
        """The program ends with an error that contains both texts and an id; standard output is empty."""
        done = subprocess.run([PROGRAM, *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=120, preexec_fn=before)
        self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
        self.assertRegex(done.stderr, r"^slm: .*\[[a-z-]+\.[a-z-]+\]\n$")
        self.assertIn(found, done.stderr)
        self.assertIn(mend, done.stderr)

    def generate(self, found, mend, folder, *more, before=None):
        self.says(found, mend, "generate", "--target", folder, "--prompt", "x", *more, before=before)

    def test_a_missing_folder(self):
        self.generate("expected a folder or a GGUF file", "Name a Hugging Face model folder", SCRATCH / "absent")

    def test_a_folder_without_a_model(self):
        self.generate("has no config.json", "Name the folder that holds config.json", SOURCE / "docs")

    def test_a_missing_tokenizer(self):
        folder = self.model()
        (folder / "tokenizer.json").unlink()
        self.generate("neither tokenizer.json nor tokenizer.model", "Copy tokenizer.json", folder)

    def test_an_interrupted_download(self):
        folder = self.model()
        with open(folder / "model.safetensors", "r+b") as file:
            file.truncate(100_000)
        self.generate("larger than the file", "Download or export the file again", folder)

    def test_a_download_without_permission(self):
        folder = self.model()
        (folder / "model.safetensors").write_text("<!DOCTYPE html><html>Sign in to see this model</html>")
        self.generate("is a web page", "Accept the model's terms", folder)

    def test_pickled_weights(self):
        folder = self.model()
        (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
        self.generate("pickled weights", "Convert pytorch_model.bin with python3 examples/convert_bin.py", folder)

    def test_an_unsupported_architecture(self):
        folder = self.model()
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {"model_type": "mamba", "architectures": ["Mamba"]}))
        self.generate("model_type 'mamba'", "See docs/models.md", folder)

    def test_a_prompt_beyond_the_context(self):
        file = SCRATCH / "long.txt"
        file.write_text("x " * 2000)
        self.says("the context of target holds 1024", "Shorten the prompt", "generate", "--target", PAIR / "target",
                  "--prompt-file", file)

    def test_a_context_beyond_the_model(self):
        self.generate("exceeds the limit of config.json, 1024", "Give 1..1024", PAIR / "target", "--context", 4096)

    def test_a_draft_with_other_tokens(self):
        folder = SCRATCH / "draft"
        shutil.copytree(PAIR / "draft", folder)
        tokenizer = json.loads((folder / "tokenizer.json").read_text())
        tokenizer["model"]["vocab"] = {"\u20ac" + piece: number for piece, number in tokenizer["model"]["vocab"].items()}
        tokenizer["added_tokens"] = []
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
        self.generate("different tokenizers: id 0", "Use a draft model of the target's family", PAIR / "target",
                      "--draft", folder)

    @unittest.skipIf(b"__asan_init" in pathlib.Path(PROGRAM).read_bytes(), "a sanitizer needs all address space")
    def test_insufficient_memory(self):
        mends = set()
        for kibibytes in range(24 << 10, 64 << 10, 256):
            limit = (kibibytes << 10, kibibytes << 10)
            done = subprocess.run([PROGRAM, "generate", "--target", PAIR / "target", "--prompt", "x", "--max-new-tokens", "70",
                                   "--threads", "1"],
                                  stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120,
                                  preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, limit))
            # The destructor of a JSON value allocates (nlohmann/json), so a lack of memory while one is read ends the process.
            if done.returncode not in (0, -signal.SIGABRT):
                self.assertEqual(done.returncode, 1, done.stderr)
                mends.add(re.fullmatch(r"(?s).*slm: .*[.] (.*)[.] \[([a-z.-]+)\]\n", done.stderr).groups())
        for mend, name in mends:
            self.assertRegex(mend, "[Mm]emory|limit of the process|process's limit", name)
        self.assertIn("backend.out-of-memory", {name for _, name in mends})
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_port_in_use(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            self.says(f"listens on port {port}", "use another port", "serve", "--target", PAIR / "target", "--port", port)

    def test_a_public_address_without_a_key(self):
        self.says("no API keys are required", "--api-key-file", "serve", "--target", PAIR / "target", "--host", "0.0.0.0",
                  "--port", 0)


if __name__ == "__main__":
    shutil.rmtree(SCRATCH, ignore_errors=True)
    SCRATCH.mkdir(parents=True)
    unittest.main(argv=sys.argv[:1])
