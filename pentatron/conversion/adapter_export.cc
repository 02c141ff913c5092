// SPDX-License-Identifier: Apache-2.0
#include "pentatron/conversion/adapter_export.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "pentatron/base/file.h"
#include "pentatron/base/safetensors.h"
#include "pentatron/checkpoint/peft_adapter.h"
#include "pentatron/config/adapters.h"
#include "pentatron/conversion/adapter_merge.h"
#include "pentatron/families/adapter_config.h"
#include "pentatron/families/part_rows.h"
#include "pentatron/inference/hugging_face_model.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/precision.h"

namespace pentatron::conversion {

using config::AdapterPart;
using families::TensorLink;

namespace {

std::span<std::byte> bytes_of(const Tensor& t) {
  return {static_cast<std::byte*>(t.mutable_data_ptr()),
          static_cast<std::size_t>(t.numel() * tensor::item_bytes(t.scalar_type()))};
}

// Rows [outputs of the part, columns] to their places in `whole` [outputs of the tensor, columns].
void put_rows(const TensorLink& link, const Tensor& rows, const Tensor& whole) {
  TensorLink place = link;
  place.part.shape = {rows.size(0), whole.size(1)};
  place.tensor_shape = {whole.size(0), whole.size(1)};
  place.transposed = false;
  families::scatter_rows(place, sizeof(double), {0, rows.size(0)}, bytes_of(rows.contiguous()),
                         bytes_of(whole));
}

// A tensor of the family and the parts in it.
struct Module {
  std::string name;
  std::vector<TensorLink> links;
  [[nodiscard]] std::int64_t outputs() const {
    const TensorLink& link = links.front();
    return link.tensor_shape.at(link.transposed ? 1 : 0);
  }
};

std::vector<Module> adapted_modules(const families::Family& family, const config::ModelConfig& base,
                                    const CheckpointAdapters& adapters) {
  std::vector<Module> modules;
  std::map<std::string, std::size_t> index;
  for (TensorLink& link : families::link_parts(family.name, family.names(base), base,
                                               inference::whole_model_parts(base))) {
    if (link.part.shape.size() != 2 || !link.part.name.starts_with("decoder.layers.")) continue;
    const auto [place, fresh] = index.emplace(link.tensor, modules.size());
    if (fresh) modules.push_back({checkpoint::module_of(link.tensor), {}});
    modules[place->second].links.push_back(std::move(link));
  }
  std::erase_if(modules, [&](const Module& module) {
    return std::none_of(module.links.begin(), module.links.end(),
                        [&](const TensorLink& link) { return adapters.adapts(link.part.name); });
  });
  return modules;
}

// The lengths of the rows of a weight without adapter, which DoRA leaves as they are.
Tensor lengths_of(const families::Part& weight, checkpoint::CheckpointReader& reader) {
  const nn::Box all{{0, 0}, weight.shape};
  const Tensor values = tensor::empty({all.num_elements()}, kAccumulationDType);
  reader.read("param/" + weight.name, weight.shape, all, 0, values);
  const Tensor rows = values.view(weight.shape);
  return rows.mul(rows).sum(1).sqrt();
}

struct Tensors {
  std::int64_t rank = 0;
  std::vector<std::pair<std::string, Tensor>> named = {};
};

Tensors tensors_of(const Module& module, const CheckpointAdapters& adapters,
                   checkpoint::CheckpointReader& reader, const config::ModelConfig& model) {
  std::vector<Tensor> downs;
  for (const TensorLink& link : module.links) {
    if (adapters.adapts(link.part.name)) downs.push_back(adapters.down(link.part));
  }
  Tensors result{.rank = model.lora_rank * static_cast<std::int64_t>(downs.size())};
  const Tensor up = tensor::zeros({module.outputs(), result.rank}, kAccumulationDType);
  const Tensor magnitude = tensor::zeros({module.outputs(), 1}, kAccumulationDType);
  std::int64_t column = 0;
  for (const TensorLink& link : module.links) {
    const std::int64_t rows = link.part.shape.at(0);
    const bool adapted = adapters.adapts(link.part.name);
    if (adapted) {
      Tensor wide = tensor::zeros({rows, result.rank}, kAccumulationDType);
      wide.narrow(1, column, model.lora_rank).copy_(adapters.up(link.part, 0, rows));
      put_rows(link, wide, up);
      column += model.lora_rank;
    }
    if (!model.lora_dora) continue;
    const Tensor lengths =
        adapted ? adapters.magnitude(link.part, 0, rows) : lengths_of(link.part, reader);
    put_rows(link, lengths.view({rows, 1}), magnitude);
  }
  const auto add = [&](AdapterPart part, const Tensor& values) {
    result.named.emplace_back(checkpoint::peft_name(module.name, part),
                              values.to(tensor::parse_dtype("fp32")).contiguous());
  };
  add(AdapterPart::kDown, tensor::cat(downs, 0));
  add(AdapterPart::kUp, up);
  if (model.lora_dora) add(AdapterPart::kMagnitude, magnitude.view({-1}));
  return result;
}

}  // namespace

AdapterFiles write_adapter(const std::filesystem::path& folder,
                           checkpoint::CheckpointReader& reader, const families::Family& family,
                           const config::ModelConfig& model, const std::string& base) {
  const tensor::NoGrad no_grad;
  const CheckpointAdapters adapters(reader, model);
  families::AdapterConfig written{.rank = model.lora_rank,
                                  .alpha = model.lora_alpha,
                                  .dropout = model.lora_dropout,
                                  .rslora = model.lora_rslora,
                                  .dora = model.lora_dora};
  std::vector<std::string> names;
  std::vector<std::pair<std::string, Tensor>> tensors;
  bool transposed = false;
  for (const Module& module : adapted_modules(family, config::without_adapters(model), adapters)) {
    Tensors own = tensors_of(module, adapters, reader, model);
    names.push_back(module.name);
    transposed = transposed || module.links.front().transposed;
    if (own.rank != model.lora_rank) {
      const double times = static_cast<double>(own.rank) / static_cast<double>(model.lora_rank);
      written.ranks[module.name] = own.rank;
      written.alphas[module.name] =
          model.lora_alpha * (model.lora_rslora ? std::sqrt(times) : times);
    }
    for (auto& one : own.named) tensors.push_back(std::move(one));
  }
  std::vector<SafetensorsItem> items;
  AdapterFiles result{.tensors = tensors.size()};
  for (const auto& [name, values] : tensors) {
    items.push_back({name, "F32", tensor::shape_of(values), bytes_of(values)});
    result.bytes += items.back().bytes.size();
  }
  // As the reference library lays out tensors of one dtype.
  std::sort(items.begin(), items.end(),
            [](const SafetensorsItem& a, const SafetensorsItem& b) { return a.name < b.name; });
  OutputFile file(folder / families::kAdapterTensorsFile);
  write_safetensors(items, {{"format", "pt"}},
                    [&file](std::span<const std::byte> bytes) { file.write(bytes); });
  file.close();
  OutputFile text(folder / families::kAdapterConfigFile);
  text.write(families::write_adapter_config(written, names, base, transposed));
  text.close();
  return result;
}

}  // namespace pentatron::conversion
