// Calibration text -> token sequences of one length.
#pragma once

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/types.hpp"
#include "slm/io/json.hpp"
#include "slm/io/mapped_file.hpp"
#include "slm/text/tokenizer.hpp"
#include "slm/text/utf8.hpp"

namespace slm { inline namespace v0_1 { namespace quantize {

struct CalibrationOptions {
  int samples = 0;            // sequences; 0: as many as the text has, at most 32
  int sequence_length = 512;  // tokens per sequence; limited by the model's context
};

using Sequences = std::vector<std::vector<Token>>;  // [samples][sequence_length]

/// The documents of a text file: each line's "text" for .jsonl, the whole content otherwise.
inline std::vector<std::string> read_documents(const std::filesystem::path& path) {
  const MappedFile file(path);
  const std::string_view source = file.text();
  if (const std::size_t good = utf8::valid_prefix(source); good != source.size()) {
    throw Error("quantize.not-utf8",
                text("'", path.string(), "' is not UTF-8: byte ", good, " is not part of a character"),
                "Convert the text to UTF-8, or use another file");
  }
  std::vector<std::string> documents;
  if (path.extension() != ".jsonl") {
    documents.emplace_back(source);
    file.check_unchanged();
    return documents;
  }
  for (std::size_t start = 0; start < source.size();) {
    const std::size_t end = std::min(source.find('\n', start), source.size());
    const std::string_view line = source.substr(start, end - start);
    start = end + 1;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string where = text(path.string(), ", document ", documents.size() + 1);
    const OwnedJson document = parse_json_object(line, where);
    const Json& field = JsonFields(document, where).at("text");
    if (!field.is_string()) throw JsonFields(document, where).bad("text", "a string", field);
    documents.push_back(field.get<std::string>());
  }
  file.check_unchanged();
  return documents;
}

/// Concatenates the tokens of all documents and divides them into sequences. If there are more than requested, takes
/// evenly spaced ones. Deterministic.
inline Sequences calibration_sequences(const std::filesystem::path& path, const Tokenizer& tokenizer,
                                       const CalibrationOptions& options) {
  constexpr std::size_t usual_samples = 32;
  const auto length = static_cast<std::size_t>(options.sequence_length);
  if (options.samples < 0 || options.sequence_length < 1) {
    throw Error("quantize.bad-options",
                text("expected samples >= 0 and a sequence length >= 1, found ", options.samples, " and ",
                     options.sequence_length),
                "Use the defaults for both");
  }
  std::vector<Token> tokens;
  for (const std::string& document : read_documents(path)) {
    const std::vector<Token> ids = tokenizer.encode(document);
    tokens.insert(tokens.end(), ids.begin(), ids.end());
  }
  const std::size_t available = tokens.size() / length;
  const std::size_t wanted = options.samples > 0 ? static_cast<std::size_t>(options.samples)
                                                 : std::clamp(available, std::size_t{1}, usual_samples);
  if (available < wanted) {
    throw Error("quantize.short-text",
                text("'", path.string(), "' has ", tokens.size(), " tokens, which is ", available, " sequences of ",
                     length, "; ", wanted, " are required"),
                "Use a longer text, or fewer or shorter samples");
  }
  Sequences sequences;
  for (std::size_t i = 0; i < wanted; ++i) {
    const auto* first = tokens.data() + i * available / wanted * length;
    sequences.emplace_back(first, first + length);
  }
  return sequences;
}

}}}
