// The pages of a mapped file that a step touches: of 128 experts, those that the router chose. Experts in 4-bit codes
// have the results of their values.
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "slm/backend/cpu/cpu.hpp"
#include "slm/backend/reference/reference.hpp"
#include "slm/io/config_json.hpp"
#include "slm/io/safetensors_writer.hpp"
#include "slm/lm/session.hpp"
#include "slm/model/load.hpp"
#include "slm/model/model.hpp"
#include "support/paths.hpp"
#include "support/quantized_checkpoint.hpp"
#include "support/temporary.hpp"
#include "support/toy_models.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

/// Makes memory inaccessible, and each of its pages accessible at its first access, which is noted.
class WatchedPages {
 public:
  WatchedPages(const std::byte* first, const std::byte* end) {
    page_ = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    begin_ = reinterpret_cast<std::uintptr_t>(first) / page_ * page_;
    count_ = (reinterpret_cast<std::uintptr_t>(end) - begin_ + page_ - 1) / page_;
    touched_ = std::make_unique<std::atomic<bool>[]>(count_);
    struct sigaction action {};
    action.sa_sigaction = note;
    action.sa_flags = SA_SIGINFO;
    REQUIRE(sigaction(SIGSEGV, &action, &before_) == 0);
    REQUIRE(mprotect(reinterpret_cast<void*>(begin_), count_ * page_, PROT_NONE) == 0);
  }
  WatchedPages(const WatchedPages&) = delete;
  WatchedPages& operator=(const WatchedPages&) = delete;
  ~WatchedPages() {
    mprotect(reinterpret_cast<void*>(begin_), count_ * page_, PROT_READ);
    sigaction(SIGSEGV, &before_, nullptr);
  }

  /// Of the pages that contain bytes of this tensor only, the number and how many were touched.
  std::pair<std::size_t, std::size_t> pages_of(const Tensor& tensor) const {
    const auto first = reinterpret_cast<std::uintptr_t>(tensor.bytes);
    const std::size_t from = (first - begin_ + page_ - 1) / page_, to = (first + tensor.size_bytes - begin_) / page_;
    return {to - from, std::count(&touched_[from], &touched_[to], true)};
  }

 private:
  static void note(int, siginfo_t* info, void*) {
    const std::uintptr_t at = reinterpret_cast<std::uintptr_t>(info->si_addr) - begin_;
    if (at / page_ >= count_) {
      signal(SIGSEGV, SIG_DFL);  // another fault: it ends the program when it is repeated
      return;
    }
    touched_[at / page_] = true;
    mprotect(reinterpret_cast<void*>(begin_ + at / page_ * page_), page_, PROT_READ);
  }

  static inline std::uintptr_t begin_, page_;
  static inline std::size_t count_;
  static inline std::unique_ptr<std::atomic<bool>[]> touched_;
  struct sigaction before_ {};
};

/// A Qwen3 MoE of any size with random weights.
void write_mixture(const std::filesystem::path& folder, const Json& changes, DType type) {
  Json config = read_json_object(fixture("models/qwen3moe/config.json"));
  config.merge_patch(changes);
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << config;
  const ModelDescription model = read_config_json(config, "config.json");
  std::vector<OwnedTensor> data;
  std::uint64_t state = 0;
  for (const TensorName& name : TensorNames(model.config, model.settings, model.family->names).all()) {
    OwnedTensor& tensor = data.emplace_back(name.name, type, name.shape);
    const auto in = static_cast<float>(name.shape.back());
    for (std::int64_t i = 0; i < tensor.elements(); ++i) {
      const float random = static_cast<float>(mix(++state) >> 40) * 0x1p-23f - 1.0f;
      tensor.set_float(i, name.shape.size() == 1 ? 1.0f : random * std::sqrt(3.0f / in));
    }
  }
  std::vector<Tensor> tensors(data.begin(), data.end());
  write_safetensors(folder / "model.safetensors", tensors);
}

template <class Device>
std::vector<float> logits_of(const std::filesystem::path& folder, Device device, int piece) {
  Session session(load(folder, device));
  const std::vector<Token> text = some_text(3, 24, session.info().vocab);
  std::vector<float> all;
  for (int at = 0; at < 24; at += piece) {
    const auto logits =
        session.forward(std::span(text).subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(piece)), piece);
    all.insert(all.end(), logits.data, logits.data + logits.size());
  }
  return all;
}

}  // namespace

TEST_CASE("of 128 experts in a mapped file, a decoded token reads the eight that its router chose") {
  const TemporaryFolder folder;
  const Json changes{
      {"hidden_size", 128}, {"moe_intermediate_size", 64}, {"num_local_experts", 128}, {"num_experts_per_tok", 8}};
  write_mixture(folder.path(), changes, DType::bf16);
  const auto checkpoint = std::make_shared<const Checkpoint>(folder.path());
  const ModelConfig shape = checkpoint->config();
  Session session(Model<Dynamic, Bf16, backend::Cpu>(Dynamic{shape}, checkpoint, backend::Cpu{{.threads = 2}}));
  std::vector<Tensor> experts;
  const std::byte *first = nullptr, *end = nullptr;
  for (const auto& [name, tensor] : checkpoint->tensors()) {
    if (first == nullptr || tensor->bytes < first) first = tensor->bytes;
    end = std::max(end, tensor->bytes + tensor->size_bytes);
    if (name.find(".experts.") != std::string::npos) experts.push_back(*tensor);
  }
  REQUIRE(experts.size() == 2 * 128 * 3);
  const WatchedPages pages(first, end);  // of the file, after loading
  for (const Token token : {5, 6, 7}) {
    std::size_t before = 0, now = 0, bytes = 0;
    std::vector<std::size_t> touched;
    for (const Tensor& tensor : experts) touched.push_back(pages.pages_of(tensor).second);
    session.forward({&token, 1}, 1);
    for (std::size_t i = 0; i < experts.size(); ++i) {
      const auto [all, seen] = pages.pages_of(experts[i]);
      CHECK((seen == 0 || seen == all));
      before += touched[i] != 0;
      now += seen != 0;
      bytes += seen != 0 && touched[i] == 0 ? experts[i].size_bytes : 0;
    }
    const std::size_t active = std::size_t{2} * 8 * 3;
    CHECK(now - before <= active);
    CHECK(bytes == (now - before) * 128 * 64 * sizeof(bfloat16_t));
    if (before == 0) CHECK(now == active);
  }
}

TEST_CASE("experts in 4-bit codes: the logits of their values, with the same bits for every cut") {
  const TemporaryFolder folder;
  write_mixture(folder.path() / "model", {{"hidden_size", 64}, {"moe_intermediate_size", 32}}, DType::f32);
  const Checkpoint source(folder.path() / "model");
  for (const Int4Layout layout : {Int4Layout::awq_gemm, Int4Layout::packed_rows, Int4Layout::gptq}) {
    const QuantizedForm form{.layout = layout, .group = 16};
    const std::string name{name_of(layout)};
    quantized(source, form).write(folder.path() / name);
    dequantized(source, form).write(folder.path() / (name + "-values"));
    const auto expected = logits_of(folder.path() / (name + "-values"), backend::Reference{}, 24);
    const auto whole = logits_of(folder.path() / name, backend::Cpu{2}, 24);
    float largest = 0, worst = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      largest = std::max(largest, std::abs(expected[i]));
      worst = std::max(worst, std::abs(expected[i] - whole[i]));
    }
    CAPTURE(name, worst, largest);
    CHECK(worst < 1e-3f * largest);
    for (const int piece : {1, 8}) CHECK(logits_of(folder.path() / name, backend::Cpu{1}, piece) == whole);
  }
}
