#!/usr/bin/env python3
"""An application of nothing but the README's lines, beside the program slm: the same text, and as fast.
usage: readme_test.py SOURCE_DIR BUILD_DIR SCRATCH_DIR COMPILER PROGRAM"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

SOURCE, BUILD, SCRATCH, COMPILER, PROGRAM = map(pathlib.Path, sys.argv[1:])
PAIR = SOURCE / "examples" / "demo_pair"
PROMPT = "def read_config(path):\n"
SHARE = 0.9  # of the program's speed: the best of several runs of each, in turn, as other programs may run beside them
FEWEST_RUNS, MOST_RUNS = 5, 30


def run(*command, **environment):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=os.environ | environment)
    if done.returncode != 0:
        sys.exit(f"failed ({done.returncode}): {' '.join(map(str, command))}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout


def block(language):
    """The README's first block of this language."""
    return re.search(rf"^```{language}\n(.*?)^```$", (SOURCE / "README.md").read_text(), re.M | re.S)[1]


def application():
    """Writes the project and builds it as the README says, choosing nothing."""
    project = SCRATCH / "project"
    (project / "path").mkdir(parents=True)
    shutil.copy(PAIR / "target" / "config.json", project / "path")
    (project / "main.cpp").write_text(block("cpp"))
    (project / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.25)\nproject(app LANGUAGES CXX)\n" + block("cmake"))
    run("cmake", "--install", BUILD, "--prefix", SCRATCH / "prefix")
    run("cmake", "-S", project, "-B", project / "build", CMAKE_PREFIX_PATH=str(SCRATCH / "prefix"), CXX=str(COMPILER))
    run("cmake", "--build", project / "build")
    return project / "build" / "app"


def main():
    shutil.rmtree(SCRATCH, ignore_errors=True)
    app = application()

    def of_app():
        text, statistics = run(app, PAIR / "draft", PAIR / "target", PROMPT).rsplit("  new tokens", 1)
        return text, float(re.search(r"tokens per second +([0-9.]+) decoding", statistics)[1])

    def of_program():
        answer = json.loads(run(PROGRAM, "generate", "--draft", PAIR / "draft", "--target", PAIR / "target", "--prompt", PROMPT,
                                "--max-new-tokens", 128, "--draft-length", 4, "--json"))
        return answer["text"], answer["statistics"]["tokens_per_second"]

    best_app = best_program = 0
    for number in range(MOST_RUNS):
        (app_text, app_speed), (program_text, program_speed) = of_app(), of_program()
        if app_text != program_text:
            sys.exit(f"the README's application writes {app_text!r}, the program {program_text!r}")
        best_app, best_program = max(best_app, app_speed), max(best_program, program_speed)
        if number + 1 >= FEWEST_RUNS and best_app >= SHARE * best_program:
            break
    print(f"tokens per second, best of {number + 1}: the README's application {best_app:.0f}, the program {best_program:.0f}")
    if best_app < SHARE * best_program:
        sys.exit(f"the application has less than {SHARE} of the program's speed")


if __name__ == "__main__":
    main()
