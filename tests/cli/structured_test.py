#!/usr/bin/env python3
"""Structured output on the command line: slm generate with a grammar, slm grammar check, slm grammar mask.
usage: structured_test.py PROGRAM SOURCE_DIR SCRATCH_DIR"""
import hashlib
import json
import os
import pathlib
import re
import shutil
import unittest

from program import SCRATCH, SOURCE, ProgramTest, slm
from tiny_models import KINDS

CASES = SOURCE / "tests" / "fixtures" / "structure"
DATA = pathlib.Path(os.environ.get("SLM_TEST_DATA", SOURCE / ".." / "shared" / "data"))
PERSON = {"type": "object", "properties": {"id": {"type": "integer", "minimum": 10, "maximum": 99}, "in": {"enum": ["a", "in"]}},
          "required": ["id", "in"], "additionalProperties": False}
LIST = 'root ::= "[" item ("," item){2} "]"\nitem ::= [a-c]{2}'
DRAFTS = (["--drafter", "none"], [], ["--drafter", "lookup"], ["--draft", "DRAFT"], ["--draft", "DRAFT", "--rule", "match"])

FIXED = ["--draft-length", "8"]  # the adaptive length depends on measured times


def written(name, content):
    path = SCRATCH / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), newline="")
    return path


class Generate(ProgramTest):
    def answer(self, *arguments, target=None):
        return self.as_json("generate", "--target", target or self.target, "--prompt", "def in", "--max-new-tokens", 60,
                            *arguments)

    def kinds(self):
        """Options of each kind of grammar, and whether a text is one of its texts."""
        yield ["--json-schema", written("person.json", PERSON)], lambda text: (
            json.loads(text).keys() == {"id", "in"} and 10 <= json.loads(text)["id"] <= 99)
        yield ["--regex", "in{3}[0-9]{2}|(ab)+c"], re.compile("in{3}[0-9]{2}|(ab)+c").fullmatch
        yield ["--choice", "yes,no,in doubt"], lambda text: text in ("yes", "no", "in doubt")
        yield ["--grammar", written("list.gbnf", LIST)], re.compile(r"\[[a-c]{2}(,[a-c]{2}){2}\]").fullmatch

    def test_every_answer_is_a_text_of_the_grammar_with_any_draft(self):
        samplings = ([], ["--temperature", "1.3", "--seed", "4"], ["--temperature", "0.8", "--top-k", "3", "--top-p", "0.9"])
        for options, fits in self.kinds():
            for (kind, (target, draft)), sampling in zip(list(self.pairs.items()) * 2, samplings):
                plain = None
                for drafting in DRAFTS:
                    with self.subTest(options=options, kind=kind, sampling=sampling, drafting=drafting):
                        drafting = [draft if word == "DRAFT" else word for word in drafting]
                        rule = "match" if "match" in drafting else "coupled"
                        result = self.answer(*options, *sampling, *drafting, target=target)
                        if rule == "coupled":
                            plain = plain or result
                            self.assertEqual(result["ids"], plain["ids"])
                        reason = result["statistics"]["finish_reason"]
                        self.assertIn(reason, ("complete", "end_token", "length"))
                        if reason != "length":
                            self.assertTrue(fits(result["text"]), result["text"])

    def test_forced_text_is_drafted(self):
        options = ["--regex", "(hello world, ){3}[ab]", *FIXED]
        plain, drafted = self.answer(*options, "--drafter", "none"), self.answer(*options)
        self.assertEqual(plain["ids"], drafted["ids"])
        self.assertEqual(drafted["text"][:-1], "hello world, " * 3)
        self.assertEqual(plain["statistics"]["forced"], 0)
        statistics = drafted["statistics"]
        self.assertGreater(statistics["forced_share"], 0.5)
        self.assertEqual(statistics["finish_reason"], "complete")

    def test_white_space(self):
        schema = ["--json-schema", written("person.json", PERSON), "--whitespace", "compact"]
        self.assertRegex(self.answer(*schema)["text"], r'\A\{"id":[0-9]{2},"in":"(a|in)"\}\Z')
        self.assertNotRegex(self.answer("--json-object", "--whitespace", "compact", "--temperature", "1")["text"], r"\n")
        forced = [self.answer(*schema[:count], *FIXED)["statistics"]["forced"] for count in (2, 4)]
        self.assertGreater(forced[1], forced[0])

    def test_an_object_without_an_end_is_cut_at_the_limit(self):
        for options in (["--json-object"], ["--regex", "in{90}"]):
            result = self.generate(*options)
            text = written("cut.json", [result["text"]])
            kind = ["--json"] if "--json-object" in options else options
            checked, = json.loads(self.ok("grammar", "check", *kind, "--lines", text).out)
            self.assertEqual(checked["offset"], len(result["text"].encode()))
            if not checked["accepted"]:
                self.assertEqual(result["statistics"]["finish_reason"], "length")
                self.assertEqual(len(result["ids"]), 24)
        self.assertEqual(result["text"][:3], "inn")

    def test_many_requests_have_the_answers_that_they_have_alone(self):
        requests = [{"prompt": prompt, "temperature": temperature, "seed": seed}
                    for seed, (prompt, temperature) in enumerate([("def in", 0), ("a", 1), ("in", 1.2), ("b b", 0.8), ("x", 0)])]
        file = written("requests.jsonl", "\n".join(map(json.dumps, requests)))
        for options, fits in self.kinds():
            common = ["generate", "--target", self.target, "--max-new-tokens", 60, *options]
            alone = [self.as_json(*common, "--prompt", request["prompt"], "--temperature", request["temperature"], "--seed",
                                  request["seed"], "--drafter", "none") for request in requests]
            for arguments in ([], ["--sequential"], ["--draft", self.draft], ["--drafter", "none", "--threads", "1"]):
                with self.subTest(options=options, arguments=arguments):
                    lines = self.ok(*common, "--prompts", file, "--json", *arguments).out.splitlines()
                    answers = [json.loads(line) for line in lines]
                    self.assertEqual([answer["ids"] for answer in answers], [answer["ids"] for answer in alone])
                    for answer in answers:
                        self.assertTrue(answer["statistics"]["finish_reason"] == "length" or fits(answer["text"]))

    def test_a_saved_text_is_continued_by_a_new_answer(self):
        saved = SCRATCH / "text.slm"
        self.ok("generate", "--target", self.target, "--prompt", "ab", "--choice", "yes", "--save", saved)
        result = self.as_json("generate", "--target", self.target, "--resume", saved, "--choice", "no")
        self.assertEqual((result["text"], result["statistics"]["finish_reason"]), ("no", "complete"))

    def test_errors(self):
        common = ["generate", "--target", self.target, "--prompt", "a"]
        self.error(r"\[cli.two-constraints\]", *common, "--regex", "a", "--choice", "a")
        self.error(r"regular expression, byte 3: back-references .*\[grammar.unsupported\]", *common, "--regex", r"(a)\1")
        wrong = written("wrong.json", {"properties": {"age": {"not": {}}}})
        self.error(r"json_schema/properties/age/not: 'not' is not supported", *common, "--json-schema", wrong)
        self.error(r"\[grammar.syntax\]", *common, "--grammar", written("wrong.gbnf", 'x ::= "a"'))
        self.error(r"\[grammar.left-recursion\]", *common, "--grammar", written("left.gbnf", 'root ::= root "a" | "b"'))
        self.error(r"\[grammar.limit\]", *common, "--json-schema", written("large.json", '"' + "a" * (10 << 20) + '"'))
        self.error(r"\[cli.unreadable-file\]", *common, "--json-schema", SCRATCH / "absent.json")
        self.error(r"\[structured.no-token\]", *common, "--regex", "\u00e9")  # the tokenizer has no token for its bytes


class Check(ProgramTest):
    def check(self, *arguments):
        return slm("grammar", "check", *arguments)

    def test_exit_status(self):
        choices = written("choices.json", ["yes", "no", "\u65e5\u672c"])
        kinds = ((["--json-schema", written("person.json", PERSON)], '{"id": 12, "in": "a"}', '{"id": 9, "in": "a"}'),
                 (["--json"], '{"a": [1, null]}', "[1]"), (["--regex", "a+b"], "aab", "aabc"),
                 (["--choice-file", choices], "\u65e5\u672c", "yess"),
                 (["--gbnf", written("list.gbnf", LIST)], "[aa,bb,cc]", "[aa,bb]"))
        for options, fits, other in kinds:
            with self.subTest(options=options):
                result = self.check(*options, "--text", written("text", fits))
                self.assertEqual((result.returncode, result.out, result.err), (0, "", ""))
                self.error(r"\[cli.rejected\]", "grammar", "check", *options, "--text", written("text", other))
                beginning = fits[:-1]
                self.error(r"is not complete.*\[cli.rejected\]", "grammar", "check", *options, "--text",
                           written("text", beginning))
                lines = written("lines.json", [fits, other, beginning, fits + "\n", ""])
                results = json.loads(self.ok("grammar", "check", *options, "--lines", lines).out)
                self.assertEqual([result["accepted"] for result in results], [True, False, False, False, False])
                length = len(fits.encode())
                self.assertEqual([results[i]["offset"] for i in (0, 2, 3, 4)], [length, len(beginning.encode()), length, 0])
                self.assertEqual(self.check(*options).returncode, 0)  # it compiles

    def test_white_space(self):
        text = written("text", '{"id": 12,\n  "in": "a"}')
        compact = written("compact", '{"id":12,"in":"a"}')
        schema = ["--json-schema", written("person.json", PERSON)]
        for kind in (schema, ["--json"]):
            for options, status in ((["--whitespace", "default"], 0), ([], 0), (["--whitespace", "compact"], 1)):
                self.assertEqual(self.check(*kind, *options, "--text", text).returncode, status)
                self.assertEqual(self.check(*kind, *options, "--text", compact).returncode, 0)

    def test_the_fixtures(self):
        """A few grammars of each file, with all their texts, and all that are errors."""
        for name, option, rows, key in (("regex.json", "--regex", "patterns", "pattern"),
                                        ("gbnf.json", "--gbnf", "grammars", "grammar"),
                                        ("choice.json", "--choice-file", "choices", "choice")):
            cases = json.loads((CASES / name).read_text())
            for row in cases[rows][::max(1, len(cases[rows]) // 12)] + cases["errors"]:
                grammar = row[key] if option == "--regex" else written("grammar", row[key])
                rejected = [text if isinstance(text, str) else text["text"] for text in row.get("reject", [])]
                texts = row.get("accept", []) + rejected
                with self.subTest(file=name, grammar=row[key]):
                    options = [f"{option}={grammar}"] if str(grammar).startswith("-") else [option, grammar]
                    result = self.check(*options, "--lines", written("lines.json", texts))
                    if "error" in row or row.get("compile") == "either":
                        self.assertIn(result.returncode, (2,) if row.get("must_error", name == "choice.json") else (0, 2))
                        continue
                    self.assertEqual(result.returncode, 0, result.err)
                    found = [result["accepted"] for result in json.loads(result.out)]
                    self.assertEqual(found, [True] * len(row["accept"]) + [False] * len(rejected))

    def test_grammars_that_do_not_compile(self):
        wrong = (["--json-schema", written("a", "{")], ["--json-schema", written("b", {"not": {}})],
                 ["--json-schema", written("c", {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]})],
                 ["--regex", "(a"], ["--regex", r"(a)\1"], ["--gbnf", written("d", "root ::= root")],
                 ["--choice-file", written("e", [])], ["--choice-file", written("f", {"a": 1})],
                 ["--json-schema", SCRATCH / "absent"],
                 ["--json-schema", written("g", "[" * 100000)], ["--gbnf", written("h", "")])
        for options in wrong:
            self.error(r"\Aslm: [^\n]* \[[a-z]+\.[a-z0-9-]+\]\n\Z", "grammar", "check", *options, "--text",
                       written("text", "a"), status=2)
        for usage in (["--regex", "a", "--json"], ["--text", "a"], ["--regex", "a", "--text", "a", "--lines", "b"],
                      ["--json", "--whitespace", "tabs"]):
            self.assertNotIn(self.check(*usage).returncode, (0, 1))


class Mask(ProgramTest):
    @staticmethod
    def pieces(tokenizer):
        """Texts of the ordinary tokens by id."""
        special = {token["id"] for token in tokenizer["added_tokens"] if token["special"]}
        for piece, index in tokenizer["model"]["vocab"].items():
            byte = re.fullmatch("<0x([0-9A-F]{2})>", piece)
            piece = chr(int(byte[1], 16)) if byte else piece.replace("\u0120", " ").replace("\u010a", "\n").replace("\u2581", " ")
            if index not in special:
                yield index, piece

    def test_masks_are_those_of_every_token_tried(self):
        words = ["in", "inn", "a in b", "ab\n", "x"]
        choices = written("choices.json", words)
        for kind, make in KINDS.items():
            folder = SCRATCH / f"only-{kind}"
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            (folder / "tokenizer.json").write_text(json.dumps(make()))  # no model
            for prefix in ("", "i", "in", "inn", "a", "a ", "ab", "x"):
                ids = [index for index, piece in self.pieces(make()) if any(word.startswith(prefix + piece) for word in words)]
                digest = hashlib.sha256(b"".join(index.to_bytes(4, "little") for index in sorted(ids))).hexdigest()[:16]
                rests = [word[len(prefix):] for word in words if word.startswith(prefix)]
                expected = {"count": len(ids), "digest": digest, "may_end": prefix in words,
                            "forced": os.path.commonprefix(rests)}
                for model in (folder, folder / "tokenizer.json"):
                    with self.subTest(kind=kind, prefix=prefix, model=model):
                        found = self.ok("grammar", "mask", "--model", model, "--choice-file", choices,
                                        "--prefix", written("prefix", prefix))
                        self.assertEqual(json.loads(found.out), expected)

    def test_masks_of_a_real_vocabulary(self):
        model = DATA / "tokenizers" / "mistral"
        if not model.exists():
            self.skipTest("the tokenizer of Mistral is not here")
        options = {"schema": "--json-schema", "regex": "--regex", "gbnf": "--gbnf", "choice": "--choice-file"}
        rows = json.loads((CASES / "masks-mistral.json").read_text())["rows"]
        for row in rows[::6]:
            grammar = row["grammar"] if row["kind"] == "regex" else written("grammar", row["grammar"])
            with self.subTest(grammar=row["grammar"], prefix=row["prefix"]):
                found = self.ok("grammar", "mask", "--model", model, options[row["kind"]], grammar, "--whitespace",
                                row.get("whitespace", "default"), "--prefix", written("prefix", row["prefix"]))
                names = ("count", "digest", "may_end", "forced")
                self.assertEqual(json.loads(found.out), {name: row[name] for name in names})

    def test_errors(self):
        options = ["grammar", "mask", "--model", self.target, "--regex", "ab+"]
        self.error(r"byte at 1 .*\[cli.rejected\]", *options, "--prefix", written("prefix", "aa"))
        self.error(r"\[cli.unreadable-file\]", *options, "--prefix", SCRATCH / "absent")
        self.error(r"\[grammar.syntax\]", "grammar", "mask", "--model", self.target, "--regex", "(", "--prefix",
                   written("prefix", ""), status=2)
        self.assertNotIn(slm("grammar", "mask", "--regex", "a", "--prefix", written("prefix", "")).returncode, (0, 1))


if __name__ == "__main__":
    unittest.main(argv=["structured_test.py"])
