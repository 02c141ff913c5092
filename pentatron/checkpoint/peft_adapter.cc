// SPDX-License-Identifier: Apache-2.0
#include "pentatron/checkpoint/peft_adapter.h"

#include <fmt/ranges.h>

#include <array>
#include <cmath>
#include <cstring>
#include <set>

#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/families/near_names.h"
#include "pentatron/families/part_rows.h"
#include "pentatron/tensor/host_bytes.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/precision.h"

namespace pentatron::checkpoint {

using config::AdapterPart;
using families::TensorLink;

namespace {

constexpr std::string_view kWeight = ".weight";
constexpr std::uint64_t kMaxConfigBytes = 16ULL << 20;
constexpr std::array kAll = {AdapterPart::kDown, AdapterPart::kUp, AdapterPart::kMagnitude};

// Rows of a part out of a tensor whose rows are those of the whole weight: [outputs, columns].
Tensor rows_of(const TensorLink& link, const Tensor& whole) {
  TensorLink rows = link;
  const std::int64_t columns = whole.size(1);
  rows.part.shape = {link.part.shape.at(0), columns};
  rows.tensor_shape = {whole.size(0), columns};
  rows.transposed = false;
  Tensor out = tensor::empty(rows.part.shape, kAccumulationDType);
  families::gather_rows(rows, sizeof(double), {0, rows.part.shape[0]}, tensor::host_bytes(whole),
                        tensor::host_bytes(out));
  return out;
}

std::int64_t outputs_of(const TensorLink& link) {
  return link.tensor_shape.at(link.transposed ? 1 : 0);
}

}  // namespace

std::string peft_name(std::string_view module, AdapterPart part) {
  const char* const end = part == AdapterPart::kDown ? ".lora_A.weight"
                          : part == AdapterPart::kUp ? ".lora_B.weight"
                                                     : ".lora_magnitude_vector";
  return std::string(kPeftPrefix) + std::string(module) + end;
}

std::string module_of(const std::string& tensor) {
  return tensor.substr(0, tensor.size() - kWeight.size());
}

PeftAdapter::PeftAdapter(std::filesystem::path folder, const families::Family& family,
                         const config::ModelConfig& model, const std::vector<families::Part>& parts)
    : folder_(std::move(folder)), family_(family) {
  const auto path = folder_ / families::kAdapterConfigFile;
  config_ = families::read_adapter_config(read_text_file(path, kMaxConfigBytes), path.string());
  file_ = std::make_unique<SafetensorsFile>(folder_ / families::kAdapterTensorsFile);
  for (TensorLink& link : families::link_parts(family.name, family.names(model), model, parts)) {
    const bool linear =
        link.part.shape.size() == 2 && link.part.name.starts_with("decoder.layers.");
    if (!linear || !link.tensor.ends_with(kWeight)) continue;
    links_.emplace(link.part.name, std::move(link));
  }
  account_for_all();
}

// Files of a model without its output layer leave out the family's beginning of names; a magnitude
// may be named as the weight of a module.
std::optional<std::string> PeftAdapter::stored_name(const std::string& module,
                                                    AdapterPart part) const {
  std::vector<std::string> names = {peft_name(module, part)};
  const std::string_view base = family_.base_prefix;
  if (!base.empty() && module.starts_with(base)) {
    names.push_back(peft_name(std::string_view(module).substr(base.size()), part));
  }
  for (const std::string& name : names) {
    for (const std::string& spelling : {name, name + std::string(kWeight)}) {
      if (file_->header().entries.contains(spelling)) return spelling;
    }
  }
  return std::nullopt;
}

void PeftAdapter::account_for_all() const {
  std::set<std::string> left;
  for (const auto& [name, entry] : file_->header().entries) left.insert(name);
  PENTATRON_CHECK(!left.empty(), kData, "{}: {} holds no tensor", folder_.string(),
                  families::kAdapterTensorsFile);
  std::vector<std::string> known;
  for (const auto& [weight, link] : links_) {
    const std::string module = module_of(link.tensor);
    const auto down = stored_name(module, AdapterPart::kDown);
    for (const AdapterPart part : kAll) {
      known.push_back(peft_name(module, part));
      const auto name = stored_name(module, part);
      const bool wanted = part != AdapterPart::kMagnitude || config_.dora;
      PENTATRON_CHECK(!down || name.has_value() == wanted, kData, "{}: the adapter of {} {} {}",
                      folder_.string(), module, wanted ? "lacks" : "holds, against its use_dora,",
                      peft_name(module, part));
      if (down && name) left.erase(*name);
    }
  }
  PENTATRON_CHECK(left.empty(), kData, "{}: the model has no linear layer for {}{}{}",
                  folder_.string(), *left.begin(), families::did_you_mean(*left.begin(), known),
                  left.size() > 1 ? fmt::format(" and {} more tensors", left.size() - 1) : "");
}

bool PeftAdapter::adapts(const std::string& weight) const {
  const auto found = links_.find(weight);
  return found != links_.end() &&
         stored_name(module_of(found->second.tensor), AdapterPart::kDown).has_value();
}

Tensor PeftAdapter::tensor(const std::string& name, const Shape& shape) const {
  const SafetensorsEntry& entry = file_->header().entries.at(name);
  PENTATRON_CHECK(entry.shape == shape, kData, "{}: {} has the shape [{}], expected [{}]",
                  folder_.string(), name, fmt::join(entry.shape, ", "), fmt::join(shape, ", "));
  const bool is_float =
      entry.dtype == "F64" || entry.dtype == "F32" || entry.dtype == "F16" || entry.dtype == "BF16";
  PENTATRON_CHECK(is_float, kData, "{}: {} is stored as {}, expected F64, F32, F16 or BF16",
                  folder_.string(), name, entry.dtype);
  const Tensor stored = tensor::empty(shape, tensor::from_safetensors_dtype(entry.dtype));
  const std::span<const std::byte> bytes = file_->bytes(name);
  std::memcpy(stored.mutable_data_ptr(), bytes.data(), bytes.size());
  return tensor::cast(stored, kAccumulationDType);
}

std::int64_t PeftAdapter::block_of(const TensorLink& link, const Tensor& up,
                                   std::int64_t rank) const {
  const std::int64_t blocks = up.size(1) / rank;
  std::vector<std::int64_t> used;
  for (std::int64_t block = 0; block < blocks; ++block) {
    const Tensor columns = up.narrow(1, block * rank, rank);
    if (columns.numel() > 0 && columns.abs().max().item<double>() > 0) used.push_back(block);
  }
  PENTATRON_CHECK(used.size() <= 1, kUnsupported,
                  "{}: the adapter of {} has rank {}, of which {} uses more than {}: give "
                  "--lora-rank {}",
                  folder_.string(), module_of(link.tensor), up.size(1), link.part.name, rank,
                  up.size(1));
  if (!used.empty()) return used[0];
  // Not trained yet: in the order of the tensor's parts.
  std::int64_t before = 0;
  for (const auto& [weight, other] : links_) {
    if (other.tensor == link.tensor && other.rows.first < link.rows.first) ++before;
  }
  return std::min(before, blocks - 1);
}

PeftAdapter::Values PeftAdapter::read(const std::string& weight, std::int64_t rank,
                                      double scale) const {
  const tensor::NoGrad no_grad;
  const TensorLink& link = links_.at(weight);
  const std::string module = module_of(link.tensor);
  const std::int64_t there = config_.rank_of(module);
  const std::int64_t inputs = link.part.shape.at(1), outputs = outputs_of(link);
  const auto named = [&](AdapterPart part, const Shape& shape) {
    return tensor(stored_name(module, part).value(), shape);
  };
  Tensor down = named(AdapterPart::kDown, {there, inputs});
  Tensor up = rows_of(link, named(AdapterPart::kUp, {outputs, there}));
  std::int64_t own = there;
  if (there > rank) {
    PENTATRON_CHECK(there % rank == 0, kUnsupported,
                    "{}: the adapter of {} has rank {}, the run --lora-rank {}: give {}",
                    folder_.string(), module, there, rank, there);
    const std::int64_t block = block_of(link, up, rank);
    down = down.narrow(0, block * rank, rank);
    up = up.narrow(1, block * rank, rank);
    own = rank;
  }
  Values values{.down = tensor::zeros({rank, inputs}, kAccumulationDType),
                .up = tensor::zeros({link.part.shape.at(0), rank}, kAccumulationDType),
                .magnitude = {}};
  values.down.narrow(0, 0, own).copy_(down);
  values.up.narrow(1, 0, own).copy_(up);
  const double there_scale = config_.scale_of(module);
  // Equal but for the last bit: of alpha / rank and n alpha / (n rank).
  if (std::abs(there_scale - scale) > 1e-12 * std::abs(scale)) values.up.mul_(there_scale / scale);
  if (config_.dora) {
    const Tensor all = named(AdapterPart::kMagnitude, {outputs});
    values.magnitude = rows_of(link, all.view({outputs, 1})).view({-1});
  }
  return values;
}

}  // namespace pentatron::checkpoint
