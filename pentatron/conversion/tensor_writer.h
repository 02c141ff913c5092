// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "pentatron/base/file.h"
#include "pentatron/base/progress_line.h"
#include "pentatron/checkpoint/reader.h"
#include "pentatron/conversion/adapter_merge.h"
#include "pentatron/conversion/weights_layout.h"
#include "pentatron/families/family.h"
#include "pentatron/families/part_rows.h"

namespace pentatron::conversion {

// Puts a family's tensors together from the parts in a checkpoint and writes them, some rows at a
// time: a few MiB of the weights are in memory, or a sixteenth of a tensor that is stored
// transposed.
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
  // tensor larger than the limit has a file of its own. In each file the tensors stand as the
  // reference library puts them.
  void write(const std::filesystem::path& folder, std::int64_t max_shard_bytes);
  // Whether these files hold the tensors, all of them once, and no others; but a copy of the
  // embedding where the output is tied to it. kData for headers that are none.
  [[nodiscard]] bool fits(const WeightsLayout& layout) const;
  // The same files. Of a layout that does not fit: kInternal.
  void write(const std::filesystem::path& folder, const WeightsLayout& layout);

 private:
  struct Whole {
    std::string name;
    Shape shape;
    DType dtype = DType::Undefined;
    std::vector<families::TensorLink> links;
    [[nodiscard]] std::int64_t bytes() const;
  };
  // Tensors in the order of a file.
  struct ShardPlan {
    std::string header;
    std::vector<const Whole*> tensors;
  };
  [[nodiscard]] DType stored_dtype(const std::string& part) const;
  [[nodiscard]] DType written_dtype(const std::string& part) const;
  [[nodiscard]] std::int64_t rows_at_once(const Whole& whole) const;
  [[nodiscard]] Tensor read_box(const families::Part& part, const nn::Box& box, DType dtype);
  // Puts the part's values into rows [begin, end) of its tensor, `out`.
  void fill(const Whole& whole, const families::TensorLink& link, families::RowRange range,
            const Tensor& out);
  void fill_transposed(const Whole& whole, const families::TensorLink& link,
                       families::RowRange range, const Tensor& out);
  void write_values(const Whole& whole, OutputFile& file);
  void write_shard(const std::filesystem::path& path, const ShardPlan& plan);
  [[nodiscard]] ShardPlan plan_shard(std::size_t begin, std::size_t end) const;
  // One plan a file; nothing where the layout does not fit.
  [[nodiscard]] std::optional<std::map<std::string, ShardPlan>> plan_shards(
      const WeightsLayout& layout) const;
  void write_index(const std::filesystem::path& path, const std::vector<std::string>& file_of);

  checkpoint::CheckpointReader& reader_;
  const CheckpointAdapters& adapters_;
  std::vector<families::Part> parts_;
  DType asked_ = DType::Undefined;  // none: as stored
  DType most_ = DType::Undefined;
  std::vector<Whole> tensors_;
  std::string prefix_;       // which files of bare models leave out
  std::string tied_output_;  // empty: the output is not the embedding
  const Whole* embedding_ = nullptr;
  ProgressLine progress_{{.what = "exported", .unit = "bytes", .line_seconds = 3}};
};

}  // namespace pentatron::conversion
