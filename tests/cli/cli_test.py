#!/usr/bin/env python3
"""The program slm as its users call it.  usage: cli_test.py PROGRAM SOURCE_DIR SCRATCH_DIR"""
import json
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import threading
import unittest

from tiny_models import KINDS, byte_level

PROGRAM, SOURCE, SCRATCH = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
sys.path.insert(0, str(SOURCE / "tests" / "support"))
from adapter_folder import make_adapter_folder  # noqa: E402

MODELS = SOURCE / "tests" / "fixtures" / "models"
TOKENIZERS = SOURCE / "tests" / "fixtures" / "tokenizers"
PAIR = SOURCE / "examples" / "demo_pair"


def slm(*arguments, stdin=b"", stdout=subprocess.PIPE, before=None):
    """Runs the program. before: called in its process before it starts."""
    result = subprocess.run([PROGRAM, *map(str, arguments)], input=stdin, stdout=stdout, stderr=subprocess.PIPE, timeout=300,
                            preexec_fn=before)
    result.err = result.stderr.decode("utf-8", "replace")
    result.out = (result.stdout or b"").decode("utf-8", "strict")
    return result


def make_model(name, fixture, tokenizer=byte_level, **config):
    """A folder in the scratch space: a fixture's weights, a tokenizer, and changed fields of config.json."""
    folder = SCRATCH / name
    shutil.copytree(MODELS / fixture, folder)
    if tokenizer:
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer()))
    fields = json.loads((folder / "config.json").read_text()) | config
    (folder / "config.json").write_text(json.dumps(fields))
    return folder


def make_adapter(name, seed, **config):
    """An adapter for the shape llama-mha3h."""
    return make_adapter_folder(SCRATCH / name, seed, layers=2, hidden=48, ffn=112, most=1, **config)


def tensors_of(folder):
    """name -> (type, bytes) of every tensor that the safetensors files of a folder hold."""
    found = {}
    for path in folder.glob("*.safetensors"):
        with open(path, "rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        for name, entry in header.items():
            if name != "__metadata__":
                found[name] = (entry["dtype"], entry["data_offsets"][1] - entry["data_offsets"][0])
    return found


class Cli(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        shutil.rmtree(SCRATCH, ignore_errors=True)
        SCRATCH.mkdir(parents=True)
        cls.pairs = {  # of each kind of tokenizer
            kind: (make_model(f"target-{kind}", "llama-mha3h", tokenizer),
                   make_model(f"draft-{kind}", "llama3-gqa-scaled-tied", tokenizer))
            for kind, tokenizer in KINDS.items()
        }
        cls.target, cls.draft = cls.pairs["byte-level"]

    def ok(self, *arguments, **options):
        result = slm(*arguments, **options)
        self.assertEqual(result.returncode, 0, result.err)
        return result

    def as_json(self, *arguments, **options):
        """Runs with --json: exactly one JSON value, on one line, and nothing else."""
        result = self.ok(*arguments, "--json", **options)
        self.assertEqual(result.err, "")
        return json.loads(result.out)

    def error(self, expected, *arguments, status=1, **options):
        result = slm(*arguments, **options)
        self.assertEqual(result.returncode, status, result.err)
        self.assertRegex(result.err, expected)
        if status == 1:  # one line, and an id to look up
            self.assertRegex(result.err, r"\Aslm: [^\n]* \[[a-z]+\.[a-z0-9-]+\]\n\Z")
        self.assertEqual(result.out, "")
        return result

    # ---- usage

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
            ["generate", "--target", self.target, "--prompt", "x", "--drafter", "model"],
            ["generate", "--target", self.target, "--prompt", "x", "--lookup-file", PAIR / "measure.py"],
            ["generate", "--target", self.target, "--prompt", "x", "--stop"],
        ):
            with self.subTest(arguments=arguments):
                self.error(".", *arguments, status=2)

    def test_a_word_that_names_no_command(self):
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

    def test_whole_numbers_of_64_bits(self):
        target = ["generate", "--target", self.target, "--prompt", "x", "--max-new-tokens", 1]
        numbers = {
            "--seed": target,
            "--max-tokens": ["perplexity", self.target, SOURCE / "tests" / "cli" / "cli_test.py", "--window", 8],
        }
        for option, command in numbers.items():
            for number in ("-1", "18446744073709551616", "99999999999999999999999", "1.5", "1e3", "0x10", " 1", "+1"):
                with self.subTest(option=option, number=number):
                    self.error("18446744073709551615", *command, f"{option}={number}", status=2)
        for number in ("0", "18446744073709551615"):
            self.ok(*target, "--seed", number)
        self.assertEqual(self.as_json(*numbers["--max-tokens"], "--max-tokens", 20)["tokens"], 20)
        self.error("18446744073709551615", "quantize", self.target, SCRATCH / "no", "--max-tokens=-1", status=2)

    # ---- info

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

    def test_info_of_every_model_folder_here(self):
        shared = SOURCE / ".." / "shared"
        roots = [MODELS, PAIR, SOURCE / "examples", shared / "fixtures" / "models", shared / "data" / "models"]
        folders = [folder.parent for root in roots if root.exists() for folder in root.glob("*/config.json")]
        self.assertGreater(len(folders), 25)
        for folder in folders:
            with self.subTest(folder=folder):
                info = self.as_json("info", folder)
                stored = tensors_of(folder)
                held = sum(size for _, size in stored.values())
                self.assertTrue(0.9 * held < info["weight_bytes"] <= held)  # some hold what nobody reads
                self.assertEqual(info["notes"], [])
                table = self.ok("info", folder).out
                codes = [name for name in stored if name.endswith(".qweight")]
                if not codes:
                    self.assertIsNone(info["quantization"])
                    self.assertRegex(table, r"quantization +none\n")
                    continue
                config = json.loads((folder / "config.json").read_text())["quantization_config"]
                self.assertEqual(info["quantization"], {
                    "bits": 4, "groups": [config["group_size"]], "layouts": ["AutoAWQ gemm"], "layers": len(codes),
                    "float_layers": [name.removesuffix(".weight") for name in stored
                                     if name.endswith("_proj.weight") or name == "lm_head.weight"]})
                self.assertEqual(info["parameters"], self.as_json("info", str(folder).removesuffix("-int4"))["parameters"])
                self.assertRegex(table, r"quantization +4 bits, AutoAWQ gemm, groups of \d+, \d+ layers")

    def test_info_of_what_quantize_leaves_in_floating_point(self):
        out = SCRATCH / "partly"
        self.ok("quantize", PAIR / "draft", out, "--rtn", "--group", "64", "--format", "compressed-tensors")
        found = self.as_json("info", out)["quantization"]
        left = [f"model.layers.{layer}.mlp.down_proj" for layer in (0, 1)]
        self.assertEqual((found["groups"], found["layouts"]), ([64], ["compressed-tensors pack-quantized"]))
        self.assertEqual([layer for layer in found["float_layers"] if layer != "lm_head"], left)
        self.assertRegex(self.ok("info", out).out, r"float_layers +.*model\.layers\.1\.mlp\.down_proj")

    def test_the_table_of_known_models_is_the_documented_one(self):
        table = self.ok("info", "--known").out
        page = (SOURCE / "docs" / "models.md").read_text()
        documented = page.split("<!-- slm info --known -->\n")[1].split("<!-- end -->")[0]
        self.assertEqual(documented, table, "put the output of 'slm info --known' between the marks in docs/models.md")
        self.assertEqual(len({line.count("|") for line in table.splitlines()}), 1)
        self.assertIn("| 134,105,856 |", table)
        self.error(".", "info", "--known", self.target, status=2)

    # ---- logits

    def test_logits_match_the_fixtures_on_both_backends(self):
        for fixture in sorted(MODELS.iterdir()):
            for case in json.loads((fixture / "golden.json").read_text())["cases"]:
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
        for backend in ("gpu", "gpu:1"):  # no device here, or a program without one
            self.error(r"\[cli\.no-gpu\]", "logits", self.target, "--ids", "1", "--backend", backend)
        for backend in ("gpu:", "gpu:x", "gpu:-1", "gpu:100", "cuda"):
            self.error(backend, "logits", self.target, "--ids", "1", "--backend", backend, status=2)

    def test_logits_json_and_precision(self):
        result = self.as_json("logits", self.target, "--ids", "1,5,7")
        self.assertEqual((result["ids"], result["vocab"]), ([1, 5, 7], 97))
        self.assertEqual([len(row) for row in result["logits"]], [97] * 3)
        digits = re.findall(r"\d+\.\d+", self.ok("logits", self.target, "--ids", "1").out)
        self.assertEqual(max(len(d.replace(".", "").lstrip("0")) for d in digits), 9)

    def test_logits_of_more_tokens_than_are_computed_at_once(self):
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

    # ---- embed

    def embed(self, model, *arguments):
        """One JSON value on each line, and nothing else."""
        result = self.ok("embed", model, *arguments)
        self.assertEqual(result.err, "")
        return [json.loads(line) for line in result.out.splitlines()]

    def test_embeddings_of_a_batch_are_those_of_each_text_alone(self):
        texts = ["def add(a, b):", "x", "class Pump:\n    def __init__(self):\n        self.on = False\n"]
        for folder in ("target", "draft-int4"):
            for options in ([], ["--pooling", "last"], ["--normalize"], ["--threads", 1]):
                with self.subTest(model=folder, options=options):
                    together = self.embed(PAIR / folder, *(word for text in texts for word in ("--text", text)), *options)
                    self.assertEqual(together, [row for text in texts for row in self.embed(PAIR / folder, "--text", text, *options)])
                    self.assertEqual(len({json.dumps(row) for row in together}), 3)
                    width = json.loads((PAIR / folder / "config.json").read_text())["hidden_size"]
                    self.assertEqual([len(row) for row in together], [width] * 3)

    def test_the_ways_to_name_a_text_agree(self):
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
        # A token's state does not depend on those behind it: each is the last one of the text that ends there.
        states = [self.embed(self.target, "--pooling", "last", "--ids", ",".join(map(str, ids[:n])))[0] for n in range(1, 9)]
        mean, = self.embed(self.target, "--ids", ",".join(map(str, ids)))
        for got, column in zip(mean, zip(*states), strict=True):
            self.assertAlmostEqual(got, sum(column) / 8, delta=1e-6)
        unit, = self.embed(self.target, "--normalize", "--ids", ",".join(map(str, ids)))
        self.assertAlmostEqual(sum(value * value for value in unit), 1, delta=1e-5)
        self.assertAlmostEqual(unit[0] / unit[1], mean[0] / mean[1], delta=1e-4 * abs(mean[0] / mean[1]))

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

    # ---- tokenize

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

    def test_tokenize_takes_bytes_that_are_not_utf8(self):
        result = slm("tokenize", TOKENIZERS / "gpt2.json", stdin=b"a\xff\xfeb")
        self.assertEqual(result.returncode, 0, result.err)

    # ---- generate

    def generate(self, *arguments, prompt="def in", target=None, **options):
        return self.as_json("generate", "--target", target or self.target, "--prompt", prompt, "--max-new-tokens", 24,
                            *arguments, **options)

    def test_generate_plain(self):
        result = self.generate()
        self.assertEqual(set(result), {"ids", "text", "prompt_ids", "statistics"})
        statistics = result["statistics"]
        self.assertEqual(len(result["ids"]), statistics["new_tokens"])
        self.assertLessEqual(statistics["new_tokens"], 24)
        self.assertEqual(statistics["drafted"], 0)
        text = self.ok("generate", "--target", self.target, "--prompt", "def in", "--max-new-tokens", 24)
        self.assertEqual(text.out, result["text"] + "\n")
        self.assertIn("tokens per second", text.err)

    def test_the_text_is_what_the_tokens_add_to_the_prompt(self):
        for kind, (target, draft) in self.pairs.items():
            begins_with_space = 0
            for prompt in ("def in", "def a", "hello world", "t", "a\n"):
                with self.subTest(kind=kind, prompt=prompt):
                    result = self.generate(prompt=prompt, target=target)
                    text = result["text"]
                    ids = json.dumps(result["prompt_ids"] + result["ids"]).encode()
                    self.assertEqual(prompt + text, self.as_json("tokenize", target, "--decode", stdin=ids)["text"])
                    self.assertEqual(self.generate("--draft", draft, prompt=prompt, target=target)["text"], text)
                    plain = self.ok("generate", "--target", target, "--prompt", prompt, "--max-new-tokens", 24)
                    self.assertEqual(plain.out, text + "\n")
                    self.assertEqual(self.generate("--stop", text[:3], prompt=prompt, target=target)["text"], "")
                    begins_with_space += text.startswith(" ")
            if kind == "SentencePiece":
                self.assertGreaterEqual(begins_with_space, 2)

    def test_speculation_changes_no_token(self):
        for sampling in ([], ["--temperature", "0.8", "--seed", "3"], ["--temperature", "1.2", "--top-k", "9", "--top-p", "0.9"]):
            plain = self.generate(*sampling)
            for drafting in (
                ["--draft", self.draft],
                ["--draft", self.target],
                ["--drafter", "ngram"],
                ["--drafter", "ngram", "--lookup-file", PAIR / "measure.py", "--draft-length", "10"],
                ["--draft", self.draft, "--draft-length", "1"],
                ["--draft", self.draft, "--draft-length", "heuristic"],
                ["--draft", self.draft, "--draft-length", "adaptive"],
                ["--draft", self.draft, "--draft-backend", "reference"],
                ["--draft", self.draft, "--threads", "1"],
                ["--draft", self.draft, "--rule", "coupled"],
            ):
                with self.subTest(sampling=sampling, drafting=drafting):
                    result = self.generate(*sampling, *drafting)
                    self.assertEqual(result["ids"], plain["ids"])
                    self.assertEqual(result["text"], plain["text"])
        own = self.generate("--draft", self.target)["statistics"]
        self.assertGreater(own["acceptance_rate"], 0.9)

    def test_every_rule_runs(self):
        for rule in ("coupled", "ratio", "block", "match"):
            result = self.generate("--draft", self.draft, "--rule", rule, "--temperature", "0.7")
            self.assertEqual(result["statistics"]["rule"], rule)
            self.assertGreater(result["statistics"]["drafted"], 0)
            self.assertEqual(result, result | {"ids": self.generate("--draft", self.draft, "--rule", rule, "--temperature", "0.7")["ids"]})

    def test_seeds_differ(self):
        one, two = (self.generate("--temperature", "1.5", "--seed", seed)["ids"] for seed in (1, 2))
        self.assertNotEqual(one, two)

    def test_a_saved_text_goes_on_as_if_it_had_not_ended(self):
        saved = SCRATCH / "text.slm"
        common = ["generate", "--target", self.target]
        for options in ([], ["--draft", self.draft], ["--temperature", 0.9, "--seed", 8],
                        ["--draft", self.draft, "--temperature", 0.9, "--seed", 8, "--repetition-penalty", 1.2],
                        ["--drafter", "ngram"]):
            whole = self.as_json(*common, "--prompt", "ab", "--max-new-tokens", 60, *options)
            first = self.as_json(*common, "--prompt", "ab", "--max-new-tokens", 23, "--save", saved, *options)
            self.assertEqual(first["ids"], whole["ids"][:23])
            after = self.as_json(*common, "--resume", saved, "--max-new-tokens", 30, "--save", saved, *options)
            self.assertEqual(after["prompt_ids"], first["prompt_ids"] + first["ids"])
            self.assertEqual(after["ids"], whole["ids"][23:53])
            self.assertEqual(after["statistics"]["reused_tokens"], len(after["prompt_ids"]) - 1)
            last = self.as_json(*common, "--resume", saved, "--max-new-tokens", 7, *options)
            self.assertEqual(last["ids"], whole["ids"][53:])
        self.assertEqual([path.name for path in SCRATCH.glob("text.slm*")], ["text.slm"])

    def test_an_adapter_changes_the_text_however_it_is_drafted(self):
        first, second = make_adapter("adapter-1", 1), make_adapter("adapter-2", 2)
        common = ["generate", "--target", self.target, "--max-new-tokens", 30]
        texts = []
        for adapter in ([], ["--adapter", first], ["--adapter", second]):
            plain = self.as_json(*common, "--prompt", "ab", *adapter)["ids"]
            self.assertEqual(self.as_json(*common, "--prompt", "ab", *adapter, "--draft", self.draft)["ids"], plain)
            requests = SCRATCH / "adapted.jsonl"
            requests.write_text('{"prompt": "ab"}\n{"prompt": "ba"}\n')
            lines = self.ok(*common, "--prompts", requests, "--json", *adapter).out.splitlines()
            self.assertEqual(json.loads(lines[0])["ids"], plain)
            self.assertNotIn(plain, texts)
            texts.append(plain)
        names = ["", str(first), str(second)]
        requests.write_text("".join(json.dumps({"prompt": "ab", "adapter": name}) + "\n" for name in names * 2))
        lines = self.ok(*common, "--prompts", requests, "--json", "--adapter", second).out.splitlines()
        self.assertEqual([json.loads(line)["ids"] for line in lines], texts * 2)
        saved = SCRATCH / "adapted.slm"
        self.ok(*common, "--prompt", "ab", "--adapter", first, "--save", saved)
        self.ok(*common, "--resume", saved, "--adapter", first)
        self.error(r"\[sequence.other-adapter\]", *common, "--resume", saved)
        self.error(r"'adapter-3' uses DoRA \(adapter_config.json: use_dora\)", *common, "--prompt", "ab", "--adapter",
                   make_adapter("adapter-3", 3, use_dora=True))
        self.error(r"\[adapter.wrong-shape\]", "generate", "--target", self.draft, "--prompt", "ab", "--adapter", first)

    def test_files_that_are_no_saved_text(self):
        saved, bad = SCRATCH / "good.slm", SCRATCH / "bad.slm"
        self.ok("generate", "--target", self.target, "--prompt", "ab", "--max-new-tokens", 5, "--save", saved)
        resume = ["generate", "--target", self.target, "--resume", bad]
        self.error(r"\[cli.unreadable-file\]", *resume)
        content = saved.read_bytes()
        for wrong in (b"", content[:20], content[:-1], content[:200] + b"?" + content[201:], b"?" * len(content)):
            bad.write_bytes(wrong)
            self.error(r"\[sequence.bad-file\]", *resume)
        self.error(r"\[sequence.other-model\]", "generate", "--target", self.draft, "--resume", saved)
        self.error(r"\[io.unwritable\]", "generate", "--target", self.target, "--prompt", "ab", "--save", SCRATCH / "no" / "folder", "--json")
        self.assertEqual(slm("generate", "--target", self.target, "--resume", saved, "--prompt", "ab").returncode, 2)

    def test_prompt_file(self):
        file = SCRATCH / "prompt.txt"
        file.write_text("def in")
        result = self.as_json("generate", "--target", self.target, "--prompt-file", file, "--max-new-tokens", 24)
        self.assertEqual(result["ids"], self.generate()["ids"])
        self.error("could not be read", "generate", "--target", self.target, "--prompt-file", SCRATCH / "absent.txt")
        self.error("could not be read", "generate", "--target", self.target, "--prompt-file", SCRATCH)

    def lines(self, requests, *arguments, target=None):
        file = SCRATCH / "requests.jsonl"
        file.write_text("\n".join(json.dumps(request) for request in requests) + "\n\n")
        out = self.ok("generate", "--target", target or self.target, "--prompts", file, "--json", *arguments).out
        answers = [json.loads(line) for line in out.splitlines()]
        for answer in answers:
            self.assertEqual(answer["statistics"]["new_tokens"], len(answer["ids"]))
        return answers

    def test_many_requests_have_the_answers_that_each_has_alone(self):
        requests = [{"id": f"number {i}", "prompt": f"def f{i}(x): return {'x + ' * (i % 5)}", "max_new_tokens": 5 + 3 * i,
                     "temperature": (0, 0.8, 1.3)[i % 3], "seed": i, "logprobs": i % 4} for i in range(9)]
        requests[1] |= {"top_k": 5, "top_p": 0.9, "min_p": 0.01}
        requests[2]["stop"] = ["e", "a"]
        requests[3]["stop"] = " "
        requests[4].pop("logprobs")
        requests.append({"ids": [5, 6, 7]})
        kept = ("id", "ids", "text", "prompt_ids", "logprobs")
        for kind in KINDS:
            target, draft = self.pairs[kind]
            alone = None
            for drafting in ([], ["--drafter", "ngram"], ["--draft", draft]):
                for threads in (1, 2):
                    for order in ([], ["--sequential"]):
                        found = self.lines(requests, *drafting, "--threads", threads, *order, target=target)
                        ends = [answer["statistics"]["finish_reason"] for answer in found]
                        answers = ([{name: answer.get(name) for name in kept} for answer in found], ends)
                        alone = alone or answers
                        self.assertEqual(answers, alone)
            answers = alone[0]
            self.assertEqual([answer["id"] for answer in answers], [request.get("id") for request in requests])
            self.assertEqual(answers[9]["prompt_ids"], [5, 6, 7])
            self.assertIsNone(answers[4]["logprobs"])
            for request, answer in zip(requests, answers):
                for token, id in zip(answer["logprobs"] or [], answer["ids"]):
                    self.assertEqual(token["id"], id)
                    self.assertEqual(len(token["top"]), request["logprobs"])
                    self.assertLessEqual(token["logprob"], 0)
            # And those of a program that is given one prompt.
            single = self.as_json("generate", "--target", target, "--prompt", requests[5]["prompt"], "--max-new-tokens", 20,
                                  "--temperature", 1.3, "--seed", 5)
            self.assertEqual(single["ids"], answers[5]["ids"])
            self.assertEqual(single["text"], answers[5]["text"])

    def test_bad_lines_of_requests(self):
        file = SCRATCH / "bad.jsonl"
        good = '{"prompt": "x"}\n'
        for line, words in (("{", "not valid JSON"), ("[]", "expected an object"), ("{}", "either prompt or ids"),
                            ('{"prompt": "x", "ids": [1]}', "either prompt or ids"), ('{"prompt": 3}', "a string"),
                            ('{"ids": [1, 97]}', "ids of 0..96"), ('{"ids": [-1]}', "ids of 0..96"), ('{"ids": []}', "no tokens"),
                            ('{"prompt": "x", "tempreature": 1}', "tempreature"), ('{"prompt": "x", "temperature": -1}', "temperature"),
                            ('{"prompt": "x", "top_p": 0}', "top_p"), ('{"prompt": "x", "seed": -1}', "seed"),
                            ('{"prompt": "x", "stop": [1]}', "stop"), ('{"prompt": "x", "logprobs": 98}', "logprobs"),
                            ('{"prompt": "x", "max_new_tokens": 1.5}', "max_new_tokens"), ('{"prompt": "x", "id": ' + "[" * 99, "deep")):
            file.write_text(good + line + "\n" + good)
            self.error(words, "generate", "--target", self.target, "--prompts", file, "--json")
        self.assertEqual(self.lines([]), [])

    def test_sampling_of_generation_config(self):
        folder = SCRATCH / "suggests"
        shutil.copytree(self.target, folder)
        suggest = folder / "generation_config.json"
        suggest.write_text(json.dumps({"temperature": 1.5, "top_k": 7, "top_p": 0.9, "repetition_penalty": 1.2}))
        named = ("--temperature", 1.5, "--top-k", 7, "--top-p", 0.9, "--repetition-penalty", 1.2)
        plain = self.generate(target=folder)["ids"]
        self.assertEqual(plain, self.generate()["ids"])  # nobody asked
        asked = self.generate("--generation-config", target=folder)["ids"]
        self.assertEqual(asked, self.generate(*named)["ids"])
        self.assertNotEqual(asked, plain)
        self.assertEqual(self.generate("--generation-config", "--temperature", 0, "--repetition-penalty", 1, target=folder)["ids"],
                         plain)
        suggest.write_text(json.dumps({"do_sample": False, "temperature": 1.5}))
        self.assertEqual(self.generate("--generation-config", target=folder)["ids"], plain)
        suggest.write_text(json.dumps({"temperature": "hot", "top_k": -1}))
        self.assertEqual(self.generate("--generation-config", target=folder)["ids"], plain)
        self.assertIn("temperature is 'hot'", self.ok("info", folder).out)

    def test_stop_strings_end_the_text(self):
        for target, draft in self.pairs.values():
            def generate(*arguments):
                return self.generate(*arguments, target=target)

            whole = generate()
            self.assertGreater(len(whole["text"]), 12)
            stop = whole["text"][5:8]
            cut = generate("--stop", "never there", "--stop", stop)
            self.assertEqual(cut["text"], whole["text"][: whole["text"].index(stop)])
            self.assertEqual(cut["statistics"]["finish_reason"], "stop_string")
            self.assertEqual(cut["ids"], whole["ids"][: len(cut["ids"])])
            drafted = generate("--stop", stop, "--draft", draft)
            self.assertEqual((drafted["text"], drafted["ids"]), (cut["text"], cut["ids"]))
            first = generate("--stop", stop, "--stop", whole["text"][2:5])
            self.assertEqual(first["text"], whole["text"][: whole["text"].index(whole["text"][2:5])])
            self.assertEqual(generate("--stop", "")["text"], whole["text"])
        self.error("not valid UTF-8", "generate", "--target", self.target, "--prompt", "x", "--stop", "\udcff")

    def test_generate_errors(self):
        context = json.loads((self.target / "config.json").read_text())["max_position_embeddings"]
        target = ["generate", "--target", self.target]
        self.error("no tokens", *target, "--prompt", "")
        self.error(f"{context + 1} tokens.*{context}", *target, "--prompt", "!" * (context + 1))
        self.error("needs the draft's distribution", *target, "--prompt", "x", "--drafter", "ngram", "--rule", "ratio", "--temperature", "1")
        self.error("draft.length", *target, "--prompt", "x", "--draft-length", "soon")
        self.error("draft.length", *target, "--prompt", "x", "--draft-length", "9999")
        self.error("neither a folder nor a GGUF file", "generate", "--target", SCRATCH / "absent", "--prompt", "x")
        self.error("neither a folder nor a GGUF file", *target, "--draft", SCRATCH / "absent", "--prompt", "x")
        self.error("tokenizer", "generate", "--target", MODELS / "llama-mha3h", "--prompt", "x")

    def test_prompt_that_fills_the_context(self):
        context = json.loads((self.target / "config.json").read_text())["max_position_embeddings"]
        result = self.generate("--draft", self.draft, prompt="!" * (context - 2))
        self.assertIn(result["statistics"]["finish_reason"], ("context", "end_token"))
        self.assertLessEqual(len(result["ids"]), 2)

    def test_draft_of_another_tokenizer(self):
        folder = make_model("stranger", "llama3-gqa-scaled-tied")
        tokenizer = byte_level()
        vocab = tokenizer["model"]["vocab"]
        vocab["!"], vocab["?"] = vocab["?"], vocab["!"]
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
        self.error("different tokenizers", "generate", "--target", self.target, "--draft", folder, "--prompt", "x")

    # ---- context and memory

    def test_every_command_that_loads_a_model_takes_a_context(self):
        for command in (["generate"], ["chat"], ["logits"], ["perplexity"], ["demo"], ["quantize"], ["bench", "speculative"]):
            with self.subTest(command=command):
                shown = self.ok(*command, "--help").out
                self.assertRegex(shown, r"--context INT")
                self.assertRegex(shown, r"--cache-format FORMAT")

    def test_context(self):
        for backend in ("cpu", "reference", "lanes32"):
            with self.subTest(backend=backend):
                logits = ["logits", self.target, "--backend", backend, "--context", 4, "--ids"]
                self.assertEqual(len(json.loads(self.ok(*logits, "1,2,3,4").out)), 4)
                self.error(r"context.*--context.*\[decode.prompt-too-long\]", *logits, "1,2,3,4,5")
        self.error(r"allows 256.*--context.*\[model.context\]", "logits", self.target, "--context", 257, "--ids", "1")
        self.error(".", "logits", self.target, "--context", -1, "--ids", "1", status=2)
        self.assertEqual(self.generate("--context", 14)["statistics"]["finish_reason"], "context")
        text = SCRATCH / "windows.txt"
        text.write_text("def in " * 20)
        self.assertEqual(self.as_json("perplexity", self.target, text, "--context", 32)["window"], 32)

    def test_formats_of_the_cache(self):
        text = SCRATCH / "formats.txt"
        text.write_text("def in " * 40)
        exact = self.as_json("perplexity", self.target, text)["perplexity"]
        for backend, formats in (("cpu", ("f32", "f16", "bf16", "int8")), ("lanes32", ("f16", "bf16", "int8"))):
            for cache in formats:
                with self.subTest(backend=backend, cache=cache):
                    found = self.as_json("perplexity", self.target, text, "--backend", backend, "--cache-format", cache)
                    self.assertAlmostEqual(found["perplexity"] / exact, 1, delta=0.02)
                    self.assertEqual(found["perplexity"] == exact, backend == "cpu" and cache == "f32")
        logits = ["logits", self.target, "--ids", "1,2", "--cache-format"]
        for name in ("", "int4", "F32", "f32,bf16", "x" * 5000, "\x1b[2J"):
            self.error(r"\[cache.unknown-format\]", *logits, name)
        self.error(r"does not hold.*f32.*It holds: .*f16.*\[cache.format\]", *logits, "f32", "--backend", "lanes32")
        per_token = self.as_json("info", self.target)["kv_cache_bytes_per_token"]
        self.assertEqual(per_token["f32"], 2 * per_token["bf16"])

    def test_a_draft_of_a_shorter_context_than_asked_for(self):
        short = make_model("short-draft", "llama3-gqa-scaled-tied", max_position_embeddings=64)
        plain = self.generate("--context", 128)
        for draft in (short, self.draft):
            self.assertEqual(self.generate("--context", 128, "--draft", draft)["ids"], plain["ids"])

    def test_memory_that_runs_out(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_AS, (200 << 20, 200 << 20))

        if slm("--version", before=limit).returncode != 0:
            self.skipTest("this build cannot run in 200 MiB, as those with sanitizers")
        self.error(r"memory.*--context.*\[cli.out-of-memory\]", "tokenize", self.target, stdin=b" " * (60 << 20), before=limit)

    # ---- broken models

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

    def test_files_that_are_no_files(self):
        for kind in ("fifo", "device"):
            for file in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "generation_config.json"):
                with self.subTest(kind=kind, file=file):
                    folder = make_model(f"{kind}-{file}", "llama-mha3h")
                    (folder / file).unlink(missing_ok=True)
                    os.mkfifo(folder / file) if kind == "fifo" else (folder / file).symlink_to("/dev/zero")
                    self.error(r"not a regular file.*\[io.unreadable\]", "generate", "--target", folder, "--prompt", "x")
                    self.error(r"not a regular file.*\[io.unreadable\]", "info", folder)

    def test_texts_that_do_not_end(self):
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

    def test_a_text_to_measure_is_utf8(self):
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
        self.as_json("perplexity", folder, SOURCE / "tests" / "cli" / "cli_test.py", "--max-tokens", 20)
        bench = ["bench", "speculative", "--target", folder, "--draft", folder, "--humaneval",
                 SOURCE / "tests" / "fixtures" / "humaneval" / "tasks.jsonl", "--tasks", 1, "--max-new-tokens", 4, "--sweep", 0]
        self.ok(*bench, "--out", folder.parent / os.fsdecode(b"bench\xe9"), "--json")
        out = folder.parent / os.fsdecode(b"out\xe9")
        self.assertRegex(self.as_json("quantize", folder, out, "--rtn", "--group", "-1")["output"], "out\ufffd$")

    # ---- output that fails

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

    def test_reader_that_goes_away(self):
        read_end, write_end = os.pipe()
        os.close(read_end)
        try:
            result = slm("logits", self.target, "--ids", "1,2", stdout=write_end)
        finally:
            os.close(write_end)
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.err, "could not be written")

    # ---- demo

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

    # ---- perplexity and quantize

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
        (SCRATCH / "one_letter").write_text("")
        self.error(r"\[perplexity.short-text\]", "perplexity", PAIR / "draft", SCRATCH / "one_letter")
        self.error(r"\[perplexity.window\]", "perplexity", PAIR / "draft", text, "--window", 8, "--stride", 9)
        self.error(r"\[cli.unreadable-file\]", "perplexity", PAIR / "draft", SCRATCH / "absent")

    def test_quantize_and_use(self):
        out = SCRATCH / "quantized"
        options = ["--calibration", PAIR / "measure.py", "--samples", 2, "--sequence-length", 64, "--search-samples", 1]
        done = self.as_json("quantize", PAIR / "draft", out, *options, "--evaluate", PAIR / "train.py", "--max-tokens", 600)
        self.assertEqual((done["folds"], done["group"], done["left_in_float"]), (8, 32, []))
        self.assertLess(done["bytes"]["after"], 0.6 * done["bytes"]["before"])
        # 600 tokens tell a damaged model from a sound one, not which of two sound ones is better.
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

    def test_demo_of_a_stand_in_pair(self):
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
