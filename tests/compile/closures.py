#!/usr/bin/env python3
"""The includes of each public header, with and without the functions and with parts left out: limits on the number of
slm's headers and of thousands of preprocessed lines, and headers that must not be included."""
import argparse
import re
import subprocess
import sys

from compiling import in_parallel

QUANTIZING = r"^(awq/|quantize|awq\.hpp)|_writer\.hpp$|^io/merge|gguf_encode"
RANKS = r"^ranks/(mpi|nccl|threads|launcher|devices)|^backend/split|rank_group|host_shares"
CONFIGS = r"^config/known_models"
ADAPTERS = r"^io/(peft|name_pattern)|^adapters\.hpp"
ENGINE = r"^engine"
MODELS = r"^(model|backend|decode|config)/"
FOLDERS = r"json|safetensors|protobuf|sentencepiece_model|^io/(folder|config_json|families/(?!layer_shapes|refusals)|tokenizer_ends)"
GGUF_FILES = r"^(io|text)/.*gguf"

# header: (headers, thousand lines) with SLM_IMPLEMENTATION 0, the same with the functions, and excluded modules. A
# tokenizer with the functions includes the matcher of split patterns: ten headers of text/split/, two of its tables.
# The readers of config.json include a header of each group of families (io/families). A decoder with the functions includes
# the sources of drafts, the map of tokens, the control of the draft length and the rounds (decode/), one header each, and
# ten headers of recurrent layers. The families with Mamba-2 and gpt-oss have a header each, and so have the forms of their tensors.
# core/os has a header of each subject; the executor of an application is one. Residual streams have a header of their
# shape, family, weights and part of a block. A rank's rows of experts, and waiting for an atomic, have a header each.
# The inputs of a block, the row operations of host memory, and rounded exponentials have one each. The files of a
# model have one for each format and two for all, and so have the tokenizer's files and SentencePiece's rules. These
# have one header each: a checkpoint's functions, those that open it, the search for a layer, a stored layer, the check
# for finite values, and the functions of token decoders, text streams and the count of cores.
CLOSURES = {
    "slm/speculative.hpp": ((107, 95), (305, 184), (QUANTIZING, RANKS, CONFIGS, ADAPTERS, ENGINE)),
    "slm/text/tokenizer.hpp": ((10, 65), (53, 110), (QUANTIZING, RANKS, CONFIGS, ADAPTERS, ENGINE, MODELS)),
    "slm/text/chat.hpp": ((10, 60), (112, 125), (QUANTIZING, RANKS, CONFIGS, ADAPTERS, ENGINE)),
    "slm/chat.hpp": ((127, 95), (404, 200), (QUANTIZING, RANKS, CONFIGS, ADAPTERS, ENGINE)),
    "slm/adapters.hpp": ((20, 70), (125, 125), (QUANTIZING, RANKS, CONFIGS, ENGINE)),
    "slm/engine.hpp": ((129, 105), (330, 190), (QUANTIZING, RANKS, CONFIGS)),
    "slm/fwd.hpp": ((2, 1), (2, 1), (QUANTIZING, RANKS, CONFIGS, ADAPTERS, ENGINE, MODELS)),
}
# The same with the functions and without a part. A program without folders needs no JSON library.
LEFT_OUT = {
    ("slm/speculative.hpp", "SLM_NO_FOLDERS"): (255, 157, (FOLDERS,)),
    ("slm/speculative.hpp", "SLM_NO_GGUF"): (290, 182, (GGUF_FILES,)),
    ("slm/text/tokenizer.hpp", "SLM_NO_FOLDERS"): (46, 90, (FOLDERS,)),
    ("slm/text/tokenizer.hpp", "SLM_NO_GGUF"): (45, 105, (GGUF_FILES,)),
}


def closure(compiler, root, header, macro):
    """(headers of slm, thousand preprocessed lines, whether the JSON library is included)"""
    command = [compiler, "-std=c++20", f"-I{root}/include", f"-D{macro}", "-E", "-x", "c++", "-"]
    text = subprocess.run(command, input=f"#include <{header}>\n", text=True, capture_output=True, check=True, timeout=300).stdout
    files = {name for name in re.findall(r'^# \d+ "[^"]*/include/slm/([^"]+)"', text, re.M)}
    if re.search(r'^# \d+ "[^"]*nlohmann/', text, re.M):
        files.add("nlohmann/json.hpp")
    lines = sum(1 for line in text.splitlines() if line and not line.startswith("#"))
    return files, lines / 1000


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root")
    parser.add_argument("--compiler", required=True)
    arguments = parser.parse_args()
    cases = []  # header, macro, headers, thousand lines, excluded headers
    for header, (declarations, functions, excluded) in CLOSURES.items():
        cases += [(header, f"SLM_IMPLEMENTATION={value}", *most, excluded) for value, most in enumerate((declarations, functions))]
    cases += [(*case, *limits) for case, limits in LEFT_OUT.items()]
    found = in_parallel(lambda case: closure(arguments.compiler, arguments.root, *case[:2]), cases)
    failures = []
    print(f"{'public header':<24}{'macro':<22}{'headers':>8}{'of':>5}{'lines':>9}{'of':>6}")
    for (header, macro, most_files, most_lines, excluded), (files, lines) in zip(cases, found):
        print(f"{header:<24}{macro:<22}{len(files):>8}{most_files:>5}{lines:>8.1f}k{most_lines:>5}k")
        if len(files) > most_files or lines > most_lines:
            failures.append(f"{header} includes {len(files)} headers and {lines:.1f} thousand lines: leave something out, or say why in the table")
        for pattern in excluded:
            failures += [f"{header} with {macro} must not include {name}" for name in sorted(files) if re.search(pattern, name)]
    print("\n".join(failures))
    print(f"{len(cases)} closures, {len(failures)} wrong")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
