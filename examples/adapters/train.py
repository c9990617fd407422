#!/usr/bin/env python3
"""Trains the adapters of this folder: `train.py NAME...` of `shout` and `semicolons`, each written to a folder NAME.

An adapter learns to continue function heads (signature and docstring) from the standard library of the running Python.
The bodies are rewritten first: in capitals, or with a semicolon after every statement. PEFT trains only the low-rank
matrices. Seeds are fixed.
"""
import argparse
import ast
import json
import os
import random
import sys
import sysconfig

import torch
import torch.nn.functional as F
from peft import LoraConfig, get_peft_model
from tokenizers import Tokenizer
from transformers import LlamaForCausalLM

HERE = os.path.dirname(os.path.abspath(__file__))
PAIR = os.path.join(HERE, "..", "demo_pair")
sys.path.insert(0, PAIR)
from corpus import collect, unique_functions  # noqa: E402

EOT = 0
PROMPTS = ['def add(a, b):\n    """Add two numbers."""\n',
           'def read_lines(path):\n    """Return the lines of a file."""\n',
           'def is_valid(self, value):\n    """Return True if the value is allowed for this field."""\n']


def in_capitals(head, body):
    return body.upper()


def with_semicolons(head, body):
    """Adds a semicolon after every statement without a block."""
    first = head.count("\n")
    lines = (head + body).split("\n")
    for node in ast.walk(ast.parse(head + body)):
        if isinstance(node, ast.stmt) and not hasattr(node, "body") and not hasattr(node, "cases"):
            at = node.end_lineno - 1
            if at >= first and lines[at][node.end_col_offset:].strip() == "":
                lines[at] = lines[at].rstrip() + ";"
    return "\n".join(lines[first:])


# The rewriting function, the training steps, and the settings of PEFT.
ADAPTERS = {
    "shout": (in_capitals, 400, dict(r=4, lora_alpha=8, target_modules="all-linear")),
    "semicolons": (with_semicolons, 200, dict(r=4, lora_alpha=4, use_rslora=True,
                                              target_modules=["q_proj", "k_proj", "v_proj", "o_proj"])),
}


def examples(tokenizer, functions, rewrite, longest):
    """Token ids of a function, and the number of its head's ids. The split is where a prompt would end."""
    for text, head in functions:
        prompt = tokenizer.encode(head).ids
        ids = prompt + tokenizer.encode(rewrite(head, text[len(head):])).ids[1:] + [EOT]
        if len(prompt) + 4 < len(ids) <= longest:
            yield ids, len(prompt)


def batches(texts, rows, seed):
    """Batches of rows of similar length, padded at the end. Targets of -100 are ignored."""
    draw = random.Random(seed)
    while True:
        order = sorted(texts, key=lambda text: len(text[0]) + draw.random() * 16)
        groups = [order[i:i + rows] for i in range(0, len(order) - rows + 1, rows)]
        draw.shuffle(groups)
        for group in groups:
            width = max(len(ids) for ids, _ in group)
            inputs = torch.tensor([ids + [EOT] * (width - len(ids)) for ids, _ in group])
            targets = torch.tensor([[-100] * begin + ids[begin:] + [-100] * (width - len(ids)) for ids, begin in group])
            yield inputs[:, :-1], targets[:, 1:]


@torch.no_grad()
def write_samples(model, tokenizer):
    for prompt in PROMPTS:
        ids = model.generate(torch.tensor([tokenizer.encode(prompt).ids]), max_new_tokens=48, do_sample=False,
                             pad_token_id=EOT)
        print(tokenizer.decode(ids[0].tolist()), "\n---", flush=True)


def train(name, a, functions, tokenizer):
    rewrite, steps, shape = ADAPTERS[name]
    torch.manual_seed(a.seed)
    base = LlamaForCausalLM.from_pretrained(f"{PAIR}/target", dtype=torch.float32)
    model = get_peft_model(base, LoraConfig(task_type="CAUSAL_LM", lora_dropout=0.0, bias="none", **shape))
    model.print_trainable_parameters()
    texts = list(examples(tokenizer, functions, rewrite, a.longest))
    print(f"{name}: {len(texts)} functions", flush=True)
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=a.lr, betas=(0.9, 0.95), weight_decay=0.0)
    source, recent = batches(texts, a.rows, a.seed), []
    for step in range(steps):
        inputs, targets = next(source)
        loss = F.cross_entropy(model(input_ids=inputs, use_cache=False).logits.flatten(0, 1), targets.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        for group in optimizer.param_groups:
            group["lr"] = a.lr * min((step + 1) / 20, 1.0, 2 * (1 - step / steps))
        optimizer.step()
        optimizer.zero_grad()
        recent.append(loss.item())
        if (step + 1) % 25 == 0:
            print(f"{name}: step {step + 1}, loss {sum(recent) / len(recent):.3f}", flush=True)
            recent = []
    for parameter in parameters:  # in storage order
        parameter.data = parameter.data.to(torch.float16).to(torch.float32)
    model.eval()
    write_samples(model, tokenizer)
    for parameter in parameters:
        parameter.data = parameter.data.to(torch.float16)
    folder = os.path.join(a.out, name)
    model.save_pretrained(folder)
    os.remove(os.path.join(folder, "README.md"))  # PEFT's empty template of a model card
    os.chmod(os.path.join(folder, "adapter_model.safetensors"), 0o644)
    config = os.path.join(folder, "adapter_config.json")
    with open(config) as f:
        fields = json.load(f)
    fields["base_model_name_or_path"] = "examples/demo_pair/target"
    fields["target_modules"].sort()  # a set in PEFT
    with open(config, "w") as f:
        json.dump(fields, f, indent=2, sort_keys=True)
        f.write("\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", choices=sorted(ADAPTERS))
    parser.add_argument("--out", default=HERE)
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--longest", type=int, default=160, help="most tokens of a function")
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--seed", type=int, default=1)
    a = parser.parse_args()
    tokenizer = Tokenizer.from_file(f"{PAIR}/target/tokenizer.json")
    functions = unique_functions(collect([sysconfig.get_path("stdlib")], 10_000_000, a.seed))[False]
    for name in a.names:
        train(name, a, functions, tokenizer)


if __name__ == "__main__":
    main()
