#!/usr/bin/env python3
"""Measures the pair: `measure.py accept`, `loss`, `samples`, `plot`; `text` prints some of the corpus.

accept: how many drafted tokens the target accepts under greedy speculative decoding, on heads (signature and
docstring) of held-out functions. A round drafts `--draft-length` tokens; those before the first that differs from the
target's first choice are accepted, then one token of the target's own follows. A text ends after `--new-tokens` or
with the separator. Greedy speculative decoding emits exactly the target's greedy text and a draft that has been right
so far has that text as its context, so one pass of the draft over the finished text yields all of its proposals.
"""
import argparse
import csv
import glob
import json
import os

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer

from model import EOT, continue_texts, load

HERE = os.path.dirname(os.path.abspath(__file__))


def rounds(right, draft_length, limit):
    """Accepted tokens of each round, and the number of drafted tokens. `right[i]`: the draft's choice equals token i of a text
    with at most `limit` tokens. A shorter text ended with the separator; its last round still drafts in full."""
    at, accepted, drafted = 0, [], 0
    while at < len(right):
        span = right[at:at + draft_length]
        accepted.append(span.index(False) if False in span else len(span))
        drafted += min(draft_length, limit - at)
        at += accepted[-1] + 1
    return accepted, drafted


@torch.inference_mode()
def accept(a):
    target, draft = load(f"{a.pair}/target"), load(f"{a.pair}/draft")
    tokenizer = Tokenizer.from_file(f"{a.pair}/target/tokenizer.json")
    with open(f"{a.data}/heads.held.json") as f:
        prompts = [e.ids for e in tokenizer.encode_batch(json.load(f)) if len(e.ids) <= 200][:a.prompts]
    accepted, drafted, emitted, ended, same = [], 0, 0, 0, 0
    texts = [t for i in range(0, len(prompts), 64) for t in continue_texts(target, prompts[i:i + 64], a.new_tokens)]
    for prompt, text in zip(prompts, texts):
        guesses = draft(torch.tensor([prompt + text[:-1]]))[0, len(prompt) - 1:].argmax(-1).tolist()
        right = [g == t for g, t in zip(guesses, text)]
        ended += text[-1] == EOT
        got, width = rounds(right, a.draft_length, a.new_tokens)
        accepted += got
        drafted += width
        emitted += len(text)
        same += sum(right)
    print(f"{len(prompts)} prompts, {emitted} tokens ({ended} texts ended by themselves), draft length {a.draft_length}, "
          f"at most {a.new_tokens} new tokens")
    print(f"acceptance {sum(accepted) / drafted:.3f} (accepted/drafted), {emitted / len(accepted):.2f} tokens per target "
          f"step, the draft's first choice is the target's at {same / emitted:.3f} of the tokens")
    shares = [sum(n == k for n in accepted) / len(accepted) for k in range(a.draft_length + 1)]
    print("rounds by accepted tokens: " + ", ".join(f"{k}: {s:.2f}" for k, s in enumerate(shares)))


@torch.inference_mode()
def loss(a):
    """Held-out loss of the exported folders in float32, over every held-out window."""
    from train import held_out
    for name in ("target", "draft"):
        model = load(f"{a.pair}/{name}")
        for part in ("functions", "files"):
            windows = held_out(a.data, part, windows=64)
            nats = sum(F.cross_entropy(model(w[:, :-1]).flatten(0, 1), w[:, 1:].flatten(), reduction="sum").item()
                       for w in windows.split(8)) / windows[:, 1:].numel()
            print(f"{name} {part}: {nats:.3f} nats per token, perplexity {torch.tensor(nats).exp().item():.2f}")


def samples(a):
    """Greedy continuations of the prompts in prompts/."""
    model, tokenizer = load(f"{a.pair}/target"), Tokenizer.from_file(f"{a.pair}/target/tokenizer.json")
    for name in sorted(os.listdir(f"{a.pair}/prompts")):
        with open(f"{a.pair}/prompts/{name}") as f:
            head = f.read()
        text = continue_texts(model, [tokenizer.encode(head).ids], a.new_tokens)[0]
        print(f"# {name}\n{head}\033[1m{tokenizer.decode(text)}\033[0m\n")


def text(a):
    """Part of the corpus as text, with separators between documents, for calibration or perplexity."""
    import numpy
    tokenizer = Tokenizer.from_file(f"{a.pair}/target/tokenizer.json")
    for stream in a.streams:
        tokens = numpy.memmap(f"{a.data}/{stream}.bin", dtype=numpy.uint16, mode="r")
        print(tokenizer.decode(tokens[a.skip:a.skip + a.tokens].tolist(), skip_special_tokens=False), end="")


def plot(a):
    """Training and held-out loss of both runs as an SVG."""
    import matplotlib
    matplotlib.use("svg")
    import matplotlib.pyplot as plt
    plt.rcParams.update({"svg.hashsalt": "pair", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.4))
    for axis, name, first in zip(axes, ("target", "draft"), ("training", "training objective (see train.py)")):
        rows = []
        for part in sorted(glob.glob(f"{a.run}/{name}*.csv")):  # a resumed run counts its tokens from 0 again
            with open(part) as f:
                more = [{k: float(v) for k, v in r.items()} for r in csv.DictReader(f)][1:]
            before = rows[-1]["tokens"] if rows else 0
            rows += [{**r, "tokens": r["tokens"] + before} for r in more]
        tokens = [r["tokens"] / 1e6 for r in rows]
        axis.plot(tokens, [r["train"] for r in rows], color="0.6", lw=1, label=first)
        for part, colour in (("functions", "C0"), ("files", "C1")):
            axis.plot(tokens, [r[part] for r in rows], color=colour, lw=1.6, label=f"held-out {part}")
            upper = rows[-1][part] >= max(rows[-1]["functions"], rows[-1]["files"])
            axis.annotate(f"{rows[-1][part]:.2f}", (tokens[-1], rows[-1][part]), xytext=(3, 0), color=colour,
                          textcoords="offset points", va="bottom" if upper else "top")
        axis.set(title=name, xlabel="million tokens seen", ylabel="nats per token")
        axis.grid(alpha=0.25)
        axis.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(f"{a.pair}/loss.svg.tmp", format="svg", metadata={"Date": None})
    os.replace(f"{a.pair}/loss.svg.tmp", f"{a.pair}/loss.svg")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["accept", "loss", "samples", "text", "plot"])
    parser.add_argument("--pair", default=HERE, help="folder with draft/ and target/")
    parser.add_argument("--data", help="what corpus.py wrote")
    parser.add_argument("--run", help="plot: the logs of train.py")
    parser.add_argument("--prompts", type=int, default=128)
    parser.add_argument("--new-tokens", type=int, default=128)
    parser.add_argument("--draft-length", type=int, default=4)
    parser.add_argument("--streams", nargs="+", default=["functions.held"], help="text: streams of corpus.py")
    parser.add_argument("--tokens", type=int, default=40000, help="text: tokens per stream")
    parser.add_argument("--skip", type=int, default=0, help="text: tokens to skip first")
    parser.add_argument("--threads", type=int, default=1)
    a = parser.parse_args()
    torch.set_num_threads(a.threads)
    {"accept": accept, "loss": loss, "samples": samples, "text": text, "plot": plot}[a.what](a)


if __name__ == "__main__":
    main()
