// Public header for the 4-bit matrix product: construct AwqLinear from a layer's tensors, then call multiply_add().
//
//  const slm::Tensor codes = ..., scales = ..., zeros = ...;       // as the checkpoint stores them
//  slm::Int4Tensor layer{.name = "q_proj", .layout = slm::Int4Layout::awq_gemm, .out = 4096, .in = 4096, .group = 128,
//                        .codes = &codes, .scales = &scales, .zeros = &zeros};
//  slm::AwqLinear linear{layer};                                    // repacked once for this machine
//  linear.multiply_add(x, y);                                       // y [rows, out] += x [rows, in] . weight^T
#pragma once

#include "slm/core/implementation_order.inc"

#include "slm/awq/int4_pack.hpp"
#include "slm/backend/awq_linear.hpp"
#include "slm/backend/select.hpp"
#include "slm/formats/code_tiles.hpp"
#include "slm/formats/int4_check.hpp"
#include "slm/formats/int4_rows.hpp"
#include "slm/formats/int4_tensor.hpp"
