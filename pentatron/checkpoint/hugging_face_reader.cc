// SPDX-License-Identifier: Apache-2.0
#include "pentatron/checkpoint/hugging_face_reader.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/base/mapped_pages.h"
#include "pentatron/checkpoint/plan.h"
#include "pentatron/families/part_rows.h"
#include "pentatron/tensor/host_bytes.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::checkpoint {
namespace {

constexpr std::int64_t kStagedBytes = std::int64_t{4} << 20;
constexpr std::int64_t kTileBytes = std::int64_t{2} << 20;  // of a mapped tensor
constexpr std::int64_t kMaxPasses = 16;

// Rows of a part whose columns are the rows of the tensor: a few of these at a time, so that no
// more of the file is in memory. `values`: [rows, columns].
void gather_transposed(const families::TensorLink& place, families::RowRange rows, DType stored,
                       std::span<const std::byte> bytes, const Tensor& values) {
  const auto width = static_cast<std::size_t>(tensor::item_bytes(stored));
  const std::int64_t columns = place.tensor_shape.at(0);
  const std::size_t line = static_cast<std::size_t>(place.tensor_shape.at(1)) * width;
  const std::int64_t step = std::max<std::int64_t>(1, kTileBytes / static_cast<std::int64_t>(line));
  for (std::int64_t column = 0; column < columns; column += step) {
    const std::int64_t count = std::min(step, columns - column);
    families::TensorLink tile = place;
    tile.part.shape.at(1) = count;
    tile.tensor_shape.at(0) = count;
    const auto lines = bytes.subspan(static_cast<std::size_t>(column) * line,
                                     static_cast<std::size_t>(count) * line);
    const Tensor staged = tensor::empty({rows.end - rows.begin, count}, stored);
    families::gather_rows(tile, width, rows, lines, tensor::host_bytes(staged));
    values.narrow(1, column, count).copy_(staged);
    release_pages(lines);
  }
}

}  // namespace

HuggingFaceReader::HuggingFaceReader(std::shared_ptr<const families::Folder> folder,
                                     const std::vector<families::Part>& parts)
    : folder_(std::move(folder)), links_(folder_->links(parts)) {
  for (std::size_t i = 0; i < links_.size(); ++i) index_[links_[i].part.name] = i;
}

const families::TensorLink& HuggingFaceReader::link(const std::string& part) const {
  const auto found = index_.find(part);
  PENTATRON_CHECK(found != index_.end(), kInternal, "{}: no part {}", folder_->path().string(),
                  part);
  return links_[found->second];
}

DType HuggingFaceReader::dtype(const std::string& part) const {
  return tensor::from_safetensors_dtype(folder_->entry(link(part).tensor).dtype);
}

std::int64_t HuggingFaceReader::rows_at_once(const std::string& part) const {
  const families::TensorLink& place = link(part);
  const std::int64_t rows = place.part.shape.at(0);
  const std::int64_t row_bytes = families::row_values(place) * tensor::item_bytes(dtype(part));
  const std::int64_t few = std::max<std::int64_t>(1, kStagedBytes / row_bytes);
  return place.transposed ? std::max(few, (rows + kMaxPasses - 1) / kMaxPasses) : few;
}

Tensor HuggingFaceReader::read_rows(const std::string& part, families::RowRange rows,
                                    DType dtype) const {
  const tensor::NoGrad no_grad;
  const families::TensorLink& place = link(part);
  const DType stored = this->dtype(part);
  const std::int64_t columns = families::row_values(place);
  Tensor values = tensor::empty({rows.end - rows.begin, columns}, dtype);
  const std::span<const std::byte> bytes = folder_->bytes(place.tensor);
  if (place.transposed) {
    gather_transposed(place, rows, stored, bytes, values);
    return values.view({-1});
  }
  const auto width = static_cast<std::size_t>(tensor::item_bytes(stored));
  const std::int64_t step = rows_at_once(part);
  for (std::int64_t row = rows.begin; row < rows.end; row += step) {
    const families::RowRange range{row, std::min(rows.end, row + step)};
    const std::int64_t count = range.end - range.begin;
    Tensor target = values.narrow(0, row - rows.begin, count);
    const Tensor staged = stored == dtype ? target : tensor::empty({count, columns}, stored);
    families::gather_rows(place, width, range, bytes, tensor::host_bytes(staged));
    if (stored != dtype) target.copy_(staged);
    release_pages(bytes);
  }
  return values.view({-1});
}

void HuggingFaceReader::read(const std::string& part, const Shape& logical_shape,
                             const nn::Box& box, std::int64_t begin, Tensor out) const {
  const tensor::NoGrad no_grad;
  const families::TensorLink& place = link(part);
  PENTATRON_CHECK(place.part.shape == logical_shape, kCheckpoint,
                  "{}: {} has the shape [{}] as config.json describes it, the model wants [{}]",
                  folder_->path().string(), part, fmt::join(place.part.shape, ", "),
                  fmt::join(logical_shape, ", "));
  const DType stored = dtype(part);
  PENTATRON_CHECK(holds_exactly(stored, out.scalar_type()), kCheckpoint,
                  "{}: {} is stored as {}, which {} does not hold exactly: use a wider precision",
                  folder_->path().string(), part, tensor::dtype_name(stored),
                  tensor::dtype_name(out.scalar_type()));
  if (out.numel() == 0) return;
  // Rows of the part that the wanted elements touch.
  const std::int64_t row_elements = box.num_elements() / box.size.at(0);
  const std::int64_t first = box.offset[0] + begin / row_elements;
  const std::int64_t end = box.offset[0] + (begin + out.numel() - 1) / row_elements + 1;
  const std::int64_t step = rows_at_once(part);
  for (std::int64_t row = first; row < end; row += step) {
    const families::RowRange range{row, std::min(end, row + step)};
    const Tensor rows = read_rows(part, range, stored);
    nn::Box piece{Shape(logical_shape.size(), 0), logical_shape};
    piece.offset[0] = range.begin;
    piece.size[0] = range.end - range.begin;
    for_each_run({piece, 0, rows.numel()}, {box, begin, begin + out.numel()}, [&](const Run& run) {
      out.narrow(0, run.target, run.count).copy_(rows.narrow(0, run.source, run.count));
    });
  }
}

}  // namespace pentatron::checkpoint
