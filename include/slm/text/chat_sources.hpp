// The published chat templates that slm writes exactly, by the digests of their sources. The renderer's prompts are
// those of each source; a source that differs in one byte is another template.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "slm/core/sha256.hpp"
#include "slm/text/chat_names.hpp"

namespace slm { inline namespace v0_1 { namespace chat {

namespace detail {

struct Source {
  Template value;
  std::string_view digest;  // sha256(normalised(source))
};

inline constexpr std::array<Source, 40> sources{{
    // ChatML
    {Template::chatml, "fcf7a096fe99a48fd9ad2b250bf9237e96e8f48bffec1c7ea4d3f225176cd40e"},
    {Template::chatml, "153280e3ff55d19da1398bdb3914ee2a51b80429bfaedde11d7d216c39db80f3"},
    {Template::chatml, "d7b5b8c7b58f7a6bf868aa46a5f73ee976d7292f40fcb9c3e7a1defd8d235cfb"},
    {Template::chatml, "58c1a1f04baa7adaeaba1f90267c3d57d9396f0c1f0129bdde9e76d3c6784af7"},
    {Template::chatml, "66edfb854931c933d3ac94f507626dd4fa2d5ca0a9b1036b11729d296a7392ac"},
    {Template::chatml, "f91864928fccff928b3068ca784db6275e655e400ccbb28f61d92c0090caf3b3"},
    {Template::chatml, "5fd94b9e1c6215f7db44f5b5f64edf04f6dd66ae67f4dc94871b118ccbfd1280"},
    {Template::chatml, "fddf77f8db6fbfb315f82f775806550ff5cca70bab928b9d520b3ee5c875cc6b"},
    // SmolLM2
    {Template::smollm2, "de9cde7d1b0ca0cc87459a6673e0d12fb89c070bdb24e4a30b6e4d187b226221"},
    {Template::smollm2, "872be49dbb638044ad01b60388f48d469ff2980e5f0dccdc22ec907db54d0788"},
    // Qwen2
    {Template::qwen2, "f0206845c9ebc3abb4735d44f286eb81ce99238ad2accc710c6fc60e6cb8ccc8"},
    {Template::qwen2, "793202280c0910ab26bc6eb57c8212c2417324c6d8c4efd0d10d59092ab3e3eb"},
    // Qwen2.5
    {Template::qwen25, "55b2f4a26ac9ee719330a61a0c39d9e538b0e9322212f048326318cff4f8674a"},
    // Qwen3
    {Template::qwen3, "87a2728cb8dc9fe424d624542f6060ec05a1d285ebbec578bb078900e33396b5"},
    // Llama-2-chat
    {Template::llama2, "e8d5b5a546d3f19df16a5320c614fab05bdc4edd50e850f1afd947b503ea41cf"},
    {Template::llama2, "9780fae5bfea3cfd7be37d328c6edfd296a8869be8131495bbe7eb37e780c88c"},
    {Template::llama2, "1623de5159d584da0b6c78f86ae57b2328746122f2c58446ab7f84bce8c7c57f"},
    {Template::llama2, "17b9854f459dd1e767c9a01a117f61fc1ddf30ca7e5fdd450e4ea20933f7933c"},
    // Llama-3-Instruct
    {Template::llama3, "b75e17085cfc511ead6d4fab84b86ab3c168ec7a332568a91d0889cdcba94394"},
    {Template::llama3, "b48c47f6443892716176eb200bf4ef108f64e06ca26ed0fa8ebc0a4b3992fcb2"},
    {Template::llama3, "4f46ecd43418f216df8c26936c60e5d04bcc81db47db5d86fbe889f64212dd4c"},
    {Template::llama3, "ba03a121d097859c7b5b9cd03af99aafe95275210d2876f642ad9929a150f122"},
    // Llama-3.1 and 3.3
    {Template::llama31, "93c0e9aa3629bbd77e68dbc0f5621f6e6b23aa8d74b932595cdb8d64684526d7"},
    // Llama-3.2
    {Template::llama32, "d82792f95932f1c9cef5c4bd992f171225e3bf8c7b609b4557c9e1ec96be819f"},
    // v0.1 and v0.2 since 2024
    {Template::mistral_spaced, "bbc58aad99454df60138be9530c9601a0adfe3d8932cda975e1f10b2410ddc51"},
    // v0.3
    {Template::mistral_v03, "cafb64e0e9e5fd2503054b3479593fae39cbdfd52338ce8af9bb4664a8eb05bd"},
    {Template::mistral_v03, "e42980f124ae912414c20a7aca571010a066e8e38e09f11eb02e62be8e570989"},
    {Template::mistral_v03, "e55fc82ffe154f191bc7b0be6340db7b54d82dadd4ab6564a1b9c07ef041d8c5"},
    {Template::mistral_v03, "1ada6e8564934c2bbef07cb57f7cccbb7adbc2ba8d5cc2464953e732b6291546"},
    // Phi-3-mini
    {Template::phi3, "5601fd7b9dac735cd1a9d029f73cbcf63a48f84b640df193dadc6ac6af980391"},
    {Template::phi3, "dcaee66df77bfbb789ec541fe713218da30225a526f1db97138fc39ee6dc56aa"},
    // Phi-3-vision
    {Template::phi3_vision, "672800bb30b3e512310f97ba0c81750fac4628f1a1f2e92138c92f7311abbd7c"},
    {Template::phi3_vision, "79e4ca4b7d902dc73772bbde0c62459f93871f4c17827e8e41ad3fa663e0da04"},
    // Phi-3.5-mini
    {Template::phi35, "107f446a0c69ad81516797efae2998f51b1c8e3ea6e74253dcaff6629306bfc7"},
    {Template::phi35, "78d976a442bcde2f0be15aafbb8e3050e1104f86732266f68403251b89982a90"},
    // Zephyr, TinyLlama-Chat
    {Template::zephyr, "66291cf0045c2425a3a667cf3cbb7af2b11f09e025c02f97245323ab79119362"},
    {Template::zephyr, "4f39e3a4b9e3d369b42fd00d93a78f171914bb4e58ec84fc420433d7a153288a"},
    // OLMo-Instruct
    {Template::amd_olmo, "1fd079953619577aaece0bf8136f037aedaadc70c8a813d81e6566cd3ef44601"},
    {Template::amd_olmo, "1da155d48c06933e19d177412c46be92b18daa410c22313db0050d01dd3a4c10"},
    {Template::amd_olmo, "b88387bfda88d80c45fa86ca4d39ce1ab5b57690089c0c9c39829968e1c9b421"},
}};

/// A template's source as Jinja reads it: each line ends in LF; a byte order mark and the last line end are left out.
inline std::string normalised(std::string_view jinja) {
  if (jinja.starts_with("\xEF\xBB\xBF")) jinja.remove_prefix(3);
  std::string source;
  source.reserve(jinja.size());
  for (std::size_t i = 0; i < jinja.size(); ++i) {
    if (jinja[i] == '\r' && i + 1 < jinja.size() && jinja[i + 1] == '\n') continue;
    source += jinja[i] == '\r' ? '\n' : jinja[i];
  }
  if (source.ends_with('\n')) source.pop_back();
  return source;
}

}  // namespace detail

/// The template of which this is a published source; nothing for any other source.
inline std::optional<Template> recognise(std::string_view jinja) {
  const std::string digest = sha256(detail::normalised(jinja));
  for (const detail::Source& source : detail::sources) {
    if (source.digest == digest) return source.value;
  }
  return std::nullopt;
}

}}}
