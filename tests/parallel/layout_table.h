// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "tests/parallel/parity_case.h"

// What two ranks can share a model in: the table that two GPUs run over NCCL in fp32 and bf16
// (tests/gpu), and ranks on CPUs over threads and gloo.
namespace pentatron::parity {

struct TableCase {
  std::string name;  // of its kind, precision and axes: "Llama_bf16_SP_Modules"
  CaseOptions options;
  Layout layout;
};

// Without attention dropout, which has no kernel on GPUs.
[[nodiscard]] CaseOptions options_of(ModelKind kind, const std::string& precision, Device device);

// Every value of an axis that two ranks allow, with both kinds of models in both precisions; every
// pair of two axes once in each precision, with the two kinds in turn; chosen triples likewise.
// Documents are packed, masks uneven, and what is reduced travels in several buckets.
[[nodiscard]] std::vector<TableCase> table_of_two_ranks(Device device);

// Runs every case on this rank of two and compares it with a run alone: a line for each case that
// is off. fp32: everything by parity's comparison. bf16 rounds what layouts add in another order,
// so its losses and norms are compared alone. Rank 0 writes to stderr how far it has come.
[[nodiscard]] std::vector<std::string> table_problems(const std::vector<TableCase>& table,
                                                      comm::Backend& backend);

// The comparison of one case. Empty: equal within the precision's bound.
[[nodiscard]] std::string rounded_difference(const Outcome& alone, const Outcome& many,
                                             const std::string& precision);

}  // namespace pentatron::parity
