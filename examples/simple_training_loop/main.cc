// SPDX-License-Identifier: Apache-2.0
// A training loop of one's own: learns the bytes of a text file, and goes on where it stopped.
// Usage: simple_training_loop FILE [STEPS [CHECKPOINTS]]; under `pentatron launch`, torchrun, srun
// or mpirun the ranks share each batch.
#include <fstream>
#include <iostream>
#include <iterator>

#include "pentatron/pentatron.h"

using namespace pentatron;

// Samples of 64 bytes, one after another, over and over.
class ByteText final : public datasets::SampleSource {
 public:
  static constexpr std::int64_t kLength = 64;
  explicit ByteText(std::string text) : text_(std::move(text)) {
    if (places() < 1) throw std::runtime_error("the file is missing or too short");
  }
  std::int64_t num_samples() const override { return 1 << 30; }
  std::int64_t length(std::int64_t) const override { return kLength; }
  std::string identity() const override { return text_; }
  datasets::Sample sample(std::int64_t i) const override {
    const auto* bytes =
        reinterpret_cast<const std::uint8_t*>(text_.data()) + kLength * (i % places());
    return datasets::make_gpt_sample({bytes, bytes + kLength + 1}, /*eod=*/-1, {});
  }

 private:
  std::int64_t places() const { return (std::ssize(text_) - 1) / kLength; }
  std::string text_;
};

int main(int argc, char** argv) try {
  if (argc < 2) throw std::runtime_error("usage: simple_training_loop FILE [STEPS [CHECKPOINTS]]");
  std::ifstream file(argv[1]);
  const ByteText text(std::string(std::istreambuf_iterator<char>(file), {}));

  config::RunConfig config;
  config.model = {.num_layers = 2, .hidden_size = 64, .num_attention_heads = 4};
  config.model.seq_length = config.model.max_position_embeddings = ByteText::kLength;
  config.training.micro_batch_size = 2;
  config.training.global_batch_size = 8;
  config.training.train_iters = argc > 2 ? std::stoi(argv[2]) : 50;
  config.optimizer.lr = 3e-3;
  config.optimizer.lr_decay_style = "constant";
  config.optimizer.override_opt_param_scheduler = true;  // STEPS may grow from call to call
  if (argc > 3) config.checkpoint.save = config.checkpoint.load = argv[3];

  training::on_ranks(config, [&](comm::Backend& backend, Device device) {
    training::Session session(config, backend, {.train = &text, .vocab_size = 256}, device);
    while (!session.done()) {
      const training::StepResult result = session.step();
      if (backend.rank() == 0) {
        std::cout << "step " << session.iteration() << " loss " << result.loss << " grad norm "
                  << result.grad_norm << "\n";
      }
    }
    if (argc > 3) session.save();
    const auto written = session.generate({'T', 'h', 'e'}, {.max_new_tokens = 40});
    if (backend.rank() == 0) {
      std::cout << "The" << std::string(written.tokens.begin(), written.tokens.end()) << "\n";
    }
  });
} catch (const std::exception& error) {
  std::cerr << "error: " << error.what() << "\n";
  return 1;
}
