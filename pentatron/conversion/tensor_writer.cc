// SPDX-License-Identifier: Apache-2.0
#include "pentatron/conversion/tensor_writer.h"

#include <algorithm>
#include <map>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/families/part_rows.h"
#include "pentatron/tensor/host_bytes.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/precision.h"

namespace pentatron::conversion {
namespace {

constexpr std::int64_t kStagedBytes = std::int64_t{4} << 20;
// How often the parts of a tensor that is stored transposed are gone through at most; merging
// adapters costs more each time.
constexpr std::int64_t kMaxPasses = 16, kMaxMergedPasses = 4;

// Rows of the part that stand in rows `range` of its tensor: they follow each other.
families::RowRange rows_inside(const families::TensorLink& link, families::RowRange range) {
  const auto first_from = [&](std::int64_t place) {
    std::int64_t low = 0, high = link.part.shape.at(0);
    while (low < high) {
      const std::int64_t middle = low + (high - low) / 2;
      if (families::row_in_tensor(link.rows, middle) < place) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  };
  return {first_from(range.begin), first_from(range.end)};
}

// The link as it is in rows `range` of the tensor alone.
families::TensorLink link_inside(families::TensorLink link, families::RowRange range) {
  link.tensor_shape.at(0) = range.end - range.begin;
  if (link.transposed) {
    link.part.shape.at(1) = range.end - range.begin;
  } else {
    link.rows.first -= range.begin;
  }
  return link;
}

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
  prefix_ = family.base_prefix;
  tied_output_ = families::tied_output_name(family, model);
  for (const Whole& whole : tensors_) {
    if (whole.links.front().part.name == "embedding.word_embeddings.weight") embedding_ = &whole;
  }
}

std::int64_t TensorWriter::rows_at_once(const Whole& whole) const {
  const std::int64_t rows = whole.shape.at(0);
  const std::int64_t row_values =
      tensor::num_elements(whole.shape) / std::max<std::int64_t>(rows, 1);
  std::int64_t width = tensor::item_bytes(whole.dtype);
  bool adapted = false;
  for (const families::TensorLink& link : whole.links) {
    adapted = adapted || adapters_.adapts(link.part.name);
    width = std::max(width, tensor::item_bytes(stored_dtype(link.part.name)));
  }
  if (adapted) width = tensor::item_bytes(kAccumulationDType);
  const std::int64_t few = std::max<std::int64_t>(1, kStagedBytes / (row_values * width));
  if (!whole.links.front().transposed) return few;
  const std::int64_t passes = adapted ? kMaxMergedPasses : kMaxPasses;
  return std::max(few, (rows + passes - 1) / passes);
}

// Values of a part as they are written. Adapters are merged into whole rows.
Tensor TensorWriter::read_box(const families::Part& part, const nn::Box& box, DType dtype) {
  const DType stored = stored_dtype(part.name);
  const bool adapted = adapters_.adapts(part.name);
  nn::Box read = box;
  if (adapted) {
    read.offset[1] = 0;
    read.size[1] = part.shape.at(1);
  }
  Tensor rows = tensor::empty({read.num_elements()}, stored);
  reader_.read("param/" + part.name, part.shape, read, 0, rows);
  if (adapted) {
    rows = adapters_.merged(part, box.offset[0], rows.to(kAccumulationDType).view(read.size))
               .narrow(1, box.offset[1], box.size[1])
               .contiguous();
  }
  if (rows.scalar_type() == dtype) return rows;
  Tensor rounded = tensor::empty(rows.sizes(), dtype);
  rounded.copy_(rows);
  return rounded;
}

void TensorWriter::fill(const Whole& whole, const families::TensorLink& link,
                        families::RowRange range, const Tensor& out) {
  const families::RowRange rows = rows_inside(link, range);
  if (rows.begin == rows.end) return;
  nn::Box box{Shape(link.part.shape.size(), 0), link.part.shape};
  box.offset[0] = rows.begin;
  box.size[0] = rows.end - rows.begin;
  const Tensor values = read_box(link.part, box, whole.dtype);
  families::scatter_rows(link_inside(link, range),
                         static_cast<std::size_t>(tensor::item_bytes(whole.dtype)), rows,
                         tensor::host_bytes(values), tensor::host_bytes(out));
}

// Columns of the part, a few MiB at a time.
void TensorWriter::fill_transposed(const Whole& whole, const families::TensorLink& link,
                                   families::RowRange range, const Tensor& out) {
  const families::TensorLink inside = link_inside(link, range);
  const std::int64_t all = link.part.shape.at(0);
  const std::int64_t columns =
      adapters_.adapts(link.part.name) ? link.part.shape.at(1) : range.end - range.begin;
  const std::int64_t step =
      std::max<std::int64_t>(1, kStagedBytes / (columns * tensor::item_bytes(kAccumulationDType)));
  for (std::int64_t row = 0; row < all; row += step) {
    const families::RowRange rows{row, std::min(all, row + step)};
    const nn::Box box{{rows.begin, range.begin}, {rows.end - rows.begin, range.end - range.begin}};
    const Tensor values = read_box(link.part, box, whole.dtype);
    families::scatter_rows(inside, static_cast<std::size_t>(tensor::item_bytes(whole.dtype)), rows,
                           tensor::host_bytes(values), tensor::host_bytes(out));
  }
}

void TensorWriter::write_values(const Whole& whole, OutputFile& file) {
  const std::int64_t all = whole.shape.at(0);
  const std::int64_t step = rows_at_once(whole);
  Shape shape = whole.shape;
  shape[0] = std::min(step, all);
  const Tensor buffer = tensor::empty(shape, whole.dtype);
  for (std::int64_t row = 0; row < all; row += step) {
    const families::RowRange range{row, std::min(all, row + step)};
    const Tensor out = buffer.narrow(0, 0, range.end - range.begin);
    for (const families::TensorLink& link : whole.links) {
      if (link.transposed) {
        fill_transposed(whole, link, range, out);
      } else {
        fill(whole, link, range, out);
      }
    }
    file.write(tensor::host_bytes(out));
    progress_.add(static_cast<std::int64_t>(tensor::host_bytes(out).size()));
  }
}

}  // namespace pentatron::conversion
