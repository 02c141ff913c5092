// SPDX-License-Identifier: Apache-2.0
// faulty_logits_tool FOLDER: as logits_tool, of one sequence ({"sequence": [...]}) and once for
// each fault of our own code: {"none": [[...], ...], "heads": ..., "positions": ..., "mask": ...}.
// A comparison that the faulty logits pass proves nothing
// (tools/reference/hugging_face_reference.py).
//
// Three ops are defined here again, and the library's callers find these first, since a program's
// own symbols come before those of the libraries that it is linked with. The library and the
// program `pentatron` hold nothing of it.
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>

#include "pentatron/base/error.h"
#include "pentatron/base/json.h"
#include "pentatron/inference/loaded_model.h"
#include "pentatron/inference/token_scorer.h"
#include "pentatron/ops/attention.h"
#include "pentatron/ops/attention_plan.h"
#include "pentatron/ops/rotary.h"
#include "pentatron/tensor/ops.h"

namespace {

enum class Fault { kNone, kHeads, kPositions, kMask };
Fault planted = Fault::kNone;  // one thread runs the model

}  // namespace

namespace pentatron::ops {

// Of all layers: the first two heads take each other's output, queries see the keys behind them, or
// each head's scores fall with distance as the next one's should.
Tensor attention(const Tensor& q_tnd, const Tensor& k_tgd, const Tensor& v_tgd,
                 const SequenceLayout& layout, const AttentionOptions& options,
                 const Scope& /*scope*/) {
  AttentionPlan plan{.rows = layout.attention(), .options = without_graph(options)};
  if (planted == Fault::kMask) plan.options.causal = false;
  Tensor& alibi_n = plan.options.alibi_n;
  if (planted == Fault::kPositions && alibi_n.defined()) alibi_n = alibi_n.roll({-1}, {0});
  Tensor out_tnd = attention_forward(plan, q_tnd, k_tgd, v_tgd).out_tnd;
  if (planted != Fault::kHeads) return out_tnd;
  const std::int64_t heads = out_tnd.size(1);
  return tensor::cat(
      {out_tnd.narrow(1, 1, 1), out_tnd.narrow(1, 0, 1), out_tnd.narrow(1, 2, heads - 2)}, 1);
}

namespace {
// Scores depend on distances alone: the later half stands one position further on.
Tensor faulty_positions(const SequenceLayout& layout) {
  const Tensor& positions_t = layout.positions();
  if (planted != Fault::kPositions) return positions_t;
  const Tensor later = positions_t.gt(layout.max_position() / 2);
  return positions_t.add(later.to(positions_t.scalar_type()));
}
}  // namespace

Tensor rotary(const Tensor& x_tnd, const RotaryTable& table, const SequenceLayout& layout) {
  return rotary_by_axes(x_tnd, table, faulty_positions(layout).unsqueeze(1), {table.cos.size(1)});
}

Tensor rotary_by_length(const Tensor& x_tnd, const RotaryTable& table, const Tensor& lengths_t,
                        std::int64_t short_length, const SequenceLayout& layout) {
  const Tensor lower = lengths_t.gt(short_length).to(lengths_t.scalar_type());
  const Tensor rows_t = faulty_positions(layout).add(lower.mul(table.cos.size(0) / 2));
  return rotary_by_axes(x_tnd, table, rows_t.unsqueeze(1), {table.cos.size(1)});
}

}  // namespace pentatron::ops

namespace {

using namespace pentatron;

nlohmann::json faulty_logits(const std::string& folder, const std::vector<std::int32_t>& tokens) {
  inference::LoadedModel model = inference::load_model(folder, {.precision = "fp32"});
  inference::TokenScorer scorer(model.config, *model.stages, *model.context, model.policy,
                                model.device, {.logits = true});
  const auto columns = static_cast<std::ptrdiff_t>(model.config.model.vocab_size);
  nlohmann::json result;
  for (const auto& [name, fault] : {std::pair{"none", Fault::kNone},
                                    {"heads", Fault::kHeads},
                                    {"positions", Fault::kPositions},
                                    {"mask", Fault::kMask}}) {
    planted = fault;
    const std::vector<float> logits = scorer.score({&tokens, 1}).at(0).logits;
    nlohmann::json rows = nlohmann::json::array();
    for (auto row = logits.begin(); row != logits.end(); row += columns) {
      rows.push_back(std::vector<float>(row, row + columns));
    }
    result[name] = std::move(rows);
  }
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: faulty_logits_tool FOLDER\n";
    return 2;
  }
  try {
    const std::string input(std::istreambuf_iterator<char>(std::cin), {});
    const auto tokens = parse_json(input, "input").at("sequence").get<std::vector<std::int32_t>>();
    std::cout << faulty_logits(argv[1], tokens).dump() << "\n";
  } catch (const Error& error) {
    std::cerr << "error: " << error.what() << "\n";
    return exit_code(error.kind());
  }
  return 0;
}
