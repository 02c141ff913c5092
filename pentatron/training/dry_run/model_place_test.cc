// SPDX-License-Identifier: Apache-2.0
// The planned state of every rank against what its store and optimizer allocate.
#include "pentatron/training/dry_run/model_place.h"

#include <gtest/gtest.h>

#include "pentatron/models/registry.h"
#include "pentatron/nn/local_stages.h"
#include "pentatron/parallel_layers/leaf_context.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/training/adapters.h"
#include "pentatron/training/dry_run/test_support.h"
#include "pentatron/training/freeze.h"
#include "pentatron/training/grid_place.h"
#include "pentatron/training/run_policy.h"

namespace pentatron::training::dry_run {
namespace {

using namespace testing_support;  // NOLINT: test vocabulary

// Remembers what is allocated for the life of the store.
class CountingAllocator final : public distributed::BufferAllocator {
 public:
  explicit CountingAllocator(std::vector<std::int64_t>& bytes) : bytes_(bytes) {}
  Tensor allocate(std::int64_t num_elements, DType dtype, Device device) override {
    bytes_.push_back(num_elements * tensor::item_bytes(dtype));
    return real_->allocate(num_elements, dtype, device);
  }
  Tensor allocate_transient(std::int64_t num_elements, DType dtype, Device device) override {
    return real_->allocate_transient(num_elements, dtype, device);
  }

 private:
  std::vector<std::int64_t>& bytes_;
  std::unique_ptr<distributed::BufferAllocator> real_ = distributed::make_default_allocator();
};

// Makes a rank's stages, store and optimizer as the engine does, and compares.
void expect_state(const config::RunConfig& config, comm::ParallelContext& context,
                  const std::string& name) {
  const PrecisionPolicy policy = run_policy(config);
  const auto leaf =
      parallel_layers::make_leaf_context(context, config.parallel.sequence_parallel, policy, kCpu);
  nn::LocalStages stages;
  const auto plans = config::plan_pipeline(config.model, config.parallel);
  for (auto stage = static_cast<std::size_t>(context.coordinate("pp")); stage < plans.size();
       stage += static_cast<std::size_t>(context.size("pp"))) {
    stages.add(models::make_stage("gpt", config.model, leaf, plans[stage]));
  }
  freeze_parameters(config, stages.parameters());
  if (config.model.lora_rank > 0) freeze_all_but_adapters(stages.parameters());
  std::vector<std::int64_t> bytes;
  const distributed::StoreOptions options =
      optimizer::store_options(config, grid_place(context.place(), comm::GridKind::kDense));
  distributed::ParameterStore store(stages.units(), context, options, policy, kCpu,
                                    std::make_unique<CountingAllocator>(bytes));
  const optimizer::Optimizer rules(store, context, config.optimizer, policy);

  const RunPlan run(config);
  const ModelPlace place(run, context.rank());
  const optimizer::TrainingStateBytes planned = place.state_of(context.rank());
  ASSERT_GE(bytes.size(), 2U);
  EXPECT_EQ(planned.parameters, bytes[0]) << name << " rank " << context.rank();
  EXPECT_EQ(planned.gradients, bytes[1]) << name << " rank " << context.rank();
  std::int64_t rest = 0;
  for (std::size_t i = 2; i < bytes.size(); ++i) rest += bytes[i];
  EXPECT_EQ(planned.main_parameters + planned.moments + planned.on_host(), rest)
      << name << " rank " << context.rank();
  std::int64_t frozen = 0;
  for (const nn::Parameter* parameter : stages.parameters()) {
    if (!parameter->trainable()) frozen += parameter->num_local_elements();
  }
  EXPECT_EQ(place.frozen_weights(), frozen * tensor::item_bytes(policy.parameter)) << name;
  const std::vector<nn::Unit> units = stages.units();
  ASSERT_EQ(place.units().units().size(), units.size()) << name;
  for (std::size_t u = 0; u < units.size(); ++u) {
    ASSERT_EQ(place.units().units()[u].parameters.size(), units[u].parameters.size()) << name;
    for (std::size_t p = 0; p < units[u].parameters.size(); ++p) {
      EXPECT_EQ(place.units().units()[u].parameters[p]->local_name(),
                units[u].parameters[p]->local_name());
    }
  }
}

TEST(DryRun, StateIsWhatStoreAndOptimizerAllocate) {
  const Layout all{.tp = 2, .pp = 2, .dp = 2};
  const Layout sharded{.tp = 2, .pp = 2, .dp = 2, .sharded = true};
  const auto muon = [](config::RunConfig& c) { c.optimizer.optimizer = "muon"; };
  const auto host = [](config::RunConfig& c) { c.optimizer.optimizer_cpu_offload = true; };
  const auto half = [](config::RunConfig& c) {
    c.optimizer.optimizer_cpu_offload = true;
    c.optimizer.optimizer_offload_fraction = 0.5;
    c.optimizer.overlap_cpu_optimizer_d2h_h2d = true;
  };
  const auto lion = [](config::RunConfig& c) { c.optimizer.optimizer = "lion"; };
  const auto narrow = [](config::RunConfig& c) {
    c.optimizer.use_precision_aware_optimizer = true;
    c.optimizer.exp_avg_dtype = c.optimizer.exp_avg_sq_dtype = "bf16";
  };
  const auto all_bf16 = [narrow](config::RunConfig& c) {
    narrow(c);
    c.optimizer.main_params_dtype = c.optimizer.main_grads_dtype = "bf16";
  };
  const auto narrow_gradients = [](config::RunConfig& c) { c.parallel.grad_reduce_in_bf16 = true; };
  const auto sgd = [](config::RunConfig& c) { c.optimizer.optimizer = "sgd"; };
  const auto frozen = [](config::RunConfig& c) {
    c.optimizer.freeze_parameters = {"decoder.layers.*.mlp.*"};
  };
  const auto adapters = [](config::RunConfig& c) {
    c.model.lora_rank = 4;
    c.model.lora_dora = true;
  };
  const auto virtual_stages = [](config::RunConfig& c) {
    c.parallel.num_virtual_stages_per_pipeline_rank = 2;
  };
  const auto instances = [](config::RunConfig& c) {
    c.parallel.num_distributed_optimizer_instances = 2;
  };
  const std::vector<Case> cases = {
      {"plain", all},
      {"bf16", all, 1, bf16},
      {"sgd", all, 1, sgd},
      {"ZeRO 1", sharded},
      {"ZeRO 1 bf16 llama", sharded, 1, both(llama, bf16)},
      {"ZeRO 2", all, 1, strategy("optim_grads")},
      {"ZeRO 3", all, 1, strategy("optim_grads_params")},
      {"ZeRO 3 bf16", all, 1, both(strategy("optim_grads_params"), bf16)},
      {"ZeRO 3 context", {.tp = 2, .pp = 2}, 2, strategy("optim_grads_params")},
      {"muon", all, 1, muon},
      {"muon ZeRO 1", sharded, 1, both(muon, bf16)},
      {"host", sharded, 1, both(host, bf16)},
      {"half on the host", sharded, 1, both(half, bf16)},
      {"lion", sharded, 1, lion},
      {"moments in bf16", sharded, 1, both(narrow, bf16)},
      {"all in bf16", all, 1, both(all_bf16, bf16)},
      {"gradients in bf16", all, 1, both(narrow_gradients, both(strategy("optim_grads"), bf16))},
      {"virtual stages", all, 1, virtual_stages},
      {"frozen", sharded, 1, frozen},
      {"adapters", all, 1, both(adapters, bf16)},
      {"adapters ZeRO 1", sharded, 1, both(adapters, llama)},
      {"instances", {.pp = 2, .dp = 4, .sharded = true}, 1, instances},
  };
  for (const Case& what : cases) {
    const config::RunConfig config = config_of(what);
    comm::run_threads({.world_size = config.parallel.world_size}, [&](comm::Backend& backend) {
      comm::ParallelContext context(backend, comm::make_grids(config.parallel));
      expect_state(config, context, what.name);
    });
  }
}

}  // namespace
}  // namespace pentatron::training::dry_run
