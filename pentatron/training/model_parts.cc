// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/model_parts.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>

#include "pentatron/checkpoint/model_names.h"

namespace pentatron::training {

std::map<std::string, bool> model_parts(Engine& engine) {
  nlohmann::json mine = nlohmann::json::object();
  for (const nn::Parameter* parameter : engine.stages().parameters()) {
    for (const nn::ShardPart& part : parameter->spec().parts) {
      mine["param/" + part.name] = nn::decays(part.role);
    }
  }
  for (const nn::Buffer* buffer : engine.stages().buffers()) {
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
  std::set<std::string> names;
  for (const auto& [name, decay] : parts) names.insert(name);
  checkpoint::check_model_names(names, manifest, folder);
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
