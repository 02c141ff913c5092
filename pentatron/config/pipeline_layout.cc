// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/pipeline_layout.h"

#include <algorithm>
#include <charconv>
#include <string>

#include "pentatron/base/error.h"
#include "pentatron/base/format.h"
#include "pentatron/config/convert.h"

namespace pentatron::config {
namespace {

constexpr std::string_view kLayout = "--pipeline-model-parallel-layout";
// Far beyond any model; keeps "((t*9999)*9999)*9999" from filling the memory.
constexpr std::size_t kMaxSymbols = 1 << 20;

// Writes the text out: no brackets, no repetitions.
class LayoutExpander final {
 public:
  explicit LayoutExpander(std::string_view text) : text_(text) {}

  std::string expand() {
    std::string all = sequence(0);
    if (at_ < text_.size()) fail("a ')' without its '('");
    return all;
  }

 private:
  std::string sequence(int depth) {
    std::string all;
    while (at_ < text_.size() && text_[at_] != ')') {
      const char symbol = text_[at_++];
      if (symbol == ',' || symbol == ' ') continue;
      std::string part;
      if (symbol == '(') {
        if (depth >= kMaxDepth) fail("brackets nested too deep");
        part = sequence(depth + 1);
        if (at_ >= text_.size()) fail("a '(' without its ')'");
        ++at_;
      } else if (std::string_view("EtmL|").find(symbol) != std::string_view::npos) {
        part = symbol;
      } else {
        fail(fmt::format("'{}' stands for nothing: expected E, t, m, L, |, brackets or *number",
                         symbol));
      }
      const std::size_t times = repetitions();
      if (times > 0 && part.size() > (kMaxSymbols - all.size()) / times) fail("too long");
      for (std::size_t i = 0; i < times; ++i) all += part;
    }
    return all;
  }

  std::size_t repetitions() {
    if (at_ >= text_.size() || text_[at_] != '*') return 1;
    ++at_;
    std::size_t times = 0;
    const char* const end = text_.data() + text_.size();
    const auto [next, code] = std::from_chars(text_.data() + at_, end, times);
    if (code != std::errc()) fail("'*' without a number behind it");
    if (times > kMaxSymbols) fail("too long");
    at_ = static_cast<std::size_t>(next - text_.data());
    return times;
  }

  [[noreturn]] void fail(std::string_view reason) const {
    PENTATRON_THROW(kConfig, "{} {}: {} (at character {})", kLayout, quoted_for_message(text_),
                    reason, at_);
  }

  static constexpr int kMaxDepth = 32;
  std::string_view text_;
  std::size_t at_ = 0;
};

std::vector<std::string> split_stages(const std::string& symbols) {
  std::vector<std::string> stages(1);
  for (const char symbol : symbols) {
    if (symbol == '|') {
      stages.emplace_back();
    } else {
      stages.back() += symbol;
    }
  }
  return stages;
}

// Decoder layers of each stage in order -> plans that number them through.
std::vector<StagePlan> number_layers(const std::vector<std::int64_t>& counts) {
  std::vector<StagePlan> plans;
  std::int64_t next = 0;
  for (const std::int64_t count : counts) {
    StagePlan plan;
    plan.first_layer = static_cast<int>(next);
    plan.end_layer = static_cast<int>(next += count);
    plans.push_back(plan);
  }
  plans.front().embedding = true;
  plans.back().loss = true;
  return plans;
}

void check_divides(std::int64_t count, std::string_view what, std::int64_t by,
                   std::string_view option) {
  PENTATRON_CHECK(by > 0 && count % by == 0, kConfig, "{} does not divide by {} {}", what, option,
                  by);
}

bool has_ends(const ParallelConfig& p) {
  return p.decoder_first_pipeline_num_layers > 0 || p.decoder_last_pipeline_num_layers > 0;
}
bool accounts(const ParallelConfig& p) {
  return p.account_for_embedding_in_pipeline_split || p.account_for_loss_in_pipeline_split;
}

// The options of a kind that are given, with their values.
std::string ends_given(const ParallelConfig& p) {
  std::vector<std::string> given;
  if (p.decoder_first_pipeline_num_layers > 0) {
    given.push_back(
        fmt::format("--decoder-first-pipeline-num-layers {}", p.decoder_first_pipeline_num_layers));
  }
  if (p.decoder_last_pipeline_num_layers > 0) {
    given.push_back(
        fmt::format("--decoder-last-pipeline-num-layers {}", p.decoder_last_pipeline_num_layers));
  }
  return fmt::format("{}", fmt::join(given, " and "));
}
std::string accounts_given(const ParallelConfig& p) {
  std::vector<std::string> given;
  if (p.account_for_embedding_in_pipeline_split) {
    given.emplace_back("--account-for-embedding-in-pipeline-split");
  }
  if (p.account_for_loss_in_pipeline_split) {
    given.emplace_back("--account-for-loss-in-pipeline-split");
  }
  return fmt::format("{}", fmt::join(given, " and "));
}
std::vector<std::string> chunks_given(const ParallelConfig& p) {
  std::vector<std::string> given;
  if (!p.pipeline_model_parallel_layout.empty()) {
    given.push_back(
        fmt::format("{} {}", kLayout, quoted_for_message(p.pipeline_model_parallel_layout)));
  }
  if (p.num_layers_per_virtual_pipeline_stage > 0) {
    given.push_back(fmt::format("--num-layers-per-virtual-pipeline-stage {}",
                                p.num_layers_per_virtual_pipeline_stage));
  }
  if (p.num_virtual_stages_per_pipeline_rank > 0) {
    given.push_back(fmt::format("--num-virtual-stages-per-pipeline-rank {}",
                                p.num_virtual_stages_per_pipeline_rank));
  }
  return given;
}

// At most one way to say how layers are split.
void check_one_way(const ParallelConfig& p) {
  std::vector<std::string> given = chunks_given(p);
  const bool layout = !p.pipeline_model_parallel_layout.empty();
  PENTATRON_CHECK(!(layout && (has_ends(p) || accounts(p))), kConfig,
                  "{} says what each stage holds: drop {}", given.front(),
                  has_ends(p) ? ends_given(p) : accounts_given(p));
  PENTATRON_CHECK(!(has_ends(p) && accounts(p)), kConfig,
                  "{} and {} exclude each other: use one of the two ways", ends_given(p),
                  accounts_given(p));
  PENTATRON_CHECK(given.size() <= 1, kConfig, "{} exclude each other: give one",
                  fmt::join(given, " and "));
  if (has_ends(p)) given.push_back(ends_given(p));
  if (accounts(p)) given.push_back(accounts_given(p));
  PENTATRON_CHECK(p.pipeline_model_parallel_size > 1 || given.empty(), kConfig,
                  "{}: options that split the pipeline need --pipeline-model-parallel-size above "
                  "1, not {}",
                  fmt::join(given, ", "), p.pipeline_model_parallel_size);
}

// Layers of each pipeline rank.
std::vector<std::int64_t> layers_of_ranks(const ModelConfig& model, const ParallelConfig& p) {
  const std::int64_t pp = p.pipeline_model_parallel_size;
  std::vector<std::int64_t> ranks(static_cast<std::size_t>(pp));
  if (!has_ends(p)) {
    const std::int64_t extra = (p.account_for_embedding_in_pipeline_split ? 1 : 0) +
                               (p.account_for_loss_in_pipeline_split ? 1 : 0);
    check_divides(model.num_layers + extra,
                  extra == 0 ? fmt::format("--num-layers {}", model.num_layers)
                             : fmt::format("--num-layers {} with {} for embedding and loss",
                                           model.num_layers, extra),
                  pp, "--pipeline-model-parallel-size");
    std::fill(ranks.begin(), ranks.end(), (model.num_layers + extra) / pp);
    return ranks;
  }
  const std::int64_t first = p.decoder_first_pipeline_num_layers;
  const std::int64_t last = p.decoder_last_pipeline_num_layers;
  const std::int64_t middle = pp - (first > 0 ? 1 : 0) - (last > 0 ? 1 : 0);
  const std::int64_t rest = model.num_layers - first - last;
  PENTATRON_CHECK(rest >= 0 && (middle > 0 ? rest % middle == 0 : rest == 0), kConfig,
                  "--num-layers {} less --decoder-first-pipeline-num-layers {} and "
                  "--decoder-last-pipeline-num-layers {} leaves {} for the other {} of "
                  "--pipeline-model-parallel-size {}: not equally many each",
                  model.num_layers, first, last, rest, middle, pp);
  std::fill(ranks.begin(), ranks.end(), middle > 0 ? rest / middle : 0);
  if (first > 0) ranks.front() = first;
  if (last > 0) ranks.back() = last;
  return ranks;
}

std::vector<StagePlan> plan_layout(const ModelConfig& model, const ParallelConfig& p) {
  std::vector<StagePlan> plans = parse_pipeline_layout(p.pipeline_model_parallel_layout);
  const auto stages = static_cast<std::int64_t>(plans.size());
  check_divides(stages, fmt::format("{}: its number of stages, {},", kLayout, stages),
                p.pipeline_model_parallel_size, "--pipeline-model-parallel-size");
  PENTATRON_CHECK(plans.back().end_layer == model.num_layers, kConfig,
                  "{} has {} decoder layers (t), --num-layers is {}", kLayout,
                  plans.back().end_layer, model.num_layers);
  const bool predicts = std::any_of(plans.begin(), plans.end(),
                                    [](const StagePlan& plan) { return plan.mtp_layers > 0; });
  PENTATRON_CHECK(!predicts, kUnsupported,
                  "{} holds extra prediction layers (m), which are not built yet: take them out",
                  kLayout);
  return plans;
}

}  // namespace

std::vector<StagePlan> parse_pipeline_layout(std::string_view text) {
  const std::string symbols = LayoutExpander(text).expand();
  const std::vector<std::string> stages = split_stages(symbols);
  const auto check = [&](bool holds, std::string_view rule) {
    PENTATRON_CHECK(holds, kConfig, "{} {}: {}", kLayout, quoted_for_message(text), rule);
  };
  const auto count = [&](char symbol) {
    return std::count(symbols.begin(), symbols.end(), symbol);
  };
  check(count('E') == 1 && stages.front().starts_with('E'),
        "the first stage must begin with the one E");
  check(count('L') == 1 && stages.back().ends_with('L'), "the last stage must end with the one L");
  check(symbols.find('m') == std::string::npos || symbols.rfind('t') < symbols.find('m') ||
            count('t') == 0,
        "m must stand behind every t");
  std::vector<std::int64_t> layers;
  for (const std::string& stage : stages)
    layers.push_back(std::count(stage.begin(), stage.end(), 't'));
  std::vector<StagePlan> plans = number_layers(layers);
  for (std::size_t s = 0; s < stages.size(); ++s) {
    plans[s].mtp_layers = static_cast<int>(std::count(stages[s].begin(), stages[s].end(), 'm'));
    check(plans[s].mtp_layers == 0 || plans[s].mtp_layers == count('m'),
          "all m belong into one stage");
  }
  return plans;
}

std::vector<double> schedule_costs(const ParallelConfig& parallel) {
  std::vector<double> costs;
  for (const std::string& word : parallel.pipeline_schedule_costs) {
    costs.push_back(parse_number(word).value_or(-1));
  }
  PENTATRON_CHECK(
      costs.empty() ||
          (costs.size() == 4 && costs[0] > 0 && costs[1] > 0 && costs[2] > 0 && costs[3] >= 0),
      kConfig,
      "--pipeline-schedule-costs {}: expected four numbers, the times of forward, backward for "
      "input and weight gradients, above 0, and of sending, at least 0",
      fmt::join(parallel.pipeline_schedule_costs, " "));
  return costs;
}

std::int64_t num_pipeline_chunks(const ModelConfig& model, const ParallelConfig& parallel) {
  check_one_way(parallel);
  const std::int64_t pp = parallel.pipeline_model_parallel_size;
  if (!parallel.pipeline_model_parallel_layout.empty()) {
    return static_cast<std::int64_t>(plan_layout(model, parallel).size()) / pp;
  }
  if (parallel.num_virtual_stages_per_pipeline_rank > 0) {
    return parallel.num_virtual_stages_per_pipeline_rank;
  }
  const std::int64_t per_stage = parallel.num_layers_per_virtual_pipeline_stage;
  if (per_stage == 0) return 1;
  PENTATRON_CHECK(!has_ends(parallel), kConfig,
                  "--num-layers-per-virtual-pipeline-stage needs equal stages: with "
                  "--decoder-first-pipeline-num-layers or --decoder-last-pipeline-num-layers use "
                  "--num-virtual-stages-per-pipeline-rank");
  const std::int64_t layers = layers_of_ranks(model, parallel).front();
  check_divides(layers, fmt::format("{} layers a pipeline rank", layers), per_stage,
                "--num-layers-per-virtual-pipeline-stage");
  return layers / per_stage;
}

std::vector<StagePlan> plan_pipeline(const ModelConfig& model, const ParallelConfig& parallel) {
  const std::int64_t chunks = num_pipeline_chunks(model, parallel);
  if (!parallel.pipeline_model_parallel_layout.empty()) return plan_layout(model, parallel);
  const std::vector<std::int64_t> ranks = layers_of_ranks(model, parallel);
  std::vector<std::int64_t> stages;
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    for (const std::int64_t layers : ranks) {
      check_divides(layers, fmt::format("{} layers of a pipeline rank", layers), chunks,
                    "its number of virtual stages (--num-virtual-stages-per-pipeline-rank)");
      stages.push_back(layers / chunks);
    }
  }
  if (parallel.account_for_embedding_in_pipeline_split) --stages.front();
  if (parallel.account_for_loss_in_pipeline_split) --stages.back();
  PENTATRON_CHECK(stages.front() >= 0 && stages.back() >= 0, kConfig,
                  "--num-layers {} leaves a stage without layers that gives one up for embedding "
                  "or loss: drop --account-for-embedding-in-pipeline-split or "
                  "--account-for-loss-in-pipeline-split",
                  model.num_layers);
  return number_layers(stages);
}

std::vector<StagePlan> equal_stages(const ModelConfig& model, std::int64_t num_stages) {
  ParallelConfig parallel;
  parallel.pipeline_model_parallel_size = num_stages;
  return plan_pipeline(model, parallel);
}

StagePlan whole_model(const ModelConfig& model) { return equal_stages(model, 1).at(0); }

}  // namespace pentatron::config
