// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/config_json.h"

#include <array>
#include <limits>
#include <nlohmann/json.hpp>

#include "pentatron/base/error.h"
#include "pentatron/base/format.h"
#include "pentatron/base/json.h"
#include "pentatron/base/sha256.h"
#include "pentatron/config/fields.h"

namespace pentatron::config {
namespace {

using nlohmann::json;

template <typename T>
json to_node(const T& field) {
  return field;
}
json to_node(const std::optional<double>& field) { return field ? json(*field) : json(nullptr); }

// Each overload says whether the node fits the field and stores it.
bool from_node(const json& node, bool& field) {
  if (!node.is_boolean()) return false;
  field = node.get<bool>();
  return true;
}
bool from_node(const json& node, std::int64_t& field) {
  if (!node.is_number_integer()) return false;
  constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (node.is_number_unsigned() && node.get<std::uint64_t>() > kMax) return false;
  field = node.get<std::int64_t>();
  return true;
}
bool from_node(const json& node, std::uint64_t& field) {
  if (!node.is_number_unsigned()) return false;
  field = node.get<std::uint64_t>();
  return true;
}
bool from_node(const json& node, double& field) {
  if (!node.is_number()) return false;
  field = node.get<double>();
  return true;
}
bool from_node(const json& node, std::optional<double>& field) {
  field.reset();
  if (node.is_null()) return true;
  return from_node(node, field.emplace());
}
bool from_node(const json& node, std::string& field) {
  if (!node.is_string()) return false;
  field = node.get<std::string>();
  return true;
}
bool from_node(const json& node, std::vector<std::string>& field) {
  if (!node.is_array()) return false;
  field.clear();
  for (const json& item : node) {
    if (!from_node(item, field.emplace_back())) return false;
  }
  return true;
}

}  // namespace

std::string to_json(const RunConfig& config, int indent) {
  json root = json::object();
  visit_fields(config, [&root](const char* room, const char* name, const auto& field) {
    root[room][name] = to_node(field);
  });
  return dump_json(root, indent);
}

RunConfig from_json(std::string_view text, std::string_view label) {
  json root = parse_json(text, label);
  PENTATRON_CHECK(root.is_object(), kData, "{}: expected an object of configurations", label);
  RunConfig config;
  visit_fields(config, [&](const char* room, const char* name, auto& field) {
    const auto object = root.find(room);
    if (object == root.end()) return;
    PENTATRON_CHECK(object->is_object(), kData, "{}: {} is not an object", label, room);
    const auto node = object->find(name);
    if (node == object->end()) return;
    PENTATRON_CHECK(from_node(*node, field), kData, "{}: {}.{} has an unfit value {}", label, room,
                    name, quoted_for_message(node->dump()));
    object->erase(node);
  });
  for (const auto& [room, object] : root.items()) {
    constexpr std::array<std::string_view, 7> kRooms = {
        "model", "parallel", "data", "optimizer", "training", "logging", "checkpoint"};
    bool known = false;
    for (const std::string_view name : kRooms) known = known || room == name;
    PENTATRON_CHECK(known && object.is_object(), kData, "{}: unknown part {}", label,
                    quoted_for_message(room));
    PENTATRON_CHECK(object.empty(), kData,
                    "{}: unknown field {} of {}; is it from a newer version?", label,
                    quoted_for_message(object.begin().key()), room);
  }
  return config;
}

std::string config_hash(const RunConfig& config) {
  json root = json::object();
  visit_fields(config, [&root](const char* room, const char* name, const auto& field) {
    const std::string_view part = room;
    const std::string_view key = name;
    if (part == "model") {
      // Padding depends on the layout and changes nothing.
      if (key != "padded_vocab_size" && key != "make_vocab_size_divisible_by") {
        root[room][name] = to_node(field);
      }
    } else if (part == "data") {
      // How files are read, cached and compared changes no sample.
      if (key != "data_cache_path" && key != "num_workers" && key != "mmap_bin_files" &&
          key != "data_content_hash") {
        root[room][name] = to_node(field);
      }
    }
  });
  const TrainingConfig& training = config.training;
  const std::int64_t batch = training.global_batch_size;
  // features.md 9.3: the samples asked for each split fix the epochs and with them the shuffle.
  const std::int64_t train_samples =
      training.train_samples > 0 ? training.train_samples : training.train_iters * batch;
  const std::int64_t train_iters = batch > 0 ? train_samples / batch : 0;
  const std::int64_t num_evaluations =
      training.eval_interval > 0 ? train_iters / training.eval_interval + 1 : 1;
  root["samples"] = {{"train", train_samples},
                     {"valid", num_evaluations * training.eval_iters * batch},
                     {"test", training.eval_iters * batch}};
  return sha256_hex(dump_json(root));
}

}  // namespace pentatron::config
