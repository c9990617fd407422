#!/usr/bin/env python3
"""Finds wording that the style rule forbids: subject first, active verb, the standard term, one claim a sentence.
Reads comments and string literals of the sources, and the prose of every page.
usage: words.py ROOT"""
import pathlib
import re
import sys

ANYWHERE = [(re.compile(pattern), advice) for pattern, advice in (
    (r"\b[Ww]hoever\b|\b(?:for|to|by) who\b|\b[Aa]nyone who\b|\b[Ss]omebody\b|\b[Nn]obody\b", "name the caller or the component"),
    (r"\b(?:[Tt]ells|told)\b", "use 'reports', 'states', 'sets' or 'receives'"),
    (r"\bg(?:ive|ives|ave|iven|iving) back\b", "use 'returns', 'releases' or 'frees'"),
    (r"\b(?:goes|went|going|go|gone) on\b", "use 'continues'"),
    (r"\bat rest\b", "use 'idle'"),
    (r"\banew\b|\bbut for\b|\bso many\b", "use 'again', 'except' or the number"),
    (r"\bmend(?:s|ed)?\b|\bspoil(?:s|t|ed)?\b(?!\()", "use 'fix', 'remedy' or 'damage'"),
    (r"\bas ever\b|\bso to say\b|\bas good as\b", "delete it, or state the fact"),
    (r"\bof (?:its|their|his) own(?! [a-z])|\bof (?:its|their) own (?:and|or|that|which|for|in|at|to|by|with|on|is|has|as)\b", "use 'separate', 'private' or 'own' before the noun"),
    (r"\bwish(?:es|ed)?\b|\bwears?\b", "use 'requests' or 'uses'"),
    (r"\bstands?\b(?! (?:for|in for)\b|-in\b)|\bstood\b", "use 'is', 'is stored' or 'is listed'"),
    (r"\b(?:lies|lay)\b|\blie (?:in|on|at|behind|beside|one|there)\b", "use 'is', 'is stored' or 'is located'"),
    (r"\b(?:is|are|was) over\b(?! \d)", "use 'has ended' or 'is complete'"),
    (r"\bis another\b(?! \w)|\bbegins? otherwise\b|\bleads? nowhere\b", "state what differs: 'expected X, found Y'"),
    (r"\b(?:[Tt]rouble|maybe)\b", "use 'error', 'failure' or 'possibly'"),
    (r"\bThose (?:of|that|which|with)\b", "repeat the noun"),
    (r"(?:^|[.:;] )Of (?:an?|the|two|each|every|one|what|those|all) [\w ]{1,30}: ", "give the sentence a subject"),
)]
COMMENTS = [(re.compile(pattern), advice) for pattern, advice in (
    (r"(?:^|\. )(?:What|Whose|Who) (?![^.]*\?)", "begin with the noun, not with a relative clause"),
)]
TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|R"([^(\s]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])*\'', re.S)
HASH = re.compile(r'"""(?:.*?)"""|#[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
SOURCES = {".hpp", ".cpp", ".cu", ".h", ".inc"}
SCRIPTS = {".py", ".cmake", ".sh"}
SELF = {"tests/compile/words.py", "tests/compile/words_controls.py"}


def comment(text):
    """Joins the lines of one comment, so that a sentence may cross a line end."""
    return re.sub(r"^\s*(?://[/!<]*|#+!?) ?", "", text)


def passages(name, text):
    """(line, kind, words): comments, string literals of several words, and lines of prose."""
    suffix = pathlib.PurePosixPath(name).suffix
    if suffix == ".md":
        fenced = False
        for number, line in enumerate(text.split("\n"), 1):
            fenced ^= line.lstrip().startswith("```")
            if not fenced:
                yield number, "prose", re.sub(r"`[^`]*`", "`", line)
        return
    last = -2
    for found in (HASH if suffix in SCRIPTS or name.endswith("CMakeLists.txt") else TOKEN).finditer(text):
        piece, number = found[0], text.count("\n", 0, found.start()) + 1
        if piece.startswith(("//", "/*", "#")):
            follows = number == last + 1  # a sentence that began on the line before
            yield number, "follows" if follows else "comment", re.sub(r"`[^`]*`", "`", comment(piece))
            last = number
        elif " " in piece:
            yield number, "string", piece.strip("\"'")


def faults(name, text):
    for number, kind, words in passages(name, text):
        for pattern, advice in ANYWHERE + (COMMENTS if kind == "comment" else []):
            if found := pattern.search(words):
                yield f"{name}:{number}: '{found[0].strip()}': {advice}"


def files(root):
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if name in SELF or name.startswith(("build", ".git/", "shared/", "docs/history/")) or not path.is_file():
            continue
        if path.suffix in SOURCES | SCRIPTS | {".md"} or path.name == "CMakeLists.txt":
            yield path, name


def judged(root):
    """The faults of all files, with their file and line."""
    for path, name in files(root):
        yield from faults(name, path.read_text())


def main():
    wrong = list(judged(pathlib.Path(sys.argv[1]).resolve()))
    print("\n".join(wrong))
    print(f"{len(wrong)} faults of wording")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
