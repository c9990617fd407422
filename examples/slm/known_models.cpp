// slm info --known: the known models as the table in docs/models.md.
#include <iomanip>
#include <sstream>

#include "cli.hpp"
#include "slm/config/known_models.hpp"
#include "slm/config/sizes.hpp"

namespace cli {

namespace {

std::string with_commas(std::int64_t number) {
  std::string digits = std::to_string(number);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3) {
    digits.insert(static_cast<std::size_t>(at), ",");
  }
  return digits;
}

/// 1 GB is 1e9 bytes.
std::string gigabytes(std::int64_t bytes) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(3) << static_cast<double>(bytes) * 1e-9;
  return out.str();
}

template <class Model>
std::string row_of() {
  constexpr slm::ModelConfig shape = Model::value;
  constexpr slm::TableSizes tables = slm::table_sizes_of<Model>();
  const std::int64_t parameters = slm::parameter_count(shape, tables);
  constexpr const char* formats = "fp32, fp16, bf16";  // formats that the tests run on each backend
  std::ostringstream row;
  row << "| " << Model::name << (tables.tied ? " (tied)" : "") << " | " << shape.layers << " | " << shape.hidden
      << " | " << shape.ffn << " | " << shape.heads << " / " << shape.kv_heads << " | " << shape.head_dim << " | "
      << shape.vocab << " | " << with_commas(parameters) << " | " << gigabytes(4 * parameters) << " | "
      << gigabytes(2 * parameters) << " | " << gigabytes(slm::int4_bytes(shape, tables)) << " | "
      << with_commas(slm::kv_count_per_token(shape) * std::int64_t{sizeof(float)}) << " | " << formats << " | "
      << formats << " |\n";
  return row.str();
}

template <class... Models>
std::string rows_of(slm::Registry<Models...>) {
  return (row_of<Models>() + ...);
}

}  // namespace

std::string known_models_table() {
  return "| model | layers | hidden | ffn | heads / kv | head_dim | vocab | parameters | fp32 GB | bf16 GB | int4 GB | "
         "KV "
         "bytes per token | Reference | Cpu |\n"
         "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n" +
         rows_of(slm::KnownModels{});
}

}  // namespace cli
