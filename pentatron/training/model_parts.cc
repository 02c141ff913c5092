// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/model_parts.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>

#include "pentatron/checkpoint/model_names.h"

namespace pentatron::training {
namespace {

PartUpdate update_of(const nn::Parameter& parameter, const nn::ShardPart& part) {
  if (!parameter.trainable()) return PartUpdate::kFrozen;
  if (part.role == nn::ShardRole::kDecayedVector) return PartUpdate::kVectorWithDecay;
  return nn::decays(part.role) ? PartUpdate::kWithDecay : PartUpdate::kPlain;
}

}  // namespace

ModelParts model_parts(Engine& engine) {
  nlohmann::json mine = nlohmann::json::object();
  for (const nn::Parameter* parameter : engine.stages().parameters()) {
    for (const nn::ShardPart& part : parameter->spec().parts) {
      mine["param/" + part.name] = update_of(*parameter, part);
    }
  }
  for (const nn::Buffer* buffer : engine.stages().buffers()) {
    for (const nn::ShardPart& part : buffer->spec().parts)
      mine["buffer/" + part.name] = PartUpdate::kPlain;
  }
  ModelParts parts;
  for (const std::string& text : comm::all_gather_bytes(engine.context().world(), mine.dump())) {
    const nlohmann::json theirs = nlohmann::json::parse(text);
    for (const auto& [name, update] : theirs.items()) parts[name] = update.get<PartUpdate>();
  }
  return parts;
}

void check_part_names(const ModelParts& parts, const checkpoint::Manifest& manifest,
                      const std::string& folder) {
  std::set<std::string> names;
  for (const auto& [name, update] : parts) names.insert(name);
  checkpoint::check_model_names(names, manifest, folder);
}

std::string weight_decay_line(const ModelParts& parts, double weight_decay) {
  std::map<PartUpdate, std::int64_t> count;
  for (const auto& [name, update] : parts) {
    if (name.starts_with("param/")) ++count[update];
  }
  const std::int64_t frozen = count[PartUpdate::kFrozen];
  const std::int64_t norms = count[PartUpdate::kVectorWithDecay];
  return fmt::format(" > weight decay {} on {} matrices{}; none on {} vectors (norms and biases){}",
                     weight_decay, count[PartUpdate::kWithDecay],
                     norms > 0 ? fmt::format(" and {} vectors of query and key norms", norms) : "",
                     count[PartUpdate::kPlain],
                     frozen > 0 ? fmt::format("; {} parts are frozen", frozen) : "");
}

}  // namespace pentatron::training
