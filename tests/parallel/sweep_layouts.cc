// SPDX-License-Identifier: Apache-2.0
#include "tests/parallel/sweep_layouts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <functional>
#include <set>

#include "pentatron/base/error.h"

namespace pentatron::parity {
namespace {

// In the order in which they are set: sizes first, then what stands on them.
enum class Axis {
  kTensor,
  kPipeline,
  kData,
  kContext,
  kRows,
  kSchedule,
  kShards,
  kOverlap,
  kAgain,
  kMicroBatch
};

struct Value {
  Axis axis;
  const char* name;
  std::function<void(Layout&)> set;
};

void context(Layout& layout, std::int64_t size, const char* comm) {
  layout.cp = size;
  layout.cp_comm = comm;
  if (std::string_view(comm) == "a2a+p2p") layout.cp_inner = 2;
}

// Gradients and parameters travel in several buckets wherever they do.
void data_parallel(Layout& layout) {
  layout.dp = std::max<std::int64_t>(2, layout.dp);
  layout.bucket_size = kSmallBuckets;
}

void shard(Layout& layout, const char* strategy) {
  data_parallel(layout);
  layout.strategy = strategy;
}

const std::vector<Value>& values() {
  static const std::vector<Value> kValues = {
      {Axis::kTensor, "TP2", [](Layout& l) { l.tp = 2; }},
      {Axis::kTensor, "TP4", [](Layout& l) { l.tp = 4; }},
      {Axis::kPipeline, "PP2", [](Layout& l) { l.pp = 2; }},
      {Axis::kPipeline, "PP4", [](Layout& l) { l.pp = 4; }},
      {Axis::kData, "DP2", [](Layout& l) { data_parallel(l); }},
      {Axis::kContext, "CP2ring", [](Layout& l) { context(l, 2, "p2p"); }},
      {Axis::kContext, "CP2gather", [](Layout& l) { context(l, 2, "all_gather"); }},
      {Axis::kContext, "CP2a2a", [](Layout& l) { context(l, 2, "a2a"); }},
      {Axis::kContext, "CP4a2ap2p", [](Layout& l) { context(l, 4, "a2a+p2p"); }},
      {Axis::kRows, "SP",
       [](Layout& l) {
         l.tp = std::max<std::int64_t>(2, l.tp);
         l.sequence_parallel = true;
       }},
      {Axis::kSchedule, "VPP2",
       [](Layout& l) {
         l.pp = std::max<std::int64_t>(2, l.pp);
         l.chunks = 2;
       }},
      {Axis::kSchedule, "ZB",
       [](Layout& l) {
         l.pp = std::max<std::int64_t>(2, l.pp);
         l.schedule = "zb-h1";
       }},
      {Axis::kShards, "ZeRO1",
       [](Layout& l) {
         data_parallel(l);
         l.sharded_optimizer = true;
       }},
      {Axis::kShards, "ZeRO2", [](Layout& l) { shard(l, "optim_grads"); }},
      {Axis::kShards, "ZeRO3", [](Layout& l) { shard(l, "optim_grads_params"); }},
      {Axis::kShards, "HSDP",
       [](Layout& l) {
         shard(l, "optim_grads_params");
         l.dp = 4;
         l.instances = 2;
       }},
      {Axis::kOverlap, "Overlap",
       [](Layout& l) {
         data_parallel(l);
         if (l.strategy.empty()) l.sharded_optimizer = true;
         l.overlap_gather = true;
       }},
      {Axis::kAgain, "Full", [](Layout& l) { l.recompute = "uniform 1"; }},
      {Axis::kAgain, "Slices",
       [](Layout& l) {
         l.tp = std::max<std::int64_t>(2, l.tp);
         l.recompute = "uniform 2 slices";
       }},
      {Axis::kAgain, "Core", [](Layout& l) { l.recompute = "core_attn"; }},
      {Axis::kAgain, "Modules", [](Layout& l) { l.recompute = "core_attn mlp layernorm"; }},
      {Axis::kAgain, "Norms", [](Layout& l) { l.recompute = "layernorm"; }},
      {Axis::kMicroBatch, "MBS2", [](Layout& l) { l.micro_batch_size = 2; }},
      {Axis::kMicroBatch, "MBS4", [](Layout& l) { l.micro_batch_size = 4; }},
  };
  return kValues;
}

NamedLayout layout_of(std::vector<const Value*> chosen) {
  std::stable_sort(chosen.begin(), chosen.end(),
                   [](const Value* a, const Value* b) { return a->axis < b->axis; });
  NamedLayout made;
  for (const Value* value : chosen) {
    if (!made.name.empty()) made.name += "_";
    made.name += value->name;
    value->set(made.layout);
  }
  return made;
}

const Value* value_of(const char* name) {
  for (const Value& value : values()) {
    if (std::string_view(value.name) == name) return &value;
  }
  PENTATRON_THROW(kInternal, "no axis has the value {}", name);
}

// What meets in no pair alone: two sizes under a third, or something postponed beside something
// freed or gathered.
constexpr std::array kTriples = {
    std::array{"TP2", "PP2", "DP2"},         std::array{"TP2", "CP2ring", "PP2"},
    std::array{"TP2", "CP2ring", "DP2"},     std::array{"PP2", "CP2gather", "DP2"},
    std::array{"SP", "PP2", "ZeRO1"},        std::array{"SP", "PP2", "CP2ring"},
    std::array{"SP", "CP2gather", "ZeRO3"},  std::array{"SP", "VPP2", "ZeRO1"},
    std::array{"SP", "ZB", "Modules"},       std::array{"SP", "ZB", "ZeRO3"},
    std::array{"TP2", "VPP2", "ZeRO3"},      std::array{"PP2", "ZeRO3", "Overlap"},
    std::array{"ZB", "ZeRO3", "Norms"},      std::array{"ZB", "CP2ring", "Core"},
    std::array{"ZB", "ZeRO2", "CP2ring"},    std::array{"VPP2", "ZeRO2", "Full"},
    std::array{"VPP2", "CP2a2a", "MBS2"},    std::array{"PP4", "DP2", "ZeRO1"},
    std::array{"PP4", "DP2", "Full"},        std::array{"TP4", "DP2", "ZeRO3"},
    std::array{"TP4", "SP", "PP2"},          std::array{"TP2", "HSDP", "Full"},
    std::array{"HSDP", "CP2ring", "Norms"},  std::array{"ZeRO3", "Overlap", "Full"},
    std::array{"CP4a2ap2p", "PP2", "Norms"}, std::array{"CP4a2ap2p", "DP2", "ZeRO1"},
    std::array{"PP2", "Slices", "CP2ring"},  std::array{"PP2", "Slices", "ZeRO3"},
    std::array{"TP4", "PP2", "Slices"},      std::array{"PP2", "MBS4", "ZB"},
    std::array{"ZeRO1", "Overlap", "MBS4"},  std::array{"SP", "Norms", "CP2a2a"},
};

}  // namespace

std::vector<NamedLayout> single_layouts() {
  std::vector<NamedLayout> layouts{{"One", {}}};
  for (const Value& value : values()) layouts.push_back(layout_of({&value}));
  return layouts;
}

std::vector<NamedLayout> pair_layouts() {
  std::vector<NamedLayout> layouts;
  std::set<std::string> seen;
  for (const NamedLayout& single : single_layouts()) seen.insert(single.layout.name());
  for (auto a = values().begin(); a != values().end(); ++a) {
    for (auto b = std::next(a); b != values().end(); ++b) {
      if (a->axis == b->axis) continue;
      NamedLayout pair = layout_of({&*a, &*b});
      // SP brings TP2 along: their pair is no other layout.
      if (seen.insert(pair.layout.name()).second) layouts.push_back(std::move(pair));
    }
  }
  return layouts;
}

std::vector<NamedLayout> triple_layouts() {
  std::vector<NamedLayout> layouts;
  for (const auto& names : kTriples) {
    layouts.push_back(layout_of({value_of(names[0]), value_of(names[1]), value_of(names[2])}));
  }
  return layouts;
}

std::vector<NamedLayout> layouts_of_several_buckets() {
  constexpr std::int64_t kSize = kSmallBuckets;
  return {
      {"DP2", {.dp = 2, .bucket_size = kSize}},
      {"DP2_ZeRO1_Overlap",
       {.dp = 2, .sharded_optimizer = true, .overlap_gather = true, .bucket_size = kSize}},
      {"DP2_ZeRO2", {.dp = 2, .strategy = "optim_grads", .bucket_size = kSize}},
      {"DP2_ZeRO3", {.dp = 2, .strategy = "optim_grads_params", .bucket_size = kSize}},
      {"DP4_HSDP",
       {.dp = 4, .strategy = "optim_grads_params", .instances = 2, .bucket_size = kSize}},
      {"DP4_ZeRO1_TwoInstances",
       {.dp = 4, .sharded_optimizer = true, .instances = 2, .bucket_size = kSize}},
      {"TP2_DP2", {.tp = 2, .dp = 2, .bucket_size = kSize}},
      {"TP2_SP_DP2_ZeRO1",
       {.tp = 2,
        .sequence_parallel = true,
        .dp = 2,
        .sharded_optimizer = true,
        .bucket_size = kSize}},
      {"PP2_VPP2_DP2", {.pp = 2, .dp = 2, .chunks = 2, .bucket_size = kSize}},
      {"PP2_VPP2_DP2_ZeRO2",
       {.pp = 2, .dp = 2, .chunks = 2, .strategy = "optim_grads", .bucket_size = kSize}},
      {"PP2_ZB_DP2_ZeRO1",
       {.pp = 2, .dp = 2, .sharded_optimizer = true, .schedule = "zb-h1", .bucket_size = kSize}},
      {"CP2_DP2", {.dp = 2, .cp = 2, .bucket_size = kSize}},
      {"CP2_DP2_ZeRO3",
       {.dp = 2, .strategy = "optim_grads_params", .cp = 2, .bucket_size = kSize}}};
}

// A stage of one layer has few weights.
std::size_t least_buckets(const Layout& layout) {
  if (layout.bucket_size == 0) return 1;
  return layout.pp > 2 ? 2 : 4;
}

std::vector<NamedKind> dense_kinds() {
  constexpr ModelKind kGpt2 = ModelKind::kGpt2, kLlama = ModelKind::kLlama;
  const auto attention = [](ModelKind model, const char* words) {
    return CaseOptions{.model = model, .attention = words};
  };
  const auto form = [](ModelKind model, const char* word) {
    return CaseOptions{.model = model, .form = word};
  };
  return {{"Gpt2", {.model = kGpt2}},
          {"Llama", {.model = kLlama}},
          {"OneKeyHead", {.model = kLlama, .num_query_groups = 1}},
          {"Gemma", form(kLlama, "gemma")},
          {"Windows", attention(kLlama, "windows")},
          {"Alibi", attention(kGpt2, "alibi")},
          {"Relative", attention(kGpt2, "relative")},
          {"QkNorm", attention(kLlama, "qk-layernorm")},
          {"QkNormOfAllHeads", attention(kLlama, "qk-all-heads")},
          {"QkL2Norm", attention(kLlama, "qk-l2-norm")},
          {"Sinks", attention(kLlama, "sinks")},
          {"Gate", attention(kGpt2, "gate")},
          {"Yarn", attention(kLlama, "yarn")},
          {"Latent", attention(kLlama, "latent-norms")},
          {"PostNorm", form(kLlama, "post")},
          {"BothNorms", form(kGpt2, "both")},
          {"SharedNorm", form(kGpt2, "shared-norm")},
          {"OwnNorms", form(kLlama, "own-norms")},
          {"ResidualAfterNorm", form(kGpt2, "residual-after-norm")},
          {"Heterogeneous", form(kLlama, "heterogeneous")},
          {"Mup", form(kGpt2, "mup")},
          {"SmoothedLabels", form(kGpt2, "smoothed-labels")},
          {"MixedLayers", {.model = kGpt2, .mixed_layers = true}}};
}

std::string refusal_of(const CaseOptions& options, const Layout& layout) {
  if (layout.world_size() > kMaxSweepRanks) {
    return fmt::format("takes more than {} ranks", kMaxSweepRanks);
  }
  if (const std::string rule = layout.refused(); !rule.empty()) return rule;
  try {
    static_cast<void>(make_config(options, layout));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kConfig) throw;
    return error.what();
  }
  return {};
}

}  // namespace pentatron::parity
