// SPDX-License-Identifier: Apache-2.0
#include "pentatron/inference/loaded_model.h"

#include <gtest/gtest.h>

#include "pentatron/base/temp_folder.h"
#include "pentatron/base/test_support.h"
#include "pentatron/checkpoint/store.h"
#include "pentatron/checkpoint/writer.h"
#include "pentatron/config/config_json.h"
#include "pentatron/inference/generator.h"
#include "pentatron/models/model_test_support.h"

namespace pentatron::inference {
namespace {

namespace fs = std::filesystem;
constexpr std::int64_t kTensorSize = 2;

// Two tensor-parallel ranks save their halves of `weights`, as a training run would; Buffers of
// another stage too.
void save_halves(const config::ModelConfig& model, const test_support::Tensors& weights,
                 const fs::path& root, std::int64_t iteration,
                 const StageFactory& make_stage = {}) {
  config::RunConfig run;
  run.model = model;
  run.parallel.world_size = kTensorSize;
  run.parallel.tensor_model_parallel_size = kTensorSize;
  const PrecisionPolicy policy = precision_policy(run.training.precision);
  comm::run_threads({.world_size = kTensorSize}, [&](comm::Backend& backend) {
    comm::ParallelContext context(backend, comm::make_grids(run.parallel));
    const parallel_layers::LeafContext leaf =
        parallel_layers::make_leaf_context(context, false, policy);
    const config::StagePlan plan = config::whole_model(model);
    const auto stage =
        make_stage ? make_stage(leaf, plan) : models::make_stage("gpt", model, leaf, plan);
    test_support::load(*stage, weights);
    checkpoint::SaveRequest request{.root = root,
                                    .iteration = iteration,
                                    .slices = {},
                                    .config = config::to_json(run),
                                    .layout = "{}",
                                    .train_state = "{}"};
    for (nn::Parameter* parameter : stage->parameters()) {
      for (const nn::ShardPart& part : parameter->spec().parts) {
        if (part.replica != 0) continue;
        const Tensor values = nn::part_view(parameter->data(), part).contiguous().view({-1});
        request.slices.push_back({.kind = "param", .part = &part, .values = values});
      }
    }
    for (nn::Buffer* buffer : stage->buffers()) {
      if (context.rank() != 0) continue;
      const nn::ShardPart& part = buffer->spec().parts.at(0);
      request.slices.push_back(
          {.kind = "buffer", .part = &part, .values = buffer->part_values(part)});
    }
    (void)checkpoint::save_checkpoint(request, context.world());
  });
}

TEST(LoadedModel, TwoHalvesBecomeOneModel) {
  for (const config::ModelConfig& config :
       {test_support::gpt2_kind(), test_support::llama_kind()}) {
    const TempFolder folder;
    const test_support::Tensors weights = test_support::random_weights(config);
    save_halves(config, weights, folder.path(), 7);
    // By the run's folder, and by the iteration's own.
    for (const fs::path& root : {folder.path(), folder.path() / checkpoint::iteration_folder(7)}) {
      const LoadedModel model = load_model(root);
      EXPECT_EQ(model.iteration, 7);
      EXPECT_EQ(model.policy.compute, DType::Float);
      EXPECT_EQ(model.config.parallel.tensor_model_parallel_size, 1);
      EXPECT_EQ(model.runner().max_positions(), config.max_position_embeddings);
      std::size_t parts = 0;
      for (nn::Parameter* parameter : model.stages->parameters()) {
        for (const nn::ShardPart& part : parameter->spec().parts) {
          ++parts;
          EXPECT_TRUE(
              nn::part_view(parameter->data(), part).equal(weights.at(part.name).to(DType::Float)))
              << part.name;
        }
      }
      EXPECT_EQ(parts, weights.size());
    }
  }
}

// A GPT stage with a Buffer, whose values begin at `first`.
class StageWithBuffer final : public nn::Stage {
 public:
  StageWithBuffer(std::unique_ptr<nn::Stage> gpt, const std::string& name, std::int64_t first)
      : gpt_(add_child(std::move(gpt))) {
    nn::ShardPart part;
    part.name = name;
    part.logical_shape = {3, 2};
    part.box = {{0, 0}, {3, 2}};
    part.local_rows = 3;
    buffer_ = &add_buffer(std::make_unique<nn::Buffer>(
        name, nn::ShardSpec{.parts = {part}, .local_shape = {3, 2}}, DType::Long));
    Tensor values = buffer_->part_values(buffer_->spec().parts[0]);
    for (std::int64_t i = 0; i < values.numel(); ++i) values[i].fill_(first + i);
  }
  nn::Bundle forward(const nn::Bundle& input, nn::StepContext& context) override {
    return gpt_.forward(input, context);
  }
  nn::BundleSpec input_spec(const Batch& batch) const override { return gpt_.input_spec(batch); }
  nn::BundleSpec output_spec(const Batch& batch) const override { return gpt_.output_spec(batch); }
  std::vector<nn::Unit> units() override { return gpt_.units(); }
  [[nodiscard]] const nn::Buffer& buffer() const { return *buffer_; }

 private:
  nn::Stage& gpt_;
  nn::Buffer* buffer_ = nullptr;
};

TEST(LoadedModel, ReadsBuffersByTheirNames) {
  const config::ModelConfig config = test_support::gpt2_kind();
  const TempFolder folder;
  const auto maker = [&](const std::string& name, std::int64_t first) {
    return [&config, name, first](const parallel_layers::LeafContext& context,
                                  const config::StagePlan& plan) {
      return std::make_unique<StageWithBuffer>(models::make_stage("gpt", config, context, plan),
                                               name, first);
    };
  };
  const test_support::Tensors weights = test_support::random_weights(config);
  save_halves(config, weights, folder.path() / "with", 1, maker("router.bias", 40));
  const LoadedModel model =
      load_model(folder.path() / "with", {.make_stage = maker("router.bias", 0)});
  const Tensor& values = dynamic_cast<StageWithBuffer&>(model.stages->at(0)).buffer().data();
  for (std::int64_t i = 0; i < values.numel(); ++i) {
    EXPECT_EQ(values.view({-1})[i].item<std::int64_t>(), 40 + i);
  }
  // Neither a Buffer that stays as it was made, nor one that is passed over.
  expect_error(ErrorKind::kCheckpoint, "the model has no place for: buffer/router.bias",
               [&] { (void)load_model(folder.path() / "with"); });
  expect_error(ErrorKind::kCheckpoint, "the checkpoint has not: buffer/router.count", [&] {
    (void)load_model(folder.path() / "with", {.make_stage = maker("router.count", 0)});
  });
  save_halves(config, weights, folder.path() / "without", 1);
  expect_error(ErrorKind::kCheckpoint, "the checkpoint has not: buffer/router.bias", [&] {
    (void)load_model(folder.path() / "without", {.make_stage = maker("router.bias", 0)});
  });
}

TEST(LoadedModel, GeneratesWhatTheSavedWeightsSay) {
  const config::ModelConfig config = test_support::llama_kind();
  const TempFolder folder;
  const test_support::Tensors weights = test_support::random_weights(config);
  save_halves(config, weights, folder.path(), 1);
  const LoadedModel model = load_model(folder.path(), {.precision = "fp64"});
  EXPECT_EQ(model.policy.compute, DType::Double);
  const GenerationOptions options{.sampling = {.temperature = 0.0}, .max_new_tokens = 10};
  ModelRunner loaded = model.runner();
  const Generated got = generate(loaded, config.vocab_size, {5, 6, 7}, options);
  // The weights themselves, without a checkpoint in between.
  test_support::load(*model.stages, weights);
  ModelRunner set = model.runner();
  EXPECT_EQ(got.tokens, generate(set, config.vocab_size, {5, 6, 7}, options).tokens);
  EXPECT_EQ(got.tokens.size(), 10U);
  // The same on ranks that share the model.
  for (const auto& [tp, pp] : std::vector<std::pair<std::int64_t, std::int64_t>>{{2, 1}, {1, 2}}) {
    comm::run_threads({.world_size = 2}, [&, tp = tp, pp = pp](comm::Backend& backend) {
      const LoadedModel part = load_model(folder.path(), {.precision = "fp64",
                                                          .backend = &backend,
                                                          .tensor_model_parallel_size = tp,
                                                          .pipeline_model_parallel_size = pp});
      ModelRunner runner = part.runner();
      EXPECT_EQ(generate(runner, config.vocab_size, {5, 6, 7}, options).tokens, got.tokens);
    });
  }
}

TEST(LoadedModel, ChoosesTheStepAndRefusesWhatIsNotThere) {
  const config::ModelConfig config = test_support::gpt2_kind();
  const TempFolder folder;
  expect_error(ErrorKind::kCheckpoint, "no checkpoint there",
               [&] { (void)load_model(folder.path() / "nothing"); });
  const test_support::Tensors weights = test_support::random_weights(config);
  save_halves(config, weights, folder.path(), 3);
  save_halves(config, weights, folder.path(), 5);
  EXPECT_EQ(load_model(folder.path()).iteration, 5);
  EXPECT_EQ(load_model(folder.path(), {.step = 3}).iteration, 3);
  expect_error(ErrorKind::kCheckpoint, "4", [&] { (void)load_model(folder.path(), {.step = 4}); });
  expect_error(ErrorKind::kConfig, "fp7",
               [&] { (void)load_model(folder.path(), {.precision = "fp7"}); });
}

}  // namespace
}  // namespace pentatron::inference
