// SPDX-License-Identifier: Apache-2.0
#include "pentatron/comm/axis_name.h"

#include <algorithm>
#include <charconv>

#include "pentatron/base/error.h"

namespace pentatron::comm {
namespace {

// The number between `begin` and the next sign or the end.
std::int64_t number_at(std::string_view text, std::size_t begin, std::size_t end) {
  std::int64_t value = 0;
  const char* const last = text.data() + end;
  const auto [stop, error] = std::from_chars(text.data() + begin, last, value);
  PENTATRON_CHECK(error == std::errc() && stop == last && value >= 1, kInternal,
                  "axis name '{}': expected name[/number][%number] with numbers from 1 on", text);
  return value;
}

}  // namespace

AxisName::AxisName(std::string_view text) : text_(text) {
  const std::size_t slash = text.find('/');
  const std::size_t percent = text.find('%');
  const std::size_t name_end = std::min({slash, percent, text.size()});
  axis_ = text.substr(0, name_end);
  PENTATRON_CHECK(!axis_.empty(), kInternal, "axis name '{}' names no axis", text);
  const std::size_t block_end = std::min(percent, text.size());
  // A sign in the wrong place ("tp%2/2") is part of a number here and refused as one.
  if (slash < block_end) block_ = number_at(text, slash + 1, block_end);
  if (percent != std::string_view::npos) modulus_ = number_at(text, percent + 1, text.size());
}

bool AxisName::divides(std::int64_t axis_size) const {
  if (axis_size % block_ != 0) return false;
  return modulus_ == 0 || axis_size / block_ % modulus_ == 0;
}

AxisPart AxisName::part_of(std::int64_t axis_size) const {
  PENTATRON_CHECK(divides(axis_size), kInternal,
                  "'{}' is no part of the axis {} of size {}: its blocks do not divide it", text_,
                  axis_, axis_size);
  return {block_, modulus_ == 0 ? axis_size / block_ : modulus_};
}

std::string blocks_of(std::string_view axis, std::int64_t block) {
  return fmt::format("{}/{}", axis, block);
}

std::string inside_block(std::string_view axis, std::int64_t block) {
  return fmt::format("{}%{}", axis, block);
}

}  // namespace pentatron::comm
