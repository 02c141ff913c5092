// SPDX-License-Identifier: Apache-2.0
#include "pentatron/checkpoint/model_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "pentatron/base/error.h"
#include "pentatron/nn/optional_state.h"

namespace pentatron::checkpoint {
namespace {

// At most ten of the names, and how many more there are.
std::string listed(const std::vector<std::string>& names) {
  constexpr std::size_t kMaxNames = 10;
  if (names.empty()) return "none";
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kMaxNames); ++i) {
    text += (i == 0 ? "" : ", ") + names[i];
  }
  if (names.size() > kMaxNames) text += fmt::format(" and {} more", names.size() - kMaxNames);
  return text;
}

}  // namespace

void check_model_names(const std::set<std::string>& names, const Manifest& manifest,
                       const std::string& folder) {
  std::set<std::string> stored;
  for (const ManifestTensor& tensor : manifest.tensors) {
    if (tensor.name.starts_with("param/") || tensor.name.starts_with("buffer/")) {
      stored.insert(tensor.name);
    }
  }
  std::vector<std::string> missing;
  std::vector<std::string> unexpected;
  for (const std::string& name : names) {
    if (!stored.contains(name) && !nn::is_optional_state(name)) missing.push_back(name);
  }
  for (const std::string& name : stored) {
    if (!names.contains(name) && !nn::is_optional_state(name)) unexpected.push_back(name);
  }
  PENTATRON_CHECK(missing.empty() && unexpected.empty(), kCheckpoint,
                  "{} is of another model. Tensors that the model has and the checkpoint has not: "
                  "{}. Tensors of the checkpoint that the model has no place for: {}.",
                  folder, listed(missing), listed(unexpected));
}

}  // namespace pentatron::checkpoint
