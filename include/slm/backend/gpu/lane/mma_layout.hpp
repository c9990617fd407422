// Fragment layouts: the matrix elements that each lane of a wave holds, for three families of matrix units.
//
// An A fragment is 16 x depth, B is depth x columns, C is 16 x columns in fp32. Elements of A and B have 16 bits, two
// per word. A lane holds `row_slots` rows of A, with `run` elements along the depth each; and one column of B with the
// same `run` elements. k(lane, slot) is their index along the depth. A kernel that loads A and B alike need not know
// it, since a sum does not depend on the labels of its terms: lane group k_group(lane) takes the k_group-th run.
#pragma once

#include <cstdint>

#include "slm/core/macros.hpp"

namespace slm { inline namespace v0_1 { namespace gpu {

/// NVIDIA, mma.sync.aligned.m16n8k16, from sm_80 on.
struct MmaSync16x8x16 {
  static constexpr const char* name = "mma.sync m16n8k16";
  static constexpr int lanes = 32, rows = 16, columns = 8, depth = 16;
  static constexpr int row_slots = 2, run = 4, k_groups = 4;
  static constexpr int a_words = 4, b_words = 2, c_floats = 4;

  static SLM_DEVICE constexpr int a_row(int lane, int slot) { return lane / 4 + 8 * slot; }
  static SLM_DEVICE constexpr int a_word(int row_slot, int pair) { return 2 * pair + row_slot; }
  static SLM_DEVICE constexpr int b_column(int lane) { return lane / 4; }
  static SLM_DEVICE constexpr int k_group(int lane) { return lane % 4; }
  static SLM_DEVICE constexpr int k(int lane, int slot) { return 2 * (lane % 4) + slot % 2 + 8 * (slot / 2); }
  static SLM_DEVICE constexpr int c_row(int lane, int i) { return lane / 4 + 8 * (i / 2); }
  static SLM_DEVICE constexpr int c_column(int lane, int i) { return 2 * (lane % 4) + i % 2; }
};

/// AMD CDNA, v_mfma_f32_16x16x16f16 and ..bf16_1k.
struct Mfma16x16x16 {
  static constexpr const char* name = "MFMA 16x16x16";
  static constexpr int lanes = 64, rows = 16, columns = 16, depth = 16;
  static constexpr int row_slots = 1, run = 4, k_groups = 4;
  static constexpr int a_words = 2, b_words = 2, c_floats = 4;

  static SLM_DEVICE constexpr int a_row(int lane, int) { return lane % 16; }
  static SLM_DEVICE constexpr int a_word(int, int pair) { return pair; }
  static SLM_DEVICE constexpr int b_column(int lane) { return lane % 16; }
  static SLM_DEVICE constexpr int k_group(int lane) { return lane / 16; }
  static SLM_DEVICE constexpr int k(int lane, int slot) { return 4 * (lane / 16) + slot; }
  static SLM_DEVICE constexpr int c_row(int lane, int i) { return 4 * (lane / 16) + i; }
  static SLM_DEVICE constexpr int c_column(int lane, int) { return lane % 16; }
};

/// AMD CDNA, v_mfma_f32_32x32x8f16 and ..bf16_1k: half the depth, four times the tile.
struct Mfma32x32x8 {
  static constexpr const char* name = "MFMA 32x32x8";
  static constexpr int lanes = 64, rows = 32, columns = 32, depth = 8;
  static constexpr int row_slots = 1, run = 4, k_groups = 2;
  static constexpr int a_words = 2, b_words = 2, c_floats = 16;

  static SLM_DEVICE constexpr int a_row(int lane, int) { return lane % 32; }
  static SLM_DEVICE constexpr int a_word(int, int pair) { return pair; }
  static SLM_DEVICE constexpr int b_column(int lane) { return lane % 32; }
  static SLM_DEVICE constexpr int k_group(int lane) { return lane / 32; }
  static SLM_DEVICE constexpr int k(int lane, int slot) { return 4 * (lane / 32) + slot; }
  static SLM_DEVICE constexpr int c_row(int lane, int i) { return 8 * (i / 4) + 4 * (lane / 32) + i % 4; }
  static SLM_DEVICE constexpr int c_column(int lane, int) { return lane % 32; }
};

/// AMD RDNA3, v_wmma_f32_16x16x16 in wave32: lanes 16..31 hold the same elements of A and B as lanes 0..15.
struct Wmma16x16x16 {
  static constexpr const char* name = "WMMA 16x16x16";
  static constexpr int lanes = 32, rows = 16, columns = 16, depth = 16;
  static constexpr int row_slots = 1, run = 16, k_groups = 1;
  static constexpr int a_words = 8, b_words = 8, c_floats = 8;

  static SLM_DEVICE constexpr int a_row(int lane, int) { return lane % 16; }
  static SLM_DEVICE constexpr int a_word(int, int pair) { return pair; }
  static SLM_DEVICE constexpr int b_column(int lane) { return lane % 16; }
  static SLM_DEVICE constexpr int k_group(int) { return 0; }
  static SLM_DEVICE constexpr int k(int, int slot) { return slot; }
  static SLM_DEVICE constexpr int c_row(int lane, int i) { return 2 * i + lane / 16; }
  static SLM_DEVICE constexpr int c_column(int lane, int) { return lane % 16; }
};

template <class Layout>
struct FragmentA {
  std::uint32_t word[Layout::a_words];
};
template <class Layout>
struct FragmentB {
  std::uint32_t word[Layout::b_words];
};
template <class Layout>
struct FragmentC {
  float value[Layout::c_floats];
};

}}}
