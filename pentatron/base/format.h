// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

// Values written as Python writes them: repr() for argument dumps, json.dumps() for cache
// descriptions whose md5 must equal Megatron's.
namespace pentatron {

// repr(float): the shortest digits that read back equal; fixed when the decimal exponent is from -4
// to 15, else with an exponent of at least two digits: 0.1, 1e-05, 1e+16, 1.0, -0.0, inf, nan.
[[nodiscard]] std::string python_repr_float(double value);
// repr(str) of UTF-8 text: single quotes unless only double quotes avoid escapes; control and other
// unprintable code points escaped. Bytes that are no UTF-8 become \udcXX, as Python shows its
// surrogate-escaped arguments. The few unprintable code points outside the usual blocks
// (unassigned ones) are kept as they are.
[[nodiscard]] std::string python_repr_text(std::string_view value);
// json.dumps(float): as repr, with NaN, Infinity and -Infinity.
[[nodiscard]] std::string python_json_float(double value);
// json.dumps(str) with ensure_ascii: pure ASCII, \uXXXX with surrogate pairs.
[[nodiscard]] std::string python_json_text(std::string_view value);

// Cuts a name from outside for use in a message: repr of at most 80 bytes.
[[nodiscard]] std::string quoted_for_message(std::string_view value);

template <typename T>
concept PythonText = std::convertible_to<const T&, std::string_view>;

template <PythonText T>
[[nodiscard]] std::string python_repr(const T& value) {
  return python_repr_text(value);
}
template <typename T>
requires std::same_as<T, bool>
[[nodiscard]] std::string python_repr(T value) { return value ? "True" : "False"; }
template <std::floating_point T>
[[nodiscard]] std::string python_repr(T value) {
  return python_repr_float(static_cast<double>(value));
}
template <std::integral T>
requires(!std::same_as<T, bool> && !std::same_as<T, char>) [[nodiscard]] std::string
    python_repr(T value) {
  return std::to_string(value);
}
[[nodiscard]] inline std::string python_repr(std::nullopt_t) { return "None"; }

template <typename T>
[[nodiscard]] std::string python_repr(const std::optional<T>& value);
// A list: [1, 2], ['a'], [].
template <typename T>
[[nodiscard]] std::string python_repr(const std::vector<T>& values) {
  std::string text = "[";
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i > 0) text += ", ";
    // The cast unwraps vector<bool>'s proxies.
    text += python_repr(static_cast<const T&>(values[i]));
  }
  return text + "]";
}
template <typename T>
[[nodiscard]] std::string python_repr(const std::optional<T>& value) {
  return value ? python_repr(*value) : "None";
}

}  // namespace pentatron
