#!/usr/bin/env python3
"""Commands of the program slm that accept a GGUF file.  usage: gguf_test.py PROGRAM SOURCE_DIR SCRATCH_DIR"""
import json
import pathlib
import shutil
import subprocess
import sys
import unittest

PROGRAM, SOURCE, SCRATCH = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
MODELS = SOURCE / "tests" / "fixtures" / "models"
GGUF = SOURCE / "tests" / "fixtures" / "gguf"
EVERY_TYPE = GGUF / "all-types.gguf"


def slm(*arguments, stdin=""):
    return subprocess.run([PROGRAM, *map(str, arguments)], input=stdin, capture_output=True, text=True, timeout=300)


class Gguf(unittest.TestCase):
    def ok(self, *arguments, **options):
        result = slm(*arguments, **options)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def error(self, expected, *arguments):
        result = slm(*arguments)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertRegex(result.stderr, expected)
        self.assertEqual(result.stdout, "")

    def test_info_prints_types_and_their_storage(self):
        info = json.loads(self.ok("info", EVERY_TYPE, "--json"))
        self.assertEqual(info["family"], "llama")
        self.assertEqual(info["tokenizer_vocab"], 477)
        self.assertEqual(info["end_tokens"], [476])
        self.assertEqual(info["end_tokens_from"], {"476": "tokenizer.ggml.eos_token_id"})
        self.assertEqual(info["tensors"], {"F32": 5, "F16": 1, "BF16": 1, "Q2_K": 1, "Q3_K": 1, "Q4_0": 1, "Q4_1": 1,
                                           "Q4_K": 2, "Q5_0": 1, "Q5_1": 1, "Q5_K": 2, "Q6_K": 2, "Q8_0": 1, "IQ4_NL": 1})
        self.assertEqual(set(info["held_as"]), set(info["tensors"]) - {"F32"})
        bits = {"Q4_0": 4, "Q4_1": 4, "Q4_K": 4, "Q5_0": 5, "Q5_1": 5, "Q5_K": 5, "Q2_K": 6, "Q3_K": 6, "Q6_K": 6}
        for name, held in info["held_as"].items():
            expected = name if name in ("F16", "BF16") else f"{bits.get(name, 8)}-bit codes"
            self.assertEqual(held, expected, name)
        self.assertEqual(info["quantization"], "GGUF blocks")
        self.assertIn("Q4_K: 4-bit codes", self.ok("info", EVERY_TYPE))
        folder = json.loads(self.ok("info", MODELS / "olmo-tied", "--json"))
        self.assertIsNone(folder["held_as"])
        file = json.loads(self.ok("info", GGUF / "olmo-tied.gguf", "--json"))
        for key in ("config", "family", "layers", "parameters", "tied_embeddings", "context", "vocab"):
            self.assertEqual(file[key], folder[key], key)

    def test_a_file_gives_the_bits_of_its_folder(self):
        for name in ("llama-mha3h", "gpt2", "mpt-alibi-4h", "phi-partial", "phi3-swa7", "qwen3-qknorm-headdim"):
            with self.subTest(name):
                arguments = ("--ids", "5,9,2,33,17,60", "--json")
                file = self.ok("logits", GGUF / f"{name}.gguf", *arguments)
                self.assertEqual(file, self.ok("logits", MODELS / name, *arguments))

    def test_one_file_in_a_folder_and_the_first_of_several_shards(self):
        alone = SCRATCH / "alone"
        alone.mkdir()
        shutil.copy(GGUF / "qwen2-bias-tied.gguf", alone)
        self.assertIn("qwen2", self.ok("info", alone))
        shutil.copy(GGUF / "olmo-tied.gguf", alone)
        self.error(r"'olmo-tied.gguf', 'qwen2-bias-tied.gguf'.*\[checkpoint.several-gguf\]", "info", alone)
        self.assertIn("layers", self.ok("info", GGUF / "split-00001-of-00003.gguf"))
        self.error(r"split-00001-of-00003.*\[gguf.not-first-shard\]", "info", GGUF / "split-00002-of-00003.gguf")

    def test_text_is_read_and_written_and_speculation_changes_nothing(self):
        ids = json.loads(self.ok("tokenize", EVERY_TYPE, "--json", stdin="The pump runs 12"))["ids"]
        back = self.ok("tokenize", EVERY_TYPE, "--decode", stdin=json.dumps(ids))
        self.assertEqual(back.rstrip("\n"), "The pump runs 12")
        generate = ("generate", "--target", EVERY_TYPE, "--prompt", "The pump", "--max-new-tokens", 16, "--json")
        plain = json.loads(self.ok(*generate))
        self.assertEqual(len(plain["ids"]), 16)
        for how in (("--drafter", "lookup"), ("--draft", EVERY_TYPE)):
            self.assertEqual(json.loads(self.ok(*generate, *how))["ids"], plain["ids"])
        text = SCRATCH / "text"
        text.write_text("The record of the pump, two thousand words long. " * 4)
        self.assertGreater(json.loads(self.ok("perplexity", EVERY_TYPE, text, "--json"))["perplexity"], 1)
        answer = self.ok("chat", "--target", EVERY_TYPE, "--template", "plain", "--max-new-tokens", 4, stdin="The pump\n")
        self.assertNotEqual(answer, "")

    def test_quantize_requires_the_folder(self):
        text = SCRATCH / "calibration"
        text.write_text("The record of the pump. " * 100)
        self.error(r"\[quantize.gguf\]", "quantize", GGUF / "llama-mha3h.gguf", SCRATCH / "out", "--rtn")

    def test_damaged_and_foreign_files(self):
        whole = EVERY_TYPE.read_bytes()
        for name, content, expected in (
                ("cut", whole[:-100], r"take 1263136 bytes, the file has 1263036.*\[gguf.cut-short\]"),
                ("page", b"<!DOCTYPE html>", r"a web page.*\[io.web-page\]"),
                ("pointer", b"version https://git-lfs.github.com/spec/v1\n", r"\[io.lfs-pointer\]"),
                ("zip", b"PK\3\4", r"\[gguf.bad-magic\]"),
                ("empty", b"", r"\[io.unreadable\]"),
                ("endian", whole[:4] + whole[4:8][::-1] + whole[8:], r"a big-endian file \(version 3\)"),
                ("count", whole[:8] + b"\xff" * 8 + whole[16:], r"\[gguf.tensor-count\]")):
            with self.subTest(name):
                path = SCRATCH / f"{name}.gguf"
                path.write_bytes(content)
                self.error(expected, "info", path)
        self.error(r"\[checkpoint.no-folder\]", "generate", "--target", SCRATCH / "absent.gguf", "--prompt", "a")

    def test_a_gguf_file_is_identified_by_its_first_bytes(self):
        expected = self.ok("generate", "--target", EVERY_TYPE, "--prompt", "a", "--max-new-tokens", 4)
        for name in ("sha256-0a1b2c", "MODEL.GGUF", "model.gguf.part"):
            with self.subTest(name):
                folder = SCRATCH / "named" / name
                folder.mkdir(parents=True)
                path = pathlib.Path(shutil.copy(EVERY_TYPE, folder / name))
                for model in (path, folder):
                    generate = ("generate", "--target", model, "--prompt", "a", "--max-new-tokens", 4)
                    self.assertEqual(self.ok(*generate), expected)
                    self.assertEqual(self.ok(*generate, "--draft", model), expected)
                self.assertEqual(self.ok("tokenize", path, stdin="a pump"), self.ok("tokenize", EVERY_TYPE, stdin="a pump"))
                self.error(r"\[quantize.gguf\]", "quantize", path, folder / "out", "--rtn")


if __name__ == "__main__":
    shutil.rmtree(SCRATCH, ignore_errors=True)
    SCRATCH.mkdir(parents=True)
    unittest.main(argv=sys.argv[:1])
