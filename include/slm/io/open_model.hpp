// Opens a model's files and reads its vocabulary, in the formats that this program reads.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "slm/core/macros.hpp"
#include "slm/io/model_files.hpp"
#include "slm/lm/model_info.hpp"

namespace slm { inline namespace v0_1 {
namespace detail {

SLM_HAS_FUNCTIONS(slm_io_open_model_hpp)

/// A GGUF file (the first shard of a split one), a folder with one GGUF model, or a Hugging Face folder.
std::unique_ptr<ModelFiles> open_model(const std::filesystem::path& model);

}  // namespace detail

/// The vocabulary, id -> token text, from tokenizer.json or a GGUF file; empty if the folder has neither. Decoders
/// compare vocabularies to detect different tokenizers. vocab: number of ids of the model.
std::vector<std::string> read_vocabulary(const std::filesystem::path& folder, int vocab = most_vocab);

}}

#if SLM_COMPILES
#include "slm/io/open_model_functions.hpp"
#endif
