#!/usr/bin/env python3
"""Every id of slm::Error in include/, tools/c_api/, tools/cli/, tools/demo/, examples/slm/, bench/command/ and bench/device/ is documented in docs/errors.md, and every documented id exists.
The page has a part for the library, the program and slm bench each; within a part, ids are in sections by the word before their dot, in order."""
import pathlib
import re
import sys

# Error("module.what-happened", ...) and Error{"...", with any line breaks; helpers whose first argument is an id count too.
THROWN = re.compile(r'"([a-z][a-z0-9_]*\.[a-z0-9]+(?:-[a-z0-9]+)*)"')
# Tables of tensor names ("mlp.fc1") contain strings of the same form: there, only directly thrown ids count.
NAME_TABLES = re.compile(r"include/slm/io/(famil(y\.hpp|ies/)|gguf_(model|families|architectures|metadata)\.hpp)")
THROWN_HERE = re.compile(r'Error\(\s*' + THROWN.pattern)
# Keys of GGUF files have the same form.
GGUF_KEY = re.compile(r"^(general|split)\.")
DOCUMENTED = re.compile(r"^\| `([a-z][a-z0-9_]*\.[a-z0-9-]+)` \|", re.M)
HEADING = re.compile(r"^(##+) (\w+)", re.M)
PARTS = {"include": "Library", "tools": "Program", "examples": "Program", "bench": "Bench"}
C_API = "tools/c_api/"  # belongs to the library
API_WORDS = {"chat.completion"}  # of OpenAI's
FILE_ENDING = re.compile(r"\.(jsonl?|model|safetensors|txt|cpp|hpp|md|py|weight|bias|bin|jinja)$")


def ids_in(root):
    ids = {}
    for folder in ("include", "tools/c_api", "tools/cli", "tools/demo", "examples/slm", "bench/command", "bench/device"):
        for path in sorted((pathlib.Path(root) / folder).rglob("*.[ch]pp")):
            code = re.sub(r"//.*", "", path.read_text())
            pattern = THROWN_HERE if NAME_TABLES.search(path.as_posix()) else THROWN
            for found in pattern.findall(code):
                if not FILE_ENDING.search(found) and not GGUF_KEY.search(found) and found not in API_WORDS:
                    ids.setdefault(found, path.relative_to(root).as_posix())
    return ids


def misplaced(page, thrown):
    """Ids in a wrong part or section, or out of order."""
    part, section, before = "", "", ""
    for line in page.splitlines():
        if heading := HEADING.match(line):
            part, section = (heading[2], "") if heading[1] == "##" else (part, heading[2])
            before = ""
        elif row := DOCUMENTED.match(line):
            name = row[1]
            belongs = part
            if name in thrown:
                belongs = PARTS["include" if thrown[name].startswith(C_API) else thrown[name].split("/")[0]]
            if (part, section) != (belongs, name.split(".")[0]):
                yield f"docs/errors.md: '{name}' belongs into the section '{name.split('.')[0]}' of '{belongs}'"
            elif name < before:
                yield f"docs/errors.md: '{name}' belongs before '{before}'"
            before = name


def main():
    root = pathlib.Path(sys.argv[1])
    thrown = ids_in(root)
    if "--list" in sys.argv:
        print("\n".join(f"{name}\t{path}" for name, path in sorted(thrown.items())))
        return
    page = root / "docs" / "errors.md"
    text = page.read_text() if page.exists() else ""
    listed = DOCUMENTED.findall(text)
    failures = [f"{path}: '{name}' is not in docs/errors.md" for name, path in sorted(thrown.items()) if name not in listed]
    failures += [f"docs/errors.md: '{name}' is thrown nowhere" for name in listed if name not in thrown]
    failures += [f"docs/errors.md: '{name}' is listed twice" for name in sorted(set(listed)) if listed.count(name) > 1]
    failures += misplaced(text, thrown)
    print("\n".join(failures))
    print(f"{len(thrown)} ids thrown, {len(listed)} documented, {len(failures)} wrong")
    sys.exit(1 if failures or not thrown else 0)


if __name__ == "__main__":
    main()
