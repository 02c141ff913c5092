// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "pentatron/comm/forwarding_test_support.h"
#include "pentatron/training/dry_run/traffic.h"
#include "pentatron/training/llama_test_support.h"

// Layouts, and a backend whose groups count what a rank sends, to hold a dry run's numbers against.
// Only tests include it.
namespace pentatron::training::dry_run::testing_support {

using namespace training::testing_support;  // NOLINT: test vocabulary

// A layout and what else is special.
struct Case {
  std::string name;
  Layout layout = {};
  std::int64_t cp = 1;
  ChangeConfig change = {};
};

inline void llama(config::RunConfig& c) {
  make_llama(c.model);
  c.model.group_query_attention = true;
  c.model.num_query_groups = 2;
}
inline void relative(config::RunConfig& c) {
  c.model.position_embedding_type = "relative";
  c.model.relative_attention_num_buckets = 8;
  c.model.relative_attention_max_distance = 12;
}
// Each half of a layer in each of its forms.
inline void heterogeneous(config::RunConfig& c) {
  llama(c);
  c.model.heterogeneous_layers_config_encoded_json = R"({"block_configs": [
    {"attention": {"num_query_groups": 4}, "ffn": {"ffn_hidden_size": 96}},
    {"attention": {"replace_with_linear": true}, "ffn": {"replace_with_linear": true}},
    {"attention": {"no_op": true}, "ffn": {"ffn_hidden_size": 64}},
    {"attention": {"num_query_groups": 2}, "ffn": {"no_op": true}}]})";
}
inline ChangeConfig strategy(const std::string& name) {
  return [name](config::RunConfig& c) {
    c.parallel.use_megatron_fsdp = true;
    c.parallel.data_parallel_sharding_strategy = name;
  };
}
inline ChangeConfig both(const ChangeConfig& a, const ChangeConfig& b) {
  return [a, b](config::RunConfig& c) {
    a(c);
    b(c);
  };
}
inline ChangeConfig recompute(const std::vector<std::string>& modules) {
  return [modules](config::RunConfig& c) {
    c.model.recompute_granularity = "selective";
    c.model.recompute_modules = modules;
  };
}
inline ChangeConfig full(const char* method, std::int64_t layers) {
  return [method, layers](config::RunConfig& c) {
    c.model.recompute_granularity = "full";
    c.model.recompute_method = method;
    c.model.recompute_num_layers = layers;
  };
}
inline void slices(config::RunConfig& c) { c.model.distribute_saved_activations = true; }
inline ChangeConfig lora(bool dora, double dropout, const std::vector<std::string>& modules = {}) {
  return [=](config::RunConfig& c) {
    c.model.lora_rank = 4;
    c.model.lora_dora = dora;
    c.model.lora_dropout = dropout;
    c.model.lora_target_modules = modules;
  };
}
inline void sequence_parallel(config::RunConfig& c) { c.parallel.sequence_parallel = true; }
inline void bf16(config::RunConfig& c) { c.training.precision = "bf16"; }

inline config::RunConfig config_of(const Case& what) {
  return tiny_config(what.layout, [&](config::RunConfig& c) {
    c.parallel.world_size *= what.cp;
    c.parallel.context_parallel_size = what.cp;
    c.model.hidden_size = 64;
    c.model.num_layers = 4;
    if (what.change) what.change(c);
  });
}

// By "axis operation", the axis as kind_of_axis() has it.
struct Count {
  std::int64_t calls = 0;
  std::int64_t bytes = 0;
  bool operator==(const Count&) const = default;
};
using Counts = std::map<std::string, Count>;

// Of a group's name or a list of axes.
inline std::string kind_of_axis(const std::string& name) {
  for (const char* axis : {"pp", "tp", "dp"}) {
    if (name.find(axis) != std::string::npos) return axis;
  }
  return "cp";
}

inline Counts counts_of(const std::vector<Traffic>& traffic) {
  Counts counts;
  for (const Traffic& t : traffic) {
    Count& count = counts[kind_of_axis(t.axis) + " " + std::string(to_string(t.operation))];
    count.calls += t.calls;
    count.bytes += t.bytes;
  }
  return counts;
}

// Small tensors are scalars of the step, double ones norms.
class CountingGroup final : public comm::testing_support::ForwardingGroup {
 public:
  CountingGroup(std::unique_ptr<comm::Group> real, Counts& counts)
      : ForwardingGroup(std::move(real)), counts_(counts) {}

  comm::WorkPtr all_reduce(Tensor t, comm::ReduceOp op) override {
    count(Operation::kAllReduce, t);
    return real().all_reduce(std::move(t), op);
  }
  comm::WorkPtr all_gather(Tensor out, Tensor in) override {
    count(Operation::kAllGather, out);
    return real().all_gather(std::move(out), std::move(in));
  }
  comm::WorkPtr reduce_scatter(Tensor out, Tensor in, comm::ReduceOp op) override {
    count(Operation::kReduceScatter, in);
    return real().reduce_scatter(std::move(out), std::move(in), op);
  }
  comm::WorkPtr all_to_all(Tensor out, Tensor in, std::vector<std::int64_t> out_splits,
                           std::vector<std::int64_t> in_splits) override {
    count(Operation::kAllToAll, in);
    return real().all_to_all(std::move(out), std::move(in), std::move(out_splits),
                             std::move(in_splits));
  }
  comm::WorkPtr send(Tensor t, int peer) override {
    count(Operation::kSend, t);
    return real().send(std::move(t), peer);
  }

 private:
  void count(Operation operation, const Tensor& t) {
    constexpr std::int64_t kFewest = 8;
    if (size() == 1 || t.numel() < kFewest || t.scalar_type() == DType::Double) return;
    Count& entry = counts_[kind_of_axis(name().substr(name().find('/') + 1)) + " " +
                           std::string(to_string(operation))];
    ++entry.calls;
    entry.bytes += static_cast<std::int64_t>(t.nbytes());
  }

  Counts& counts_;
};

class CountingBackend final : public comm::testing_support::ForwardingBackend {
 public:
  // `counts` outlives it.
  CountingBackend(comm::Backend& real, Counts& counts) : ForwardingBackend(real), counts_(counts) {}

 private:
  std::unique_ptr<comm::Group> wrap(std::unique_ptr<comm::Group> real) override {
    return std::make_unique<CountingGroup>(std::move(real), counts_);
  }

  Counts& counts_;
};

}  // namespace pentatron::training::dry_run::testing_support
