#!/usr/bin/env python3
"""Writes parity.json: what a correct implementation must compute from the two folders.

Shares no code with the training: numpy in float64, from the bytes of the safetensors files. For each prompt it gives
the token ids, the target's greedy continuation and the 20 largest logits of the last prompt position for both models.
`parity.py check` also compares all logits with the torch model that was trained.
"""
import json
import os
import struct
import sys

import numpy as np
from tokenizers import Tokenizer

HERE = os.path.dirname(os.path.abspath(__file__))
PROMPTS = [
    'def count_words(text):\n    """Return a dictionary that maps each word of the text to its number of occurrences."""\n',
    'def read_lines(path, encoding="utf-8"):\n    """Read a text file and return its lines without the line endings."""\n',
    'def __repr__(self):\n    """Return a short description of the object for debugging."""\n',
    'def is_sorted(values):\n    """Tell whether no value is smaller than the one before it."""\n    for',
]
NEW_TOKENS = 64


def tensors(path):
    with open(path, "rb") as f:
        raw = f.read()
    size, = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8:8 + size])
    header.pop("__metadata__", None)
    out = {}
    for name, entry in header.items():
        assert entry["dtype"] == "BF16"
        begin, end = entry["data_offsets"]
        words = np.frombuffer(raw[8 + size + begin:8 + size + end], "<u2").astype(np.uint32) << 16
        out[name] = words.view(np.float32).astype(np.float64).reshape(entry["shape"])
    return out


class Reference:
    def __init__(self, folder):
        with open(f"{folder}/config.json") as f:
            self.c = json.load(f)
        self.w = tensors(f"{folder}/model.safetensors")

    def norm(self, x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.c["rms_norm_eps"]) * self.w[name]

    def logits(self, ids):
        c, w, t = self.c, self.w, len(ids)
        heads, kv, dim = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        angle = np.arange(t)[:, None] / c["rope_theta"] ** (np.arange(0, dim, 2) / dim)
        cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]

        def rope(z):
            a, b = z[..., :dim // 2], z[..., dim // 2:]
            return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

        x = w["model.embed_tokens.weight"][ids]
        for n in range(c["num_hidden_layers"]):
            p = f"model.layers.{n}."
            h = self.norm(x, p + "input_layernorm.weight")
            q = rope((h @ w[p + "self_attn.q_proj.weight"].T).reshape(t, heads, dim))
            k = rope((h @ w[p + "self_attn.k_proj.weight"].T).reshape(t, kv, dim)).repeat(heads // kv, 1)
            v = (h @ w[p + "self_attn.v_proj.weight"].T).reshape(t, kv, dim).repeat(heads // kv, 1)
            s = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(dim)
            s = np.where(np.arange(t)[None, :, None] >= np.arange(t)[None, None, :], s, -np.inf)
            s = np.exp(s - s.max(-1, keepdims=True))
            o = np.einsum("hij,jhd->ihd", s / s.sum(-1, keepdims=True), v).reshape(t, heads * dim)
            x = x + o @ w[p + "self_attn.o_proj.weight"].T
            h = self.norm(x, p + "post_attention_layernorm.weight")
            g = h @ w[p + "mlp.gate_proj.weight"].T
            x = x + (g / (1 + np.exp(-g)) * (h @ w[p + "mlp.up_proj.weight"].T)) @ w[p + "mlp.down_proj.weight"].T
        return self.norm(x, "model.norm.weight") @ w["model.embed_tokens.weight"].T


def top(logits, count=20):
    ids = np.argsort(-logits, kind="stable")[:count]
    return dict(ids=ids.tolist(), logits=[round(float(v), 6) for v in logits[ids]])


def main():
    models = {n: Reference(f"{HERE}/{n}") for n in ("target", "draft")}
    tokenizer = Tokenizer.from_file(f"{HERE}/target/tokenizer.json")
    cases, gap = [], np.inf
    for prompt in PROMPTS:
        ids = tokenizer.encode(prompt).ids
        case = dict(prompt=prompt, ids=ids, **{n: top(m.logits(ids)[-1]) for n, m in models.items()})
        text = list(ids)
        for _ in range(NEW_TOKENS):
            last = models["target"].logits(text)[-1]
            # A tie would let a rounding error change the text: the smallest margin is printed to show there is none.
            gap = min(gap, np.diff(np.sort(last)[-2:])[0])
            text.append(int(last.argmax()))
            if text[-1] == models["target"].c["eos_token_id"]:
                break
        case["continuation"] = text[len(ids):]
        case["text"] = tokenizer.decode(case["continuation"], skip_special_tokens=True)
        cases.append(case)
        if sys.argv[1:] == ["check"]:
            import torch
            from model import load
            for name, reference in models.items():
                ours = load(f"{HERE}/{name}")(torch.tensor([text]))[0].detach().double().numpy()
                theirs = reference.logits(text)
                print(f"{name}: largest difference {abs(ours - theirs).max():.2e}, "
                      f"same first choices {(ours.argmax(-1) == theirs.argmax(-1)).all()}")
    print(f"smallest margin between the first and second choice on the way: {gap:.4f}")
    with open(f"{HERE}/parity.json.tmp", "w") as f:
        json.dump(dict(comment="greedy, float64 arithmetic on the bfloat16 weights; ids begin with <|endoftext|>",
                       new_tokens=NEW_TOKENS, cases=cases), f, indent=1)
        f.write("\n")
    os.replace(f"{HERE}/parity.json.tmp", f"{HERE}/parity.json")


if __name__ == "__main__":
    main()
