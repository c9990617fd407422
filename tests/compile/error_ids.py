#!/usr/bin/env python3
"""Every id of slm::Error in include/, tools/cli/, examples/slm/, bench/command/ and bench/device/ is documented in docs/errors.md, and every documented id exists."""
import pathlib
import re
import sys

# Error("room.what-happened", ...) and Error{"...", whatever the line breaks; helpers that take an id first count too.
THROWN = re.compile(r'"([a-z][a-z0-9_]*\.[a-z0-9]+(?:-[a-z0-9]+)*)"')
# Tables of tensor names ("mlp.fc1") hold strings of the same form: there, only what is thrown on the spot counts.
NAME_TABLES = re.compile(r"include/slm/io/(famil(y\.hpp|ies/)|gguf_model\.hpp)")
THROWN_HERE = re.compile(r'Error\(\s*' + THROWN.pattern)
# Keys of GGUF files have the same form.
GGUF_KEY = re.compile(r"^(general|split)\.")
DOCUMENTED = re.compile(r"^\| `([a-z][a-z0-9_]*\.[a-z0-9-]+)` \|", re.M)
API_WORDS = {"chat.completion"}  # of OpenAI's
FILE_ENDING = re.compile(r"\.(jsonl?|model|safetensors|txt|cpp|hpp|md|py|weight|bias|bin|jinja)$")


def ids_in(root):
    ids = {}
    for folder in ("include", "tools/cli", "examples/slm", "bench/command", "bench/device"):
        for path in sorted((pathlib.Path(root) / folder).rglob("*.[ch]pp")):
            code = re.sub(r"//.*", "", path.read_text())
            pattern = THROWN_HERE if NAME_TABLES.search(path.as_posix()) else THROWN
            for found in pattern.findall(code):
                if not FILE_ENDING.search(found) and not GGUF_KEY.search(found) and found not in API_WORDS:
                    ids.setdefault(found, path.relative_to(root).as_posix())
    return ids


def main():
    root = pathlib.Path(sys.argv[1])
    thrown = ids_in(root)
    if "--list" in sys.argv:
        print("\n".join(f"{name}\t{path}" for name, path in sorted(thrown.items())))
        return
    page = root / "docs" / "errors.md"
    listed = DOCUMENTED.findall(page.read_text()) if page.exists() else []
    failures = [f"{path}: '{name}' is not in docs/errors.md" for name, path in sorted(thrown.items()) if name not in listed]
    failures += [f"docs/errors.md: '{name}' is thrown nowhere" for name in listed if name not in thrown]
    failures += [f"docs/errors.md: '{name}' is listed twice" for name in sorted(set(listed)) if listed.count(name) > 1]
    print("\n".join(failures))
    print(f"{len(thrown)} ids thrown, {len(listed)} documented, {len(failures)} wrong")
    sys.exit(1 if failures or not thrown else 0)


if __name__ == "__main__":
    main()
