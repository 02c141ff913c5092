// SPDX-License-Identifier: Apache-2.0
// A layer of one's own, written in plain library ops, joined to a GPT and trained on one rank, on
// two tensor-parallel and on two data-parallel ones (threads of this process): the losses agree.
// Usage: custom_layer [STEPS]
#include <cmath>
#include <iostream>

#include "pentatron/pentatron.h"

using namespace pentatron;
using parallel_layers::LeafContext;

namespace {

constexpr std::int64_t kRank = 8;  // width of the adapter

// y = x + tanh(x D^T) U^T. as_graph_tensor gives a weight to the library's autograd; the gradient
// that comes back goes into the weight's slot, from where reduction, clipping, the optimizer and
// checkpoints take it as any other.
class Adapter final : public nn::Module {
 public:
  // Adds what the layer needs to a rank's plan: the one description that everything else reads.
  static void plan(nn::ParameterPlan& plan, const config::ModelConfig& config,
                   const LeafContext& context) {
    const auto add = [&](const char* name, std::int64_t rows, std::int64_t columns,
                         nn::InitSpec init) {
      plan.add({name,
                lay_out({{.name = name, .rows = rows, .columns = columns, .init = init}},
                        context.layout()),
                static_cast<int>(config.num_layers)});
    };
    add("adapter.down.weight", kRank, config.hidden_size, {nn::InitKind::kNormal, 0.1});
    add("adapter.up.weight", config.hidden_size, kRank, {nn::InitKind::kNormal, 0.1});
  }
  Adapter(const LeafContext& context, const nn::ParameterPlan& plan)
      : down_(add_parameter(make_parameter(context, plan, "adapter.down.weight"))),
        up_(add_parameter(make_parameter(context, plan, "adapter.up.weight"))) {}
  Tensor forward(const Tensor& x_th) {
    const Tensor down_rh = ops::as_graph_tensor(down_), up_hr = ops::as_graph_tensor(up_);
    return x_th.add(x_th.matmul(down_rh.t()).tanh().matmul(up_hr.t()));
  }

 private:
  nn::Parameter& down_;
  nn::Parameter& up_;
};

// The library's embedding, layers and head with the adapter before the head. One pipeline stage.
class AdaptedGpt final : public nn::Stage {
 public:
  AdaptedGpt(const config::ModelConfig& config, const LeafContext& context,
             const config::StagePlan& stage)
      : config_(config), plan_(models::plan_stage(config, context.layout(), stage)) {
    Adapter::plan(plan_, config_, context);
    const int layers = static_cast<int>(config_.num_layers);
    embedding_ = &add_child(std::make_unique<models::GptEmbedding>(context, plan_, config_));
    decoder_ = &add_child(std::make_unique<transformer::TransformerBlock>(
        context, plan_, "decoder", config_, transformer::layer_specs(config_), 0, layers,
        /*first_unit=*/1));
    adapter_ = &add_child(std::make_unique<Adapter>(context, plan_));
    head_ = &add_child(std::make_unique<models::GptHead>(
        context, plan_, config_, "embedding.word_embeddings", &embedding_->word_weight()));
  }
  // The embedding is the first unit, layers follow; the adapter goes with the head.
  nn::Bundle forward(const nn::Bundle&, nn::StepContext& step) override {
    const Tensor embedded_th = nn::run_unit(
        0, Tensor(), step,
        [this](const Tensor&, nn::StepContext& inner) { return embedding_->forward(inner); });
    const int head = static_cast<int>(config_.num_layers) + 1;
    const bool loss = step.output == nn::StageOutput::kLoss;
    const Tensor output = nn::run_unit(
        head, decoder_->forward(embedded_th, step), step,
        [this, loss](const Tensor& hidden_th, nn::StepContext& inner) {
          const Tensor adapted_th = adapter_->forward(hidden_th);
          return loss ? head_->loss(adapted_th, inner) : head_->logits(adapted_th, inner);
        });
    return {{loss ? "lm loss" : "logits", output, loss}};
  }
  nn::BundleSpec input_spec(const Batch&) const override { return {}; }
  nn::BundleSpec output_spec(const Batch&) const override { return {}; }
  std::vector<nn::Unit> units() override {
    std::vector<nn::Unit> units{{"embedding", embedding_->parameters()}};
    for (nn::Unit& layer : decoder_->units()) units.push_back(std::move(layer));
    units.push_back({"head", adapter_->parameters()});
    for (nn::Parameter* parameter : head_->parameters()) {
      units.back().parameters.push_back(parameter);
    }
    return units;
  }

 private:
  config::ModelConfig config_;
  nn::ParameterPlan plan_;
  models::GptEmbedding* embedding_;
  transformer::TransformerBlock* decoder_;
  Adapter* adapter_;
  models::GptHead* head_;
};

// Made-up text with a pattern: each token is the one before plus one or two.
class Counting final : public datasets::SampleSource {
 public:
  static constexpr std::int64_t kLength = 32;
  std::int64_t num_samples() const override { return 1 << 20; }
  std::int64_t length(std::int64_t) const override { return kLength; }
  std::string identity() const override { return "counting"; }
  datasets::Sample sample(std::int64_t i) const override {
    std::vector<std::int64_t> text{i % 64};
    while (std::ssize(text) <= kLength) {
      const double draw =
          philox_uniform(1, static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(text.size()));
      text.push_back((text.back() + (draw < 0.5 ? 1 : 2)) % 64);
    }
    return datasets::make_gpt_sample(text, /*eod=*/-1, {});
  }
};

// The losses of a run on tp x dp ranks.
std::vector<double> train(std::int64_t tp, std::int64_t dp, std::int64_t steps) {
  config::RunConfig config;
  config.model = {.num_layers = 2, .hidden_size = 32, .num_attention_heads = 4};
  config.model.seq_length = config.model.max_position_embeddings = Counting::kLength;
  config.parallel.world_size = tp * dp;
  config.parallel.tensor_model_parallel_size = tp;
  config.training.micro_batch_size = 4;
  config.training.global_batch_size = 8;
  config::resolve(config, config::Purpose::kModel);
  config::resolve_vocab(config, /*tokenizer_vocab_size=*/64);
  config.training.train_iters = steps;
  config.optimizer.lr = 1e-2;
  config.optimizer.lr_decay_style = "constant";
  config.optimizer.weight_decay = 0.1;
  const Counting text;
  std::vector<double> losses;
  training::on_ranks(config, [&](comm::Backend& backend, Device device) {
    training::Session session(config, backend,
                              {.train = &text,
                               .vocab_size = 64,
                               .make_stage =
                                   [&](const LeafContext& leaves, const config::StagePlan& stage) {
                                     return std::make_unique<AdaptedGpt>(config.model, leaves,
                                                                         stage);
                                   }},
                              device);
    while (!session.done()) {
      const double loss = session.step().loss;
      if (backend.rank() == 0) losses.push_back(loss);
    }
  });
  return losses;
}

}  // namespace

int main(int argc, char** argv) try {
  const std::int64_t steps = argc > 1 ? std::stoll(argv[1]) : 30;
  const std::vector<double> one = train(1, 1, steps), tensor2 = train(2, 1, steps),
                            data2 = train(1, 2, steps);
  double worst = 0;
  for (std::size_t i = 0; i < one.size(); ++i) {
    worst = std::max({worst, std::abs(tensor2[i] / one[i] - 1), std::abs(data2[i] / one[i] - 1)});
  }
  std::cout << "first loss " << one.front() << ", last " << one.back()
            << "; two ranks differ by at most " << worst << "\n";
  return worst < 1e-4 && one.back() < one.front() ? 0 : 1;
} catch (const std::exception& error) {
  std::cerr << "error: " << error.what() << "\n";
  return 1;
}
