#!/usr/bin/env python3
"""Trains the demo pair. `train.py target` trains the target on the corpus. `train.py write` generates texts with it from
function heads. `train.py draft` trains the draft on the target's predictions, on those texts and on the corpus.

Run `corpus.py` first; README.md has the commands. Matrices are trained with Muon, which needs about half the tokens
that AdamW needs at this size; embeddings and norms with AdamW. The learning rate is constant after a short warm-up
and falls linearly to zero over the last part, so that a run can also be given a time limit.
"""
import argparse
import csv
import json
import os
import time

os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer

from model import DRAFT, EOT, TARGET, Llama, continue_texts, export, load, make_config, write_atomically


class Stream:
    """Windows of a token stream, every one once per epoch, in an order fixed by the seed."""

    def __init__(self, path, seed, by_document):
        self.ids, self.random = np.fromfile(path, dtype=np.uint16), np.random.default_rng(seed)
        self.starts = np.flatnonzero(self.ids == EOT) if by_document else None
        self.queue = np.empty(0, dtype=np.int64)

    def window(self, length):
        while True:
            if not len(self.queue):
                # Whole files are cut at random places; functions and written texts begin where their text begins,
                # as a prompt does.
                at = self.starts if self.starts is not None else \
                    np.arange(self.random.integers(length), len(self.ids), length)
                self.queue = self.random.permutation(at)
            start, self.queue = self.queue[0], self.queue[1:]
            if start + length < len(self.ids):
                return self.ids[start:start + length + 1]


def batches(streams, shares, length, tokens):
    """A batch of windows from several streams, a share of its rows from each."""
    rows = tokens // length
    counts = [round(rows * s) for s in shares]
    counts[0] = rows - sum(counts[1:])
    while True:
        yield torch.from_numpy(np.stack(
            [s.window(length) for s, n in zip(streams, counts) for _ in range(n)]).astype(np.int64))


def held_out(data, name, windows=24, length=512):
    """Evenly spaced held-out windows, always the same."""
    ids = np.fromfile(f"{data}/{name}.held.bin", dtype=np.uint16).astype(np.int64)
    starts = np.linspace(0, len(ids) - length - 1, windows).astype(int)
    return torch.from_numpy(np.stack([ids[s:s + length + 1] for s in starts]))


@torch.no_grad()
def evaluate(model, windows):
    """Mean cross-entropy per token, in bfloat16 like the training."""
    total = 0.0
    for chunk in windows.split(4):
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(chunk[:, :-1])
        total += F.cross_entropy(logits.float().flatten(0, 1), chunk[:, 1:].flatten(), reduction="sum").item()
    return total / windows[:, 1:].numel()


class Optimizer:
    """Muon for the matrices inside the blocks, AdamW for the rest, under one schedule."""

    def __init__(self, model, muon_lr, adam_lr, warmup, decay):
        inner = [p for n, p in model.named_parameters() if p.dim() == 2 and "layers" in n]
        outer = [p for n, p in model.named_parameters() if not (p.dim() == 2 and "layers" in n)]
        self.parameters, self.warmup, self.decay = inner + outer, warmup, decay
        self.parts = [torch.optim.Muon(inner, lr=muon_lr, momentum=0.95, weight_decay=0.02),
                      torch.optim.AdamW(outer, lr=adam_lr, betas=(0.9, 0.95), weight_decay=0.0, fused=True)]
        self.peak = [muon_lr, adam_lr]

    def step(self, step, progress):
        scale = min(1.0, (step + 1) / self.warmup, max(0.0, 1 - progress) / self.decay)
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        for part, peak in zip(self.parts, self.peak):
            part.param_groups[0]["lr"] = peak * scale
            part.step()
            part.zero_grad()
        return scale


def run(model, loss_of, sources, windows, tests, a, name):
    """The training loop: `sources(length)` gives batches, `windows` the window lengths as (from progress, length)."""
    optimizer = Optimizer(model, a.muon_lr, a.adam_lr, warmup=20 if a.resume else 100, decay=a.decay)
    if a.resume:
        model.load_state_dict(torch.load(a.resume))
    compiled = loss_of if a.eager else torch.compile(loss_of, dynamic=False)
    os.makedirs(a.run, exist_ok=True)
    log = open(f"{a.run}/{name}{a.part}.csv", "w", newline="")
    table = csv.writer(log)
    table.writerow(["step", "tokens", "seconds", "lr_scale", "train"] + list(tests))
    begun, tokens, recent, current, feed = time.time(), 0, [], 0, None
    step = 0
    while True:
        done = max(step / a.steps, (time.time() - begun) / 60 / a.minutes if a.minutes else 0)
        progress = a.begin + (a.end - a.begin) * min(1.0, done)
        if step % a.every == 0 or done >= 1:
            scores = [evaluate(model, t) for t in tests.values()]
            mean = sum(recent) / max(1, len(recent))
            spent = time.time() - begun
            table.writerow([step, tokens, round(spent), round(optimizer_scale(optimizer), 4), round(mean, 4)]
                           + [round(s, 4) for s in scores])
            log.flush()
            left = spent * (1 - done) / max(done, 1e-9)
            print(f"{name} step {step:5} {tokens / 1e6:6.2f} M tokens  loss {mean:.3f}  held out "
                  + " ".join(f"{k} {s:.3f}" for k, s in zip(tests, scores))
                  + f"  {tokens / max(spent, 1e-9):5.0f} tok/s  {spent / 60:4.1f} min, {left / 60:4.1f} left", flush=True)
            recent = []
            if step:
                write_atomically(f"{a.run}/{name}.pt", lambda p: torch.save(model.state_dict(), p))
            if done >= 1:
                return
        length = [w for at, w in windows if progress >= at][-1]
        if length != current:
            current, feed = length, sources(length)
        batch = next(feed)
        loss = compiled(batch)
        loss.backward()
        optimizer.step(step, progress)
        recent.append(loss.item())
        tokens += batch[:, 1:].numel()
        step += 1


def optimizer_scale(optimizer):
    return optimizer.parts[0].param_groups[0]["lr"] / optimizer.peak[0]


def train_target(a):
    model = Llama(make_config(TARGET))
    print(f"target: {sum(p.numel() for p in model.parameters()):,} parameters")
    streams = [Stream(f"{a.data}/files.train.bin", a.seed, False), Stream(f"{a.data}/functions.train.bin", a.seed, True)]

    def loss_of(batch):
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(batch[:, :-1])
        return F.cross_entropy(logits.float().flatten(0, 1), batch[:, 1:].flatten())

    # Most of what a window of 1024 teaches, one of 256 teaches for less; the long ones come last.
    run(model, loss_of, lambda length: batches(streams, (0.5, 0.5), length, a.batch_tokens),
        list(zip((0, 0.7, 0.9), a.windows)), {n: held_out(a.data, n) for n in ("functions", "files")}, a, "target")
    export(model.state_dict(), model.config, f"{a.data}/tokenizer.json", f"{a.out}/target")


def write_texts(a):
    """Generates the target's continuations of training heads, as training texts of the draft."""
    model = load(f"{a.out}/target").to(torch.bfloat16)
    with open(f"{a.data}/heads.train.json") as f:
        heads = json.load(f)[:a.texts]
    tokenizer = Tokenizer.from_file(f"{a.data}/tokenizer.json")
    prompts = [e.ids for e in tokenizer.encode_batch(heads)]
    # Batches of similar length need little padding; the order of texts is shuffled when they are read.
    prompts = sorted((p for p in prompts if len(p) <= 128), key=len)
    chunks = [prompts[i:i + 128] for i in range(0, len(prompts), 128)]
    order = np.random.default_rng(a.seed).permutation(len(chunks))
    generator, out, begun = torch.Generator().manual_seed(a.seed), [], time.time()
    for done, chunk in enumerate(chunks[i] for i in order):
        # Every fourth text is drawn at a low temperature, for variety and for use with sampling.
        temperature = torch.tensor([0.7 if i % 4 == 3 else 0.0 for i in range(len(chunk))])
        for prompt, text in zip(chunk, continue_texts(model, chunk, a.new_tokens, temperature, generator)):
            out += prompt + (text[:-1] if text[-1] == EOT else text)
        spent = time.time() - begun
        print(f"wrote {done + 1}/{len(chunks)} batches, {len(out) / 1e6:.2f} M tokens, {spent / 60:.1f} min, "
              f"{spent / 60 * (len(chunks) / (done + 1) - 1):.1f} left", flush=True)
        if a.minutes and spent / 60 > a.minutes:
            break
    os.makedirs(a.run, exist_ok=True)
    write_atomically(f"{a.run}/written.bin", lambda p: np.array(out + [EOT], dtype=np.uint16).tofile(p))


def agreement(model, windows, target):
    """How often both models' first choices are the same on held-out text."""
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        same = [(model(w[:, :-1]).argmax(-1) == target(w[:, :-1]).argmax(-1)).float().mean() for w in windows.split(4)]
    return torch.stack(same).mean().item()


def train_draft(a):
    target = load(f"{a.out}/target").requires_grad_(False)
    model = Llama(make_config(DRAFT))
    with torch.no_grad():
        # The draft's embedding starts as the best rank-128 approximation of the target's embedding, which took most of
        # the target's training. It is scaled down, so that training can still change it.
        u, s, _ = torch.linalg.svd(target.model.embed_tokens.weight, full_matrices=False)
        width = model.config["hidden_size"]
        model.model.embed_tokens.weight.copy_(u[:, :width] * s[:width] * 0.3)
        model.model.norm.weight.copy_(torch.full((width,), target.model.norm.weight.mean().item()))
    print(f"draft: {sum(p.numel() for p in model.parameters()):,} parameters")
    sources = [(f"{a.data}/functions.train.bin", True), (f"{a.data}/files.train.bin", False),
               (f"{a.run}/written.bin", True)]
    streams = [Stream(path, a.seed, whole) for (path, whole), share in zip(sources, a.shares) if share]
    shares = [share for share in a.shares if share]

    def loss_of(batch):
        with torch.autocast("cpu", torch.bfloat16):
            with torch.no_grad():
                wanted = target(batch[:, :-1])
            logits = model(batch[:, :-1])
        logits, wanted = logits.float().flatten(0, 1), wanted.float().flatten(0, 1)
        # The divergence matches the draft's distribution to the target's; the second term rewards the same first choice,
        # which is what greedy decoding compares.
        return F.kl_div(logits.log_softmax(-1), wanted.log_softmax(-1), log_target=True, reduction="batchmean") \
            + a.first_choice * F.cross_entropy(logits, wanted.argmax(-1))

    tests = {n: held_out(a.data, n) for n in ("functions", "files")}
    run(model, loss_of, lambda length: batches(streams, shares, length, a.batch_tokens),
        list(zip((0, 0.85, 0.95), a.windows)), tests, a, "draft")
    print("first choices agree on held-out text: "
          + ", ".join(f"{n} {agreement(model, w, target):.3f}" for n, w in tests.items()))
    export(model.state_dict(), model.config, f"{a.data}/tokenizer.json", f"{a.out}/draft")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["target", "write", "draft"])
    parser.add_argument("--data", required=True, help="what corpus.py wrote")
    parser.add_argument("--run", required=True, help="logs and checkpoints")
    parser.add_argument("--out", default=os.path.dirname(os.path.abspath(__file__)), help="where draft/ and target/ go")
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--minutes", type=float, default=0, help="stop by this time even if steps are left")
    parser.add_argument("--batch-tokens", type=int, default=4096)
    parser.add_argument("--muon-lr", type=float, default=0.02)
    parser.add_argument("--adam-lr", type=float, default=0.003)
    parser.add_argument("--decay", type=float, default=0.45, help="the share of the run over which the rate falls")
    parser.add_argument("--texts", type=int, default=20000, help="write: how many heads to continue")
    parser.add_argument("--new-tokens", type=int, default=128, help="write: the longest continuation")
    parser.add_argument("--shares", type=float, nargs=3, default=[0.25, 0.125, 0.625],
                        help="draft: shares of functions, files and the target's own texts")
    parser.add_argument("--first-choice", type=float, default=0.5, help="draft: weight of the target's first choice")
    parser.add_argument("--resume", help="checkpoint to continue from")
    parser.add_argument("--begin", type=float, default=0.0, help="start of this run in the schedule, 0 to 1")
    parser.add_argument("--end", type=float, default=1.0, help="end of this run in the schedule, 0 to 1")
    parser.add_argument("--part", default="", help="a suffix for the log of a resumed run")
    parser.add_argument("--windows", type=int, nargs="+", default=[256, 512, 1024], help="window lengths, see the code")
    parser.add_argument("--every", type=int, default=200, help="steps between evaluations and checkpoints")
    parser.add_argument("--eager", action="store_true", help="no compilation: immediate start, slower steps")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=7)
    a = parser.parse_args()
    torch.manual_seed(a.seed)
    torch.set_num_threads(a.threads)
    {"target": train_target, "write": write_texts, "draft": train_draft}[a.what](a)


if __name__ == "__main__":
    main()
