// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

// Names of axes and of computed parts of axes. A plain name is an axis or a declared factor of one.
// "tp/4" counts the blocks of four neighbours on tp (coordinate / 4), "tp%4" the places inside such
// a block (coordinate % 4), "cp/2%3" the middle digit (coordinate / 2 % 3). So a model can ask for
// the group that its own sizes make necessary, and no grid needs to know a model.
namespace pentatron::comm {

// coordinate -> coordinate / stride % size
struct AxisPart {
  std::int64_t stride = 1;
  std::int64_t size = 1;
  bool operator==(const AxisPart&) const = default;
};

class AxisName final {
 public:
  // A name that is not of the form name[/number][%number] with numbers >= 1: kInternal.
  explicit AxisName(std::string_view text);

  [[nodiscard]] const std::string& axis() const { return axis_; }
  // Whether an axis of this size has the part: the blocks divide it.
  [[nodiscard]] bool divides(std::int64_t axis_size) const;
  // The part of an axis of this size; kInternal unless divides().
  [[nodiscard]] AxisPart part_of(std::int64_t axis_size) const;

 private:
  std::string text_;
  std::string axis_;
  std::int64_t block_ = 1;
  std::int64_t modulus_ = 0;  // 0: all that is left
};

// "axis/block" and "axis%block".
[[nodiscard]] std::string blocks_of(std::string_view axis, std::int64_t block);
[[nodiscard]] std::string inside_block(std::string_view axis, std::int64_t block);

}  // namespace pentatron::comm
