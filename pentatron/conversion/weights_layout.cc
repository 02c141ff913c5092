// SPDX-License-Identifier: Apache-2.0
#include "pentatron/conversion/weights_layout.h"

#include <nlohmann/json.hpp>

#include "pentatron/base/error.h"
#include "pentatron/base/format.h"
#include "pentatron/base/json.h"

namespace pentatron::conversion {

using Json = nlohmann::json;

WeightsLayout layout_of(const families::Folder& folder) {
  WeightsLayout layout{.files = {}, .index = folder.index_text()};
  for (const auto& [name, file] : folder.files()) {
    layout.files[name] = {std::string(file->header_text()),
                          file->file_bytes().size() - file->header().data_offset};
  }
  return layout;
}

std::string to_text(const WeightsLayout& layout) {
  Json json;
  json["index"] = layout.index;
  for (const auto& [name, file] : layout.files) {
    json["files"][name] = {{"header", file.header}, {"data_bytes", file.data_bytes}};
  }
  return dump_json(json) + "\n";
}

WeightsLayout parse_weights_layout(const std::string& text, const std::string& name) {
  const Json json = parse_json(text, name);
  const auto check = [&](bool fine, const char* what) {
    PENTATRON_CHECK(fine, kData, "{}: expected {}", name, what);
  };
  check(json.is_object() && json.contains("index") && json.at("index").is_string() &&
            json.contains("files") && json.at("files").is_object() && !json.at("files").empty(),
        "an object with the text 'index' and the object 'files'");
  WeightsLayout layout{.files = {}, .index = json.at("index").get<std::string>()};
  for (const auto& [file, said] : json.at("files").items()) {
    PENTATRON_CHECK(families::is_shard_name(file), kData,
                    "{}: {} is no name of a .safetensors file", name, quoted_for_message(file));
    check(said.is_object() && said.contains("header") && said.at("header").is_string() &&
              said.contains("data_bytes") && said.at("data_bytes").is_number_unsigned(),
          "the text 'header' and the number 'data_bytes' of each file");
    layout.files[file] = {said.at("header").get<std::string>(),
                          said.at("data_bytes").get<std::uint64_t>()};
  }
  const bool alone =
      layout.files.size() == 1 && layout.files.begin()->first == families::kSingleWeights;
  check(alone || !layout.index.empty(), "the one file model.safetensors, or an index of them");
  return layout;
}

}  // namespace pentatron::conversion
