// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/print.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <csignal>
#include <map>

#include "pentatron/base/error.h"
#include "pentatron/base/format.h"
#include "pentatron/config/batch_schedule.h"
#include "pentatron/config/option_index.h"

namespace pentatron::config {
namespace {

std::string dump_line(std::string_view name, std::string_view value) {
  constexpr std::size_t kColumn = 48;
  const std::string dots(name.size() < kColumn ? kColumn - name.size() : 0, '.');
  return fmt::format("  {} {} {}", name, dots, value);
}

std::string lower(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

std::string dump_value(const OptionSpec& spec, const RunConfig& config) {
  const OptionValue value = current_value(spec, config);
  if (spec.kind != OptionKind::kSignal) return python_text(value, false);
  // Megatron stores the number.
  const std::string& name = std::get<std::string>(value);
  for (const auto& [number, signal] :
       {std::pair{SIGTERM, "SIGTERM"}, std::pair{SIGINT, "SIGINT"}, std::pair{SIGHUP, "SIGHUP"},
        std::pair{SIGQUIT, "SIGQUIT"}, std::pair{SIGUSR1, "SIGUSR1"},
        std::pair{SIGUSR2, "SIGUSR2"}}) {
    if (name == signal) return std::to_string(number);
  }
  return name;
}

// "--name X" as a user writes it.
std::string usage(const OptionSpec& spec) {
  std::string text(spec.names);
  for (std::size_t at = text.find(' '); at != std::string::npos; at = text.find(' ', at + 2)) {
    text.replace(at, 1, ", ");
  }
  if (is_switch(spec.kind) || spec.dest == "help") return text;
  const std::string_view works = spec.supported.empty() ? spec.choices : spec.supported;
  std::string value = works.empty() ? (spec.kind == OptionKind::kInt     ? "N"
                                       : spec.kind == OptionKind::kFloat ? "X"
                                                                         : "TEXT")
                                    : fmt::format("{{{}}}", works);
  if (spec.nargs != 0) value += " ...";
  return text + " " + value;
}

std::string short_help(const OptionSpec& spec) {
  std::string text = fmt::format("  {}\n      ", usage(spec));
  if (spec.option_class == OptionClass::kWorks) {
    text += spec.help;
    if (!is_switch(spec.kind) && spec.default_repr != "None") {
      text += fmt::format(" (default {})", spec.default_repr);
    }
  } else {
    text += fmt::format("{}: {}", to_string(spec.option_class), spec.reason);
  }
  return text + "\n";
}

std::string option_help(const OptionSpec& spec) {
  std::string text = short_help(spec);
  text += fmt::format("      class: {}; topic: {}; destination: {}; default: {}\n",
                      to_string(spec.option_class), to_string(spec.topic), spec.dest,
                      spec.default_repr);
  if (!spec.choices.empty()) text += fmt::format("      Megatron's choices: {}\n", spec.choices);
  if (!spec.default_note.empty()) text += fmt::format("      note: {}\n", spec.default_note);
  return text;
}

std::string topic_help(const std::vector<const OptionSpec*>& rows, std::string_view topic) {
  std::string text;
  int num_refused = 0;
  for (const OptionSpec* spec : rows) {
    if (topic != "all" && to_string(spec->topic) != topic) continue;
    if (is_accepted(spec->option_class) || topic == "all") {
      text += short_help(*spec);
    } else {
      ++num_refused;
    }
  }
  if (num_refused > 0) {
    text +=
        fmt::format("  and {} known options that are refused; --help NAME says why\n", num_refused);
  }
  return text;
}

std::string topic_list(const std::vector<const OptionSpec*>& rows) {
  std::string text =
      "usage: pentatron pretrain_gpt [options]\n\n"
      "A run needs:\n"
      "  the model     --num-layers, --hidden-size, --num-attention-heads, --seq-length,\n"
      "                --max-position-embeddings; or --model-preset NAME --seq-length N\n"
      "  the data      --data-path PREFIX (of preprocess_data), or --mock-data\n"
      "  its tokens    --vocab-file and --merge-file, --tokenizer-model, or --tokenizer-type\n"
      "                NullTokenizer --vocab-size N\n"
      "  the training  --micro-batch-size, --train-iters or --train-samples, --lr\n"
      "and keeps what it learns with --save FOLDER --save-interval N. An example:\n\n"
      "  pentatron pretrain_gpt --num-layers 2 --hidden-size 64 --num-attention-heads 4 \\\n"
      "      --seq-length 64 --max-position-embeddings 64 --mock-data \\\n"
      "      --tokenizer-type NullTokenizer --vocab-size 127 \\\n"
      "      --micro-batch-size 4 --train-iters 20 --lr 1e-3\n\n"
      "--check-options tells what a run would be, without starting it.\n\n"
      "Options by topic: --help TOPIC, --help OPTION or --help all\n";
  for (const std::string_view topic : help_topics()) {
    if (topic == "all") continue;
    int num_works = 0;
    int num_known = 0;
    for (const OptionSpec* spec : rows) {
      if (to_string(spec->topic) != topic) continue;
      ++num_known;
      if (spec->option_class == OptionClass::kWorks) ++num_works;
    }
    text += fmt::format("  {:<12}{:>4} work of {:>4} known\n", topic, num_works, num_known);
  }
  return text;
}

std::string note_line(std::string_view title, const std::vector<OptionNote>& notes) {
  if (notes.empty()) return {};
  std::string text(title);
  for (const OptionNote& note : notes) {
    text += fmt::format("{} {} ({})", &note == notes.data() ? "" : ",", note.spelled, note.reason);
  }
  return text;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> argument_list(const RunConfig& config) {
  std::vector<std::pair<std::string, std::string>> arguments;
  for (const OptionSpec* spec : all_options()) {
    if (spec->field.get == nullptr) continue;
    arguments.emplace_back(spec->dest, dump_value(*spec, config));
  }
  arguments.emplace_back("data_parallel_size", std::to_string(config.parallel.data_parallel_size));
  std::sort(arguments.begin(), arguments.end(),
            [](const auto& a, const auto& b) { return lower(a.first) < lower(b.first); });
  return arguments;
}

std::string argument_dump(const RunConfig& config) {
  std::string text = "------------------------ arguments ------------------------\n";
  for (const auto& [name, value] : argument_list(config)) text += dump_line(name, value) + "\n";
  return text + "-------------------- end of arguments ---------------------";
}

std::string always_so_line(const ParsedOptions& parsed) {
  return note_line("always so here:", parsed.always_so);
}

std::string no_effect_line(const ParsedOptions& parsed) {
  return note_line("no effect here:", parsed.no_effect);
}

std::string layers_line(const ParsedOptions& parsed) {
  std::map<std::pair<Origin, std::string>, std::string> lines;
  const OptionIndex index;
  for (const auto& [dest, origin] : parsed.origins) {
    if (origin.origin != Origin::kPreset && origin.origin != Origin::kCheckpoint) continue;
    const OptionSpec* spec = index.find_dest(dest);
    if (spec == nullptr || spec->field.get == nullptr) continue;
    std::string& line = lines[{origin.origin, origin.where}];
    line += fmt::format("{}{} {}", line.empty() ? "" : ", ", dest,
                        python_text(spec->field.get(parsed.config), false));
  }
  std::string text;
  for (const auto& [origin, line] : lines) {
    const auto& [kind, where] = origin;
    const bool pretrained = where == parsed.config.checkpoint.pretrained_checkpoint;
    text += fmt::format("{}{} {} gives: {}", text.empty() ? "" : "\n",
                        kind == Origin::kPreset ? "--model-preset"
                        : pretrained            ? "--pretrained-checkpoint"
                                                : "--load",
                        where, line);
  }
  return text;
}

std::string lowered_batches_line(const RunConfig& config) {
  if (!config.training.decrease_batch_size_if_needed) return "";
  const std::vector<std::int64_t> asked = asked_batch_schedule(config).sizes();
  const std::vector<std::int64_t> running = batch_schedule(config).sizes();
  if (asked == running) return "";
  return fmt::format(
      "batches are lowered from {} to {} samples, multiples of --micro-batch-size {} x "
      "data-parallel size {} (--decrease-batch-size-if-needed)",
      fmt::join(asked, ", "), fmt::join(running, ", "), config.training.micro_batch_size,
      config.parallel.data_parallel_size);
}

std::string layout_line(const RunConfig& config) {
  const ParallelConfig& parallel = config.parallel;
  const std::int64_t batch = running_batch_size(config);
  return fmt::format(
      "world size {} = data {} x context {} x tensor {} x pipeline {}; global batch {} = micro "
      "batch {} x data {} x {} accumulation steps",
      parallel.world_size, parallel.data_parallel_size, parallel.context_parallel_size,
      parallel.tensor_model_parallel_size, parallel.pipeline_model_parallel_size, batch,
      config.training.micro_batch_size, parallel.data_parallel_size,
      batch / std::max<std::int64_t>(
                  1, config.training.micro_batch_size * parallel.data_parallel_size));
}

std::vector<std::string_view> help_topics() {
  std::vector<std::string_view> topics;
  for (int i = 0; i < kNumTopics; ++i) topics.push_back(to_string(static_cast<Topic>(i)));
  topics.push_back("all");
  return topics;
}

std::string help_text(std::string_view topic) {
  const OptionIndex index;
  const auto trimmed = [](std::string text) {
    if (text.ends_with('\n')) text.pop_back();
    return text;
  };
  if (topic.empty()) return trimmed(topic_list(index.rows()));
  const std::vector<std::string_view> topics = help_topics();
  if (std::find(topics.begin(), topics.end(), topic) != topics.end()) {
    return trimmed(topic_help(index.rows(), topic));
  }
  std::string dashed(topic);
  if (!dashed.starts_with("--")) {
    std::replace(dashed.begin(), dashed.end(), '_', '-');
    dashed = "--" + dashed;
  }
  const OptionSpec* spec = index.find_name(dashed);
  if (spec == nullptr) spec = index.find_dest(topic);
  if (spec != nullptr) return trimmed(option_help(*spec));
  std::string near;
  for (const std::string_view name : index.nearest(dashed)) near += fmt::format(" {}", name);
  PENTATRON_THROW(kConfig, "--help {}: no such topic or option{}{}; topics: {}",
                  quoted_for_message(topic), near.empty() ? "" : "; near names:", near,
                  fmt::join(topics, ", "));
}

}  // namespace pentatron::config
