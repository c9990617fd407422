// A sequence as bytes: what save() writes and load() reads.
//
//   magic and version, digests of the model and the adapter, number of tokens, of filled positions, LongRoPE's table,
//   the format of keys and values; the tokens; for each kind of layer and page of the filled positions a byte that says
//   whether it is there, and then its contents; a checksum of all of it. Numbers are in the order of the machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <istream>
#include <ostream>
#include <span>
#include <vector>

#include "slm/core/checksum.hpp"
#include "slm/core/error.hpp"
#include "slm/core/types.hpp"
#include "slm/model/sequence_state.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

struct SequenceHeader {
  std::uint64_t magic = 0x31716573'6d6c7303;  // the version is its last byte
  std::uint64_t digest = 0;
  std::uint64_t adapter = 0;  // PrefixKey's
  std::uint32_t tokens = 0;
  std::uint32_t filled = 0;
  std::uint16_t beyond = 0;
  std::uint16_t format = 0;  // a KvFormat
  std::uint32_t kinds = 0;
};

inline void write_sequence(const SequenceState& state, std::ostream& out) {
  Checksum sum;
  const auto put = [&](std::span<const std::byte> bytes) {
    sum.add(bytes);
    out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  };
  const auto kinds = static_cast<std::uint32_t>(state.tables.size());
  const auto format = state.pool ? static_cast<std::uint16_t>(state.pool.layout().format()) : std::uint16_t{0};
  const SequenceHeader header{.digest = state.pool ? state.pool.layout().owner().digest.get() : 0,
                              .adapter = state.key.adapter,
                              .tokens = static_cast<std::uint32_t>(state.tokens.size()),
                              .filled = static_cast<std::uint32_t>(state.filled),
                              .beyond = state.beyond,
                              .format = format,
                              .kinds = kinds};
  put(std::as_bytes(std::span(&header, 1)));
  put(std::as_bytes(std::span(state.tokens)));
  const int pages = (state.filled + page_positions - 1) / page_positions;
  std::vector<std::byte> contents;
  for (std::uint32_t kind = 0; kind < kinds; ++kind) {
    contents.resize(state.pool.layout().page_bytes(static_cast<int>(kind)));
    for (int page = 0; page < pages; ++page) {
      const KvPageRef& entry = state.tables[kind][static_cast<std::size_t>(page)];
      const std::byte there{entry != nullptr};
      put({&there, 1});
      if (entry == nullptr) continue;
      state.pool.read(static_cast<int>(kind), *entry, contents.data());
      put(contents);
    }
  }
  const std::uint64_t checksum = sum.value();
  out.write(reinterpret_cast<const char*>(&checksum), sizeof checksum);
  out.flush();
  if (!out) {
    throw Error("sequence.unwritable", text("a text of ", state.tokens.size(), " tokens could not be written whole"),
                "Check the free space, and that the stream is open for writing");
  }
}

/// `state` is empty and has the pool.
inline void read_sequence(SequenceState& state, std::istream& in) {
  const auto bad = [](const std::string& found) {
    return Error("sequence.bad-file", text("this is no saved sequence that can be read: ", found),
                 "Save the sequence again, with this version of slm");
  };
  Checksum sum;
  const auto get = [&](std::span<std::byte> bytes, const char* what) {
    in.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    if (static_cast<std::size_t>(in.gcount()) != bytes.size()) throw bad(text("it ends within ", what));
    sum.add(bytes);
  };
  SequenceHeader header;
  const std::uint64_t magic = header.magic;
  get(std::as_writable_bytes(std::span(&header, 1)), "its head");
  if (header.magic != magic) throw bad("it begins otherwise, or is of another version");
  const KvLayout& layout = state.pool.layout();
  const KvOwner& owner = layout.owner();
  if (header.digest != owner.digest.get() || header.kinds != state.tables.size()) {
    throw Error("sequence.other-model", text("the saved sequence is not one of '", owner.name, "' on this backend"),
                "Load it with the weights and on the kind of backend with which it was saved");
  }
  if (header.adapter != state.key.adapter) {
    throw Error("sequence.other-adapter",
                text("the saved sequence was read with ", header.adapter == 0 ? "no adapter" : "another adapter"),
                "Load it with the adapter with which it was saved");
  }
  if (header.format >= kv_formats.size()) throw bad(text("it tells of the format ", header.format));
  if (kv_formats[header.format] != layout.format()) {
    throw Error("sequence.other-format",
                text("the saved sequence holds keys and values as ", name_of(kv_formats[header.format]),
                     ", the pool as ", name_of(layout.format())),
                "Load it into a pool of its format (KvPoolOptions::format, LoadOptions::cache_format)");
  }
  if (header.tokens > static_cast<std::uint32_t>(owner.context) || header.filled > header.tokens || header.beyond > 1) {
    throw bad(text("it tells of ", header.tokens, " tokens, ", header.filled, " of them read"));
  }
  state.tokens.resize(header.tokens);
  get(std::as_writable_bytes(std::span(state.tokens)), "its tokens");
  for (const Token token : state.tokens) {
    if (token < 0 || token >= owner.vocab) throw bad(text("it holds the token ", token));
  }
  const std::size_t pages = (header.filled + page_positions - 1) / page_positions;
  std::vector<std::byte> contents;
  for (std::size_t kind = 0; kind < state.tables.size(); ++kind) {
    contents.resize(layout.page_bytes(static_cast<int>(kind)));
    state.tables[kind].resize(pages);
    for (KvPageRef& entry : state.tables[kind]) {
      std::byte there{};
      get({&there, 1}, "its pages");
      if (there > std::byte{1}) throw bad("it tells neither that a page is there nor that it is not");
      if (there == std::byte{0}) continue;
      get(contents, "its pages");
      entry = state.pool.take(static_cast<int>(kind));
      state.pool.write(static_cast<int>(kind), *entry, contents.data());
    }
  }
  std::uint64_t checksum = 0;
  in.read(reinterpret_cast<char*>(&checksum), sizeof checksum);
  if (in.gcount() != sizeof checksum || checksum != sum.value()) throw bad("its checksum is another");
  state.filled = static_cast<int>(header.filled);
  state.computed_from = state.filled;  // other texts never take over what a file says
  state.beyond = header.beyond == 1;
}

}}}
