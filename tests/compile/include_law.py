#!/usr/bin/env python3
"""The include law: modules include only modules below them, and some words are limited to certain files. Besides the library,
the benchmarks and the program share tools/cli and do not include each other.

usage: include_law.py ROOT        ROOT contains include/slm/, bench/, examples/ and tools/
"""
import pathlib
import posixpath
import re
import sys

# module -> modules that its headers may reach, directly or through other headers
MODULES = {
    "core": set(),
    "lm": {"core"},
    "config": {"core", "lm"},
    "formats": {"core", "lm"},
    "io": {"core", "lm", "config", "formats"},
    "text": {"core", "lm", "config", "formats", "io"},
    "grammar": {"core", "lm", "config", "formats", "io", "text", "decode"},
    "ranks": {"core"},
    "backend": {"core", "lm", "formats", "ranks"},
    "model": {"core", "lm", "config", "formats", "io", "ranks", "backend"},
    "decode": {"core", "lm"},
    "chat": {"core", "lm", "config", "formats", "io", "text", "decode", "grammar"},
    "engine": {"core", "lm", "decode"},
    "awq": {"core", "lm", "config", "io", "text", "formats", "ranks", "backend", "model"},
}
# A header that includes an allowed one reaches no further module.
assert all(MODULES[reached] <= reaches for reaches in MODULES.values() for reached in reaches)

# folders beside the library -> folders they may include or name in CMake besides themselves; all may include the library
FOLDERS = {
    "bench": {"tools"},
    "examples": {"tools"},
    "tools": set(),
}

# modules of kernels, and words that must not occur in a kernel
KERNEL_MODULES = {"core", "formats", "ranks", "backend"}
NOT_IN_KERNELS = {"iostream", "regex", "filesystem", "random"}
PATH_FILES = {"core/os/path.hpp", "core/os/folder.hpp"}  # of the system; no kernel includes them
# everywhere: modules that read files may parse JSON, decoders may not
JSON_MODULES = {"config", "io", "text", "model", "awq", "chat"}

# files that may name a compiler or an architecture
PLATFORM_FILES = re.compile(
    r"core/macros\.hpp|backend/select\.hpp|backend/gpu/(lane|runtime)/[^/]*|backend/cpu/(simd|isa)[^/]*|ranks/nccl\.hpp"
)
PLATFORM_MACRO = re.compile(
    r"\b(__GNUC__|__GNUG__|__clang__|__clang_major__|_MSC_VER|__CUDACC__|__CUDA_ARCH__|__HIPCC__|__HIP_\w+|__NVCC__|"
    r"__x86_64__|__i386__|_M_X64|__amd64__|__aarch64__|__arm__|__ARM_\w+|__AVX\w*|__SSE\w*|__FMA__|__F16C__|__BMI\w*|"
    r"__powerpc\w*|__riscv\w*|__gfx\w+|__AMDGCN\w*)\b"
)
PLATFORM_WORD = re.compile(
    r"#\s*pragma\s+(GCC|clang)\b|\btarget(_clones)?\s*\(\s*\"|#\s*include\s*<(\w*intrin|arm_neon|arm_sve|cuda\w*|hip/\w+)\.h"
)

# forbidden in a library
FORBIDDEN_WORDS = [
    (re.compile(r"\bif\s+constexpr\s*\([^)]*\bConfig::"), "chooses by `if constexpr (Config::...)`: make it a trait or an argument"),
    (re.compile(r"\bstd::(cout|cerr|clog)\b|\b(std::)?f?printf\s*\("), "prints: throw slm::Error or take a callback"),
    (re.compile(r"\b(std::)?(abort|exit|_Exit|quick_exit|terminate)\s*\(|\bassert\s*\("), "ends the process: throw slm::Error"),
    (re.compile(r"\b(TODO|FIXME|XXX|HACK)\b"), "leaves something open"),
    (re.compile(r"\bstd::(jthread|stop_(token|source|callback)|condition_variable_any|osyncstream|format(_to)?|execution::\w+|"
                r"chrono::(zoned_time|current_zone|parse))\b|<(stop_token|syncstream|execution)>"), "needs what libc++ lacks"),
    (re.compile(r"\busing namespace (std|slm)\b"), "opens a namespace for everybody"),
    (re.compile(r"\bSLM_INLINE\s+(?:\w+::)*(\w+)::~?\1\("), "marks a constructor with SLM_INLINE: write SLM_CONSTRUCTOR"),
]
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
CMAKE_PATH = re.compile(r"(?:^|[\s\"/])(bench|examples|tools)/")
SOURCES = {".cpp", ".hpp", ".inc"}
MAX_LINES = 400


def without_comments(line, in_block):
    """The code of one line; tracks /* */ and removes // comments and irrelevant string contents."""
    code = ""
    while line:
        if in_block:
            end = line.find("*/")
            if end < 0:
                return code, True
            line, in_block = line[end + 2 :], False
            continue
        start, line_comment = line.find("/*"), line.find("//")
        if line_comment >= 0 and (start < 0 or line_comment < start):
            return code + line[:line_comment], False
        if start < 0:
            return code + line, False
        code, line, in_block = code + line[:start], line[start + 2 :], True
    return code, in_block


def check_include(name, module, quote, target):
    if target.startswith("slm/"):
        if quote != '"':
            return f'includes <{target}>: write "{target}"'
        inner = target[len("slm/") :]
        if module is None or module not in MODULES:
            return None
        other = inner.split("/")[0] if "/" in inner else None
        if other == module or other in MODULES[module]:
            return None
        return f"includes {target}: module '{module}' may include only {sorted(MODULES[module]) or 'std'}"
    if quote == '"':
        return f'includes "{target}": write the whole path, "slm/module/file.hpp"'
    if module in KERNEL_MODULES and target in NOT_IN_KERNELS and name not in PATH_FILES:
        return f"includes <{target}>: not in headers of kernels (module '{module}')"
    if target.startswith("nlohmann/") and module not in JSON_MODULES:
        return f"includes <{target}>: only the modules {sorted(JSON_MODULES)} read JSON"
    return None


def abi_of(version_header):
    """The inline namespace of a version: programs of incompatible versions do not link with each other."""
    numbers = dict(re.findall(r"^#define SLM_VERSION_(MAJOR|MINOR) (\d+)$", version_header, re.M))
    return f"v{numbers['MAJOR']}_{numbers['MINOR']}"


def check_file(name, source, abi):
    """Yields (line, sentence) for every violation; name is relative to include/slm/."""
    module = name.split("/")[0] if "/" in name else None
    lines = source.splitlines()
    if module is not None and module not in MODULES:
        yield 1, f"is in the unknown module '{module}'"
    if len(lines) > MAX_LINES:
        yield len(lines), f"has {len(lines)} lines, more than {MAX_LINES}"
    if module is None and len(lines) > 40:
        yield len(lines), f"is a public header of {len(lines)} lines, more than 40"
    if name.endswith(".hpp") and not re.search(r"^#pragma once$", source, re.M):
        yield 1, "has no #pragma once"
    platform_file = PLATFORM_FILES.fullmatch(name)
    in_block = False
    for number, line in enumerate(lines, 1):
        include = None if in_block else INCLUDE.match(line)
        code, in_block = without_comments(line, in_block)
        if include:
            sentence = check_include(name, module, *include.groups())
            if sentence:
                yield number, sentence
        if not platform_file:
            named = PLATFORM_MACRO.search(code) or PLATFORM_WORD.search(code)
            if named:
                yield number, f"names a compiler or an architecture: {named.group(0)}"
        if re.match(r"\s*namespace slm\b", code) and not re.match(
                rf"namespace slm {{ inline namespace {abi} {{( namespace [\w:]+ {{)?$", code.rstrip()):
            yield number, f"opens another namespace than slm::{abi}, that of this version, as tools such as ctags read it"
        for pattern, sentence in FORBIDDEN_WORDS:
            if pattern.search(line if "open" in sentence else code):
                yield number, sentence


def check_folders(name, source):
    """Yields (line, sentence) for every folder that a file outside the library must not include; name is relative to ROOT."""
    folder = pathlib.PurePosixPath(name).parts[0]
    allowed = FOLDERS[folder] | {folder}
    for number, line in enumerate(source.splitlines(), 1):
        include = INCLUDE.match(line)
        if include:
            beside = posixpath.normpath(posixpath.join(posixpath.dirname(name), include[2]))
            named = {path.split("/")[0] for path in (include[2], beside) if "/" in path}
        elif name.endswith("CMakeLists.txt"):
            named = set(CMAKE_PATH.findall(line.split("#")[0]))
        else:
            continue
        for other in sorted(named & FOLDERS.keys() - allowed):
            yield number, f"{'includes' if include else 'names'} a file of {other}/: {folder}/ sees only {sorted(allowed)} and the library"


def check_tree(root):
    root = pathlib.Path(root)
    base = root / "include" / "slm"
    headers = sorted([*base.rglob("*.hpp"), *base.rglob("*.inc")])  # .inc: a text included several times
    abi = abi_of((base / "core" / "macros.hpp").read_text())
    breaches = []
    for path in headers:
        name = path.relative_to(base).as_posix()
        breaches += [f"include/slm/{name}:{number}: {sentence}" for number, sentence in check_file(name, path.read_text(), abi)]
    for folder in FOLDERS:
        files = [path for path in sorted((root / folder).rglob("*")) if path.suffix in SOURCES or path.name == "CMakeLists.txt"]
        if not files:
            breaches.append(f"{folder}/: holds no sources")
        for path in files:
            name = path.relative_to(root).as_posix()
            breaches += [f"{name}:{number}: {sentence}" for number, sentence in check_folders(name, path.read_text())]
    for path in sorted((root / "tests").rglob("*_test.*")):
        lines = len(path.read_text().splitlines())
        if lines > MAX_LINES:
            breaches.append(f"{path.relative_to(root)}: has {lines} lines, more than {MAX_LINES}: split it by what it says")
    return headers, breaches


def main():
    headers, breaches = check_tree(sys.argv[1])
    print("\n".join(breaches))
    print(f"{len(headers)} headers, {len(breaches)} breaches of the include law")
    sys.exit(1 if breaches or not headers else 0)


if __name__ == "__main__":
    main()
