#!/usr/bin/env python3
"""docs/reference/public-names.md lists the names that the headers define in public namespaces.
usage: public_names.py ROOT [--write]"""
import collections
import pathlib
import re
import sys

PAGE = "docs/reference/public-names.md"
PUBLIC = {"slm", "slm::awq", "slm::backend", "slm::configs", "slm::draft_length", "slm::quantize", "slm::ranks", "slm::rule"}
HEAD = """# Public names

The names that the headers define in public namespaces, by namespace and module. The other namespaces, such as
`slm::detail`, `slm::gpu` and `slm::jinja`, belong to the implementation.
`python3 tests/compile/public_names.py . --write` writes this page; a test compares it with the headers. A name that is
not listed here can change in any version.

| namespace | module | names |
|---|---|---|
"""
NOISE = re.compile(r'//[^\n]*|/\*.*?\*/|R"([^(\s]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])*\'', re.S)
SKIPPED = re.compile(r"(extern )?template\b(?! *<)|SLM_TEMPLATE\b|static_assert\b|using namespace\b|friend\b|using [\w:]+$")


def without_parameters(head):
    """`head` without leading template parameters and attributes."""
    head = re.sub(r"\[\[.*?\]\]", " ", head).strip()
    while found := re.match(r"template *<", head):
        depth, end = 1, found.end()
        while depth and end < len(head):
            depth += {"<": 1, ">": -1}.get(head[end], 0) if head[end - 1:end + 1] != "->" else 0
            end += 1
        head = head[end:].strip()
    return head


def name_of(statement, defines):
    """The name that a statement at namespace scope introduces, or None. defines: a body follows."""
    head = " ".join(statement.split())
    if SKIPPED.match(head):
        return None
    constrained = head.startswith("template")
    head = without_parameters(head)
    if found := re.match(r"(?:inline )?(?:constexpr )?(?:concept|using) (\w+) ?=", head):
        return found[1]
    if found := re.match(r"(?:class|struct|union|enum(?: class| struct)?) (?:alignas\([^)]*\) )?(\w+)(.*)", head):
        return found[1] if defines and not found[2].startswith("<") and "(" not in found[2].split(":")[0] else None
    if "operator" in head:
        return None
    if constrained and head.startswith("requires"):
        head = re.sub(r"^requires ?\(.*?\) ?(?=\w)", "", head)
    if found := re.search(r"([\w:~]+(?:<[^()]*>)?) ?\(", head):
        return found[1] if re.fullmatch(r"(?!decltype$)[a-z]\w*", found[1]) and head[:found.start()].strip() else None
    if found := re.match(r"(?:inline |static |extern )*(?:constexpr|const|std::|inline)[^=]*?(\w+)(?:\[[^]]*\])? ?(?:=.*)?$", head):
        return found[1]
    return None


def names_of(text):
    """(namespace, name) of every public definition in a header."""
    text = NOISE.sub(lambda found: '""' if found[0][0] in "R\"'" else " ", text)
    text = re.sub(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", "", text, flags=re.M)
    text = re.sub(r"\bSLM_HAS_FUNCTIONS\(\w+\)", "", text)
    scopes, begin, parentheses = [], 0, 0
    for at, character in enumerate(text):
        outside = all(scope is not None for scope in scopes)
        if character in "()":
            parentheses += 1 if character == "(" else -1
        if parentheses or character not in "{};":
            continue
        statement = text[begin:at].strip()
        space = re.match(r"(?:inline )?namespace ?([\w:]*)$", " ".join(statement.split()))
        if character == "{":
            if outside and space:
                scopes.append(space[1])
                begin = at + 1
                continue
        if outside and character in "{;" and scopes and "detail" not in "::".join(scopes).split("::"):
            name = name_of(statement, character == "{")
            if name:
                yield "::".join(part for part in scopes if part != "v0_1"), name
        if character == "{":
            scopes.append(None)
        elif character == "}":
            if scopes:
                scopes.pop()
        if outside or all(scope is not None for scope in scopes):
            begin = at + 1


def page_of(root):
    """The page for the headers under `root`."""
    rows = collections.defaultdict(set)
    for header in sorted((root / "include/slm").rglob("*.hpp")):
        module = header.relative_to(root / "include/slm").parts
        for space, name in names_of(header.read_text()):
            if space in PUBLIC:
                rows[space, module[0] if len(module) > 1 else "-"].add(name)
    lines = [f"| `{space}` | {module} | {', '.join(f'`{name}`' for name in sorted(names))} |\n"
             for (space, module), names in sorted(rows.items())]
    return HEAD + "".join(lines)


CONTROL = """namespace slm { inline namespace v0_1 {
struct Found { int member; void function(); };
template <class T> requires (sizeof(T) > 1) int called(T) { struct Local {}; return 0; }
struct Declared;
namespace detail { struct Hidden {}; }
inline constexpr int number = 3;
}}
"""


def main():
    root = pathlib.Path(sys.argv[1])
    control = sorted(names_of(CONTROL))
    expected = [("slm", name) for name in ("Found", "called", "number")]
    if control != expected:
        print(f"the control header gives {control}, expected {expected}")
        return 1
    page = page_of(root)
    if "--write" in sys.argv:
        (root / PAGE).write_text(page)
    if (root / PAGE).exists() and (root / PAGE).read_text() == page:
        print("0 faults")
        return 0
    print(f"{PAGE} differs from the headers: run python3 tests/compile/public_names.py . --write")
    return 1


sys.exit(main())
