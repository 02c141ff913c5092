// SPDX-License-Identifier: Apache-2.0
#include "pentatron/checkpoint/reader.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/base/json.h"
#include "pentatron/base/mapped_pages.h"
#include "pentatron/base/sha256.h"
#include "pentatron/checkpoint/hugging_face_reader.h"
#include "pentatron/checkpoint/manifest_rules.h"
#include "pentatron/checkpoint/plan.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::checkpoint {
namespace {

constexpr std::int64_t kStagedElements = std::int64_t{1} << 20;
constexpr std::size_t kReleasedBytes = std::size_t{1} << 20;
constexpr std::int64_t kHashedBytes = std::int64_t{64} << 20;

void check_target(const std::string& what, const Manifest& manifest, const ManifestTensor& stored,
                  const Shape& logical_shape, const BoxRange& target, const Tensor& out) {
  PENTATRON_CHECK(stored.logical_shape == logical_shape, kCheckpoint,
                  "{}: the checkpoint of iteration {} has the shape [{}], the model wants [{}]: "
                  "the options of the model differ from those it was trained with",
                  what, manifest.iteration, fmt::join(stored.logical_shape, ", "),
                  fmt::join(logical_shape, ", "));
  bool inside = target.box.offset.size() == logical_shape.size() &&
                target.box.size.size() == logical_shape.size();
  for (std::size_t d = 0; inside && d < logical_shape.size(); ++d) {
    inside = target.box.offset[d] >= 0 && target.box.size[d] >= 0 &&
             target.box.size[d] <= logical_shape[d] &&
             target.box.offset[d] <= logical_shape[d] - target.box.size[d];
  }
  PENTATRON_CHECK(inside && target.begin >= 0 && target.end <= target.box.num_elements(), kInternal,
                  "{}: elements {} to {} of the box at [{}] of size [{}] are not inside [{}]", what,
                  target.begin, target.end, fmt::join(target.box.offset, ", "),
                  fmt::join(target.box.size, ", "), fmt::join(logical_shape, ", "));
  PENTATRON_CHECK(out.dim() == 1 && out.is_contiguous() && out.device().is_cpu(), kInternal,
                  "{}: read into {}, which is not a contiguous vector on the CPU", what,
                  tensor::describe(out));
  const DType stored_dtype = tensor::from_safetensors_dtype(stored.dtype);
  PENTATRON_CHECK(holds_exactly(stored_dtype, out.scalar_type()), kCheckpoint,
                  "{}: stored as {}, which {} does not hold exactly: use the precision of the run "
                  "that saved it, or load into a wider one",
                  what, tensor::dtype_name(stored_dtype), tensor::dtype_name(out.scalar_type()));
}

// Copies run.count elements, widening them if the dtypes differ.
void copy_run(std::span<const std::byte> source, DType stored, const Run& run, Tensor& out) {
  const std::int64_t width = tensor::item_bytes(stored);
  const std::byte* from = source.data() + run.source * width;
  if (stored == out.scalar_type()) {
    std::memcpy(static_cast<std::byte*>(out.mutable_data_ptr()) + run.target * width, from,
                static_cast<std::size_t>(run.count * width));
    return;
  }
  // Staged: bytes in the file need not be aligned for their dtype.
  Tensor staged = tensor::empty({std::min(run.count, kStagedElements)}, stored);
  for (std::int64_t done = 0; done < run.count; done += staged.numel()) {
    const std::int64_t count = std::min(staged.numel(), run.count - done);
    std::memcpy(staged.mutable_data_ptr(), from + done * width,
                static_cast<std::size_t>(count * width));
    out.narrow(0, run.target + done, count).copy_(staged.narrow(0, 0, count));
  }
}

// Lets go of the pages of a mapped slice behind what is read from it, which is read once, from
// front to back: they need not stay beside the copy.
class ReadPages final {
 public:
  ~ReadPages() { release(); }
  // Of another slice; empty: none yet.
  void begin(std::span<const std::byte> slice) {
    release();
    slice_ = slice;
    first_ = end_ = 0;
  }
  [[nodiscard]] bool begun() const { return !slice_.empty(); }
  [[nodiscard]] std::span<const std::byte> slice() const { return slice_; }
  void have_read(std::size_t first, std::size_t end) {
    if (first_ == end_) first_ = first;
    first_ = std::min(first_, first);
    end_ = std::max(end_, end);
    if (end_ - first_ >= kReleasedBytes) release();
  }

 private:
  void release() {
    if (end_ > first_) release_pages(slice_.subspan(first_, end_ - first_));
    first_ = end_;
  }
  std::span<const std::byte> slice_;
  std::size_t first_ = 0, end_ = 0;
};

void hash_text(Sha256& hash, const std::string& text) {
  // With its length, so that no two lists of texts give the same bytes.
  hash.update(fmt::format("{}:", text.size()));
  hash.update(text);
}

}  // namespace

bool holds_exactly(DType stored, DType wanted) {
  if (stored == wanted) return true;
  const bool half = stored == DType::BFloat16 || stored == DType::Half;
  const bool quarter = stored == DType::Float8_e4m3fn || stored == DType::Float8_e5m2;
  if (wanted == DType::Double) return stored == DType::Float || half || quarter;
  if (wanted == DType::Float) return half || quarter;
  return quarter && (wanted == DType::BFloat16 || wanted == DType::Half);
}

CheckpointReader::CheckpointReader(std::filesystem::path folder, bool verify_checksums)
    : folder_(std::move(folder)),
      manifest_(read_manifest(folder_)),
      verify_checksums_(verify_checksums) {
  for (std::size_t i = 0; i < manifest_.tensors.size(); ++i) {
    tensor_index_[manifest_.tensors[i].name] = i;
  }
  for (std::size_t i = 0; i < manifest_.slices.size(); ++i) {
    slices_of_[manifest_.slices[i].tensor].push_back(i);
  }
}

CheckpointReader::~CheckpointReader() = default;

bool CheckpointReader::has(const std::string& tensor) const {
  return tensor_index_.contains(tensor);
}

const SafetensorsFile& CheckpointReader::open(const std::string& file) {
  std::unique_ptr<SafetensorsFile>& shard = files_[file];
  if (shard) return *shard;
  const auto described =
      std::find_if(manifest_.files.begin(), manifest_.files.end(),
                   [&](const ManifestFile& candidate) { return candidate.name == file; });
  PENTATRON_CHECK(described != manifest_.files.end(), kInternal, "{}: unknown shard {}",
                  folder_.string(), file);
  shard = open_shard(folder_, *described, verify_checksums_);
  return *shard;
}

void CheckpointReader::read(const std::string& tensor, const Shape& logical_shape,
                            const nn::Box& box, std::int64_t begin, Tensor out) {
  const tensor::NoGrad no_grad;
  const auto index = tensor_index_.find(tensor);
  PENTATRON_CHECK(index != tensor_index_.end(), kCheckpoint,
                  "{} holds no tensor {}, which the model wants: it was saved by another model or "
                  "without optimizer state",
                  folder_.string(), tensor);
  const ManifestTensor& stored = manifest_.tensors[index->second];
  const BoxRange target{box, begin, begin + out.numel()};
  check_target(folder_.string() + ": " + tensor, manifest_, stored, logical_shape, target, out);
  const DType dtype = tensor::from_safetensors_dtype(stored.dtype);
  std::int64_t filled = 0;
  for (const std::size_t i : slices_of_[tensor]) {
    const ManifestSlice& slice = manifest_.slices[i];
    // Files are opened, and their checksums computed, only where something is read from them.
    ReadPages pages;
    for_each_run({slice.box, slice.range_begin, slice.range_end}, target, [&](const Run& run) {
      if (!pages.begun()) {
        pages.begin(
            slice_bytes(open(slice.file), slice, stored.dtype, (folder_ / slice.file).string()));
      }
      copy_run(pages.slice(), dtype, run, out);
      const std::int64_t width = tensor::item_bytes(dtype);
      pages.have_read(static_cast<std::size_t>(run.source * width),
                      static_cast<std::size_t>((run.source + run.count) * width));
      filled += run.count;
    });
  }
  PENTATRON_CHECK(filled == out.numel(), kInternal, "{}: {}: found {} of {} values",
                  folder_.string(), tensor, filled, out.numel());
}

std::string state_hash(CheckpointReader& reader) {
  Sha256 hash;
  const Manifest& manifest = reader.manifest();
  hash_text(hash, fmt::format("pentatron state 1, {} tensors", manifest.tensors.size()));
  for (const ManifestTensor& stored : manifest.tensors) {
    hash_text(hash, stored.name);
    hash_text(hash, stored.dtype);
    hash_text(hash, fmt::format("{}", fmt::join(stored.logical_shape, ",")));
    const DType dtype = tensor::from_safetensors_dtype(stored.dtype);
    const std::int64_t width = tensor::item_bytes(dtype);
    const std::int64_t elements = tensor::num_elements(stored.logical_shape);
    const nn::Box whole{Shape(stored.logical_shape.size(), 0), stored.logical_shape};
    const Tensor chunk = tensor::empty({std::min(elements, kHashedBytes / width)}, dtype);
    for (std::int64_t done = 0; done < elements; done += chunk.numel()) {
      const Tensor part = chunk.narrow(0, 0, std::min(chunk.numel(), elements - done));
      reader.read(stored.name, stored.logical_shape, whole, done, part);
      hash.update(std::span<const std::byte>(static_cast<const std::byte*>(part.const_data_ptr()),
                                             static_cast<std::size_t>(part.numel() * width)));
    }
  }
  hash_text(hash, dump_json(parse_json(manifest.train_state, "train_state")));
  return hash.hex_digest();
}

}  // namespace pentatron::checkpoint
