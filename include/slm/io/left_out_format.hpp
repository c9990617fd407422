// left_out_format(): the error for a model in a format that the program was compiled without.
#pragma once

#include <filesystem>

#include "slm/core/error.hpp"
#include "slm/core/macros.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

inline Error left_out_format(const std::filesystem::path& model) {
#if defined(SLM_NO_GGUF)
  constexpr const char *expected = "a model folder", *next = "Hugging Face model folder", *macro = "SLM_NO_GGUF";
#else
  constexpr const char *expected = "a GGUF file", *next = "GGUF file", *macro = "SLM_NO_FOLDERS";
#endif
  return Error("io.format-left-out",
               text("'", model.string(), "': expected ", expected, ", since this program reads no other format"),
               text("Name a ", next, ", or compile the program without ", macro));
}

}}}
