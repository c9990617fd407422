#!/usr/bin/env python3
"""Plants forbidden wording, one phrase at a time: words.py must find each, and nothing in sound text."""
import pathlib
import sys
import tempfile

from words import faults, judged

SOUND = [
    ("a.hpp", "/// Returns the rows of a batch.\nint rows();  // 1..1024\n"),
    ("a.hpp", '// Restarts at 0 if the cached pages\n// of two files cannot serve the segment.\nthrow Error("expected 3 rows, found 4");\n'),
    ("a.hpp", "/// `told`: called with the progress.\n"),
    ("a.hpp", 'const char* id = "goes";\nint stands = 1;\n'),
    ("a.md", "The value 0 stands for all. Run `slm tells` to see it.\n\n```sh\nslm # goes on\n```\n"),
    ("a.py", '"""Checks the pages."""\nname = "source/docs"  # one name\n'),
]
FAULTS = [
    ("a.hpp", "// Whoever calls it keeps it.\n", "Whoever"),
    ("a.hpp", "int a;  // for who reads one sequence\n", "for who"),
    ("a.hpp", "/// Does what rank 0 has told.\n", "told"),
    ("a.hpp", "/// The pages are given back.\n", "given back"),
    ("a.hpp", 'f("the text goes on after it");\n', "goes on"),
    ("a.hpp", 'f("a folder of its own");\n', "of its own"),
    ("a.md", "All are measured anew, but for one.\n", "anew"),
    ("a.md", "The message states what to mend.\n", "mend"),
    ("a.hpp", "/* Adapters lie on three tiers. */\n", "lie on"),
    ("a.hpp", "/// What is left to do of an item.\n", "What"),
    ("a.hpp", "/// Rows. Whose pages they are.\n", ". Whose"),
    ("a.hpp", "/// Of a block: its rows.\n", "Of a block:"),
    ("a.hpp", "/// Those of the model.\n", "Those of"),
    ("a.hpp", 'f("its checksum is another");\n', "is another"),
    ("a.md", "The answer is over.\n", "is over"),
    ("a.md", "`x` stands behind a server.\n", "stands"),
    ("a.cmake", "# Nobody reads it.\n", "Nobody"),
    ("a.py", '"""Tells the rows."""\n', "Tells"),
    ("CMakeLists.txt", 'message("the build goes on")\n', "goes on"),
]


def main():
    wrong = [f"found in sound text: {fault}" for name, text in SOUND for fault in faults(name, text)]
    for name, text, expected in FAULTS:
        found = list(faults(name, text))
        if not any(f": '{expected}'" in fault for fault in found):
            wrong.append(f"not found: {expected!r} in {text!r}: {found}")
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in (("bad.hpp", "// It goes on.\n"), ("clean.hpp", "// It ends.\n")):
            (root / name).write_text(text)
        found = sorted(fault.split(":")[0] for fault in judged(root))
        if found != ["bad.hpp"]:
            wrong.append(f"files with faults: {found}")
    print("\n".join(wrong))
    print(f"{len(FAULTS)} phrases planted, {len(wrong)} wrong")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
