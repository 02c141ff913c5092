// SPDX-License-Identifier: Apache-2.0
// Which tensors stand in which file, and in which order.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/base/json.h"
#include "pentatron/base/safetensors.h"
#include "pentatron/conversion/tensor_writer.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::conversion {
namespace fs = std::filesystem;
namespace {

SafetensorsShape described(const std::string& name, DType dtype, const Shape& shape) {
  return {name, std::string(tensor::safetensors_dtype(dtype)), shape};
}

}  // namespace

void TensorWriter::write_shard(const fs::path& path, const ShardPlan& plan) {
  const tensor::NoGrad no_grad;
  OutputFile file(path);
  write_safetensors_header(plan.header,
                           [&file](std::span<const std::byte> bytes) { file.write(bytes); });
  for (const Whole* whole : plan.tensors) write_values(*whole, file);
  file.close();
}

TensorWriter::ShardPlan TensorWriter::plan_shard(std::size_t begin, std::size_t end) const {
  std::vector<std::pair<SafetensorsShape, const Whole*>> order;
  for (std::size_t i = begin; i < end; ++i) {
    const Whole& whole = tensors_[i];
    order.emplace_back(described(whole.name, whole.dtype, whole.shape), &whole);
  }
  std::sort(order.begin(), order.end(),
            [](const auto& a, const auto& b) { return before_in_safetensors(a.first, b.first); });
  std::vector<SafetensorsShape> shapes;
  ShardPlan plan;
  for (auto& [shape, whole] : order) {
    shapes.push_back(std::move(shape));
    plan.tensors.push_back(whole);
  }
  // Readers of Hugging Face ask for this entry.
  plan.header = plan_safetensors_header(shapes, {{"format", "pt"}});
  return plan;
}

std::optional<std::map<std::string, TensorWriter::ShardPlan>> TensorWriter::plan_shards(
    const WeightsLayout& layout) const {
  std::map<std::string, SafetensorsHeader> headers;
  bool bare = true;
  for (const auto& [name, file] : layout.files) {
    headers[name] = parse_safetensors_header(file.header, file.data_bytes, name);
    for (const auto& [tensor, entry] : headers[name].entries) {
      bare = bare && !tensor.starts_with(prefix_);
    }
  }
  const auto name_there = [&](const std::string& tensor) {
    return bare && tensor.starts_with(prefix_) ? tensor.substr(prefix_.size()) : tensor;
  };
  std::map<std::string, const Whole*> known;
  for (const Whole& whole : tensors_) known[name_there(whole.name)] = &whole;
  std::size_t left = known.size();
  if (!tied_output_.empty()) known.emplace(name_there(tied_output_), embedding_);
  std::map<std::string, ShardPlan> plans;
  for (const auto& [file, header] : headers) {
    std::map<std::uint64_t, const Whole*> by_place;
    for (const auto& [name, entry] : header.entries) {
      const auto found = known.find(name);
      if (found == known.end() || found->second == nullptr) return std::nullopt;
      const Whole& whole = *found->second;
      if (entry.shape != whole.shape || entry.dtype != tensor::safetensors_dtype(whole.dtype) ||
          entry.begin == entry.end) {
        return std::nullopt;
      }
      by_place[entry.begin] = &whole;
      if (name == name_there(whole.name)) --left;
      known.erase(found);
    }
    plans[file].header = layout.files.at(file).header;
    for (const auto& [begin, whole] : by_place) plans[file].tensors.push_back(whole);
  }
  if (left > 0) return std::nullopt;
  return plans;
}

bool TensorWriter::fits(const WeightsLayout& layout) const {
  return plan_shards(layout).has_value();
}

void TensorWriter::write(const fs::path& folder, const WeightsLayout& layout) {
  const auto plans = plan_shards(layout);
  PENTATRON_CHECK(plans.has_value(), kInternal, "{} tensors are not those of the layout",
                  tensors_.size());
  for (const auto& [name, plan] : *plans) write_shard(folder / name, plan);
  if (layout.index.empty()) return;
  OutputFile file(folder / families::kWeightsIndex);
  file.write(layout.index);
  file.close();
}

void TensorWriter::write_index(const fs::path& path, const std::vector<std::string>& file_of) {
  nlohmann::json json;
  json["metadata"]["total_size"] = bytes();
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    json["weight_map"][tensors_[i].name] = file_of[i];
  }
  OutputFile file(path);
  file.write(dump_json(json, 2) + "\n");
  file.close();
}

void TensorWriter::write(const fs::path& folder, std::int64_t max_shard_bytes) {
  std::vector<std::size_t> starts;
  std::int64_t filled = 0;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const std::int64_t more = tensors_[i].bytes();
    if (i == 0 || filled + more > max_shard_bytes) {
      starts.push_back(i);
      filled = 0;
    }
    filled += more;
  }
  if (starts.size() == 1) {
    return write_shard(folder / families::kSingleWeights, plan_shard(0, tensors_.size()));
  }
  std::vector<std::string> file_of(tensors_.size());
  for (std::size_t shard = 0; shard < starts.size(); ++shard) {
    const std::string name =
        fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, starts.size());
    const std::size_t end = shard + 1 < starts.size() ? starts[shard + 1] : tensors_.size();
    for (std::size_t i = starts[shard]; i < end; ++i) file_of[i] = name;
    write_shard(folder / name, plan_shard(starts[shard], end));
  }
  write_index(folder / families::kWeightsIndex, file_of);
}

}  // namespace pentatron::conversion
