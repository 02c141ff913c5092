// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/model_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "pentatron/base/error.h"

namespace pentatron::training {
namespace {

// At most ten of the names, and how many more there are.
std::string listed(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 10;
  if (names.empty()) return "none";
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kMost); ++i) {
    text += (i == 0 ? "" : ", ") + names[i];
  }
  if (names.size() > kMost) text += fmt::format(" and {} more", names.size() - kMost);
  return text;
}

}  // namespace

std::map<std::string, bool> model_parts(Engine& engine) {
  nlohmann::json mine = nlohmann::json::object();
  for (const nn::Parameter* parameter : engine.stage().parameters()) {
    for (const nn::ShardPart& part : parameter->spec().parts) {
      mine["param/" + part.name] = part.decay;
    }
  }
  for (const nn::Buffer* buffer : engine.stage().buffers()) {
    for (const nn::ShardPart& part : buffer->spec().parts) mine["buffer/" + part.name] = false;
  }
  std::map<std::string, bool> parts;
  for (const std::string& text : comm::all_gather_bytes(engine.context().world(), mine.dump())) {
    const nlohmann::json theirs = nlohmann::json::parse(text);
    for (const auto& [name, decay] : theirs.items()) parts[name] = decay.get<bool>();
  }
  return parts;
}

void check_part_names(const std::map<std::string, bool>& parts,
                      const checkpoint::Manifest& manifest, const std::string& folder) {
  std::set<std::string> stored;
  for (const checkpoint::ManifestTensor& tensor : manifest.tensors) {
    if (tensor.name.starts_with("param/") || tensor.name.starts_with("buffer/")) {
      stored.insert(tensor.name);
    }
  }
  std::vector<std::string> missing;
  std::vector<std::string> unexpected;
  for (const auto& [name, decay] : parts) {
    if (!stored.contains(name)) missing.push_back(name);
  }
  for (const std::string& name : stored) {
    if (!parts.contains(name)) unexpected.push_back(name);
  }
  PENTATRON_CHECK(missing.empty() && unexpected.empty(), kCheckpoint,
                  "{} is of another model. Tensors that the model has and the checkpoint has not: "
                  "{}. Tensors of the checkpoint that the model has no place for: {}.",
                  folder, listed(missing), listed(unexpected));
}

std::string weight_decay_line(const std::map<std::string, bool>& parts, double weight_decay) {
  std::int64_t with = 0;
  std::int64_t without = 0;
  for (const auto& [name, decay] : parts) {
    if (name.starts_with("param/")) ++(decay ? with : without);
  }
  return fmt::format(" > weight decay {} on {} matrices; none on {} vectors (norms and biases)",
                     weight_decay, with, without);
}

}  // namespace pentatron::training
