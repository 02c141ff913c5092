// SPDX-License-Identifier: Apache-2.0
#include "pentatron/conversion/tensor_writer.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/base/json.h"
#include "pentatron/base/safetensors.h"
#include "pentatron/families/part_rows.h"
#include "pentatron/tensor/host_bytes.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/precision.h"

namespace pentatron::conversion {
namespace fs = std::filesystem;
namespace {

constexpr std::int64_t kStagedBytes = std::int64_t{16} << 20;

}  // namespace

std::int64_t TensorWriter::Whole::bytes() const {
  return tensor::num_elements(shape) * tensor::item_bytes(dtype);
}

TensorWriter::TensorWriter(checkpoint::CheckpointReader& reader, std::vector<families::Part> parts,
                           const std::string& dtype, const CheckpointAdapters& adapters)
    : reader_(reader), adapters_(adapters), parts_(std::move(parts)) {
  if (!dtype.empty()) asked_ = tensor::parse_dtype(dtype);
  std::map<DType, std::int64_t> values;
  for (const families::Part& part : parts_) {
    values[written_dtype(part.name)] += tensor::num_elements(part.shape);
  }
  const auto most =
      std::max_element(values.begin(), values.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  most_ = most->first;
}

DType TensorWriter::stored_dtype(const std::string& part) const {
  const std::vector<checkpoint::ManifestTensor>& all = reader_.manifest().tensors;
  const std::string name = "param/" + part;
  const auto found = std::lower_bound(all.begin(), all.end(), name,
                                      [](const checkpoint::ManifestTensor& tensor,
                                         const std::string& text) { return tensor.name < text; });
  PENTATRON_CHECK(found != all.end() && found->name == name, kInternal, "no tensor {}", name);
  return tensor::from_safetensors_dtype(found->dtype);
}

DType TensorWriter::written_dtype(const std::string& part) const {
  return asked_ == DType::Undefined ? stored_dtype(part) : asked_;
}

std::int64_t TensorWriter::num_parameters() const {
  std::int64_t count = 0;
  for (const families::Part& part : parts_) count += tensor::num_elements(part.shape);
  return count;
}

std::uint64_t TensorWriter::bytes() const {
  std::uint64_t count = 0;
  for (const Whole& whole : tensors_) count += static_cast<std::uint64_t>(whole.bytes());
  return count;
}

void TensorWriter::link(const families::Family& family, const config::ModelConfig& model) {
  std::map<std::string, std::size_t> index;
  for (families::TensorLink& link :
       families::link_parts(family.name, family.names(model), model, parts_)) {
    const auto [place, fresh] = index.emplace(link.tensor, tensors_.size());
    const DType dtype = written_dtype(link.part.name);
    if (fresh) tensors_.push_back({link.tensor, link.tensor_shape, dtype, {}});
    Whole& whole = tensors_[place->second];
    PENTATRON_CHECK(whole.dtype == dtype, kUnsupported,
                    "the parts of {} are stored as {} and {}: give one --dtype", whole.name,
                    tensor::dtype_name(whole.dtype), tensor::dtype_name(dtype));
    whole.links.push_back(std::move(link));
  }
  for (const Whole& whole : tensors_) progress_.expect(whole.bytes());
}

// Rows go from the checkpoint to their places through a small buffer.
void TensorWriter::fill(const Whole& whole, const families::TensorLink& link, const Tensor& out) {
  const Shape& shape = link.part.shape;
  const DType stored = stored_dtype(link.part.name);
  const std::int64_t columns = families::row_values(link);
  const bool adapted = adapters_.adapts(link.part.name);
  const std::int64_t width =
      adapted ? tensor::item_bytes(kAccumulationDType)
              : std::max(tensor::item_bytes(stored), tensor::item_bytes(whole.dtype));
  const std::int64_t step = std::max<std::int64_t>(1, kStagedBytes / (columns * width));
  for (std::int64_t row = 0; row < shape[0]; row += step) {
    const families::RowRange range{row, std::min(shape[0], row + step)};
    nn::Box box{Shape(shape.size(), 0), shape};
    box.offset[0] = range.begin;
    box.size[0] = range.end - range.begin;
    Tensor rows = tensor::empty({box.num_elements()}, stored);
    reader_.read("param/" + link.part.name, shape, box, 0, rows);
    if (adapted) {
      const Tensor wide = rows.to(kAccumulationDType).view(box.size);
      rows = adapters_.merged(link.part, range.begin, wide).view({-1}).to(whole.dtype);
    } else if (stored != whole.dtype) {
      Tensor rounded = tensor::empty({box.num_elements()}, whole.dtype);
      rounded.copy_(rows);
      rows = std::move(rounded);
    }
    families::scatter_rows(link, static_cast<std::size_t>(tensor::item_bytes(whole.dtype)), range,
                           tensor::host_bytes(rows), tensor::host_bytes(out));
  }
}

Tensor TensorWriter::assemble(const Whole& whole) {
  const Tensor out = tensor::empty(whole.shape, whole.dtype);
  for (const families::TensorLink& link : whole.links) fill(whole, link, out);
  progress_.add(whole.bytes());
  return out;
}

void TensorWriter::write_shard(const fs::path& path, std::size_t begin, std::size_t end) {
  const tensor::NoGrad no_grad;
  std::vector<SafetensorsShape> shapes;
  for (std::size_t i = begin; i < end; ++i) {
    const Whole& whole = tensors_[i];
    shapes.push_back(
        {whole.name, std::string(tensor::safetensors_dtype(whole.dtype)), whole.shape});
  }
  OutputFile file(path);
  const auto write = [&file](std::span<const std::byte> bytes) { file.write(bytes); };
  // Readers of Hugging Face ask for this entry.
  write_safetensors_header(plan_safetensors_header(shapes, {{"format", "pt"}}), write);
  for (std::size_t i = begin; i < end; ++i) {
    const Tensor values = assemble(tensors_[i]);
    write(tensor::host_bytes(values));
  }
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
  if (starts.size() == 1) return write_shard(folder / "model.safetensors", 0, tensors_.size());
  std::vector<std::string> file_of(tensors_.size());
  for (std::size_t shard = 0; shard < starts.size(); ++shard) {
    const std::string name =
        fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, starts.size());
    const std::size_t end = shard + 1 < starts.size() ? starts[shard + 1] : tensors_.size();
    for (std::size_t i = starts[shard]; i < end; ++i) file_of[i] = name;
    write_shard(folder / name, starts[shard], end);
  }
  write_index(folder / "model.safetensors.index.json", file_of);
}

}  // namespace pentatron::conversion
