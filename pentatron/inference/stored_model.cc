// SPDX-License-Identifier: Apache-2.0
#include "pentatron/inference/stored_model.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "pentatron/base/error.h"
#include "pentatron/checkpoint/model_names.h"
#include "pentatron/inference/hugging_face_model.h"

namespace pentatron::inference {
namespace {

// Tables of angles have a row a position and no tensor that would bound them. The longest context
// that anybody has published is 10 million tokens.
constexpr std::int64_t kMaxPositions = std::int64_t{1} << 24;

constexpr const char* kWeight = "param/";

}  // namespace

void check_sizes(const config::ModelConfig& model, std::size_t num_tensors, ErrorKind kind,
                 const std::string& where) {
  const auto check = [&](const char* name, std::int64_t value, std::int64_t most) {
    if (value <= most) return;
    throw Error(kind,
                fmt::format("{} says that the model has a {} of {}, but its weights allow {} at "
                            "most: it is damaged, or not what it says it is",
                            where, name, value, most),
                __FILE__, __LINE__);
  };
  // A layer has tensors of its own.
  check("num_layers", model.num_layers, static_cast<std::int64_t>(num_tensors));
  check("max_position_embeddings", std::max(model.max_position_embeddings, model.seq_length),
        kMaxPositions);
}

void check_stored_model(const config::ModelConfig& model, const checkpoint::Manifest& manifest,
                        const std::string& folder) {
  std::map<std::string, const Shape*> stored;
  std::set<std::string> names;
  for (const checkpoint::ManifestTensor& tensor : manifest.tensors) {
    if (tensor.name.starts_with(kWeight)) stored[tensor.name] = &tensor.logical_shape;
    // What has no plan is compared when the model is there.
    if (tensor.name.starts_with("buffer/")) names.insert(tensor.name);
  }
  check_sizes(model, stored.size(), ErrorKind::kCheckpoint, folder);
  const std::vector<families::Part> parts = whole_model_parts(model);
  for (const families::Part& part : parts) names.insert(kWeight + part.name);
  checkpoint::check_model_names(names, manifest, folder);
  for (const families::Part& part : parts) {
    const Shape& shape = *stored.at(kWeight + part.name);
    PENTATRON_CHECK(
        shape == part.shape, kCheckpoint,
        "{}: {} has the shape [{}], its options describe one of [{}]: it is damaged, or "
        "not what it says it is",
        folder, part.name, fmt::join(shape, ", "), fmt::join(part.shape, ", "));
  }
}

}  // namespace pentatron::inference
