// The engines of a run side by side: decode speed without the prompt, and agreement of their greedy texts with slm's.
#pragma once

#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bench/command/baseline/baseline.hpp"
#include "bench/command/speculative/row.hpp"
#include "bench/command/speculative/summary.hpp"
#include "bench/command/speculative/table.hpp"

namespace slm::bench::speculative {

/// For each other engine, compares its greedy plain texts with slm's: the number of equal texts, and for the others the
/// number of equal tokens before the first difference.
inline Json agreement_of(std::span<const Row> rows) {
  std::map<Key, const Row*> ours;
  for (const Row& row : rows) {
    if (row.key.engine == "slm") ours[row.key] = &row;
  }
  std::map<std::string, std::pair<std::size_t, std::vector<double>>> engines;
  for (const Row& row : rows) {
    Key same = row.key;
    same.engine = "slm";
    const auto own = ours.find(same);
    if (row.key.engine == "slm" || row.key.sampling != "greedy" || row.key.kind != "plain" || own == ours.end())
      continue;
    auto& [compared, parted] = engines[row.key.engine];
    ++compared;
    if (const auto place = first_differing_token(row.new_ids, own->second->new_ids)) {
      parted.push_back(static_cast<double>(*place));
    }
  }
  Json json = Json::object();
  for (const auto& [name, found] : engines) {
    const auto& [compared, parted] = found;
    json[name] = {{"compared", compared}, {"equal", compared - parted.size()}, {"parted_after", spread(parted)}};
  }
  return json;
}

/// One entry per engine and sampling of the setup `published`, for a run with other engines; else none. described: name
/// -> version, dtype, threads, and the engine's other fields.
inline Json engines_of(std::span<const Row> rows, const Json& described) {
  using Sums = std::pair<Tally, Tally>;  // plain, speculative
  using Name = std::pair<std::string, std::string>;
  std::vector<Name> order;
  std::map<Name, std::map<int, Sums>> repeats;
  std::map<Name, Sums> all;
  for (const Row& row : rows) {
    if (row.key.setup != "published" || described.size() < 2) continue;
    const Name name{row.key.engine, row.key.sampling};
    if (!all.contains(name)) order.push_back(name);
    for (Sums* sums : {&all[name], &repeats[name][row.key.repeat]}) {
      (row.key.kind == "plain" ? sums->first : sums->second).add(row);
    }
  }
  const Json agreement = agreement_of(rows);
  Json json = Json::array();
  for (const Name& name : order) {
    const auto& [plain, fast] = all[name];
    std::vector<double> speedups;
    for (const auto& [repeat, sums] : repeats[name]) {
      if (sums.first.tokens == 0 || sums.second.tokens == 0) continue;
      speedups.push_back(sums.second.decode_throughput() / sums.first.decode_throughput());
    }
    const auto where_measured = [](const Tally& tally, double value) {
      return tally.tokens > 0 ? Json(value) : Json();
    };
    Json entry = described.value(name.first, Json::object());
    entry["engine"] = name.first;
    entry["sampling"] = name.second;
    entry["decode_tokens_per_second"] = {{"plain", where_measured(plain, plain.decode_throughput())},
                                         {"speculative", where_measured(fast, fast.decode_throughput())}};
    entry["decode_speedup"] = spread(speedups);
    entry["acceptance"] = where_measured(fast, fast.acceptance());
    entry["tokens_per_target_step"] = where_measured(fast, fast.tokens_per_target_step());
    entry["agreement"] = name.second == "greedy" ? agreement.value(name.first, Json()) : Json();
    json.push_back(std::move(entry));
  }
  return json;
}

namespace detail {

/// "15 of 16; the other parts after 33 tokens"
inline std::string agreement_text(const Json& agreement) {
  if (!agreement.is_object()) return "-";
  std::string written = text(agreement["equal"].get<std::size_t>(), " of ", agreement["compared"].get<std::size_t>());
  if (const Json& parted = agreement["parted_after"]; parted.is_object()) {
    written += "; others part after " + digits(parted["median"], 0) + " tokens";
    if (parted["least"] != parted["most"]) {
      written += " (" + digits(parted["least"], 0) + " to " + digits(parted["most"], 0) + ")";
    }
  }
  return written;
}

}  // namespace detail

/// The table of engines_of with notes; empty for a run without other engines.
inline std::string engines_text(const Json& engines) {
  if (engines.empty()) return "";
  std::vector<Cells> rows = {{"engine", "version", "weights", "sampling", "threads", "decode tokens/s plain",
                              "speculative", "speedup", "acceptance", "tokens/step", "greedy texts equal to slm's"}};
  std::map<std::string, std::string> remarks;
  for (const Json& found : engines) {
    const Json& rate = found["decode_tokens_per_second"];
    rows.push_back({found["engine"], found.value("version", "?"), found.value("dtype", "?"), found["sampling"],
                    text(found.value("threads", 0)), digits(rate["plain"], 1), digits(rate["speculative"], 1),
                    times(found["decode_speedup"]), digits(found["acceptance"], 3),
                    digits(found["tokens_per_target_step"], 2), detail::agreement_text(found["agreement"])});
    if (found["engine"] == "slm") continue;
    const Json speculation = found.value("speculation", Json());
    std::string remark = "the same weights by digest; speculation: ";
    remark += speculation.is_string() ? speculation.get<std::string>() : "none";
    for (const Json& note : found.value("notes", Json::array())) remark += "; " + note.get<std::string>();
    remarks[found["engine"]] = remark;
  }
  std::string written = table(rows, 4) + "\n";
  for (const auto& [name, remark] : remarks) written += "- " + name + ": " + remark + "\n";
  return written + "- the engines alternate within each task; decode speed excludes the prompt\n";
}

}  // namespace slm::bench::speculative
