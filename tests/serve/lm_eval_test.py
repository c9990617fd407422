#!/usr/bin/env python3
"""lm-evaluation-harness over slm serve: log-likelihoods, rolling ones and generated text equal those of `slm logits` and
`slm generate`, with any number of concurrent requests.
usage: lm_eval_test.py PROGRAM SOURCE_DIR, by a Python that has the package lm-eval[api]"""
import importlib.util
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

if importlib.util.find_spec("lm_eval") is None:
    print("SKIPPED: this Python has no package lm_eval")
    sys.exit(77)

from server import PAIR, PATIENCE, Server, slm

TASKS = {
    "slm_rolling": """
task: slm_rolling
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{text}}"
metric_list:
  - metric: byte_perplexity
""",
    "slm_choice": """
task: slm_choice
output_type: multiple_choice
doc_to_text: "{{text}}"
doc_to_choice: "{{choices}}"
doc_to_target: "{{answer}}"
target_delimiter: ""
metric_list:
  - metric: acc
""",
    "slm_generate": """
task: slm_generate
output_type: generate_until
doc_to_text: "{{text}}"
doc_to_target: "{{target}}"
generation_kwargs:
  until: ["\\n\\n"]
  max_gen_toks: 24
metric_list:
  - metric: exact_match
""",
}
DOCS = [
    {"text": "def read_config(path):\n    with open(path", "choices": [") as file:", " zebra umbrella"], "answer": 0, "target": ""},
    {"text": "class Reader:\n    def __init__(self", "choices": ["):", " 17 17 17"], "answer": 0, "target": ""},
    {"text": "import os\nimport", "choices": [" sys\n", " ))"], "answer": 0, "target": ""},
    {"text": "for i in range", "choices": ["(10):", "; elephant"], "answer": 0, "target": ""},
]


def logprob(ids, scored):
    """The log-likelihood of the last `scored` ids, from the program's rows of logits."""
    output = subprocess.run([sys.argv[1], "logits", str(PAIR / "target"), "--ids", ",".join(map(str, ids))],
                            capture_output=True, check=True, text=True, timeout=PATIENCE).stdout
    rows = json.loads(output)
    total = 0.0
    for place in range(len(ids) - scored, len(ids)):
        row = rows[place - 1]
        most = max(row)
        total += row[ids[place]] - most - math.log(sum(math.exp(value - most) for value in row))
    return total


class LmEvalTest(unittest.TestCase):
    def evaluate(self, server, folder, at_once):
        out = folder / f"out{at_once}"
        (folder / "docs.jsonl").write_text("".join(json.dumps(doc) + "\n" for doc in DOCS))
        for name, task in TASKS.items():
            (folder / f"{name}.yaml").write_text(
                task + f"dataset_path: json\ndataset_kwargs:\n  data_files: {{test: {folder / 'docs.jsonl'}}}\ntest_split: test\n")
        url = f"http://127.0.0.1:{server.port}/v1/completions"
        arguments = f"model={server.started['model']},base_url={url},tokenizer_backend=remote,num_concurrent={at_once},max_length=512"
        environment = os.environ | {"HF_DATASETS_OFFLINE": "1", "HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "hf")}
        done = subprocess.run([sys.executable, "-m", "lm_eval", "run", "--model", "local-completions", "--model_args", arguments,
                               "--include_path", str(folder), "--tasks", ",".join(TASKS), "--output_path", str(out),
                               "--log_samples"], capture_output=True, text=True, env=environment, timeout=5 * PATIENCE)
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        samples = {}
        for name in TASKS:
            path, = out.rglob(f"samples_{name}_*.jsonl")
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            samples[name] = [line["resps"] for line in sorted(lines, key=lambda line: line["doc_id"])]
        return samples

    def test_it_has_the_models_values(self):
        with tempfile.TemporaryDirectory() as scratch, Server() as server:
            folder = pathlib.Path(scratch)
            alone = self.evaluate(server, folder, 1)
            self.assertEqual(self.evaluate(server, folder, 8), alone)

            def ids_of(text, **fields):
                return server.json("POST", "/tokenize", {"prompt": text, "add_special_tokens": False} | fields)["tokens"]

            info = server.json("GET", "/tokenizer_info")
            first = ids_of(info.get("bos_token") or info["eos_token"])[0]
            for doc, rolling, choice, generated in zip(DOCS, alone["slm_rolling"], alone["slm_choice"], alone["slm_generate"]):
                ids = ids_of(doc["text"])
                self.assertAlmostEqual(float(rolling[0][0]), logprob([first, *ids], len(ids)), places=3)
                for said, continuation in zip(choice, doc["choices"]):
                    whole = ids_of(doc["text"] + continuation)
                    context = len(ids_of(doc["text"]))
                    self.assertAlmostEqual(float(said[0][0]), logprob(whole, len(whole) - context), places=3)
                line = folder / "line.jsonl"
                line.write_text(json.dumps({"id": 0, "ids": ids, "max_new_tokens": 24, "stop": ["\n\n"], "temperature": 0}))
                expected = slm("generate", "--target", PAIR / "target", "--json", "--prompts", line)
                self.assertEqual(generated[0][0], expected["text"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
