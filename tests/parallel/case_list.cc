// SPDX-License-Identifier: Apache-2.0
#include "tests/parallel/case_list.h"

#include <fmt/format.h>

#include <cctype>
#include <string_view>
#include <utility>

namespace pentatron::parity {
namespace {

// Letters, digits and single underscores.
std::string test_name(std::string_view text) {
  std::string name;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      name += c;
    } else if (!name.empty() && name.back() != '_') {
      name += '_';
    }
  }
  while (name.ends_with('_')) name.pop_back();
  return name;
}

}  // namespace

void CaseList::equal(const CaseOptions& options, const Layout& layout) {
  add(options, layout.name(), {.options = options, .layout = layout});
}

void CaseList::differs(const CaseOptions& other, const CaseOptions& options) {
  add(options, "differs",
      {.claim = ParityCase::Claim::kDiffers, .options = options, .layout = {}, .other = other});
}

void CaseList::same_bits(const CaseOptions& options, const Layout& kept, const Layout& layout) {
  add(options, layout.name(),
      {.claim = ParityCase::Claim::kSameBits, .options = options, .layout = layout, .kept = kept});
}

void CaseList::add(const CaseOptions& options, const std::string& what, ParityCase made) {
  const char* model = options.model == ModelKind::kGpt2 ? "gpt2" : "llama";
  made.name = test_name(fmt::format("{} {} {} {} {} {}", group_, model, options.attention,
                                    options.form, options.optimizer, what));
  const int same = names_[made.name]++;
  if (same > 0) made.name += fmt::format("_{}", same + 1);
  cases_.push_back(std::move(made));
}

}  // namespace pentatron::parity
