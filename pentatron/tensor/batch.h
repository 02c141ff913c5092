// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "pentatron/tensor/sequence_layout.h"

namespace pentatron {

// One micro-batch, whole and known before its forward: sequences (how rows are cut) and fields
// (what stands in them), both by name. A model of text has the sequence "text" and the fields
// "tokens", "labels" (int64 [rows]) and "loss_mask" (float [rows], weight of each target, 0 = not
// counted); a model of several sequences names more.
struct Batch {
  static constexpr std::string_view kText = "text";

  std::map<std::string, SequenceLayout, std::less<>> sequences;
  std::map<std::string, Tensor, std::less<>> fields;

  // A name that is not there: kInternal, naming those that are.
  [[nodiscard]] const SequenceLayout& sequence(std::string_view name) const;
  [[nodiscard]] const Tensor& field(std::string_view name) const;

  // The usual text case.
  [[nodiscard]] const SequenceLayout& text() const { return sequence(kText); }
  [[nodiscard]] std::int64_t num_tokens() const { return text().num_rows(); }
  [[nodiscard]] const Tensor& tokens() const { return field("tokens"); }
  [[nodiscard]] const Tensor& labels() const { return field("labels"); }
  [[nodiscard]] const Tensor& loss_mask() const { return field("loss_mask"); }
};

// kData error naming the first position of any sequence outside [0, num_positions), which a model's
// tables do not have: on a GPU nothing would refuse it later. Reads the host's copy alone.
void check_positions(const Batch& batch, std::int64_t num_positions);

// The same batch with its tensors on `device`; what is there already is not copied.
[[nodiscard]] Batch to_device(Batch batch, Device device, const SegmentPadding& padding = {});

}  // namespace pentatron
