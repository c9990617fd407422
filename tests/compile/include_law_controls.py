#!/usr/bin/env python3
"""Injects violations of the include law, one by one: the checker must find each, and none in correct files."""
import sys

from include_law import abi_of, check_file, check_folders

HEAD = "#pragma once\n"
ABI = abi_of("#define SLM_VERSION_MAJOR 3\n#define SLM_VERSION_MINOR 5\n")
BREACHES = [
    ("core/a.hpp", '#include "slm/io/safetensors.hpp"\n', "module 'core'"),
    ("config/a.hpp", '#include "slm/io/file.hpp"\n', "module 'config'"),
    ("io/a.hpp", '#include "slm/text/tokenizer.hpp"\n', "module 'io'"),
    ("text/a.hpp", '#include "slm/backend/concept.hpp"\n', "module 'text'"),
    ("formats/a.hpp", '#include "slm/backend/concept.hpp"\n', "module 'formats'"),
    ("backend/cpu/a.hpp", '#include "slm/config/model_config.hpp"\n', "module 'backend'"),
    ("backend/cpu/a.hpp", '#include "slm/model/block.hpp"\n', "module 'backend'"),
    ("backend/cpu/a.hpp", '#  include "slm/io/file.hpp"\n', "module 'backend'"),
    ("decode/a.hpp", '#include "slm/backend/concept.hpp"\n', "module 'decode'"),
    ("decode/a.hpp", '#include "slm/model/model.hpp"\n', "module 'decode'"),
    ("lm/a.hpp", '#include "slm/formats/kv_format.hpp"\n', "module 'lm'"),
    ("engine/a.hpp", '#include "slm/model/paged_sequence.hpp"\n', "module 'engine'"),
    ("decode/a.hpp", '#include "slm/text/tokenizer.hpp"\n', "module 'decode'"),
    ("model/a.hpp", '#include "slm/decode/stats.hpp"\n', "module 'model'"),
    ("model/a.hpp", '#include "slm/speculative.hpp"\n', "module 'model'"),
    ("core/a.hpp", "namespace slm {\n}\n", "another namespace than slm::v3_5"),
    ("io/a.hpp", "namespace slm { inline namespace v3_4 {\n}}\n", "another namespace"),
    ("io/a.hpp", "namespace slm::inline v3_5 {\n}\n", "another namespace"),
    ("kitchen/a.hpp", "", "unknown module"),
    ("core/a.hpp", "#include <slm/core/view.hpp>\n", "write \"slm/core/view.hpp\""),
    ("core/a.hpp", '#include "view.hpp"\n', "whole path"),
    ("backend/cpu/a.hpp", "#include <iostream>\n", "headers of kernels"),
    ("backend/cpu/a.hpp", "#include <random>\n", "headers of kernels"),
    ("formats/a.hpp", "#include <filesystem>\n", "headers of kernels"),
    ("core/a.hpp", "#include <regex>\n", "headers of kernels"),
    ("backend/a.hpp", "#include <nlohmann/json.hpp>\n", "read JSON"),
    ("decode/a.hpp", "#include <nlohmann/json.hpp>\n", "read JSON"),
    ("decode/a.hpp", "#ifdef __CUDACC__\n#endif\n", "names a compiler"),
    ("model/a.hpp", "#if defined(__AVX2__)\n#endif\n", "names a compiler"),
    ("backend/cpu/matmul.hpp", "#include <immintrin.h>\n", "names a compiler"),
    ("backend/cpu/matmul.hpp", '__attribute__((target("avx2"))) void f();\n', "names a compiler"),
    ("backend/gpu/kernels/gemv.hpp", "#ifdef __HIPCC__\n#endif\n", "names a compiler"),
    ("model/a.hpp", "if constexpr (Config::value.layers > 3) {}\n", "if constexpr (Config::"),
    ("model/a.hpp", "inline void f() { std::cerr << 1; }\n", "prints"),
    ("model/a.hpp", "inline void f() { std::abort(); }\n", "ends the process"),
    ("io/a.hpp", "inline void f(int n) { assert(n); }\n", "ends the process"),
    ("io/a.hpp", "// TODO later\n", "leaves something open"),
    ("io/a.hpp", "using namespace std;\n", "opens a namespace"),
    ("text/a.hpp", "SLM_INLINE Trie::Trie(int n) : n(n) {}\n", "SLM_CONSTRUCTOR"),
    ("text/a.hpp", "SLM_INLINE text::Trie::~Trie() {}\n", "SLM_CONSTRUCTOR"),
    ("engine/a.hpp", "std::jthread thread;\n", "libc++ lacks"),
    ("engine/a.hpp", "#include <stop_token>\n", "libc++ lacks"),
    ("io/a.hpp", "\n" * 400, "more than 400"),
    ("door.hpp", "\n" * 41, "public header"),
    ("backend/cpu/kernels.inc", "#if defined(__AVX2__)\n#endif\n", "names a compiler"),
    ("io/a.hpp", "/* one\n two */ #include <vector>\ninline void f() { std::exit(1); }\n", "ends the process"),
]
SOUND = [
    ("backend/cpu/simd.hpp", "namespace amx {\nusing namespace avx512;\n}\n"),
    ("core/macros.hpp", "#if defined(__CUDACC__)\n#endif\n"),
    ("backend/cpu/simd.hpp", "#include <immintrin.h>\n"),
    ("backend/cpu/isa.hpp", '__attribute__((target("avx2"))) void f();\n'),
    ("backend/gpu/lane/lane_hip.hpp", "#ifdef __HIPCC__\n#endif\n"),
    ("decode/a.hpp", '#include "slm/lm/language_model.hpp"\n#include "slm/core/rng.hpp"\n'),
    ("model/a.hpp", '#include "slm/backend/concept.hpp"\n#include "slm/io/file.hpp"\n'),
    ("io/a.hpp", "#include <nlohmann/json.hpp>\n#include <filesystem>\n"),
    ("model/a.hpp", "// never std::cout, std::abort() or __AVX2__ here\n/* assert(x)\n __GNUC__ */\n"),
    ("decode/a.hpp", "std::thread worker;  // not std::jthread\nint std_format(int);\n"),
    ("model/a.hpp", "static_assert(sizeof(int) == 4);\n"),
    ("text/a.hpp", "SLM_CONSTRUCTOR Trie::Trie() {}\nSLM_INLINE Trie Trie::from() { return Trie(); }\n"),
    ("io/a.hpp", "namespace slm { inline namespace v3_5 { namespace detail {\n}}}\n"),
    ("speculative.hpp", '#include "slm/decode/speculative.hpp"\n#include "slm/model/load.hpp"\n'),
]
FOLDER_BREACHES = [
    ("bench/command/a.cpp", '#include "examples/slm/cli.hpp"\n', "sees only ['bench', 'tools']"),
    ("bench/command/a.cpp", '#  include <examples/slm/cli.hpp>\n', "sees only ['bench', 'tools']"),
    ("bench/command/a.cpp", '#include "../../examples/slm/cli.hpp"\n', "sees only ['bench', 'tools']"),
    ("examples/slm/a.cpp", '#include "bench/command/command.hpp"\n', "sees only ['examples', 'tools']"),
    ("examples/slm/a.cpp", '#include "../../bench/samples.hpp"\n', "sees only ['examples', 'tools']"),
    ("examples/CMakeLists.txt", 'add_subdirectory("${PROJECT_SOURCE_DIR}/bench/command" x)\n', "sees only ['examples', 'tools']"),
    ("bench/CMakeLists.txt", "add_subdirectory(../examples/slm)\n", "sees only ['bench', 'tools']"),
    ("tools/cli/a.hpp", '#include "bench/samples.hpp"\n', "sees only ['tools'] "),
    ("tools/cli/a.hpp", '#include "examples/slm/cli.hpp"\n', "sees only ['tools'] "),
]
FOLDER_SOUND = [
    ("bench/command/a.cpp", '#include "bench/samples.hpp"\n#include "tools/cli/output.hpp"\n#include <vector>\n'),
    ("examples/slm/a.cpp", '#include "cli.hpp"\n#include "tools/cli/bench.hpp"\n#include "slm/speculative.hpp"\n'),
    ("bench/command/a.hpp", '// as examples/slm does\nconst char* pair = "/examples/demo_pair";\n'),
    ("bench/command/CMakeLists.txt", "# examples/slm links this\nadd_library(bench device/a.cpp)\n"),
    ("examples/CMakeLists.txt", "target_link_libraries(slm_program PRIVATE slm_bench_command)\n"),
]


def main():
    failures = []
    for name, body, expected in BREACHES:
        found = [sentence for _, sentence in check_file(name, HEAD + body, ABI)]
        if not any(expected in sentence for sentence in found):
            failures.append(f"missed in {name}: {body!r} (expected '{expected}', found {found})")
    if not list(check_file("core/a.hpp", "", ABI)):
        failures.append("missed: no #pragma once")
    for name, body in SOUND:
        found = list(check_file(name, HEAD + body, ABI))
        if found:
            failures.append(f"false alarm in {name}: {body!r}: {found}")
    for name, body, expected in FOLDER_BREACHES:
        found = [sentence for _, sentence in check_folders(name, body)]
        if not any(expected in sentence for sentence in found):
            failures.append(f"missed in {name}: {body!r} (expected '{expected}', found {found})")
    for name, body in FOLDER_SOUND:
        found = list(check_folders(name, body))
        if found:
            failures.append(f"false alarm in {name}: {body!r}: {found}")
    print("\n".join(failures))
    breaches, sound = len(BREACHES) + 1 + len(FOLDER_BREACHES), len(SOUND) + len(FOLDER_SOUND)
    print(f"{breaches} planted breaches, {sound} sound files, {len(failures)} wrong answers")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
