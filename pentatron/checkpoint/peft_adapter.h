// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pentatron/base/safetensors.h"
#include "pentatron/config/adapter_names.h"
#include "pentatron/families/adapter_config.h"
#include "pentatron/families/family.h"
#include "pentatron/nn/shard_spec.h"

namespace pentatron::checkpoint {

// Beginning of all names in PEFT's files.
inline constexpr std::string_view kPeftPrefix = "base_model.model.";

// What PEFT's files call a module's A, B and magnitude.
[[nodiscard]] std::string peft_name(std::string_view module, config::AdapterPart part);
// The module of a weight's tensor: its name without ".weight".
[[nodiscard]] std::string module_of(const std::string& tensor);

// An adapter in a folder of PEFT's files, read as adapters of the model's parts. A tensor that
// holds several parts has one A, which all of them get, and rows of its B; or blocks of columns of
// B, one a part, with the rows of A that belong to them, as export writes them.
class PeftAdapter final {
 public:
  // `parts`: all weights of the model underneath, of the family. Every tensor is accounted for.
  // Errors: kIo, those of read_adapter_config(); kData for tensors that are missing, unexpected or
  // of another shape, which are named.
  PeftAdapter(std::filesystem::path folder, const families::Family& family,
              const config::ModelConfig& model, const std::vector<families::Part>& parts);

  [[nodiscard]] const families::AdapterConfig& config() const { return config_; }
  // Whether the weight has an adapter here.
  [[nodiscard]] bool adapts(const std::string& weight) const;

  // Whole values in fp64, as parts of a model with adapters of `rank` and `scale` have them: B
  // takes up the ratio of scales, and a smaller rank here leaves zeros. kUnsupported for a larger
  // rank.
  struct Values {
    Tensor down;
    Tensor up;
    Tensor magnitude;  // undefined: none
  };
  [[nodiscard]] Values read(const std::string& weight, std::int64_t rank, double scale) const;

 private:
  [[nodiscard]] Tensor tensor(const std::string& name, const Shape& shape) const;
  [[nodiscard]] std::optional<std::string> stored_name(const std::string& module,
                                                       config::AdapterPart part) const;
  // The columns of B that belong to the part, `rank` of them.
  [[nodiscard]] std::int64_t block_of(const families::TensorLink& link, const Tensor& up,
                                      std::int64_t rank) const;
  void account_for_all() const;

  std::filesystem::path folder_;
  const families::Family& family_;
  families::AdapterConfig config_;
  std::unique_ptr<SafetensorsFile> file_;
  std::map<std::string, families::TensorLink> links_;  // of weights, by part
};

}  // namespace pentatron::checkpoint
