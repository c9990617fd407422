#!/usr/bin/env python3
"""Injects faults into pages, one by one: docs.py must find each, and none in a correct page."""
import pathlib
import sys
import tempfile

from docs import faults, options_of_commands, reachable, unknown_cmake_options, unknown_words

SOUND = """# A page

Prose with a [link](other.md#the-end), a file `include/slm/core/a.hpp`, a header `core/a.hpp` and a command.

| a table | may be as wide as it must, as nothing can be done about it: neither renderers nor readers break its lines |
|---|---|

    slm generate --quiet      # not --loud
    mpirun -n 2 build/cpu/bin/slm bench decode --quick

```cpp
#include <slm/core/a.hpp>   // and so may code, which is not prose: it is unchanged, with lines of any length so that it is
```
"""
COMMANDS = """# Commands

## slm generate

| `--quiet` |

## slm bench decode

| `--quick` |
"""
FAULTS = [
    ("word " * 25, "columns, at most 120"),
    ("- a point of a list\n\n    " + "word " * 25, "columns, at most 120"),
    ("a line\n\n" * 100, "lines besides code, at most 200"),
    ("[gone](gone.md)", "has no target"),
    ("[two\nlines](gone.md)", "has no target"),
    ('<img src="gone.svg">', "has no target"),
    ("[outside](../../outside.md)", "has no target"),
    ("[here](#nothing)", "names no heading"),
    ("[there](other.md#nothing)", "names no heading"),
    ("`docs/gone.md`", "there is no 'docs/gone.md'"),
    ("`tests/*_gone.py`", "there is no 'tests/*_gone.py'"),
    ("    python3 tools/gone.py", "there is no 'tools/gone.py'"),
    ("```sh\npython3 tools/gone.py\n```", "there is no 'tools/gone.py'"),
    ("`core/gone.hpp`", "no header 'core/gone.hpp'"),
    ("`other/a.hpp`", "no header 'other/a.hpp'"),
    ("```cpp\n#include <slm/gone.hpp>\n```", "no header <slm/gone.hpp>"),
    ("`slm sing`", "no subcommand 'sing'"),
    ("    slm generate --loud", "'slm generate' has no option '--loud'"),
    ("```sh\nbuild/cpu/bin/slm bench decode \\\n  --loud\n```", "'slm bench decode' has no option '--loud'"),
]


def main():
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder).resolve()
        (root / "docs").mkdir()
        (root / "include" / "slm" / "core").mkdir(parents=True)
        (root / "include" / "slm" / "core" / "a.hpp").touch()
        (root / "docs" / "other.md").write_text("# Other\n\n## The *end*!\n")
        (root / "docs" / "alone.md").write_text("# Alone\n")
        (root / "docs" / "README.md").write_text("[page](page.md)\n")
        (root / "docs" / "reference").mkdir()
        (root / "docs" / "reference" / "command-line.md").write_text(COMMANDS)
        (root / "docs" / "reference" / "environment.md").write_text("`SLM_TOLD`\n")
        (root / "CMakeLists.txt").write_text('option(SLM_TOLD "" ON)\nset(SLM_GONE "" CACHE STRING "")\n')
        if not any("SLM_GONE" in fault for fault in unknown_cmake_options(root)) or len(list(unknown_cmake_options(root))) != 1:
            wrong.append(f"options of CMake: {list(unknown_cmake_options(root))}")
        (root / "docs" / "words.md").write_text("| **a** | a word | `Kept`, `io/gone/` |\n| **b** | another | `slm::Gone` |\n")
        (root / "include" / "slm" / "core" / "a.hpp").write_text("namespace slm { class Kept; }\n")
        if list(unknown_words(root)) != ["docs/words.md: no header has 'Gone'"]:
            wrong.append(f"words: {list(unknown_words(root))}")
        commands = options_of_commands(root)
        page = root / "docs" / "page.md"
        page.write_text(SOUND)
        wrong += [f"found in a sound page: {fault}" for fault in faults(root, page, commands)]
        found = {path.name for path in reachable(root)}
        if found != {"README.md", "page.md", "other.md"}:
            wrong.append(f"reachable from the index: {found}")
        for text, expected in FAULTS:
            page.write_text(f"# A page\n\n{text}\n")
            found = list(faults(root, page, commands))
            if not any(expected in fault for fault in found):
                wrong.append(f"not found: {expected!r} in {text[:60]!r}: {found}")
    print("\n".join(wrong))
    print(f"{len(FAULTS)} faults planted, {len(wrong)} wrong")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
