#!/usr/bin/env python3
"""Checks pages of documentation: prose has at most 120 columns, pages have a limited length, and every reference exists: links and their anchors, files named between backquotes or in commands, headers that code includes, options of the program and of CMake, pages from the index.
usage: docs.py ROOT"""
import pathlib
import re
import sys

WIDTH = 120
LINES, LINES_OF_REFERENCE = 200, 600
REFERENCE = {"docs/errors.md", "docs/models.md", "docs/benchmarks.md"}  # and docs/reference/
TOP = r"(?:bench|cmake|docs|examples|include|tests|tools)"
LINK = re.compile(r"\]\(([^()\s]+)\)|(?:src|srcset)=\"([^\"]+)\"")
HEADING = re.compile(r"^#+ +(.*)$", re.M)
CODE_SPAN = re.compile(r"`([^`]+)`")
PATH = re.compile(rf"(?<![\w./-]){TOP}/[\w./*-]+")
INCLUDE = re.compile(r"^#include <(slm/[\w/.]+)>", re.M)
HEADER_IN_A_ROOM = re.compile(r"^[\w/]+\.(?:hpp|inc)$")
COMMAND = re.compile(r"(?:^|[ /])slm ((?:bench )?[a-z]+)((?: .*)?)$", re.M)
OPTION = re.compile(r"(?<![\w-])(--[a-z][a-z-]*)")
CMAKE_OPTION = re.compile(r"^ *(?:option|set)\((SLM_\w+) .*(?:CACHE|ON|OFF|PROJECT_IS_TOP_LEVEL)", re.M)
GENERATED = re.compile(r"slm_models/")  # headers that slm_add_model writes


def split(text):
    """(prose, code): the lines of each, blank where the other is, so that line numbers stay."""
    prose, code, fenced, indented_list = [], [], False, False
    for line in text.split("\n"):
        fence = line.lstrip().startswith("```")
        if re.match(r"\s*([-*]|\d+\.) ", line):
            indented_list = True
        elif line and not line.startswith(" "):
            indented_list = False
        is_code = fenced or fence or (line.startswith("    ") and not indented_list)
        prose.append("" if is_code else line)
        code.append(line if is_code and not fence else "")
        fenced ^= fence
    return prose, code


def slug(heading):
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def anchors(path):
    prose, _ = split(path.read_text())
    found = set()
    for heading in HEADING.findall("\n".join(prose)):
        name = slug(heading)
        number = 0
        while (f"{name}-{number}" if number else name) in found:
            number += 1
        found.add(f"{name}-{number}" if number else name)
    return found


def linked(page, target):
    """The file of a relative link, or None."""
    path = (page.parent / target.split("#")[0]).resolve() if target.split("#")[0] else page
    return path if path.exists() else None


def exists(root, name):
    name = name.rstrip(".,:;/")
    return any(root.glob(name)) if "*" in name else (root / name).exists()


def options_of_commands(root):
    """The options of each subcommand in the reference of the command line."""
    sections = re.split(r"^## slm (.*)$", (root / "docs" / "reference" / "command-line.md").read_text(), flags=re.M)[1:]
    return {name: {"--help", *OPTION.findall(text)} for name, text in zip(sections[::2], sections[1::2])}


def wrong_commands(commands, text):
    """Options of `slm SUBCOMMAND --option` in code that the program does not have."""
    for name, rest in COMMAND.findall(re.sub(r"\\\n", " ", text)):
        if name not in commands:
            name = name.removeprefix("bench ")  # prose such as `slm bench`, or several subcommands
            if not any(name in command.split() for command in commands) and name != "help":
                yield f"slm has no subcommand '{name}'"
            continue
        for option in OPTION.findall(rest.split("  #")[0]):
            if option not in commands[name]:
                yield f"'slm {name}' has no option '{option}'"


def faults(root, page, commands):
    name = page.relative_to(root).as_posix()
    text = page.read_text()
    prose, code = split(text)
    for number, line in enumerate(prose, 1):
        if len(line) > WIDTH and not line.lstrip().startswith("|") and not re.match(r"\s*<", line):
            yield f"{name}:{number}: {len(line)} columns, at most {WIDTH}"
    most = LINES_OF_REFERENCE if name in REFERENCE or name.startswith("docs/reference/") else LINES
    lines = len(prose) - sum(map(bool, code))
    if lines > most:
        yield f"{name}: {lines} lines besides code, at most {most}: split it, or make it reference"

    whole = "\n".join(prose)
    for one, other in LINK.findall(CODE_SPAN.sub("", whole)):
        target = one or other
        if re.match(r"[a-z]+:", target):
            continue
        path = linked(page, target)
        if path is None or not path.is_relative_to(root):
            yield f"{name}: the link '{target}' has no target"
        elif "#" in target and target.split("#")[1] not in anchors(path):
            yield f"{name}: '{target}' names no heading of that page"

    spans = CODE_SPAN.findall(whole)
    for part in spans + code:
        for path in PATH.findall(part):
            if not exists(root, path) and not exists(page.parent, path):
                yield f"{name}: there is no '{path}'"
    for span in spans:
        if HEADER_IN_A_ROOM.match(span) and not re.match(TOP + "/", span) and not GENERATED.match(span):
            if not any((root / "include").rglob(span)):
                yield f"{name}: there is no header '{span}'"
    for part in [*spans, "\n".join(code)]:
        yield from (f"{name}: {fault}" for fault in wrong_commands(commands, part))
    for header in INCLUDE.findall("\n".join(code)):
        if not exists(root / "include", header):
            yield f"{name}: there is no header <{header}>"


def unknown_cmake_options(root):
    """Build options that are missing in their reference."""
    files = [root / "CMakeLists.txt", *(root / "cmake").rglob("*.cmake"), *(root / "tools").rglob("CMakeLists.txt")]
    page = (root / "docs" / "reference" / "environment.md").read_text()
    for option in sorted({option for file in files for option in CMAKE_OPTION.findall(file.read_text())}):
        if f"`{option}`" not in page:
            yield f"docs/reference/environment.md: the option '{option}' is missing"


def unknown_words(root):
    """Names of the code in docs/words.md that no header contains."""
    headers = "\n".join(path.read_text() for path in (root / "include").rglob("*.hpp"))
    for row in re.findall(r"^\| \*\*.*\| (.*) \|$", (root / "docs" / "words.md").read_text(), re.M):
        for span in CODE_SPAN.findall(row):
            for name in re.findall(r"[A-Za-z_]\w+", span) if re.fullmatch(r"[\w:()<>&]+", span) else []:
                if not re.search(rf"\b{name}\b", headers):
                    yield f"docs/words.md: no header has '{name}'"


def reachable(root):
    """Pages reachable from the index over any number of links."""
    found, left = set(), [root / "docs" / "README.md"]
    while left:
        page = left.pop()
        if page in found or page.suffix != ".md" or not page.exists():
            continue
        found.add(page)
        left += [path for one, _ in LINK.findall(page.read_text()) if not re.match(r"[a-z]+:", one) and (path := linked(page, one))]
    return found


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    pages = [*sorted(root.glob("*.md")), *sorted((root / "docs").rglob("*.md")), *sorted((root / "examples").rglob("*.md"))]
    commands = options_of_commands(root)
    wrong = [fault for page in pages for fault in faults(root, page, commands)]
    wrong += [*unknown_cmake_options(root), *unknown_words(root)]
    wrong += [f"{page.relative_to(root)}: no way leads there from docs/README.md"
              for page in pages if page.is_relative_to(root / "docs") and page not in reachable(root)]
    print("\n".join(wrong))
    print(f"{len(pages)} pages, {len(wrong)} faults")
    sys.exit(1 if wrong or len(pages) < 10 else 0)


if __name__ == "__main__":
    main()
