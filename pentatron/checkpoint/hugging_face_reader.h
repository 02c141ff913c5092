// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "pentatron/families/folder.h"
#include "pentatron/families/part_rows.h"
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
  [[nodiscard]] const families::TensorLink& link(const std::string& part) const;
  // How many rows of a part are well read at once: some MiB. Of a part that is stored transposed,
  // whose columns lie all over its tensor, a sixteenth at least, so that the tensor is gone through
  // so many times at most.
  [[nodiscard]] std::int64_t rows_at_once(const std::string& part) const;
  // Rows of a part, rounded to `dtype`: 1-D, contiguous, CPU. Beside them a few MiB of the file are
  // in memory.
  [[nodiscard]] Tensor read_rows(const std::string& part, families::RowRange rows,
                                 DType dtype) const;
  // Fills `out` (1-D, contiguous, CPU; as wide as the stored dtype or wider) with row-major
  // elements [begin, begin + out.numel()) of `box` of the part. Another shape, or a dtype that does
  // not hold the stored values: kCheckpoint.
  void read(const std::string& part, const Shape& logical_shape, const nn::Box& box,
            std::int64_t begin, Tensor out) const;

 private:
  std::shared_ptr<const families::Folder> folder_;
  std::vector<families::TensorLink> links_;
  std::map<std::string, std::size_t> index_;
};

// Values of the first dtype have exact equals in the second.
[[nodiscard]] bool holds_exactly(DType stored, DType wanted);

}  // namespace pentatron::checkpoint
