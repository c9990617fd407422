#!/usr/bin/env python3
"""The program's output about itself, wrong arguments and models.
usage: usage_test.py PROGRAM SOURCE_DIR SCRATCH_DIR"""
import json
import sys
import unittest

from program import MODELS, PAIR, SCRATCH, SOURCE, ProgramTest, make_model, tensors_of


class Usage(ProgramTest):
    def test_help_and_version(self):
        for command in ([], ["generate"], ["chat"], ["logits"], ["embed"], ["tokenize"], ["info"], ["demo"]):
            self.assertIn("Usage", self.ok(*command, "--help").out)
        self.assertRegex(self.ok("--version").out, r"^\d+\.\d+\.\d+\n$")

    def test_wrong_usage_is_status_2(self):
        for arguments in (
            [],
            ["frobnicate"],
            ["--frobnicate"],
            ["info"],
            ["info", self.target, "surplus"],
            ["logits", self.target],
            ["logits", self.target, "--ids", "one"],
            ["logits", self.target, "--ids", "1,,2"],
            ["logits", self.target, "--ids", "99999999999999"],
            ["logits", self.target, "--ids", "1", "--backend", "abacus"],
            ["logits", self.target, "--ids", "1", "--threads", "-1"],
            ["embed", self.target],
            ["embed", self.target, "--ids", "1;2"],
            ["embed", self.target, "--ids", "1", "--text", "x"],
            ["embed", self.target, "--text", "x", "--pooling", "first"],
            ["generate", "--target", self.target],
            ["generate", "--prompt", "x"],
            ["generate", "--target", self.target, "--prompt", "x", "--prompt-file", "y"],
            ["generate", "--target", self.target, "--prompt", "x", "--rule", "luck"],
            ["generate", "--target", self.target, "--prompt", "x", "--temperature", "-1"],
            ["generate", "--target", self.target, "--prompt", "x", "--temperature", "warm"],
            ["generate", "--target", self.target, "--prompt", "x", "--top-p", "1.5"],
            ["generate", "--target", self.target, "--prompt", "x", "--min-p", "2"],
            ["generate", "--target", self.target, "--prompt", "x", "--sequential"],
            ["generate", "--target", self.target, "--prompts", "x"],
            ["generate", "--target", self.target, "--prompt", "x", "--prompts", "y", "--json"],
            ["generate", "--target", self.target, "--prompt", "x", "--max-new-tokens", "-1"],
            ["generate", "--target", self.target, "--prompt", "x", "--draft", self.draft, "--drafter", "ngram"],
            ["generate", "--target", self.target, "--prompt", "x", "--stop"],
        ):
            with self.subTest(arguments=arguments):
                self.error(".", *arguments, status=2)

    def test_an_unknown_command(self):
        for words, expected in (
            (["frobnicate"], r"slm has no command 'frobnicate'; the nearest is '\w+'.*slm --help"),
            (["genrate", "--target", "x"], r"'genrate'; the nearest is 'generate'"),
            (["inof", self.target], r"'inof'; the nearest is 'info'"),
            (["Info"], r"'info'"),
            (["bench", "decod"], r"slm bench has no command 'decod'; the nearest is 'decode'.*slm bench --help"),
            (["\x1b[2J" + "x" * 5000], r"'\\x1b\[2Jx{190,200}\.\.\.'"),
            ([""], r"no command ''"),
        ):
            with self.subTest(words=words):
                result = self.error(expected, *words, status=2)
                self.assertRegex(result.err, r"\Aslm: [^\n]* \[cli.unknown-command\]\n\Z")

    def test_64_bit_integers(self):
        target = ["generate", "--target", self.target, "--prompt", "x", "--max-new-tokens", 1]
        numbers = {
            "--seed": target,
            "--max-tokens": ["perplexity", self.target, SOURCE / "tests" / "cli" / "program.py", "--window", 8],
        }
        for option, command in numbers.items():
            for number in ("-1", "18446744073709551616", "99999999999999999999999", "1.5", "1e3", "0x10", " 1", "+1"):
                with self.subTest(option=option, number=number):
                    self.error("18446744073709551615", *command, f"{option}={number}", status=2)
        for number in ("0", "18446744073709551615"):
            self.ok(*target, "--seed", number)
        self.assertEqual(self.as_json(*numbers["--max-tokens"], "--max-tokens", 20)["tokens"], 20)
        self.error("18446744073709551615", "quantize", self.target, SCRATCH / "no", "--max-tokens=-1", status=2)

    def test_info(self):
        info = self.as_json("info", self.target)
        fields = json.loads((self.target / "config.json").read_text())
        self.assertEqual(info["layers"], fields["num_hidden_layers"])
        self.assertEqual(info["vocab"], 97)
        self.assertEqual(info["config"], "dynamic")
        self.assertEqual(info["tokenizer_vocab"], 97)
        self.assertEqual(info["norm_epsilon"], fields["rms_norm_eps"])
        size = (self.target / "model.safetensors").stat().st_size
        self.assertTrue(0.9 * size < info["weight_bytes"] < size)
        self.assertIn("layers", self.ok("info", self.target).out)
        self.assertIsNone(self.as_json("info", MODELS / "llama-sharded-bf16")["tokenizer_vocab"])

    def test_info_names_traits_and_memory(self):
        info = self.as_json("info", MODELS / "gemma3-4b", "--sequences", 3)
        for trait in ("RMS norms, stored as weight - 1", "norms of inputs and outputs", "gelu_tanh with a gate",
                      "a norm of every query and key head", "rotary, base 1000000.0, linear scaling by 8.0",
                      "window of 7 in 6 of 7 layers", "rotary base of layers with the window 10000.0"):
            self.assertIn(trait, info["traits"])
        memory = info["memory"]
        self.assertEqual((memory["sequences"], memory["positions"]), (3, info["context"]))
        self.assertLessEqual(info["weight_bytes"], memory["weights"])  # vectors are whole pages in fp32
        self.assertEqual(memory["total"], memory["weights"] + memory["kv_cache"]["f32"] + memory["scratch"])
        part = self.as_json("info", self.target, "--sequences", 2, "--context", 128)["memory"]
        self.assertEqual((part["positions"], part["weights_in_file"] > 0), (128, True))
        per_token = self.as_json("info", self.target)["kv_cache_bytes_per_token"]["f16"]
        self.assertEqual(part["kv_cache"]["f16"], 2 * 128 * per_token)
        self.error("model.context", "info", self.target, "--context", 1 << 29)
        one = self.as_json("info", MODELS / "gemma3-4b")["memory"]["kv_cache"]
        self.assertEqual({name: 3 * size for name, size in one.items()}, memory["kv_cache"])
        plain = self.as_json("info", self.target)
        self.assertEqual(plain["memory"]["kv_cache"]["f16"],  # pages of 64 positions
                         -(-plain["context"] // 64) * 64 * plain["kv_cache_bytes_per_token"]["f16"])
        for model, trait in (("smollm3", "no rotation in 1 of 4 layers"), ("cohere2", "neighbouring dimensions"),
                             ("granite", "factor of attention's and MLP's outputs 0.37"), ("gemma2", "soft cap of scores 2"),
                             ("gptneox-parallel", "in parallel, with two norms"),
                             ("falcon-7b", "one matrix with the queries, key and value of each group"),
                             ("nemotron", "relu_squared without a gate"), ("ministral3", "yarn scaling by 4"),
                             ("lfm2", "a short convolution in [0-9] of 6 layers, attention in [0-9] of 6 layers"),
                             ("falcon-h1", "Mamba-2 in 2 of 2 layers, attention in 2 of 2 layers"),
                             ("qwen35", "a gated delta net in [0-9] of .*, a gate of attention's outputs")):
            with self.subTest(model=model):
                self.assertRegex(", ".join(self.as_json("info", MODELS / model)["traits"]), trait)
                self.assertRegex(self.ok("info", MODELS / model).out, rf"\ntraits +[^\n]*{trait}")
        shaped = self.as_json("info", MODELS / "gemma4-e2b")  # of 5 layers, 3 keep keys and values
        self.assertEqual(shaped["shapes"]["borrowing"], [3, 4])
        self.assertEqual(shaped["kv_cache_bytes_per_token"]["f32"], 2 * 2 * (12 + 12 + 20) * 4)
        self.assertIn("keys and values of an earlier layer in 2 of 5 layers", shaped["traits"])
        streams = self.as_json("info", MODELS / "gemma3n")
        self.assertEqual(streams["streams"], {"count": 4, "low_rank": 8, "scaled": True})
        self.assertLess({"4 residual streams", "a branch of rank 8 beside attention", "MLPs that drop gates in 2 of 5 layers"},
                        set(streams["traits"]))
        self.assertEqual(streams["ignored_tensors"], {})
        ignored = self.as_json("info", MODELS / "qwen35")["ignored_tensors"]  # the vision part, a layer for a second token
        stored = tensors_of(MODELS / "qwen35")
        for group, prefix in (("model.visual.*", "model.visual."), ("mtp.*", "mtp.")):
            sizes = [size for name, (_, size) in stored.items() if name.startswith(prefix)]
            self.assertEqual(ignored.pop(group), {"tensors": len(sizes), "bytes": sum(sizes)})
        self.assertEqual(ignored, {})
        self.assertRegex(self.ok("info", MODELS / "qwen35").out, r"\nignored_tensors +[^\n]*mtp\.\*: tensors: [0-9]+, bytes")
        hybrid = self.as_json("info", MODELS / "lfm2")  # 2 of 6 layers attend, with 2 heads of 10 numbers
        self.assertEqual(hybrid["mixer_layers"], [0, 1, 3, 5])
        self.assertEqual(hybrid["kv_cache_bytes_per_token"]["f32"], 2 * 2 * 2 * 10 * 4)
        self.error("--sequences", "info", self.target, "--sequences", 0, status=2)

    def test_info_of_a_refused_model_names_the_unknown_trait_or_tensor(self):
        for expected, fields in (("model_type 'spiral'", {"model_type": "spiral", "architectures": ["SpiralForCausalLM"]}),
                                 ("activation 'gelu_x'", {"hidden_act": "gelu_x"}),
                                 ("rope.*'spiral'", {"rope_scaling": {"rope_type": "spiral", "factor": 2}})):
            with self.subTest(expected=expected):
                folder = make_model("refused-" + next(iter(fields)), "llama-mha3h", **fields)
                result = self.error(expected, "info", folder)
                self.assertRegex(result.err, r"\Aslm: [^\n]*\n\Z")
        folder = make_model("other-tensors", "llama-mha3h", num_hidden_layers=99)
        result = self.error(r"'model\.layers\.\d+\.[a-z_.]+'", "info", folder)
        self.assertRegex(result.err, r"\Aslm: [^\n]*\n\Z")

    def test_info_of_every_available_model_folder(self):
        shared = SOURCE / ".." / "shared"
        roots = [MODELS, PAIR, SOURCE / "examples", shared / "fixtures" / "models", shared / "data" / "models"]
        folders = [folder.parent for root in roots if root.exists() for folder in root.glob("*/config.json")]
        self.assertGreater(len(folders), 25)
        for folder in folders:
            with self.subTest(folder=folder):
                info = self.as_json("info", folder)
                stored = tensors_of(folder)
                held = sum(size for _, size in stored.values())
                least = 0.5 if "nested" in folder.name or folder.name in ("qwen35", "qwen35moe") else 0.9  # unused tensors
                self.assertTrue(least * held < info["weight_bytes"] <= held)
                if folder.name == "llama-dynamic":
                    self.assertRegex(info["notes"].pop(), "dynamic rope scaling begins after 16 positions")
                self.assertEqual(info["notes"], [])
                table = self.ok("info", folder).out
                codes = [name for name in stored if name.endswith(".qweight")]
                if not codes:
                    blocks = "MXFP4 blocks" if "mxfp4" in folder.name else None
                    self.assertEqual(info["quantization"], blocks)
                    self.assertRegex(table, rf"quantization +{blocks or 'none'}\n")
                    continue
                config = json.loads((folder / "config.json").read_text())["quantization_config"]
                self.assertEqual(info["quantization"], {
                    "bits": 4, "groups": [config["group_size"]], "layouts": ["AutoAWQ gemm"], "layers": len(codes),
                    "float_layers": [name.removesuffix(".weight") for name in stored
                                     if name.endswith("_proj.weight") or name == "lm_head.weight"]})
                self.assertEqual(info["parameters"], self.as_json("info", str(folder).removesuffix("-int4"))["parameters"])
                self.assertRegex(table, r"quantization +4 bits, AutoAWQ gemm, groups of \d+, \d+ layers")

    def test_info_of_layers_that_quantize_keeps_in_floating_point(self):
        out = SCRATCH / "partly"
        self.ok("quantize", PAIR / "draft", out, "--rtn", "--group", "64", "--format", "compressed-tensors")
        found = self.as_json("info", out)["quantization"]
        left = [f"model.layers.{layer}.mlp.down_proj" for layer in (0, 1)]
        self.assertEqual((found["groups"], found["layouts"]), ([64], ["compressed-tensors pack-quantized"]))
        self.assertEqual([layer for layer in found["float_layers"] if layer != "lm_head"], left)
        self.assertRegex(self.ok("info", out).out, r"float_layers +.*model\.layers\.1\.mlp\.down_proj")

    def test_the_table_of_known_models_equals_the_documented_one(self):
        table = self.ok("info", "--known").out
        page = (SOURCE / "docs" / "models.md").read_text()
        documented = page.split("<!-- slm info --known -->\n")[1].split("<!-- end -->")[0]
        self.assertEqual(documented, table, "put the output of 'slm info --known' between the marks in docs/models.md")
        self.assertEqual(len({line.count("|") for line in table.splitlines()}), 1)
        self.assertIn("| 134,105,856 |", table)
        self.error(".", "info", "--known", self.target, status=2)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
