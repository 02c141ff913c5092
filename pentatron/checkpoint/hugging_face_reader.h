// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "pentatron/families/folder.h"
#include "pentatron/nn/shard_spec.h"

namespace pentatron::checkpoint {

// Reads a Hugging Face folder as CheckpointReader reads a checkpoint: any box of any part.
class HuggingFaceReader final {
 public:
  // `parts`: all weights of the model. Errors: those of families::Folder::links().
  HuggingFaceReader(std::shared_ptr<const families::Folder> folder,
                    const std::vector<families::Part>& parts);

  [[nodiscard]] const families::Folder& folder() const { return *folder_; }
  [[nodiscard]] const std::vector<families::TensorLink>& links() const { return links_; }

  // The stored dtype of a part; a name that is none: kInternal.
  [[nodiscard]] DType dtype(const std::string& part) const;
  // A whole part, rounded to `dtype`: contiguous, CPU, its logical shape. Beside it at most 16 MiB
  // of the file are in memory.
  [[nodiscard]] Tensor read_part(const std::string& part, DType dtype) const;
  // Fills `out` (1-D, contiguous, CPU; as wide as the stored dtype or wider) with row-major
  // elements [begin, begin + out.numel()) of `box` of the part. Another shape, or a dtype that does
  // not hold the stored values: kCheckpoint.
  void read(const std::string& part, const Shape& logical_shape, const nn::Box& box,
            std::int64_t begin, Tensor out) const;

 private:
  [[nodiscard]] const families::TensorLink& link(const std::string& part) const;

  std::shared_ptr<const families::Folder> folder_;
  std::vector<families::TensorLink> links_;
  std::map<std::string, std::size_t> index_;
};

// Values of the first dtype have exact equals in the second.
[[nodiscard]] bool holds_exactly(DType stored, DType wanted);

}  // namespace pentatron::checkpoint
