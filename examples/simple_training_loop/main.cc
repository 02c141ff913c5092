// SPDX-License-Identifier: Apache-2.0
// A training loop of one's own: learns the bytes of a text file. Usage: simple_training_loop FILE
// [STEPS]
#include <fstream>
#include <iostream>
#include <iterator>

#include "pentatron/comm/parallel_context.h"
#include "pentatron/config/validate.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/training/data.h"
#include "pentatron/training/engine.h"

using namespace pentatron;

// Samples of 64 bytes, one after another.
class ByteText final : public datasets::SampleSource {
 public:
  static constexpr std::int64_t kLength = 64;
  explicit ByteText(std::string text) : text_(std::move(text)) {}
  std::int64_t num_samples() const override { return (std::ssize(text_) - 1) / kLength; }
  std::int64_t length(std::int64_t) const override { return kLength; }
  std::string identity() const override { return text_; }
  datasets::Sample sample(std::int64_t i) const override {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(text_.data()) + kLength * i;
    return datasets::make_gpt_sample({bytes, bytes + kLength + 1}, /*eod=*/-1, {});
  }

 private:
  std::string text_;
};

int main(int argc, char** argv) try {
  if (argc < 2) throw std::runtime_error("usage: simple_training_loop FILE [STEPS]");
  std::ifstream file(argv[1]);
  const ByteText text(std::string(std::istreambuf_iterator<char>(file), {}));
  const int steps = argc > 2 ? std::stoi(argv[2]) : 50;
  constexpr std::int64_t kBatch = 8;
  if (text.num_samples() < kBatch) throw std::runtime_error("the file is missing or too short");

  config::RunConfig config;
  config.model = {.num_layers = 2, .hidden_size = 64, .num_attention_heads = 4};
  config.model.seq_length = config.model.max_position_embeddings = ByteText::kLength;
  config.training.micro_batch_size = config.training.global_batch_size = kBatch;
  config::resolve(config, config::Purpose::kModel);
  config::resolve_vocab(config, /*tokenizer_vocab_size=*/256);

  tensor::set_up_process(/*deterministic=*/true);
  tensor::set_up_rank_thread(/*threads=*/2);
  const auto backend = comm::make_single_backend();
  comm::ParallelContext context(*backend, comm::make_grids(config.parallel));
  training::Engine engine(config, context);
  for (std::int64_t step = 0; step < steps; ++step) {
    std::vector<std::int64_t> ids;
    for (std::int64_t j = 0; j < kBatch; ++j)
      ids.push_back((step * kBatch + j) % text.num_samples());
    const Batch batch = training::to_batch(datasets::make_batch(text, ids), engine.policy());
    const auto result = engine.train_step({batch}, {.lr = 3e-3, .weight_decay = 0.1});
    std::cout << "step " << step + 1 << " loss " << result.loss << " grad norm " << result.grad_norm
              << "\n";
  }
} catch (const std::exception& error) {
  std::cerr << "error: " << error.what() << "\n";
  return 1;
}
