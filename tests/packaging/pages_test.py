#!/usr/bin/env python3
"""The code of README and tutorial, built as described without further steps. The README's application has the text of the
program slm; the tutorial's commands run in order, with the real model if it was downloaded.
usage: pages_test.py SOURCE_DIR BUILD_DIR SCRATCH_DIR COMPILER PROGRAM"""
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys

SOURCE, BUILD, SCRATCH, COMPILER, PROGRAM = map(pathlib.Path, sys.argv[1:])
PAIR = SOURCE / "examples" / "demo_pair"
REAL_MODEL = SOURCE / "build" / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
HOME = SCRATCH / "home"
PROJECT = HOME / "notes"
PROMPT = "def read_config(path):\n"
BLOCK = re.compile(r"(<!-- not run[^\n]*-->\n)?^```(\w+)\n(.*?)^```$", re.M | re.S)


def run(*command, **environment):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=os.environ | environment)
    if done.returncode != 0:
        sys.exit(f"failed ({done.returncode}): {' '.join(map(str, command))}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout


def blocks(page):
    """(language, text) of each block of a page, except those marked as not run."""
    return [(language, text) for skip, language, text in BLOCK.findall((SOURCE / page).read_text()) if not skip]


def write_project():
    """The files of the tutorial, by the names in their first lines, and the README's application."""
    (PROJECT / "path").mkdir(parents=True)
    for language, text in blocks("docs/tutorial.md"):
        if language in ("cpp", "cmake"):
            (PROJECT / text.split("\n")[0].split(" ")[1]).write_text(text)
    readme = dict(reversed(blocks("README.md")))  # the first of each language
    shutil.copy(PAIR / "target" / "config.json", PROJECT / "path")
    (PROJECT / "main.cpp").write_text(readme["cpp"])
    with open(PROJECT / "CMakeLists.txt", "a") as lists:
        lists.write(readme["cmake"])


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run_tutorial():
    """Runs the tutorial's commands as one script; returns the output of each block."""
    model = REAL_MODEL if REAL_MODEL.exists() else PAIR / "target"
    if model != REAL_MODEL:
        print(f"SKIPPED: the tutorial's chat and the real model: {REAL_MODEL} is not there (tools/fetch_model.py smollm2 build)")
    commands = [text for language, text in blocks("docs/tutorial.md") if language == "sh"]
    if not shutil.which("curl"):
        print("SKIPPED: the tutorial's request to the server: there is no curl")
        commands = [text for text in commands if "curl" not in text]
    port = str(free_port())
    script = "set -e\ntrap 'kill $server 2>/dev/null || true' EXIT\n"
    for number, text in enumerate(commands):
        if model != REAL_MODEL and "build/chat" in text:
            continue
        text = text.replace('"$SLM/build/cpu/bin/slm"', f'"{PROGRAM}"').replace("$SLM/build/cpu", str(BUILD)).replace("8080", port)
        script += f"printf '\\n@@ %d\\n' {number}\n{text}"
    output = run("bash", "-c", script, HOME=str(HOME), SLM=str(SOURCE), MODEL=str(model), CXX=str(COMPILER),
                 CMAKE_BUILD_TYPE="None")  # the texts are compared, not their speed
    return {commands[int(number)]: text for number, text in re.findall(r"^@@ (\d+)\n(.*?)(?=^@@ |\Z)", output, re.M | re.S)}


def check_tutorial(printed):
    for command, text in printed.items():
        if command.startswith(("build/", "curl")) and len(text.strip()) < 10:
            sys.exit(f"the tutorial's command printed nothing:\n{command}{text}")
        if "curl" in command and not json.loads(text[text.index("{"):])["choices"][0]["text"]:
            sys.exit(f"the tutorial's server answered: {text}")
    print(f"{len(printed)} blocks of commands ran")


def compare_texts(app):
    text = run(app, PAIR / "draft", PAIR / "target", PROMPT).rsplit("  new tokens", 1)[0]
    answer = json.loads(run(PROGRAM, "generate", "--draft", PAIR / "draft", "--target", PAIR / "target", "--prompt", PROMPT,
                            "--max-new-tokens", 128, "--drafter", "model", "--draft-length", 4, "--json"))
    if text != answer["text"]:
        sys.exit(f"the README's application writes {text!r}, the program {answer['text']!r}")


def main():
    shutil.rmtree(SCRATCH, ignore_errors=True)
    write_project()
    check_tutorial(run_tutorial())
    compare_texts(PROJECT / "build" / "app")


if __name__ == "__main__":
    main()
