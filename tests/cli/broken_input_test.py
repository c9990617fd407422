#!/usr/bin/env python3
"""Broken files, unusual paths, failing output: one sentence each, and no partial output.
usage: broken_input_test.py PROGRAM SOURCE_DIR SCRATCH_DIR"""
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import threading
import unittest

from program import MODELS, PAIR, PROGRAM, SCRATCH, SOURCE, TOKENIZERS, ProgramTest, make_model, slm


class BrokenInput(ProgramTest):
    def test_tokenizer_larger_than_the_model(self):
        folder = make_model("large-tokenizer", "llama-mha3h", tokenizer=None)
        shutil.copy(TOKENIZERS / "gpt2.json", folder / "tokenizer.json")
        self.error("outside|vocabulary", "generate", "--target", folder, "--prompt", "The pump runs")

    def test_broken_files(self):
        def broken(name, file, content):
            folder = make_model(name, "llama-mha3h")
            if content is None:
                (folder / file).unlink()
            else:
                (folder / file).write_bytes(content)
            return folder

        weights = (MODELS / "llama-mha3h" / "model.safetensors").read_bytes()
        for name, file, content in (
            ("no-config", "config.json", None),
            ("empty-config", "config.json", b""),
            ("torn-config", "config.json", b'{"model_type": "llama",'),
            ("list-config", "config.json", b"[]"),
            ("no-weights", "model.safetensors", None),
            ("empty-weights", "model.safetensors", b""),
            ("torn-weights", "model.safetensors", weights[:-100]),
            ("torn-header", "model.safetensors", weights[:100]),
            ("huge-header", "model.safetensors", b"\xff" * 7 + b"\x7f" + weights[8:]),
        ):
            with self.subTest(name):
                self.error(re.escape(name), "logits", broken(name, file, content), "--ids", "1")
        for name, content in (("torn-tokenizer", b'{"model":'), ("empty-tokenizer", b""), ("list-tokenizer", b"[]")):
            with self.subTest(name):
                self.error(name, "generate", "--target", broken(name, "tokenizer.json", content), "--prompt", "x")
        for name, field in (("negative", {"num_hidden_layers": -3}), ("absurd", {"hidden_size": 10**18}), ("other", {"model_type": "gpt2"})):
            with self.subTest(name):
                self.error(name, "info", make_model(name, "llama-mha3h", **field))

    def test_files_that_are_not_regular(self):
        for kind in ("fifo", "device"):
            for file in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "generation_config.json"):
                with self.subTest(kind=kind, file=file):
                    folder = make_model(f"{kind}-{file}", "llama-mha3h")
                    (folder / file).unlink(missing_ok=True)
                    os.mkfifo(folder / file) if kind == "fifo" else (folder / file).symlink_to("/dev/zero")
                    self.error(r"not a regular file.*\[io.unreadable\]", "generate", "--target", folder, "--prompt", "x")
                    self.error(r"not a regular file.*\[io.unreadable\]", "info", folder)

    def test_endless_texts(self):
        target = ["generate", "--target", self.target, "--max-new-tokens", 1]
        self.error(r"\[cli.long-text\]", *target, "--prompt-file", "/dev/zero")
        self.error(r"\[cli.long-text\]", "perplexity", self.target, "/dev/zero")
        self.error(r"\[cli.long-text\]", "quantize", PAIR / "draft", SCRATCH / "no", "--rtn", "--evaluate", "/dev/zero")
        self.error(r"not a regular file", "quantize", PAIR / "draft", SCRATCH / "no", "--calibration", "/dev/zero")
        with open("/dev/zero", "rb") as zeros:
            result = subprocess.run([PROGRAM, "tokenize", self.target], stdin=zeros, capture_output=True, timeout=300)
        self.assertRegex(result.stderr.decode(), r"\[cli.long-text\]")

    def test_a_prompt_from_a_pipe(self):
        pipe = SCRATCH / "pipe"
        os.mkfifo(pipe)
        writer = threading.Thread(target=lambda: pipe.write_text("def in"))
        writer.start()
        result = self.as_json("generate", "--target", self.target, "--prompt-file", pipe, "--max-new-tokens", 24)
        writer.join()
        self.assertEqual(result["ids"], self.generate()["ids"])

    def test_a_text_to_score_must_be_utf8(self):
        text = SCRATCH / "latin"
        text.write_bytes(b"caf\xe9 " * 100)
        self.error(r"byte 3 .*\[cli.not-utf8\]", "perplexity", self.target, text)
        self.error(r"byte 3 .*\[cli.not-utf8\]", "quantize", PAIR / "draft", SCRATCH / "no", "--rtn", "--evaluate", text)

    def test_paths_that_are_too_long(self):
        path = "a" * 5000
        for command in (
            ["info", path],
            ["logits", path, "--ids", "1"],
            ["tokenize", path],
            ["generate", "--target", path, "--prompt", "x"],
            ["generate", "--target", self.target, "--draft", path, "--prompt", "x"],
            ["generate", "--target", self.target, "--prompt-file", path],
            ["chat", "--target", path],
            ["perplexity", path, "x"],
            ["perplexity", self.target, path],
            ["demo", "--pair", path],
            ["quantize", path, SCRATCH / "no", "--rtn"],
            ["quantize", PAIR / "draft", SCRATCH / path, "--rtn"],
            ["quantize", PAIR / "draft", SCRATCH / "no", "--calibration", path],
            ["bench", "speculative", "--target", path, "--draft", path, "--humaneval", path],
            ["bench", "compare", path],
        ):
            with self.subTest(command=[str(word)[:20] for word in command]):
                self.error("a{5000}", *command)

    def test_names_that_are_not_utf8(self):
        folder = pathlib.Path(os.fsdecode(bytes(SCRATCH) + b"/caf\xe9"))
        shutil.copytree(self.target, folder)
        self.assertRegex(self.as_json("info", folder)["folder"], "caf\ufffd$")
        self.as_json("generate", "--target", folder, "--prompt", "x", "--max-new-tokens", 2)
        self.as_json("perplexity", folder, SOURCE / "tests" / "cli" / "program.py", "--max-tokens", 20)
        bench = ["bench", "speculative", "--target", folder, "--draft", folder, "--humaneval",
                 SOURCE / "tests" / "fixtures" / "humaneval" / "tasks.jsonl", "--tasks", 1, "--max-new-tokens", 4, "--sweep", 0]
        self.ok(*bench, "--out", folder.parent / os.fsdecode(b"bench\xe9"), "--json")
        out = folder.parent / os.fsdecode(b"out\xe9")
        self.assertRegex(self.as_json("quantize", folder, out, "--rtn", "--group", "-1")["output"], "out\ufffd$")

    def test_a_limit_of_file_sizes(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

        self.error(r"File too large.*\[io.unwritable\]", "quantize", PAIR / "draft", SCRATCH / "limited", "--rtn", before=limit)
        self.assertFalse((SCRATCH / "limited").exists())

    def test_full_disk(self):
        commands = (
            ["info", self.target],
            ["info", self.target, "--json"],
            ["logits", self.target, "--ids", "1,2"],
            ["generate", "--target", self.target, "--prompt", "x", "--max-new-tokens", "4"],
            ["generate", "--target", self.target, "--prompt", "x", "--max-new-tokens", "4", "--json"],
            ["--help"],
        )
        for arguments in commands:
            with self.subTest(arguments=arguments), open("/dev/full", "wb") as full:
                result = slm(*arguments, stdout=full)
                self.assertEqual(result.returncode, 1)
                self.assertRegex(result.err, "could not be written")

    def test_a_reader_that_disconnects(self):
        read_end, write_end = os.pipe()
        os.close(read_end)
        try:
            result = slm("logits", self.target, "--ids", "1,2", stdout=write_end)
        finally:
            os.close(write_end)
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.err, "could not be written")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
