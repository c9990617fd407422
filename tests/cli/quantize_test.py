#!/usr/bin/env python3
"""slm quantize and slm demo: a model in four bits, and its speed.
usage: quantize_test.py PROGRAM SOURCE_DIR SCRATCH_DIR"""
import shutil
import sys
import unittest

from program import PAIR, SCRATCH, ProgramTest


class Quantize(ProgramTest):
    DEMO_KEYS = {
        "identical",
        "acceptance_rate",
        "tokens_per_target_step",
        "plain_tokens_per_second",
        "speculative_tokens_per_second",
        "speedup",
    }

    def check_demo(self, *arguments):
        result = self.as_json("demo", "--repeats", 1, "--max-new-tokens", 16, *arguments)
        self.assertTrue(self.DEMO_KEYS <= set(result))
        self.assertIs(result["identical"], True)
        self.assertAlmostEqual(result["speedup"], result["speculative_tokens_per_second"] / result["plain_tokens_per_second"])
        return result

    def test_quantize_and_use(self):
        out = SCRATCH / "quantized"
        options = ["--calibration", PAIR / "measure.py", "--samples", 2, "--sequence-length", 64, "--search-samples", 1]
        done = self.as_json("quantize", PAIR / "draft", out, *options, "--evaluate", PAIR / "train.py", "--max-tokens", 600)
        self.assertEqual((done["folds"], done["group"], done["left_in_float"]), (8, 32, []))
        self.assertLess(done["bytes"]["after"], 0.6 * done["bytes"]["before"])
        # 600 tokens distinguish a damaged model from a correct one, not two correct ones.
        self.assertNotEqual(done["perplexity"]["after"], done["perplexity"]["before"])
        self.assertAlmostEqual(done["perplexity"]["after"] / done["perplexity"]["before"], 1, delta=0.25)
        self.assertEqual(len(done["losses"]), 8)
        for loss in done["losses"]:
            self.assertLessEqual(loss["best"], loss["rounded"])
        self.assertEqual(sorted(p.name for p in out.iterdir()),
                         ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"])
        for backend in ("cpu", "reference"):
            self.ok("generate", "--target", out, "--prompt", "def f(", "--max-new-tokens", 4, "--backend", backend)
        self.error(r"\[quantize.output-exists\]", "quantize", PAIR / "draft", out, *options)
        self.error(r"\[quantize.already-quantized\]", "quantize", out, SCRATCH / "twice", *options)
        self.error(r"\[cli.no-calibration\]", "quantize", PAIR / "draft", SCRATCH / "twice")
        self.error(r"\[quantize.short-text\]", "quantize", PAIR / "draft", SCRATCH / "twice",
                   "--calibration", PAIR / "measure.py", "--samples", 1000)
        self.assertFalse((SCRATCH / "twice").exists() or (SCRATCH / "twice.partial").exists())
        self.assertRegex(self.ok("quantize", PAIR / "draft", SCRATCH / "rtn", "--rtn", "--format", "compressed-tensors").out,
                         r"before +after\n +weights")

    def test_quantize_to_gguf(self):
        out = SCRATCH / "quantized.gguf"
        done = self.as_json("quantize", PAIR / "draft", out, "--type", "q4_1", "--evaluate", PAIR / "train.py", "--max-tokens", 600)
        self.assertEqual(set(done["matrices"]), {"Q4_1", "Q8_0"})
        self.assertLess(done["bytes"]["after"], 0.5 * done["bytes"]["before"])
        self.assertTrue(0.9 < done["perplexity"]["after"] / done["perplexity"]["before"] < 1.25)
        text = (PAIR / "train.py").read_bytes()
        self.assertEqual(self.ok("tokenize", out, stdin=text).out, self.ok("tokenize", PAIR / "draft", stdin=text).out)
        self.ok("generate", "--target", PAIR / "target", "--draft", out, "--prompt", "def f(", "--max-new-tokens", 4)
        self.assertRegex(self.ok("quantize", PAIR / "draft", SCRATCH / "six.gguf", "--type", "q6_k").out, r"weights.*\n.*matrices: ")
        folded = ["--type", "q4_0", "--calibration", PAIR / "measure.py", "--samples", 2, "--sequence-length", 64]
        self.assertGreater(self.as_json("quantize", PAIR / "draft", SCRATCH / "folded.gguf", *folded)["folds_improved"], 0)
        self.error(r"\[quantize.output-exists\]", "quantize", PAIR / "draft", out, "--type", "q4_1")
        self.error(r"\[quantize.bad-options\]", "quantize", PAIR / "draft", SCRATCH / "twice.gguf", *folded[2:], "--type", "q8_0")
        self.error(r"\[quantize.already-quantized\]", "quantize", out, SCRATCH / "twice.gguf", "--type", "q8_0")
        self.error(r"\[cli.gguf-type\]", "quantize", PAIR / "draft", SCRATCH / "twice.gguf")
        self.error(r"\[cli.gguf-type\]", "quantize", PAIR / "draft", SCRATCH / "twice", "--type", "q4_0")
        self.error("--type", "quantize", PAIR / "draft", SCRATCH / "twice.gguf", "--type", "q5_k", status=2)
        self.assertEqual([file.name for file in SCRATCH.glob("twice*")], [])

    def test_demo_in_four_bits(self):
        demo = self.as_json("demo", "--int4", "--repeats", 1, "--max-new-tokens", 48)
        self.assertTrue(demo["identical"])
        self.assertGreater(demo["acceptance_rate"], 0.4)

    def test_demo_of_another_pair(self):
        for kind, (target, _) in self.pairs.items():
            pair = SCRATCH / f"pair-{kind}"
            shutil.copytree(target, pair / "target")
            shutil.copytree(target, pair / "draft")
            self.error("no prompts", "demo", "--pair", pair)
            (pair / "prompts").mkdir()
            (pair / "prompts" / "one.py").write_text("def in")
            self.assertGreater(self.check_demo("--pair", pair)["acceptance_rate"], 0.9)
            text = self.ok("demo", "--repeats", 2, "--max-new-tokens", 24, "--pair", pair).out
            self.assertTrue(text.startswith("def in" + self.generate(target=target)["text"] + "\n\n"))
            self.assertRegex(text, r"identical output +yes\n")

    def test_demo_of_the_embedded_pair(self):
        result = self.check_demo()
        self.assertGreater(result["acceptance_rate"], 0.5)
        self.assertGreater(result["tokens_per_target_step"], 2)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
