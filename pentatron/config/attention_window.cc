// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/attention_window.h"

#include <charconv>
#include <optional>
#include <string>
#include <string_view>

#include "pentatron/base/error.h"
#include "pentatron/base/format.h"
#include "pentatron/config/layer_pattern.h"

namespace pentatron::config {
namespace {

constexpr std::int64_t kNoLimit = -1;
constexpr std::int64_t kLargest = 1'000'000'000;

std::optional<std::int64_t> number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return {};
  if (value < kNoLimit || value > kLargest) return {};
  return value;
}

// L of "L,R" or "(L,R)".
std::int64_t window_of(const std::string& text) {
  std::string bare = text;
  std::erase(bare, ' ');
  if (bare.size() >= 2 && bare.front() == '(' && bare.back() == ')') {
    bare = bare.substr(1, bare.size() - 2);
  }
  const std::size_t comma = bare.find(',');
  const std::string_view all = bare;
  const auto left = number(all.substr(0, comma));
  const auto right = comma < all.size() ? number(all.substr(comma + 1)) : std::nullopt;
  PENTATRON_CHECK(left && right, kConfig,
                  "--window-size {}: expected two numbers L,R from -1 to {}: keys that a query "
                  "sees before and after its own, -1 without limit; such as 128,0",
                  quoted_for_message(text), kLargest);
  PENTATRON_CHECK(*right == 0 || *right == kNoLimit, kConfig,
                  "--window-size {}: a causal model sees no later key: the second number must be 0 "
                  "(or -1), not {}",
                  quoted_for_message(text), *right);
  return *left;
}

}  // namespace

std::vector<std::int64_t> window_of_layers(const ModelConfig& model) {
  std::vector<std::int64_t> windows(static_cast<std::size_t>(model.num_layers), kNoLimit);
  if (model.window_size.empty()) return windows;
  const std::int64_t window = window_of(model.window_size);
  const std::string& skip = model.window_attn_skip_freq;
  const std::vector<bool> flags =
      layer_pattern(skip, model.num_layers, "--window-attn-skip-freq", EveryNth::kMayBreakOff);
  // A number flags the layers without a window, a list those with one.
  const bool with_window = is_listed(skip);
  for (std::size_t layer = 0; layer < windows.size(); ++layer) {
    if (flags[layer] == with_window) windows[layer] = window;
  }
  return windows;
}

std::string canonical_window(const std::string& window_size) {
  if (window_size.empty()) return {};
  const std::int64_t window = window_of(window_size);
  return window == kNoLimit ? std::string() : fmt::format("{},0", window);
}

}  // namespace pentatron::config
