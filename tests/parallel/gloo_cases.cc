// SPDX-License-Identifier: Apache-2.0
#include "tests/parallel/gloo_cases.h"

#include <cstring>
#include <span>

#include "pentatron/base/file.h"
#include "pentatron/base/safetensors.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::parity {
namespace {

constexpr const char* kGradient = "gradient/";
constexpr const char* kFirstWeight = "first_weight/";
constexpr const char* kWeight = "weight/";

Tensor vector_of(const std::vector<double>& values) { return tensor::from_vector(values); }

std::vector<double> doubles(const Tensor& t) {
  const auto* data = t.data_ptr<double>();
  return {data, data + t.numel()};
}

}  // namespace

std::vector<GlooCase> gloo_cases(std::int64_t world_size) {
  const CaseOptions gpt2{.model = ModelKind::kGpt2};
  const CaseOptions gpt2_sgd{.model = ModelKind::kGpt2, .optimizer = "sgd"};
  const CaseOptions llama{.model = ModelKind::kLlama};
  const CaseOptions llama_sgd{.model = ModelKind::kLlama, .optimizer = "sgd"};
  if (world_size == 2) {
    const Layout dp{.dp = 2};
    const Layout sharded{.dp = 2, .sharded_optimizer = true};
    const Layout context{.cp = 2};
    const Layout gathered{.cp = 2, .cp_comm = "all_gather"};
    const Layout heads{.cp = 2, .cp_comm = "a2a"};
    return {
        {"gpt2_dp2", gpt2, dp},
        {"gpt2_dp2_sharded", gpt2, sharded},
        {"gpt2_dp2_sharded_sgd", gpt2_sgd, sharded},
        {"gpt2_cp2_ring", gpt2, context},
        {"gpt2_pp2_zb_h1", gpt2, {.pp = 2, .schedule = "zb-h1"}},
        {"gpt2_pp2_gpipe", gpt2, {.pp = 2, .schedule = "gpipe"}},
        {"gpt2_pp2_vpp2", gpt2, {.pp = 2, .chunks = 2}},
        {"gpt2_dp2_zero1_overlap",
         gpt2,
         {.dp = 2, .sharded_optimizer = true, .overlap_gather = true}},
        {"gpt2_dp2_zero3", gpt2, {.dp = 2, .strategy = "optim_grads_params"}},
        {"llama_dp2_zero3_again",
         llama,
         {.dp = 2, .recompute = "uniform 1", .strategy = "optim_grads_params"}},
        {"gpt2_tp2_sp_again", gpt2, {.tp = 2, .sequence_parallel = true, .recompute = "uniform 1"}},
        {"llama_tp2_sp_modules_again",
         llama,
         {.tp = 2, .sequence_parallel = true, .recompute = "core_attn mlp layernorm"}},
        {"gpt2_tp2_slices", gpt2, {.tp = 2, .recompute = "uniform 1 slices"}},
        {"llama_pp2_zb_auto", llama, {.pp = 2, .schedule = "zb-auto"}},
        {"llama_dp2", llama, dp},
        {"llama_dp2_sharded", llama, sharded},
        {"llama_dp2_sharded_sgd", llama_sgd, sharded},
        {"llama_cp2_gathered", llama, gathered},
        {"llama_cp2_heads", llama, heads}};
  }
  const Layout model{.tp = 2, .pp = 2};
  const Layout split{.tp = 2, .sequence_parallel = true, .pp = 2};
  const auto four_stages = [](const char* schedule) {
    return Layout{.pp = 4, .schedule = schedule};
  };
  const Layout uneven{.pp = 4, .schedule = "zb-h1", .pipeline = "Ett|t||tL"};
  const Layout few{.pp = 4, .micro_batch_size = 4, .schedule = "zb-auto", .max_in_flight = 2};
  return {{"gpt2_pp4_gpipe", gpt2, four_stages("gpipe")},
          {"llama_pp4_zb_h1", llama, four_stages("zb-h1")},
          {"gpt2_pp4_zb_auto", gpt2, four_stages("zb-auto")},
          {"gpt2_pp4_uneven_zb_h1", gpt2, uneven},
          {"llama_pp4_few_zb_auto", llama, few},
          {"gpt2_tp2_pp2", gpt2, model},
          {"gpt2_tp2_pp2_sgd", gpt2_sgd, model},
          {"llama_tp2_pp2", llama, model},
          {"llama_tp2_sp_pp2_sgd", llama_sgd, split}};
}

void write_outcome(const std::filesystem::path& path, const Outcome& outcome) {
  std::map<std::string, Tensor> tensors{{"first_loss", vector_of({outcome.first_loss})},
                                        {"first_norm", vector_of({outcome.first_norm})},
                                        {"losses", vector_of(outcome.losses)},
                                        {"norms", vector_of(outcome.norms)}};
  for (const auto& [name, t] : outcome.first_gradients) tensors[kGradient + name] = t.contiguous();
  for (const auto& [name, t] : outcome.first_weights) tensors[kFirstWeight + name] = t.contiguous();
  for (const auto& [name, t] : outcome.weights) tensors[kWeight + name] = t.contiguous();
  std::vector<SafetensorsItem> items;
  for (const auto& [name, t] : tensors) {
    items.push_back({name,
                     std::string(tensor::safetensors_dtype(t.scalar_type())),
                     tensor::shape_of(t),
                     {static_cast<const std::byte*>(t.const_data_ptr()), t.nbytes()}});
  }
  AtomicFile file(path);
  write_safetensors(items, {}, [&file](std::span<const std::byte> bytes) { file.write(bytes); });
  file.commit();
}

Outcome read_outcome(const std::filesystem::path& path) {
  const SafetensorsFile file(path);
  Outcome outcome;
  for (const auto& [name, entry] : file.header().entries) {
    Tensor t = tensor::empty(entry.shape, tensor::from_safetensors_dtype(entry.dtype));
    const std::span<const std::byte> bytes = file.bytes(name);
    std::memcpy(t.mutable_data_ptr(), bytes.data(), bytes.size());
    const auto after = [&name = name](const char* prefix) {
      return name.starts_with(prefix) ? name.substr(std::strlen(prefix)) : std::string();
    };
    if (const std::string gradient = after(kGradient); !gradient.empty()) {
      outcome.first_gradients[gradient] = t;
    } else if (const std::string first = after(kFirstWeight); !first.empty()) {
      outcome.first_weights[first] = t;
    } else if (const std::string weight = after(kWeight); !weight.empty()) {
      outcome.weights[weight] = t;
    } else if (name == "losses") {
      outcome.losses = doubles(t);
    } else if (name == "norms") {
      outcome.norms = doubles(t);
    } else {
      (name == "first_loss" ? outcome.first_loss : outcome.first_norm) = doubles(t).at(0);
    }
  }
  return outcome;
}

}  // namespace pentatron::parity
