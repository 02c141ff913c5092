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

constexpr std::int64_t kStagedBytes = std::int64_t{16} << 20;

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

Tensor HuggingFaceReader::read_part(const std::string& part, DType dtype) const {
  const tensor::NoGrad no_grad;
  const families::TensorLink& place = link(part);
  const DType stored = this->dtype(part);
  const std::int64_t width = tensor::item_bytes(stored);
  const std::int64_t columns = families::row_values(place);
  const std::int64_t rows = place.part.shape.at(0);
  const std::int64_t step = std::max<std::int64_t>(1, kStagedBytes / (columns * width));
  const std::span<const std::byte> bytes = folder_->bytes(place.tensor);
  Tensor values = tensor::empty({rows * columns}, dtype);
  for (std::int64_t row = 0; row < rows; row += step) {
    const families::RowRange range{row, std::min(rows, row + step)};
    const std::int64_t count = (range.end - range.begin) * columns;
    Tensor target = values.narrow(0, row * columns, count);
    const Tensor staged = stored == dtype ? target : tensor::empty({count}, stored);
    families::gather_rows(place, static_cast<std::size_t>(width), range, bytes,
                          tensor::host_bytes(staged));
    if (stored != dtype) target.copy_(staged);
    release_pages(bytes);
  }
  return values.view(place.part.shape);
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
  const Tensor whole = read_part(part, stored).view({-1});
  const nn::Box all{Shape(logical_shape.size(), 0), logical_shape};
  for_each_run({all, 0, whole.numel()}, {box, begin, begin + out.numel()}, [&](const Run& run) {
    out.narrow(0, run.target, run.count).copy_(whole.narrow(0, run.source, run.count));
  });
}

}  // namespace pentatron::checkpoint
