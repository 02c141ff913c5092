// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "pentatron/base/progress_line.h"
#include "pentatron/checkpoint/reader.h"
#include "pentatron/conversion/adapter_merge.h"
#include "pentatron/families/family.h"

namespace pentatron::conversion {

// Puts a family's tensors together from the parts in a checkpoint and writes them, one at a time.
class TensorWriter final {
 public:
  // `parts`: all weights of the model, which the checkpoint has. `dtype`: "bf16", ...; empty: as
  // stored. `adapters`: merged into the weights that they adapt.
  TensorWriter(checkpoint::CheckpointReader& reader, std::vector<families::Part> parts,
               const std::string& dtype, const CheckpointAdapters& adapters);

  // That of most values.
  [[nodiscard]] DType dtype() const { return most_; }
  [[nodiscard]] std::int64_t num_parameters() const;

  // Plans the tensors. Parts of one tensor that are stored in two dtypes: kUnsupported.
  void link(const families::Family& family, const config::ModelConfig& model);
  [[nodiscard]] std::size_t num_tensors() const { return tensors_.size(); }
  [[nodiscard]] std::uint64_t bytes() const;

  // model.safetensors, or, beyond the limit, model-00001-of-0000N.safetensors and their index. A
  // tensor larger than the limit has a file of its own.
  void write(const std::filesystem::path& folder, std::int64_t max_shard_bytes);

 private:
  struct Whole {
    std::string name;
    Shape shape;
    DType dtype = DType::Undefined;
    std::vector<families::TensorLink> links;
    [[nodiscard]] std::int64_t bytes() const;
  };
  [[nodiscard]] DType stored_dtype(const std::string& part) const;
  [[nodiscard]] DType written_dtype(const std::string& part) const;
  [[nodiscard]] Tensor assemble(const Whole& whole);
  void fill(const Whole& whole, const families::TensorLink& link, const Tensor& tensor);
  void write_shard(const std::filesystem::path& path, std::size_t begin, std::size_t end);
  void write_index(const std::filesystem::path& path, const std::vector<std::string>& file_of);

  checkpoint::CheckpointReader& reader_;
  const CheckpointAdapters& adapters_;
  std::vector<families::Part> parts_;
  DType asked_ = DType::Undefined;  // none: as stored
  DType most_ = DType::Undefined;
  std::vector<Whole> tensors_;
  ProgressLine progress_{{.what = "exported", .unit = "bytes", .line_seconds = 3}};
};

}  // namespace pentatron::conversion
