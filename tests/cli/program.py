"""Common code of the tests of the program slm, called as NAME_test.py PROGRAM SOURCE_DIR SCRATCH_DIR."""
import json
import pathlib
import shutil
import subprocess
import sys
import unittest

from tiny_models import KINDS, byte_level

PROGRAM, SOURCE, SCRATCH = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
sys.path.insert(0, str(SOURCE / "tests" / "support"))
from adapter_folder import make_adapter_folder  # noqa: E402

MODELS = SOURCE / "tests" / "fixtures" / "models"
TOKENIZERS = SOURCE / "tests" / "fixtures" / "tokenizers"
PAIR = SOURCE / "examples" / "demo_pair"


def slm(*arguments, stdin=b"", stdout=subprocess.PIPE, before=None):
    """Runs the program. before: called in its process before it starts."""
    result = subprocess.run([PROGRAM, *map(str, arguments)], input=stdin, stdout=stdout, stderr=subprocess.PIPE, timeout=300,
                            preexec_fn=before)
    result.err = result.stderr.decode("utf-8", "replace")
    result.out = (result.stdout or b"").decode("utf-8", "strict")
    return result


def make_model(name, fixture, tokenizer=byte_level, **config):
    """A folder in the scratch folder: a fixture's weights, a tokenizer, and changed fields of config.json."""
    folder = SCRATCH / name
    shutil.copytree(MODELS / fixture, folder)
    if tokenizer:
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer()))
    fields = json.loads((folder / "config.json").read_text()) | config
    (folder / "config.json").write_text(json.dumps(fields))
    return folder


def make_adapter(name, seed, **config):
    """An adapter for the shape llama-mha3h."""
    return make_adapter_folder(SCRATCH / name, seed, layers=2, hidden=48, ffn=112, most=1, **config)


def tensors_of(folder):
    """name -> (type, bytes) of every tensor in the safetensors files of a folder."""
    found = {}
    for path in folder.glob("*.safetensors"):
        with open(path, "rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        for name, entry in header.items():
            if name != "__metadata__":
                found[name] = (entry["dtype"], entry["data_offsets"][1] - entry["data_offsets"][0])
    return found


class ProgramTest(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        shutil.rmtree(SCRATCH, ignore_errors=True)
        SCRATCH.mkdir(parents=True)
        cls.pairs = {  # of each kind of tokenizer
            kind: (make_model(f"target-{kind}", "llama-mha3h", tokenizer),
                   make_model(f"draft-{kind}", "llama3-gqa-scaled-tied", tokenizer))
            for kind, tokenizer in KINDS.items()
        }
        cls.target, cls.draft = cls.pairs["byte-level"]

    def ok(self, *arguments, **options):
        result = slm(*arguments, **options)
        self.assertEqual(result.returncode, 0, result.err)
        return result

    def as_json(self, *arguments, **options):
        """Runs with --json: exactly one JSON value, on one line, and nothing else."""
        result = self.ok(*arguments, "--json", **options)
        self.assertEqual(result.err, "")
        return json.loads(result.out)

    def error(self, expected, *arguments, status=1, **options):
        result = slm(*arguments, **options)
        self.assertEqual(result.returncode, status, result.err)
        self.assertRegex(result.err, expected)
        if status == 1:  # one line with a known id
            self.assertRegex(result.err, r"\Aslm: [^\n]* \[[a-z]+\.[a-z0-9-]+\]\n\Z")
        self.assertEqual(result.out, "")
        return result

    def generate(self, *arguments, prompt="def in", target=None, **options):
        return self.as_json("generate", "--target", target or self.target, "--prompt", prompt, "--max-new-tokens", 24,
                            *arguments, **options)
