#!/usr/bin/env python3
"""Compares speculative with plain decoding of a pair of models that speak ChatML, such as Qwen2.5-Coder: functions of
HumanEval as requests, or answers to JSON schemas. Texts must be identical. Rates are of decoding, without prompts.

    real_pair.py --target BIG.gguf --draft SMALL.gguf --humaneval HumanEval.jsonl.gz --tasks 5 -- --activations 8
    real_pair.py --target BIG.gguf --draft SMALL.gguf --schemas -- --activations 8

Options after -- go to `slm generate`; those of drafts only to the speculative runs. Run it on an idle machine: plain and
speculative runs alternate, and the medians of --repeats are printed.
"""
import argparse
import gzip
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

OF_DRAFTS = ("--draft-bits", "--draft-head", "--draft-length", "--draft-threads")


def record(**members):
    return {"type": "object", "properties": members, "required": list(members), "additionalProperties": False}


TEXT, WHOLE, NUMBER = {"type": "string"}, {"type": "integer"}, {"type": "number"}
MOOD = {"enum": ["positive", "neutral", "negative"]}
SCHEMAS = [
    ("Describe the user: Maria Lopez, 34 years old, lives in Madrid, Spain, likes chess and hiking, mail maria@example.com, "
     "works as a civil engineer at Puentes SA since 2015.",
     record(first_name=TEXT, last_name=TEXT, age={"type": "integer", "minimum": 0}, email=TEXT,
            address=record(city=TEXT, country=TEXT), hobbies={"type": "array", "items": TEXT},
            employment=record(employer=TEXT, position=TEXT, since_year=WHOLE))),
    ("Invoice number 4711 of 2026-03-05: 3 chairs at 49.90 each, 1 table at 199.00, shipping 15. Customer Jens Olsen, Oslo.",
     record(invoice_number=TEXT, invoice_date={"type": "string", "format": "date"},
            customer=record(customer_name=TEXT, customer_city=TEXT),
            line_items={"type": "array", "items": record(description=TEXT, quantity=WHOLE, unit_price=NUMBER),
                        "minItems": 1, "maxItems": 5}, shipping_cost=NUMBER)),
    ("Classify this review: 'The phone is fast, but the battery lasts only half a day and the support never answered.'",
     record(overall_sentiment=MOOD, aspects={"type": "array", "maxItems": 4,
                                             "items": record(aspect_name=TEXT, sentiment=MOOD, quotation=TEXT)},
            requires_follow_up={"type": "boolean"})),
    ("Plan a weather query for Berlin and Paris for the next three days in Celsius.",
     record(tool_name={"const": "get_weather_forecast"}, arguments=record(
         locations={"type": "array", "items": record(city_name=TEXT, country_code={"type": "string", "pattern": "^[A-Z]{2}$"}),
                    "maxItems": 3}, number_of_days=WHOLE, temperature_unit={"enum": ["celsius", "fahrenheit"]}))),
]


def chat(question):
    return (f"<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n{question}<|im_end|>\n"
            "<|im_start|>assistant\n")


def answers(program, target, prompts, options):
    """The ids and statistics of each answer."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "prompts.jsonl"
        file.write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts))
        command = [program, "generate", "--target", target, "--prompts", file, "--sequential", "--json", *options]
        run = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if run.returncode:
        sys.exit(run.stderr)
    return [json.loads(line) for line in run.stdout.splitlines()]


def rate(of):
    return of["statistics"]["tokens_per_second"]


def compare(arguments, name, prompts, plain, speculative, same=None):
    """A row: medians of the rates. same: options whose texts the speculative ones equal, if not those of `plain`."""
    rates = {"plain": [], "speculative": []}
    for number in range(arguments.repeats):
        print(f"{name}: run {number + 1} of {arguments.repeats}", file=sys.stderr)
        before = answers(arguments.slm, arguments.target, prompts, plain)
        after = answers(arguments.slm, arguments.target, prompts, speculative)
        expected = answers(arguments.slm, arguments.target, prompts, same) if same else before
        if [one["ids"] for one in expected] != [one["ids"] for one in after]:
            sys.exit(f"{name}: the texts differ")
        for kind, all_of in (("plain", before), ("speculative", after)):
            tokens = sum(len(one["ids"]) for one in all_of)
            rates[kind].append(tokens / sum(len(one["ids"]) / rate(one) for one in all_of))
    steps = sum(one["statistics"]["target_steps"] for one in after)
    tokens = sum(len(one["ids"]) for one in after)
    slow, fast = (statistics.median(rates[kind]) for kind in ("plain", "speculative"))
    print(f"| {name} | {tokens} | {slow:.1f} | {fast:.1f} | {fast / slow:.2f} | {tokens / steps:.2f} |", flush=True)
    return fast / slow


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slm", default="build/cpu/bin/slm", help="path of the program slm")
    parser.add_argument("--target", required=True, help="target model")
    parser.add_argument("--draft", required=True, help="draft model")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--humaneval", help="HumanEval.jsonl.gz of github.com/openai/human-eval")
    what.add_argument("--schemas", action="store_true", help="answers to four JSON schemas, beside free plain text")
    parser.add_argument("--tasks", type=int, default=5, help="number of functions, from the first")
    parser.add_argument("--tokens", type=int, default=200, help="most new tokens of an answer")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("options", nargs="*", help="options of slm generate, after --")
    arguments = parser.parse_args()

    common = ["--max-new-tokens", arguments.tokens]
    of_drafts = []
    words = iter(arguments.options)
    for word in words:
        if word in OF_DRAFTS:
            of_drafts += [word, next(words, "")]
        else:
            common.append(word)
    plain, speculative = [*common, "--drafter", "none"], [*common, "--draft", arguments.draft, *of_drafts]
    print("| prompts | tokens | plain, tokens/s | speculative | ratio | tokens per step |\n|---|---|---|---|---|---|")
    if arguments.humaneval:
        with gzip.open(arguments.humaneval, "rt") as file:
            tasks = [json.loads(line) for line in file][:arguments.tasks]
        prompts = [chat(f"Complete this function.\n```python\n{task['prompt']}```") for task in tasks]
        compare(arguments, f"{len(prompts)} functions of HumanEval", prompts, plain, speculative)
        return
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        for number, (question, schema) in enumerate(SCHEMAS):
            file = pathlib.Path(folder) / f"{number}.json"
            file.write_text(json.dumps(schema))
            form = ["--json-schema", file]
            ratios.append(compare(arguments, f"schema {number + 1}", [chat(question + " Answer with JSON.")], plain,
                                  [*speculative, *form], [*plain, *form]))
    print(f"\nMedian ratio to free plain text: {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    main()
