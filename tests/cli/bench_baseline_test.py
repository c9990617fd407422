#!/usr/bin/env python3
"""slm bench speculative --baseline on the command line.

usage: bench_baseline_test.py PROGRAM SOURCE_DIR ENGINE

fake: an engine that returns invented measurements and misbehaves. transformers, llama.cpp: that engine, on weights in F32,
where its greedy texts must equal slm's; skips (exit code 77) if its packages cannot be imported. SLM_PEERS_PYTHON names
the interpreter that has them.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from tiny_models import sentencepiece

PROGRAM, SOURCE = sys.argv[1], pathlib.Path(sys.argv[2])
PAIR = SOURCE / "examples" / "demo_pair"
FAKE = SOURCE / "tests" / "cli" / "fake_engine.py"
PACKAGES = {"transformers": "torch, transformers", "llama.cpp": "llama_cpp, gguf, numpy"}
SKIPPED = 77


def measure(out, *arguments, tasks=2, **environment):
    command = [PROGRAM, "bench", "speculative", "--setup", "published", "--sampling", "greedy", "--sweep", "0", "--threads",
               "1", "--max-new-tokens", "48", "--tasks", tasks, "--out", out, *arguments]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=500,
                          env={**os.environ, **environment})
    rows = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    return done, {(row["engine"], row["kind"], row["task_id"]): row for row in rows}


def check(holds, what, done):
    if not holds:
        sys.exit(f"{what}\n--- exit code {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")


def fake(scratch):
    done, rows = measure(scratch / "good", "--baseline", FAKE)
    check(done.returncode == 0 and len(rows) == 8, "a good engine has its rows", done)
    check("fake" in done.stdout and "0 of 2; others part after 0 tokens" in done.stdout, "the table states the difference", done)
    check((scratch / "good" / "other-engines.svg").exists() or "no pictures: " in done.stdout, "there is a picture", done)
    before = (scratch / "good" / "results.jsonl").read_bytes()
    done, _ = measure(scratch / "good", "--baseline", FAKE)
    check(done.returncode == 0 and (scratch / "good" / "results.jsonl").read_bytes() == before, "nothing twice", done)
    done, _ = measure(scratch / "good", "--baseline", FAKE, FAKE_VERSION="2")
    check(done.returncode == 1 and "bench.other-engine" in done.stderr, "another version is refused", done)

    # The text of other engines is also the part added to the prompt: here the space between.
    model = scratch / "sentencepiece"
    shutil.copytree(SOURCE / "tests" / "fixtures" / "models" / "llama-mha3h", model)
    (model / "tokenizer.json").write_text(json.dumps(sentencepiece()))
    task = scratch / "task.jsonl"
    task.write_text(json.dumps({"task_id": "t", "prompt": "a", "entry_point": "f", "canonical_solution": "", "test": ""}))
    done, rows = measure(scratch / "spaces", "--target", model, "--draft", model, "--humaneval", task, "--baseline", FAKE)
    check(rows["fake", "plain", "t"]["completion"].startswith("  # "), "the space is there, and evened", done)

    done, rows = measure(scratch / "late", "--baseline", FAKE, tasks=3, FAKE_ENGINE="late")
    check(done.returncode == 1 and "bench.baseline-failed" in done.stderr, "a failure in the middle is an error", done)
    check("fake was stopped at" in done.stdout and "baseline.bad-answer" in done.stdout, "it is in the report", done)
    check(sum(key[0] == "slm" for key in rows) == 6 and sum(key[0] == "fake" for key in rows) == 3, "rows are kept", done)
    done, rows = measure(scratch / "late", "--baseline", FAKE, tasks=3)
    check(done.returncode == 0 and len(rows) == 12, "what was missing is measured afterwards", done)

    for fault, message in {"missing": "No module named 'a_package_that_nobody_has'", "weights": "sha256:0 against sha256:"}.items():
        done, rows = measure(scratch / fault, "--baseline", FAKE, FAKE_ENGINE=fault)
        check(done.returncode == 1 and message in done.stderr, f"{fault} is reported before any measurement", done)
    done, _ = measure(scratch / "python", "--baseline", "transformers", "--python", "/nowhere/python3")
    check(done.returncode == 1 and "child.cannot-start" in done.stderr, "no interpreter", done)
    done, _ = measure(scratch / "unknown", "--baseline", "vllm")
    check(done.returncode == 1 and "baseline.unknown" in done.stderr, "no such engine", done)
    done, _ = measure(scratch / "device", "--baseline", FAKE, "--draft-backend", "reference")
    check(done.returncode == 1 and "baseline.other-device" in done.stderr, "another device", done)
    print("an engine's rows, faults and resumption: as expected")


def in_float32(folder, source):
    """A folder of BF16 weights as exact F32: two zero bytes before each element."""
    shutil.copytree(source, folder)
    content = (source / "model.safetensors").read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8:8 + length])
    for name, entry in header.items():
        if name != "__metadata__":
            assert entry["dtype"] == "BF16"
            entry.update(dtype="F32", data_offsets=[2 * offset for offset in entry["data_offsets"]])
    text = json.dumps(header).encode()
    data = bytearray(2 * (len(content) - 8 - length))
    data[2::4], data[3::4] = content[8 + length::2], content[9 + length::2]
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "torch_dtype": "float32"}))
    return folder


def real(scratch, engine):
    python = os.environ.get("SLM_PEERS_PYTHON", sys.executable)
    if subprocess.run([python, "-c", f"import {PACKAGES[engine]}"], capture_output=True).returncode != 0:
        print(f"skipped: {python} cannot import {PACKAGES[engine]}")
        sys.exit(SKIPPED)
    target, draft = (in_float32(scratch / name, PAIR / name) for name in ("target", "draft"))
    tasks = scratch / "tasks.jsonl"
    tasks.write_text("".join(json.dumps({"task_id": file.stem, "prompt": file.read_text(), "entry_point": "f",
                                         "canonical_solution": "", "test": ""}) + "\n"
                             for file in sorted((PAIR / "prompts").iterdir())))
    pair = ["--target", target, "--draft", draft, "--humaneval", tasks]
    done, rows = measure(scratch / "run", *pair, "--baseline", engine, "--python", python, tasks=4)
    check(done.returncode == 0 and len(rows) == 16, "all rows are there", done)
    for (name, kind, task), row in rows.items():
        if name == "slm":
            other = rows[engine, kind, task]
            check(other["new_ids"] == row["new_ids"], f"{task}, {kind}: the texts are the same", done)
            if kind == "plain":
                continue
            check(other["drafted"] == row["drafted"] and other["rounds"] == row["rounds"], f"{task}: the same rounds", done)
            # transformers does not count a drafted token that ends the text
            missing = {0, 1} if engine == "transformers" and row["finish_reason"] == "end_token" else {0}
            check(row["accepted"] - other["accepted"] in missing, f"{task}: the same tokens are accepted", done)
    print(f"{engine}: the greedy texts of {len(rows) // 4} tasks, drafts and rounds are slm's")

    # The embedded target in four bits: weights that none of these engines can load.
    pair = ["--target", PAIR / "target-int4", "--draft", draft, "--humaneval", tasks]
    done, _ = measure(scratch / "int4", *pair, "--baseline", engine, "--python", python)
    check(done.returncode == 1 and "baseline.refused" in done.stderr and "quantiz" in done.stderr, "int4 is refused", done)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        fake(pathlib.Path(folder)) if sys.argv[3] == "fake" else real(pathlib.Path(folder), sys.argv[3])
