// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/layer_pattern.h"

#include <algorithm>
#include <charconv>
#include <string>

#include "pentatron/base/error.h"
#include "pentatron/base/format.h"

namespace pentatron::config {
namespace {

constexpr int kMaxDepth = 32;  // of brackets

// sum := product ('+' product)*; product := item ('*' number)*; item := '(' sum ')' | '[' flags
// ']'.
class PatternParser final {
 public:
  PatternParser(std::string_view text, std::size_t max_length)
      : text_(text), max_length_(max_length) {}

  // Whether the whole text is such an expression, no part of it longer than the model.
  bool parse(std::vector<bool>& out) {
    out = sum();
    return good_ && at_ == text_.size();
  }

 private:
  bool take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void fail() { good_ = false; }

  std::int64_t number() {
    std::int64_t value = 0;
    const char* begin = text_.data() + at_;
    const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), value);
    if (error != std::errc{} || value < 0) fail();
    at_ += static_cast<std::size_t>(end - begin);
    return value;
  }

  void append(std::vector<bool>& to, const std::vector<bool>& more) {
    if (to.size() + more.size() > max_length_) fail();
    if (good_) to.insert(to.end(), more.begin(), more.end());
  }

  std::vector<bool> sum() {
    std::vector<bool> flags = product();
    while (good_ && take('+')) append(flags, product());
    return flags;
  }

  std::vector<bool> product() {
    const std::vector<bool> once = item();
    std::vector<bool> flags = once;
    while (good_ && take('*')) {
      const std::vector<bool> factor = flags;
      const std::int64_t times = number();
      flags.clear();
      if (factor.empty()) continue;
      for (std::int64_t i = 0; good_ && i < times; ++i) append(flags, factor);
    }
    return flags;
  }

  std::vector<bool> item() {
    std::vector<bool> flags;
    if (take('(')) {
      if (++depth_ > kMaxDepth) fail();
      if (good_) flags = sum();
      --depth_;
      if (!take(')')) fail();
      return flags;
    }
    if (!take('[')) fail();
    while (good_ && !take(']')) {
      if (!flags.empty() && !take(',')) fail();
      const std::int64_t flag = number();
      if (flag > 1) fail();
      append(flags, {flag == 1});
    }
    return flags;
  }

  std::string_view text_;
  std::size_t max_length_;
  std::size_t at_ = 0;
  int depth_ = 0;
  bool good_ = true;
};

}  // namespace

bool is_listed(std::string_view text) { return text.find('[') != std::string_view::npos; }

std::vector<bool> layer_pattern(std::string_view text, std::int64_t num_layers,
                                std::string_view option, EveryNth rule) {
  std::vector<bool> flags(static_cast<std::size_t>(num_layers), false);
  if (text.empty()) return flags;
  std::string bare(text);
  std::erase(bare, ' ');
  if (!is_listed(bare)) {
    std::int64_t every = 0;
    const auto [end, error] = std::from_chars(bare.data(), bare.data() + bare.size(), every);
    PENTATRON_CHECK(error == std::errc{} && end == bare.data() + bare.size() && every > 0, kConfig,
                    "{} {}: expected a number of at least 1 or a list such as ([0]*3+[1])*2",
                    option, quoted_for_message(text));
    PENTATRON_CHECK(rule == EveryNth::kMayBreakOff || num_layers % every == 0, kConfig,
                    "--num-layers {} does not divide by {} {}: change one of them, or give a list",
                    num_layers, option, every);
    for (std::int64_t layer = 0; layer < num_layers; ++layer) {
      flags[static_cast<std::size_t>(layer)] = (layer + 1) % every == 0;
    }
    return flags;
  }
  std::vector<bool> listed;
  PENTATRON_CHECK(
      PatternParser(bare, flags.size()).parse(listed) && listed.size() == flags.size(), kConfig,
      "{} {}: expected zeros and ones for each of the {} layers (--num-layers), such as "
      "[0,0,1]*2 or ([0]*3+[1])*2",
      option, quoted_for_message(text), num_layers);
  return listed;
}

}  // namespace pentatron::config
