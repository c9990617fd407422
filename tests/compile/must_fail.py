#!/usr/bin/env python3
"""Every fail/*.cpp must not compile, for the reason after `// expect: `. With -DSLM_FIXED it must compile, which
`./test --all` checks."""
import argparse
import os
import pathlib
import re
import sys

from compiling import in_parallel, syntax_only


def judge(compiler, root, path):
    source = path.read_text()
    expected = re.findall(r"^// expect: (.+)$", source, re.M)
    if not expected:
        return "has no line '// expect: TEXT'"
    status, messages = syntax_only(compiler, root, source)
    if status == 0:
        return "compiles, and must not"
    missing = [text for text in expected if text.strip() not in messages]
    if missing:
        return f"fails without saying '{missing[0]}':\n{messages[:3000]}"
    if "SLM_EVERY_COMBINATION" not in os.environ:
        return None
    status, messages = syntax_only(compiler, root, source, "-DSLM_FIXED")
    if status != 0:
        return f"does not compile with -DSLM_FIXED either:\n{messages[:3000]}"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root")
    parser.add_argument("--compiler", required=True)
    arguments = parser.parse_args()
    sources = sorted((pathlib.Path(arguments.root) / "tests" / "compile" / "fail").glob("*.cpp"))
    verdicts = in_parallel(lambda path: judge(arguments.compiler, arguments.root, path), sources)
    failures = [f"{path.name} {verdict}" for path, verdict in zip(sources, verdicts) if verdict]
    print("\n".join(failures))
    print(f"{len(sources)} must-fail sources, {len(failures)} wrong")
    sys.exit(1 if failures or not sources else 0)


if __name__ == "__main__":
    main()
