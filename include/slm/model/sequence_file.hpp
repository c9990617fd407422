// The file format of Sequence::save() and Sequence::load().
//
//   magic and version; digests of the model and the adapter; number of tokens and of filled positions; LongRoPE's
//   factors; format of keys and values; the tokens; for each kind of layer and each page of the filled positions one
//   presence byte, followed by the page's contents if present; with recurrent layers the state after the filled
//   positions likewise; a checksum of all bytes. Byte order: the machine's.
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
#include "slm/model/paged_sequence.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

struct SequenceHeader {
  std::uint64_t magic = 0x31716573'6d6c7303;  // its low byte is the version
  std::uint64_t digest = 0;
  std::uint64_t adapter = 0;  // PrefixKey::adapter
  std::uint32_t tokens = 0;
  std::uint32_t filled = 0;
  std::uint16_t beyond = 0;
  std::uint16_t format = 0;  // a KvFormat
  std::uint32_t kinds = 0;
};

inline void PagedSequence::save(std::ostream& out) const {
  Checksum sum;
  const auto put = [&](std::span<const std::byte> bytes) {
    sum.add(bytes);
    out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  };
  const auto kinds = static_cast<std::uint32_t>(tables.size());
  const SequenceHeader header{.digest = pool.layout().owner().digest.get(),
                              .adapter = key.adapter,
                              .tokens = static_cast<std::uint32_t>(tokens.size()),
                              .filled = static_cast<std::uint32_t>(filled),
                              .beyond = beyond,
                              .format = static_cast<std::uint16_t>(pool.layout().format()),
                              .kinds = kinds};
  put(std::as_bytes(std::span(&header, 1)));
  put(std::as_bytes(std::span(tokens)));
  const int pages = (filled + page_positions - 1) / page_positions;
  std::vector<std::byte> contents;
  for (std::uint32_t kind = 0; kind < kinds; ++kind) {
    contents.resize(pool.layout().page_bytes(static_cast<int>(kind)));
    for (int page = 0; page < pages; ++page) {
      const KvPageRef& entry = tables[kind][static_cast<std::size_t>(page)];
      const std::byte there{entry != nullptr};
      put({&there, 1});
      if (entry == nullptr) continue;
      pool.read(static_cast<int>(kind), *entry, contents.data());
      put(contents);
    }
  }
  if (recurs()) {
    const KvPageRef state = state_at(filled);
    const std::byte there{state != nullptr};
    put({&there, 1});
    if (state != nullptr) {
      pool.read(pool.layout().state_kind(), *state, contents.data());  // of the last kind
      put(contents);
    }
  }
  const std::uint64_t checksum = sum.value();
  out.write(reinterpret_cast<const char*>(&checksum), sizeof checksum);
  out.flush();
  if (!out) {
    throw Error("sequence.unwritable", text("a sequence of ", tokens.size(), " tokens could not be written completely"),
                "Check the free disk space, and that the stream is open for writing");
  }
}

inline void PagedSequence::load(std::istream& in) {
  const auto bad = [](const std::string& found) {
    return Error("sequence.bad-file", text("expected a saved sequence, found ", found),
                 "Save the sequence again with this version of slm");
  };
  Checksum sum;
  const auto get = [&](std::span<std::byte> bytes, const char* what) {
    in.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    if (static_cast<std::size_t>(in.gcount()) != bytes.size()) throw bad(text("a file that ends within ", what));
    sum.add(bytes);
  };
  SequenceHeader header;
  const std::uint64_t magic = header.magic;
  get(std::as_writable_bytes(std::span(&header, 1)), "its head");
  if (header.magic != magic) throw bad("a bad magic number or an unsupported version");
  const KvLayout& layout = pool.layout();
  const KvOwner& owner = layout.owner();
  if (header.digest != owner.digest.get() || header.kinds != tables.size()) {
    throw Error(
        "sequence.other-model",
        text("expected a saved sequence of '", owner.name, "' on this backend, found one of another model or backend"),
        "Load it with the same weights and kind of backend as when it was saved");
  }
  if (header.adapter != key.adapter) {
    throw Error("sequence.other-adapter",
                text("the saved sequence was computed with ", header.adapter == 0 ? "no adapter" : "another adapter"),
                "Load it with the adapter that it was saved with");
  }
  if (header.format >= kv_formats.size()) throw bad(text("the unknown format ", header.format));
  if (kv_formats[header.format] != layout.format()) {
    throw Error(
        "sequence.other-format",
        text("expected a pool of format ", name_of(kv_formats[header.format]), ", found ", name_of(layout.format())),
        "Load it into a pool of that format (KvPoolOptions::format, LoadOptions::cache_format)");
  }
  if (header.tokens > static_cast<std::uint32_t>(owner.context) || header.filled > header.tokens || header.beyond > 1) {
    throw bad(text("invalid counts: ", header.tokens, " tokens, ", header.filled, " of them filled"));
  }
  tokens.resize(header.tokens);
  get(std::as_writable_bytes(std::span(tokens)), "the tokens");
  for (const Token token : tokens) {
    if (token < 0 || token >= owner.vocab) throw bad(text("the invalid token ", token));
  }
  const auto get_page = [&](int kind, std::vector<std::byte>& contents) -> KvPageRef {
    std::byte there{};
    get({&there, 1}, "its pages");
    if (there > std::byte{1}) throw bad("an invalid page-presence byte");
    if (there == std::byte{0}) return nullptr;
    get(contents, "its pages");
    KvPageRef page = pool.take(kind);
    pool.write(kind, *page, contents.data());
    return page;
  };
  const std::size_t pages = (header.filled + page_positions - 1) / page_positions;
  std::vector<std::byte> contents;
  for (std::size_t kind = 0; kind < tables.size(); ++kind) {
    contents.resize(layout.page_bytes(static_cast<int>(kind)));
    tables[kind].resize(pages);
    for (KvPageRef& entry : tables[kind]) entry = get_page(static_cast<int>(kind), contents);
  }
  if (recurs()) {
    const KvPageRef state = get_page(layout.state_kind(), contents);
    if (state != nullptr && header.filled > 0) states.add(static_cast<int>(header.filled), state);
  }
  std::uint64_t checksum = 0;
  in.read(reinterpret_cast<char*>(&checksum), sizeof checksum);
  if (in.gcount() != sizeof checksum || checksum != sum.value()) throw bad("a checksum mismatch");
  filled = static_cast<int>(header.filled);
  computed_from = filled;  // other sequences never reuse pages that come from a file
  beyond = header.beyond == 1;
}

}}}
