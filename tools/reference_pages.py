#!/usr/bin/env python3
"""Generates pages of docs/reference/ from the program: its command line and the metrics of its server.
usage: reference_pages.py PROGRAM SOURCE [--check]
--check writes nothing and fails if a page differs from the program's output."""
import difflib
import json
import pathlib
import re
import subprocess
import sys
import urllib.request

PROGRAM, SOURCE = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
COLUMN = 30  # column of the explanations in --help
# Defaults that depend on the machine or the checkout.
OF_THE_MACHINE = {("slm bench check", "--jobs"): "one per core"}
MEND = "python3 tools/reference_pages.py build/cpu/bin/slm ."


def ask(*arguments):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, check=True).stdout


# ---- the command line

def entries(lines):
    """(option, explanation) of each option in a block of --help."""
    found = []
    for line, after in zip(lines, lines[1:] + [""]):
        if line.startswith(" " * COLUMN):
            found[-1][1] = line.strip()
        elif after.startswith(" " * COLUMN):
            found.append([line.strip(), ""])
        else:
            found.append([line[:COLUMN].strip(), line[COLUMN:].strip()])
    return found


def values(kind):
    """The value of an option, in words."""
    if choice := re.fullmatch(r"(?:TEXT|INT):([({].*)", kind):
        return ", ".join(f"`{word}`" for word in re.findall(r"gpu:N|[\w.-]+", choice[1]) if word != "OR")
    if span := re.fullmatch(r"(INT|UINT|FLOAT):\w+ in \[(\S+) - (\S+)\]", kind):
        return f"{'number' if span[1] == 'FLOAT' else 'integer'}, {span[2]} to {span[3]}"
    words = {"TEXT": "text", "INT": "integer", "UINT": "integer, 0 or more", "UINT:POSITIVE": "integer, 1 or more",
             "FLOAT": "number", "SIZE:SIZE [b, kb(=1024b), ...]": "size, such as `4GiB`", "": ""}
    return words.get(kind, f"`{kind}`")


def row(command, left, meaning, one_of_group):
    names, _, rest = left.partition(" ")
    names = re.sub(r"\{\w+\}", "", names)  # --no-clip{false}
    relations = {}
    for word in ("Excludes", "Needs"):
        if match := re.search(rf" ?{word}:((?: --?[\w-]+)+)", " " + rest):
            relations[word] = match[1].split()
            rest = (" " + rest).replace(match[0], "").strip()
    required = "REQUIRED" in rest.split()
    several = "..." in rest.split()
    kind = " ".join(word for word in rest.split() if word not in ("REQUIRED", "..."))
    default = ""
    if match := re.search(r"=([^\s=(){}\[\],]*[^\s=(){}\[\],A-Z][^\s=(){}\[\],]*)$", kind):
        kind, default = kind[:match.start()], match[1]
    default = re.sub(r"^/.*/(?=examples/)", "", default)
    default = OF_THE_MACHINE.get((command, names), f"`{default}`" if default else "")
    notes = [meaning] if meaning else []
    if several and "several times" not in meaning and "repeated" not in meaning:
        notes.append("may be repeated")
    if "Needs" in relations:
        notes.append("needs " + ", ".join(f"`{name}`" for name in relations["Needs"]))
    if "Excludes" in relations:
        notes.append("not with " + ", ".join(f"`{name}`" for name in relations["Excludes"]))
    default = "required" if required else "one of these" if one_of_group else default
    cells = [", ".join(f"`{name}`" for name in names.split(",")), values(kind), default, "; ".join(notes)]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def section(command):
    """The section of a command and the sections of its subcommands."""
    lines = ask(*command.split()[1:], "--help").splitlines()
    usage = next(line for line in lines if line.startswith("Usage: "))
    subcommands, rows, block, inner, kind = [], [], [], 0, ""

    def close():
        for left, meaning in entries(block):
            if not left.startswith(("-h,", "--version")):
                rows.append(row(command, left, meaning, inner > 0))
        block.clear()

    for line in lines[lines.index(usage) + 1:]:
        bare = line.strip()
        if bare.startswith("[Option Group"):
            close()
            inner = 2
        elif bare in ("Options:", "Positionals:", "Subcommands:"):
            close()
            kind = bare
        elif not bare or bare.startswith(("one of", "[Exactly")):
            continue
        elif kind == "Subcommands:" and line.startswith("  ") and not line.startswith("    "):
            subcommands.append(bare.split()[0])
        elif kind != "Subcommands:" and line.startswith("  "):
            block.append(line[inner:])
    close()
    out = []
    if not subcommands:
        about = lines[0][0].lower() + lines[0][1:] if lines[0][1].islower() else lines[0]
        out = [f"## {command}", "", f"`{usage.removeprefix('Usage: ')}`: {about}.", "",
               "| argument | takes | default | meaning |", "|---|---|---|---|", *rows, ""]
    for name in subcommands:
        out += section(f"{command} {name}")
    return out


def command_line():
    head = ["# Command line", "",
            "All subcommands of the program `slm` with their options, as `--help` prints them. This page is generated by",
            f"`{MEND}`, and a test compares it with the program.", "",
            "Every subcommand has `-h` and `--help`, the program itself has `--version`. If options exclude each other, or one of",
            "a group is required, the program reports it. The exit status is 0 for success, 1 for an error",
            "([errors](../errors.md)), and 2 for an invalid command line.", ""]
    return "\n".join(head + section("slm")).rstrip() + "\n"


# ---- the metrics

def metrics_page(*arguments):
    """A server's metrics after a request."""
    server = subprocess.Popen([PROGRAM, "serve", *arguments, "--port", "0", "--json", "--cache-memory", "64MiB"],
                              stdout=subprocess.PIPE, text=True)
    try:
        address = json.loads(server.stdout.readline())
        request = {"prompt": "def add(a, b):", "max_tokens": 4, "temperature": 0}
        base = f"http://127.0.0.1:{address['port']}"
        urllib.request.urlopen(urllib.request.Request(f"{base}/v1/completions", json.dumps(request).encode(),
                                                      {"Content-Type": "application/json"})).read()
        return urllib.request.urlopen(f"{base}/metrics").read().decode()
    finally:
        server.terminate()
        server.wait()
        server.stdout.close()


def metrics():
    """Names, kinds and meanings of the metrics of a server with a draft and adapters, and of one with several models."""
    pair = SOURCE / "examples" / "demo_pair"
    text = metrics_page("--target", pair / "target", "--draft", pair / "draft", "--adapters", SOURCE / "examples" / "adapters")
    text += metrics_page("--model", f"demo={pair / 'target'}")
    helps = dict(re.findall(r"^# HELP (\S+) (.*)$", text, re.M))
    kinds = dict(re.findall(r"^# TYPE (\S+) (.*)$", text, re.M))
    labels = {}
    for name, inside in re.findall(r"^([\w:]+)\{(.*)\} ", text, re.M):
        found = labels.setdefault(re.sub(r"_(bucket|sum|count)$", "", name) if name not in kinds else name, [])
        found += [label for label in re.findall(r"(\w+)=\"", inside) if label not in found and label not in ("model_name", "engine", "le")]
    rows = [f"| `{name}` | {kinds[name]} | {', '.join(f'`{label}`' for label in labels.get(name, []))} | {about} |"
            for name, about in helps.items()]
    head = ["# Metrics", "",
            "The metrics of `GET /metrics` of `slm serve`, in Prometheus' text format. Names with `vllm:` have the meaning of",
            "vLLM; names with `slm:` do not exist in vLLM. These have the labels `model_name` and `engine`. Names with",
            "`llamacpp:` have the meaning of llama.cpp's server, and no labels: they are sums over the models. A histogram has",
            "`_bucket` with the label `le`, `_sum` and `_count`. The KV cache's share and pages are present if `--cache-memory`",
            "limits it, adapters if the server has any, `slm:model_` if it has several models. This page is generated by",
            f"`{MEND}`, and a test compares it with a server.", "",
            "| name | kind | further labels | meaning |", "|---|---|---|---|"]
    return "\n".join(head + rows) + "\n"


def without_sections(page, names):
    for name in names:
        page = re.sub(rf"^## {name}\n.*?(?=^## |\Z)", "", page, flags=re.M | re.S)
    return page


def main():
    server = re.search(r"^  serve ", ask("--help"), re.M)  # absent if Boost was not found
    pages = {"command-line.md": command_line()} | ({"metrics.md": metrics()} if server else {})
    folder, same = SOURCE / "docs" / "reference", True
    for name, text in pages.items():
        path = folder / name
        if "--check" not in sys.argv:
            folder.mkdir(exist_ok=True)
            path.write_text(text)
            continue
        there = path.read_text() if path.exists() else ""
        if not server:
            there = without_sections(there, ["slm serve"])
        difference = list(difflib.unified_diff(there.splitlines(), text.splitlines(), f"docs/reference/{name}", "the program", lineterm="", n=0))
        print("\n".join(difference))
        same &= not difference
    if not same:
        sys.exit(f"the reference differs from the program's output: run {MEND}")


if __name__ == "__main__":
    main()
