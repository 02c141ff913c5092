// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "pentatron/base/safetensors.h"
#include "pentatron/checkpoint/manifest.h"

namespace pentatron::checkpoint {

// One complete checkpoint folder, open for reading. Each file's checksum is verified before its
// first value is used; a folder or file that is not what the manifest says: kCheckpoint.
class CheckpointReader final {
 public:
  explicit CheckpointReader(std::filesystem::path folder, bool verify_checksums = true);
  ~CheckpointReader();

  [[nodiscard]] const Manifest& manifest() const { return manifest_; }
  [[nodiscard]] bool has(const std::string& tensor) const;
  // Fills `out` (1-D, contiguous, CPU, the stored dtype or a wider one) with row-major elements
  // [begin, begin + out.numel()) of `box` of the tensor; any layout to any layout. Wrong name,
  // shape or dtype: kCheckpoint error naming both sides. A box outside the shape, or another kind
  // of `out`: kInternal.
  void read(const std::string& tensor, const Shape& logical_shape, const nn::Box& box,
            std::int64_t begin, Tensor out);
  // Verifies the contents of the files number first, first + stride, ... wholly, at once; a line
  // each for what is damaged. Later reads from these are not verified again.
  [[nodiscard]] std::vector<std::string> verify_shards(std::size_t first, std::size_t stride);

 private:
  const SafetensorsFile& open(const std::string& file);

  std::filesystem::path folder_;
  Manifest manifest_;
  bool verify_checksums_;
  std::map<std::string, std::size_t> tensor_index_;
  std::map<std::string, std::vector<std::size_t>> slices_of_;
  std::map<std::string, std::unique_ptr<SafetensorsFile>> files_;
};

// SHA-256 over sorted tensor names, dtypes, logical shapes and gathered bytes, then the canonical
// train_state; independent of layout, paths, times. Lower-case hexadecimal; errors as read().
[[nodiscard]] std::string state_hash(CheckpointReader& reader);

}  // namespace pentatron::checkpoint
