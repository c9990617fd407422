#!/usr/bin/env python3
"""The server's log-probabilities of prompts, compared with those of transformers for the same weights: SmolLM2, with the requests
of evaluation harnesses. Skipped if the model is not in build/models, or the golden files are missing.
usage: transformers_test.py PROGRAM SOURCE_DIR"""
import json
import os
import pathlib
import sys
import unittest

from server import SOURCE, Server

MODEL = SOURCE / "build" / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
DATA = pathlib.Path(os.environ.get("SLM_TEST_DATA", SOURCE / ".." / "shared" / "data"))
GOLDEN, PERPLEXITY = DATA / "smollm2" / "golden_f32.json", DATA / "smollm2" / "perplexity_f32.json"
TEXT = DATA / "text_wikitext2" / "valid.txt"
for path in (MODEL, GOLDEN, PERPLEXITY, TEXT):
    if not path.exists():
        print(f"SKIPPED: {path} is not here")
        sys.exit(77)

# Products of the file's blocks round activations to 16 bits, which changes logits (here up to 33) by at most 2e-4 of that
# (tests/golden/smollm2_test.cpp); a log-probability, and the gap between two, is a difference of two such numbers.
MARGIN = 2 * 2e-4 * 33


class TransformersTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--context", 1024, target=MODEL)
        cls.addClassCleanup(cls.server.__exit__)

    def scored(self, prompts, alternatives):
        body = {"prompt": prompts, "max_tokens": 0, "echo": True, "logprobs": alternatives, "temperature": 0}
        return [choice["logprobs"] for choice in self.server.json("POST", "/v1/completions", body)["choices"]]

    def test_greedy_texts_have_the_scores_of_their_logits(self):
        total = 0
        cases = json.loads(GOLDEN.read_text())["cases"]
        for case, lists in zip(cases, self.scored([case["ids"] + case["greedy"]["ids"] for case in cases], 20)):
            with self.subTest(case["name"]):
                begin, last = len(case["ids"]), case["last"]
                expected = [logit - last["logsumexp"] for _, logit in last["top"]]
                self.assertAlmostEqual(lists["token_logprobs"][begin], expected[0], delta=MARGIN)
                found = sorted(lists["top_logprobs"][begin].values(), reverse=True)
                if len(found) == 20:  # else tokens share a text, and appear as one
                    for one, other in zip(found, expected):
                        self.assertAlmostEqual(one, other, delta=MARGIN)
                compared = 0
                for place, gap in enumerate(case["greedy"]["gaps"], begin):
                    best, *others = sorted(lists["top_logprobs"][place].values(), reverse=True)
                    if gap > MARGIN:
                        self.assertEqual(lists["token_logprobs"][place], best)
                    if len(others) == 19:
                        self.assertAlmostEqual(best - others[0], gap, delta=MARGIN)
                        compared += 1
                total += compared
        self.assertGreater(total, 200)

    def test_a_text_has_the_perplexity_of_transformers(self):
        golden = json.loads(PERPLEXITY.read_text())
        text = TEXT.read_bytes()[:golden["text"]["bytes"]].decode()
        ids = self.server.json("POST", "/tokenize", {"prompt": text, "add_special_tokens": False})["tokens"]
        self.assertEqual(ids[:32] + ids[-32:], golden["text"]["first_ids"] + golden["text"]["last_ids"])
        window = golden["results"][0]["window"]
        windows = [ids[begin:begin + window] for begin in range(0, len(ids), window)]
        logprobs = [logprob for lists in self.scored(windows, 0) for logprob in lists["token_logprobs"][1:]]
        self.assertEqual(len(logprobs), golden["results"][0]["scored_tokens"])
        self.assertAlmostEqual(-sum(logprobs) / len(logprobs), golden["results"][0]["mean_negative_log_likelihood"], delta=1e-5)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
