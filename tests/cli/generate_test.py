#!/usr/bin/env python3
"""slm generate: texts, requests, saved texts, adapters, the context.
usage: generate_test.py PROGRAM SOURCE_DIR SCRATCH_DIR"""
import json
import resource
import shutil
import sys
import unittest

from program import MODELS, PAIR, SCRATCH, ProgramTest, make_adapter, make_model, slm
from tiny_models import KINDS, byte_level


class Generate(ProgramTest):
    def test_generate_plain(self):
        result = self.generate("--drafter", "none")
        self.assertEqual(set(result), {"ids", "text", "prompt_ids", "statistics"})
        statistics = result["statistics"]
        self.assertEqual(len(result["ids"]), statistics["new_tokens"])
        self.assertLessEqual(statistics["new_tokens"], 24)
        self.assertEqual(statistics["drafted"], 0)
        text = self.ok("generate", "--target", self.target, "--prompt", "def in", "--max-new-tokens", 24)
        self.assertEqual(text.out, result["text"] + "\n")
        self.assertIn("tokens per second", text.err)

    def test_the_text_is_the_tokens_added_to_the_prompt(self):
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
            plain = self.generate(*sampling, "--drafter", "none")
            self.assertEqual(plain["statistics"]["drafted"], 0)
            for drafting in (
                [],
                ["--draft", self.draft],
                ["--draft", self.target],
                ["--draft", self.draft, "--drafter", "model"],
                ["--draft", self.draft, "--drafter", "model,lookup", "--draft-length", "6"],
                ["--drafter", "lookup"],
                ["--drafter", "lookup", "--lookup-file", PAIR / "measure.py", "--draft-length", "10"],
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
        own = self.generate("--draft", self.target, "--drafter", "model", "--draft-length", "4")["statistics"]
        self.assertGreater(own["acceptance_rate"], 0.9)

    def test_every_rule_runs(self):
        for rule in ("coupled", "ratio", "block", "match"):
            options = ["--draft", self.draft, "--draft-length", "4", "--rule", rule, "--temperature", "0.7"]
            result = self.generate(*options)
            self.assertEqual(result["statistics"]["rule"], rule)
            self.assertGreater(result["statistics"]["drafted"], 0)
            self.assertEqual(result, result | {"ids": self.generate(*options)["ids"]})

    def test_seeds_differ(self):
        one, two = (self.generate("--temperature", "1.5", "--seed", seed)["ids"] for seed in (1, 2))
        self.assertNotEqual(one, two)

    def test_a_saved_text_continues_exactly(self):
        saved = SCRATCH / "text.slm"
        common = ["generate", "--target", self.target]
        for options in ([], ["--draft", self.draft], ["--temperature", 0.9, "--seed", 8],
                        ["--draft", self.draft, "--temperature", 0.9, "--seed", 8, "--repetition-penalty", 1.2],
                        ["--drafter", "lookup"]):
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

    def test_an_adapter_changes_the_text_with_any_draft(self):
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

    def test_invalid_saved_texts(self):
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

    def test_many_requests_have_the_same_answers_as_alone(self):
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
            for drafting in ([], ["--drafter", "lookup"], ["--draft", draft]):
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
            # And those of a program with one prompt.
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
        self.assertEqual(plain, self.generate()["ids"])  # not enabled
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
        self.error("cli.no-draft", *target, "--prompt", "x", "--drafter", "lookup,model")
        self.error("cli.drafter-none", *target, "--prompt", "x", "--drafter", "none,lookup")
        self.error("draft.length", *target, "--prompt", "x", "--draft-length", "soon")
        self.error("draft.length", *target, "--prompt", "x", "--draft-length", "9999")
        self.error("expected a folder or a GGUF file", "generate", "--target", SCRATCH / "absent", "--prompt", "x")
        self.error("expected a folder or a GGUF file", *target, "--draft", SCRATCH / "absent", "--prompt", "x")
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
        result = self.generate("--drafter", "model", "--draft", folder, "--draft-length", "3")
        self.assertEqual(result["ids"], self.generate("--drafter", "none")["ids"])
        self.assertEqual(result["statistics"]["common_tokens"], len(vocab))
        self.assertGreater(result["statistics"]["drafted"], 0)
        tokenizer["model"]["vocab"] = {"\u20ac" + piece: number for piece, number in vocab.items()}
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
        self.error("no token is in common", "generate", "--target", self.target, "--draft", folder, "--prompt", "x")

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
        self.error(r"limit of config.json, 256.*--context.*\[model.context\]", "logits", self.target, "--context", 257, "--ids", "1")
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
        self.error(r"does not support KV cache format.*f32.*Use one of: .*f16.*\[cache.format\]", *logits, "f32", "--backend", "lanes32")
        per_token = self.as_json("info", self.target)["kv_cache_bytes_per_token"]
        self.assertEqual(per_token["f32"], 2 * per_token["bf16"])

    def test_info_adds_the_memory_of_a_draft(self):
        alone = self.as_json("info", self.target, "--context", 128)["memory"]
        options = ("info", self.target, "--context", 128, "--sequences", 2, "--draft", self.draft)
        both = self.as_json(*options)["memory"]
        self.assertGreater(both["weights"], alone["weights"])
        self.assertGreater(both["kv_cache"]["f32"], 2 * alone["kv_cache"]["f32"])
        self.assertEqual(both["draft"], str(self.draft))
        self.assertLess(self.as_json(*options, "--draft-bits", 4)["memory"]["weights_in_file"], both["weights_in_file"])
        self.error(r"\[checkpoint.no-folder\]", "info", self.target, "--draft", "/nowhere")

    def test_a_draft_with_a_shorter_context(self):
        short = make_model("short-draft", "llama3-gqa-scaled-tied", max_position_embeddings=64)
        plain = self.generate("--context", 128)
        for draft in (short, self.draft):
            self.assertEqual(self.generate("--context", 128, "--draft", draft)["ids"], plain["ids"])

    def test_exhausted_memory(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_AS, (200 << 20, 200 << 20))

        if slm("--version", before=limit).returncode != 0:
            self.skipTest("this build cannot run in 200 MiB, as those with sanitizers")
        self.error(r"memory.*--context.*\[cli.out-of-memory\]", "tokenize", self.target, stdin=b" " * (60 << 20), before=limit)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
