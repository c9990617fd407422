#!/usr/bin/env python3
"""Logits, embeddings, tokens and perplexity in the program's output.
usage: logits_test.py PROGRAM SOURCE_DIR SCRATCH_DIR"""
import json
import re
import shutil
import sys
import unittest
from pathlib import Path

from program import MODELS, PAIR, SCRATCH, TOKENIZERS, ProgramTest, slm


class Logits(ProgramTest):
    def test_logits_match_the_fixtures_on_both_backends(self):
        for fixture in sorted(MODELS.iterdir()):
            if not (fixture / "config.json").exists() or not (fixture / "golden.json").exists():
                continue  # expected logits of a GGUF file, or a folder with those of another one
            for case in json.loads((fixture / "golden.json").read_text())["cases"]:
                if fixture.name == "llama-dynamic" and len(case["ids"]) > 16:
                    continue  # dynamic scaling begins beyond the context, which slm does not exceed
                for backend in ("cpu", "reference"):
                    with self.subTest(model=fixture.name, backend=backend):
                        ids = ",".join(map(str, case["ids"]))
                        rows = json.loads(self.ok("logits", fixture, "--ids", ids, "--backend", backend).out)
                        self.assertEqual(len(rows), len(case["ids"]))
                        for row, expected in zip(case["rows"], case["logits"]):
                            for got, want in zip(rows[row], expected, strict=True):
                                self.assertAlmostEqual(got, want, delta=1e-4)

    def test_logits_of_emulated_gpus(self):
        for name in ("llama-mha3h", "llama-sharded-bf16", "qwen3-qknorm-headdim"):
            case = json.loads((MODELS / name / "golden.json").read_text())["cases"][0]
            ids = ",".join(map(str, case["ids"]))
            for backend in ("lanes32", "lanes64"):
                with self.subTest(model=name, backend=backend):
                    rows = json.loads(self.ok("logits", MODELS / name, "--ids", ids, "--backend", backend).out)
                    self.assertEqual(len(rows), len(case["ids"]))
                    delta = 0.15 if "bf16" in name else 0.05  # matrix units take 8 and 11 bits
                    for row, expected in zip(case["rows"], case["logits"]):
                        for got, want in zip(rows[row], expected, strict=True):
                            self.assertAlmostEqual(got, want, delta=delta)

    def test_a_gpu_is_never_replaced_by_the_cpu(self):
        for backend in ("gpu", "gpu:1"):  # no device, or a program without GPU support
            self.error(r"\[cli\.no-gpu\]", "logits", self.target, "--ids", "1", "--backend", backend)
        for backend in ("gpu:", "gpu:x", "gpu:-1", "gpu:100", "cuda"):
            self.error(backend, "logits", self.target, "--ids", "1", "--backend", backend, status=2)

    def test_logits_json_and_precision(self):
        result = self.as_json("logits", self.target, "--ids", "1,5,7")
        self.assertEqual((result["ids"], result["vocab"]), ([1, 5, 7], 97))
        self.assertEqual([len(row) for row in result["logits"]], [97] * 3)
        digits = re.findall(r"\d+\.\d+", self.ok("logits", self.target, "--ids", "1").out)
        self.assertEqual(max(len(d.replace(".", "").lstrip("0")) for d in digits), 9)

    def test_logits_of_more_tokens_than_a_step_computes(self):
        ids = [(7 * i) % 97 for i in range(150)]
        whole = json.loads(self.ok("logits", self.target, "--ids", ",".join(map(str, ids))).out)
        start = json.loads(self.ok("logits", self.target, "--ids", ",".join(map(str, ids[:3]))).out)
        self.assertEqual(len(whole), 150)
        self.assertEqual(whole[:3], start)

    def test_logits_threads_change_nothing(self):
        ids = "1,5,7,9,11"
        one = self.ok("logits", self.target, "--ids", ids, "--threads", "1").out
        self.assertEqual(one, self.ok("logits", self.target, "--ids", ids, "--threads", "2").out)

    def test_logits_refuse_bad_ids(self):
        self.error(r"999.*0 to 96", "logits", self.target, "--ids", "1,999")
        self.error(r"-1.*0 to 96", "logits", self.target, "--ids=-1")
        context = json.loads((self.target / "config.json").read_text())["max_position_embeddings"]
        self.error("context", "logits", self.target, "--ids", ",".join(["1"] * (context + 1)))

    def embed(self, model, *arguments):
        """One JSON value per line, and nothing else."""
        result = self.ok("embed", model, *arguments)
        self.assertEqual(result.err, "")
        return [json.loads(line) for line in result.out.splitlines()]

    def test_embeddings_of_a_batch_equal_those_of_single_texts(self):
        texts = ["def add(a, b):", "x", "class Pump:\n    def __init__(self):\n        self.on = False\n"]
        for folder in ("target", "draft-int4"):
            for options in ([], ["--pooling", "last"], ["--normalize"], ["--threads", 1]):
                with self.subTest(model=folder, options=options):
                    together = self.embed(PAIR / folder, *(word for text in texts for word in ("--text", text)), *options)
                    self.assertEqual(together, [row for text in texts for row in self.embed(PAIR / folder, "--text", text, *options)])
                    self.assertEqual(len({json.dumps(row) for row in together}), 3)
                    width = json.loads((PAIR / folder / "config.json").read_text())["hidden_size"]
                    self.assertEqual([len(row) for row in together], [width] * 3)

    def test_all_ways_to_pass_a_text_agree(self):
        texts, model = ["def in", "in a"], PAIR / "draft"
        expected = self.embed(model, "--text", texts[0], "--text", texts[1])
        ids = [self.as_json("tokenize", model, stdin=text.encode())["ids"] for text in texts]
        self.assertEqual(self.embed(model, *(word for row in ids for word in ("--ids", ",".join(map(str, row))))), expected)
        file = SCRATCH / "texts"
        file.write_text("\n".join(texts))
        self.assertEqual(self.embed(model, "--texts-file", file), expected)
        file.write_text("".join(text + "\n" for text in texts))
        self.assertEqual(self.embed(model, "--texts-file", file), expected)
        file.write_text(texts[1])
        self.assertEqual(self.embed(model, "--text-file", file), expected[1:])
        self.assertEqual(self.embed(model, "--text", texts[0], "--text", texts[1], "--json"),
                         [{"embedding": row, "tokens": len(tokens)} for row, tokens in zip(expected, ids)])

    def test_poolings_of_hidden_states(self):
        ids = [3, 1, 4, 1, 5, 9, 2, 6]
        # A token's state does not depend on later tokens: each is the last one of the text that ends there.
        states = [self.embed(self.target, "--pooling", "last", "--ids", ",".join(map(str, ids[:n])))[0] for n in range(1, 9)]
        mean, = self.embed(self.target, "--ids", ",".join(map(str, ids)))
        for got, column in zip(mean, zip(*states), strict=True):
            self.assertAlmostEqual(got, sum(column) / 8, delta=1e-6)
        unit, = self.embed(self.target, "--normalize", "--ids", ",".join(map(str, ids)))
        self.assertAlmostEqual(sum(value * value for value in unit), 1, delta=1e-5)
        self.assertAlmostEqual(unit[0] / unit[1], mean[0] / mean[1], delta=1e-4 * abs(mean[0] / mean[1]))

    def test_a_declared_pooling_is_followed(self):
        model = SCRATCH / "declares"
        shutil.copytree(self.target, model)
        (model / "1_Pooling").mkdir()

        def declare(mode):
            modes = ("cls_token", "mean_tokens", "max_tokens", "lasttoken")
            flags = {f"pooling_mode_{name}": name == mode for name in modes}
            (model / "1_Pooling" / "config.json").write_text(json.dumps(flags))

        text = ("--text", "def add(a, b):")
        declare("lasttoken")
        self.assertEqual(self.embed(model, *text), self.embed(self.target, *text, "--pooling", "last"))
        self.assertEqual(self.embed(model, *text, "--pooling", "mean"), self.embed(self.target, *text))
        self.assertEqual(self.as_json("info", model)["pooling"], "last")
        self.assertIsNone(self.as_json("info", self.target)["pooling"])
        declare("cls_token")
        self.error(r"the pooling cls.*--pooling.*\[cli.unsupported-pooling\]", "embed", model, *text)
        self.assertEqual(self.embed(model, *text, "--pooling", "last"), self.embed(self.target, *text, "--pooling", "last"))

    def test_texts_that_cannot_be_embedded(self):
        self.error(r"text 2 of 2 has no tokens.*\[cli.empty-text\]", "embed", self.target, "--text", "x", "--text", "")
        self.error(r"999.*0 to 96", "embed", self.target, "--ids", "1,2", "--ids", "1,999")
        context = json.loads((self.target / "config.json").read_text())["max_position_embeddings"]
        self.error(f"{context + 1} tokens.*{context}", "embed", self.target, "--ids", ",".join(["1"] * (context + 1)))
        self.error("could not be read", "embed", self.target, "--texts-file", SCRATCH / "absent")
        (SCRATCH / "latin1").write_bytes(b"caf\xe9")
        self.error(r"\[cli.not-utf8\]", "embed", self.target, "--text-file", SCRATCH / "latin1")
        (SCRATCH / "nothing").write_text("")
        self.error(r"\[cli.empty-text\]", "embed", self.target, "--texts-file", SCRATCH / "nothing")

    def test_tokenize_matches_the_golden_files_and_back(self):
        expected = json.loads((TOKENIZERS / "expected.json").read_text())
        for name, cases in expected["files"].items():
            for text, case in list(zip(expected["strings"], cases, strict=True))[::5]:
                with self.subTest(tokenizer=name, text=text):
                    file = TOKENIZERS / name
                    self.assertEqual(json.loads(self.ok("tokenize", file, stdin=text.encode()).out), case["ids_special"])
                    plain = self.ok("tokenize", file, "--no-special-tokens", stdin=text.encode()).out
                    self.assertEqual(json.loads(plain), case["ids"])
                    back = self.ok("tokenize", file, "--decode", "--keep-special-tokens", stdin=plain.encode()).out
                    self.assertEqual(back, case["decoded"])

    def test_tokenize_json(self):
        ids = self.as_json("tokenize", self.target, stdin=b"def in")["ids"]
        self.assertEqual(len(ids), 5)
        back = self.as_json("tokenize", self.target, "--decode", stdin=json.dumps(ids).encode())
        self.assertEqual(back, {"ids": ids, "text": "def in"})
        self.assertEqual(self.as_json("tokenize", self.target, stdin=b"")["ids"], [])

    def test_tokenize_refuses_bad_lists(self):
        for text, expected in (
            (b"", "not valid JSON"),
            (b"[1, 2", "not valid JSON"),
            (b'{"ids": [1]}', "object"),
            (b"[1.5]", "number"),
            (b'["a"]', "string"),
            (b"[97]", "0 to 96"),
            (b"[-1]", "0 to 96"),
            (b"[18446744073709551616]", "number"),
            (b"[" * 100000, "nested"),
        ):
            with self.subTest(text=text[:20]):
                self.error(expected, "tokenize", self.target, "--decode", stdin=text)

    def test_tokenize_accepts_bytes_that_are_not_utf8(self):
        result = slm("tokenize", TOKENIZERS / "gpt2.json", stdin=b"a\xff\xfeb")
        self.assertEqual(result.returncode, 0, result.err)

    def test_perplexity(self):
        text = PAIR / "measure.py"
        whole = self.as_json("perplexity", PAIR / "draft", text, "--max-tokens", 700, "--window", 256)
        self.assertEqual((whole["tokens"], whole["windows"], whole["window"], whole["stride"]), (700, 3, 256, 256))
        self.assertEqual(whole["scored_tokens"], 697)
        self.assertTrue(3 < whole["perplexity"] < 200)
        strided = self.as_json("perplexity", PAIR / "draft", text, "--max-tokens", 700, "--window", 256, "--stride", 64)
        self.assertEqual(strided["scored_tokens"], 699)
        self.assertLess(strided["perplexity"], whole["perplexity"])  # more text before each token
        self.assertRegex(self.ok("perplexity", PAIR / "draft", text, "--max-tokens", 100).out, r"^perplexity \d")
        exact, rounded = (self.as_json("perplexity", PAIR / "target-int4", text, "--max-tokens", 200, "--activations", bits)
                          ["perplexity"] for bits in (16, 8))
        self.assertNotEqual(exact, rounded)
        self.assertAlmostEqual(rounded / exact, 1, delta=0.02)
        exact_bf16, rounded_bf16 = (self.as_json("perplexity", PAIR / "target", text, "--max-tokens", 200, *more)["perplexity"]
                                    for more in ([], ["--activations", "bf16", "--activations", "8"]))
        multiplies_bf16 = re.search(r"^flags\b.*\b(amx|avx512)_bf16\b", Path("/proc/cpuinfo").read_text(), re.M) is not None
        self.assertEqual(exact_bf16 != rounded_bf16, multiplies_bf16)
        self.assertAlmostEqual(rounded_bf16 / exact_bf16, 1, delta=0.005)
        self.error("activations", "perplexity", PAIR / "target", text, "--activations", "7", status=2)
        beside = self.as_json("perplexity", PAIR / "target-int4", text, "--max-tokens", 200, "--against", PAIR / "target")
        self.assertEqual(beside["perplexity"], exact)
        self.assertEqual(beside["against"]["perplexity"],
                         self.as_json("perplexity", PAIR / "target", text, "--max-tokens", 200)["perplexity"])
        self.assertTrue(0 < beside["against"]["mean_divergence"] < beside["against"]["divergence_99"] < 1)
        self.assertTrue(0.8 < beside["against"]["same_likeliest"] < 1)
        self.assertRegex(self.ok("perplexity", PAIR / "draft", text, "--max-tokens", 100, "--against", PAIR / "target").out,
                         r"\nagainst .*target: perplexity \d.* nats a token .* likeliest at \d")
        self.error(r"\[perplexity.vocabulary\]", "perplexity", PAIR / "draft", text, "--against", self.target)
        (SCRATCH / "one_letter").write_text("")
        self.error(r"\[perplexity.short-text\]", "perplexity", PAIR / "draft", SCRATCH / "one_letter")
        self.error(r"\[perplexity.window\]", "perplexity", PAIR / "draft", text, "--window", 8, "--stride", 9)
        self.error(r"\[cli.unreadable-file\]", "perplexity", PAIR / "draft", SCRATCH / "absent")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
