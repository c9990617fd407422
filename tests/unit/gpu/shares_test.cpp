// Kernels between ranks' parts and whole rows, on emulated lanes: every column and every row of a table comes from the
// rank that holds it, for any sizes.
#include "slm/backend/gpu/kernels/shares.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "slm/backend/gpu/lanes.hpp"

using namespace slm;
using gpu::Memory;

namespace {

Memory<const float> in(const std::vector<float>& numbers) {
  return {numbers.data(), static_cast<std::int64_t>(numbers.size())};
}
Memory<float> out(std::vector<float>& numbers) { return {numbers.data(), static_cast<std::int64_t>(numbers.size())}; }

std::vector<float> counted(std::int64_t count, float first) {
  std::vector<float> numbers;
  for (std::int64_t i = 0; i < count; ++i) numbers.push_back(first + static_cast<float>(i));
  return numbers;
}

/// Whole rows, split into the ranks' parts and joined again.
template <class Runtime>
int wrong_columns(std::int64_t width, int ranks, int rows) {
  Runtime runtime;
  auto stream = runtime.make_stream();
  const RowCut cut(width, ranks);
  const std::vector<float> whole = counted(rows * width, 1);
  std::vector<float> all, again(whole.size(), -1.0f);
  int wrong = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<float> mine(static_cast<std::size_t>(rows * cut.parts * cut.count(rank)), -1.0f);
    if (mine.empty()) continue;
    runtime.template launch<gpu::TakeColumns>({in(whole), out(mine), cut, rank, rows}, stream);
    std::size_t at = 0;
    for (int row = 0; row < rows; ++row) {
      for (const RowRange& range : cut.of(rank)) {
        for (std::int64_t i = range.first; i < range.last; ++i)
          wrong += mine[at++] != whole[static_cast<std::size_t>(row * width + i)];
      }
    }
    all.insert(all.end(), mine.begin(), mine.end());
  }
  runtime.template launch<gpu::SpreadColumns>({in(all), out(again), cut, cut.parts, rows, static_cast<int>(width)},
                                              stream);
  return wrong + (again != whole);
}

/// Two halves of a product in one: gates times ups.
template <class Runtime>
bool spreads_halves(std::int64_t width, int ranks, int rows) {
  Runtime runtime;
  auto stream = runtime.make_stream();
  const RowCut cut(2 * width, ranks);
  const std::vector<float> whole = counted(rows * width, 1);
  const std::int64_t stride = width + 3;  // other numbers follow each row
  std::vector<float> all, again(static_cast<std::size_t>(rows * stride), -1.0f);
  for (int rank = 0; rank < ranks; ++rank) {
    for (int row = 0; row < rows; ++row) {
      const auto first = whole.begin() + static_cast<std::ptrdiff_t>(row * width + cut.first(rank));
      all.insert(all.end(), first, first + static_cast<std::ptrdiff_t>(cut.count(rank)));
    }
  }
  runtime.template launch<gpu::SpreadColumns>({in(all), out(again), cut, 1, rows, static_cast<int>(stride)}, stream);
  bool right = true;
  for (std::int64_t i = 0; i < rows * stride; ++i) {
    const std::int64_t column = i % stride;
    const float expected = column < width ? whole[static_cast<std::size_t>(i / stride * width + column)] : -1.0f;
    right = right && again[static_cast<std::size_t>(i)] == expected;
  }
  return right;
}

/// Results of experts, of which the last one of each row is of another width.
template <class Runtime>
bool spreads_experts(std::int64_t width, std::int64_t shared_width, int ranks) {
  Runtime runtime;
  auto stream = runtime.make_stream();
  constexpr int of_row = 3, places = 4 * of_row;
  const gpu::ExpertCuts cuts{
      .cut = {width, ranks}, .shared = {shared_width, ranks}, .of_row = of_row, .chosen_count = of_row - 1};
  const std::int64_t stride = std::max(width, shared_width) + 1;
  const std::vector<float> whole = counted(places * stride, 1);
  std::vector<float> all, again(whole.size(), -1.0f), expected(whole.size(), -1.0f);
  for (int rank = 0; rank < ranks; ++rank) {
    for (std::int64_t place = 0; place < places; ++place) {
      const std::size_t end = all.size() + static_cast<std::size_t>(cuts.columns(rank));
      for (const RowRange& range : cuts.of(place).of(rank)) {
        for (std::int64_t i = range.first; i < range.last; ++i) {
          const auto at = static_cast<std::size_t>(place * stride + i);
          all.push_back(expected[at] = whole[at]);
        }
      }
      if (all.size() > end) return false;
      all.resize(end, -2.0f);
    }
  }
  runtime.template launch<gpu::SpreadExperts>({in(all), out(again), cuts, places, static_cast<int>(stride)}, stream);
  return again == expected && std::count(expected.begin(), expected.end(), -1.0f) ==
                                  4 * (of_row * stride - (of_row - 1) * width - shared_width);
}

/// A table of `count` rows split over ranks; the rows of a step are looked up by token and by position.
template <class Runtime>
int wrong_rows(std::int64_t count, int ranks, bool by_position) {
  constexpr int width = 40;
  Runtime runtime;
  auto stream = runtime.make_stream();
  const RowCut cut(count, ranks);
  std::vector<gpu::StepRow> rows;
  for (std::int64_t i = 0; i < count; i += 1 + count / 13)
    rows.push_back({static_cast<int>(i), static_cast<int>(i) - 2, 0, 0, 0, 0, nullptr});
  const auto of_step = static_cast<int>(rows.size());
  const gpu::TableRows table{2, by_position};
  std::vector<float> all(static_cast<std::size_t>(ranks * of_step * width), -1.0f);
  std::vector<float> x(static_cast<std::size_t>(of_step * width), -1.0f);
  int wrong = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const gpu::OwnRows own(cut, rank);
    for (int r = 0; r < of_step; ++r) {
      const int row = table.of(rows[static_cast<std::size_t>(r)]);
      const int place = own.place(row);
      const bool holds = cut.find(row).rank == rank;
      wrong += row != rows[static_cast<std::size_t>(r)].token || holds != (place >= 0);
      wrong += holds && (place != cut.find(row).row || (ranks == 1 && gpu::OwnRows().place(row) != row));
      for (int k = 0; holds && k < width; ++k)
        all[static_cast<std::size_t>((rank * of_step + r) * width + k)] = static_cast<float>(row * width + k);
    }
  }
  runtime.template launch<gpu::SpreadRows>({in(all), {rows.data(), of_step}, out(x), table, cut, width, of_step},
                                           stream);
  for (int r = 0; r < of_step; ++r) {
    for (int k = 0; k < width; ++k)
      wrong += x[static_cast<std::size_t>(r * width + k)] !=
               static_cast<float>(rows[static_cast<std::size_t>(r)].token * width + k);
  }
  return wrong;
}

}  // namespace

TEMPLATE_TEST_CASE("columns and rows come from the ranks that hold them", "", backend::Lanes32::Runtime,
                   backend::Lanes64::Runtime) {
  for (const int ranks : {1, 2, 3, 8}) {
    for (const std::int64_t width : {1, 33, 88, 96, 4098, 9000}) {
      CAPTURE(ranks, width);
      CHECK(wrong_columns<TestType>(width, ranks, width > 1000 ? 2 : 5) == 0);
      CHECK(spreads_halves<TestType>(width, ranks, 2));
      CHECK(spreads_experts<TestType>(width, 2 * width, ranks));
      CHECK(spreads_experts<TestType>(width, 40, ranks));
      for (const bool by_position : {false, true}) CHECK(wrong_rows<TestType>(width, ranks, by_position) == 0);
    }
  }
}
