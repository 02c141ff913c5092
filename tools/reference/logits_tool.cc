// SPDX-License-Identifier: Apache-2.0
// logits_tool FOLDER [TP PP]: loads a checkpoint or a Hugging Face folder (on TP x PP ranks, which
// are threads), reads {"sequences": [[...], ...], "generate": N} from standard input and writes
// {"logits": [[[...], ...], ...], "tokens": [[...], ...]}: the logits behind every token of each
// sequence, and the N tokens that greedy decoding adds. What tools/reference/
// hugging_face_reference.py compares with `transformers`.
#include <fmt/format.h>

#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "pentatron/base/error.h"
#include "pentatron/base/json.h"
#include "pentatron/inference/generator.h"
#include "pentatron/inference/loaded_model.h"

namespace {

using namespace pentatron;
using Sequence = std::vector<std::int32_t>;

nlohmann::json answer(const std::string& folder, const nlohmann::json& request,
                      const inference::LoadOptions& options) {
  inference::LoadedModel model = inference::load_model(folder, options);
  inference::ModelRunner runner = model.runner();
  nlohmann::json result = {{"logits", nlohmann::json::array()},
                           {"tokens", nlohmann::json::array()}};
  const auto length = request.at("generate").get<std::int64_t>();
  for (const Sequence& sequence : request.at("sequences").get<std::vector<Sequence>>()) {
    nlohmann::json rows = nlohmann::json::array();
    runner.begin(static_cast<std::int64_t>(sequence.size()), /*use_cache=*/false);
    for (std::size_t end = 1; end <= sequence.size(); ++end) {
      rows.push_back(runner.next_logits(Sequence(sequence.begin(), sequence.begin() + end)));
    }
    result["logits"].push_back(std::move(rows));
    if (length == 0) continue;
    const inference::GenerationOptions greedy{.sampling = {.temperature = 0.0},
                                              .max_new_tokens = length};
    result["tokens"].push_back(
        inference::generate(runner, model.config.model.vocab_size, sequence, greedy).tokens);
  }
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 && argc != 4) {
    std::cerr << "usage: logits_tool FOLDER [TP PP]\n";
    return 2;
  }
  try {
    const std::string input(std::istreambuf_iterator<char>(std::cin), {});
    const nlohmann::json request = parse_json(input, "input");
    inference::LoadOptions options{.precision = "fp32"};
    if (argc == 2) {
      std::cout << answer(argv[1], request, options).dump() << "\n";
      return 0;
    }
    options.tensor_model_parallel_size = std::stoll(argv[2]);
    options.pipeline_model_parallel_size = std::stoll(argv[3]);
    const std::int64_t ranks =
        options.tensor_model_parallel_size * options.pipeline_model_parallel_size;
    comm::run_threads({.world_size = ranks}, [&](comm::Backend& backend) {
      inference::LoadOptions mine = options;
      mine.backend = &backend;
      const nlohmann::json result = answer(argv[1], request, mine);
      if (backend.rank() == 0) std::cout << result.dump() << "\n";
    });
  } catch (const Error& error) {
    std::cerr << "error: " << error.what() << "\n";
    return exit_code(error.kind());
  }
  return 0;
}
