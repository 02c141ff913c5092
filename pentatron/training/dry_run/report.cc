// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/dry_run/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "pentatron/config/batch_schedule.h"

namespace pentatron::training::dry_run {
namespace {

// "1.50 GiB"
std::string bytes_text(std::int64_t bytes, int digits = 2) {
  constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  return unit == 0 ? fmt::format("{} B", bytes)
                   : fmt::format("{:.{}f} {}", value, digits, kUnits[unit]);
}

// "405,853,388,800"
std::string count_text(std::int64_t count) {
  std::string digits = fmt::format("{}", count);
  for (auto at = static_cast<std::int64_t>(digits.size()) - 3; at > 0; at -= 3) {
    digits.insert(static_cast<std::size_t>(at), ",");
  }
  return digits;
}

struct Kind {
  const char* text;
  const char* key;
  std::int64_t MemoryPlan::*bytes;
};
constexpr Kind kKinds[] = {
    {"weights", "weights", &MemoryPlan::weights},
    {"gradients", "gradients", &MemoryPlan::gradients},
    {"main weights", "main_weights", &MemoryPlan::main_weights},
    {"optimizer state", "optimizer_state", &MemoryPlan::optimizer_state},
    {"gathered weights of units", "gathered_weights", &MemoryPlan::gathered_weights},
    {"whole gradients of units", "unit_gradients", &MemoryPlan::unit_gradients},
    {"weights in fp8", "fp8_weights", &MemoryPlan::fp8_weights},
    {"activations in flight", "activations", &MemoryPlan::activations},
    {"logits", "logits", &MemoryPlan::logits},
    {"made again in backward", "rebuilt", &MemoryPlan::rebuilt},
    {"on the way to the host", "moving", &MemoryPlan::moving},
    {"temporaries", "temporaries", &MemoryPlan::temporaries},
};

std::string head_text(const DryRun& run) {
  const config::ParallelConfig& p = run.config.parallel;
  const config::TrainingConfig& t = run.config.training;
  const std::int64_t batch = config::running_batch_size(run.config);
  const auto samples = static_cast<double>(batch);
  const double tokens = samples * static_cast<double>(run.config.model.seq_length);
  std::string text =
      fmt::format("dry run of {} ranks: tensor {} x context {} x data {} x pipeline {}\n",
                  count_text(p.world_size), p.tensor_model_parallel_size, p.context_parallel_size,
                  p.data_parallel_size, p.pipeline_model_parallel_size);
  text += fmt::format("model   {} parameters, {} layers, {}\n", count_text(run.num_parameters),
                      run.config.model.num_layers, t.precision);
  if (run.num_frozen > 0) {
    text += fmt::format("        {} of them are trained\n",
                        count_text(run.num_parameters - run.num_frozen));
  }
  text += fmt::format("batch   {} samples of {} tokens: {} micro-batches of {} a data place\n",
                      count_text(batch), run.config.model.seq_length,
                      run.schedule.num_micro_batches, t.micro_batch_size);
  text += fmt::format("FLOPs   {:.4g} a token, {:.4g} a step, {:.4g} a step and rank\n",
                      run.step_flops / tokens, run.step_flops,
                      run.step_flops / static_cast<double>(p.world_size));
  return text;
}

std::string rank_text(const RankPlan& rank) {
  return fmt::format("rank {}{}: {}\n  {} parameters\n", rank.rank,
                     rank.place.empty() ? "" : fmt::format(" ({})", rank.place), rank.stages,
                     count_text(rank.num_parameters));
}

std::string memory_text(const DryRun& run) {
  const MemoryPlan& asked = run.asked.memory;
  const MemoryPlan& fullest = run.fullest.memory;
  const bool same = run.asked.rank == run.fullest.rank;
  std::string text = rank_text(run.asked);
  if (same) {
    text += "  no rank of its data place needs more memory\n";
  } else {
    text += "the fullest of its data place:\n" + rank_text(run.fullest);
  }
  const auto line = [&](const std::string& name, std::int64_t mine, std::int64_t most) {
    return fmt::format("  {:<27}{:>12}{}\n", name, bytes_text(mine),
                       same ? "" : fmt::format("{:>18}", bytes_text(most)));
  };
  text += fmt::format("\n{:<29}{:>12}{}\n", "memory", fmt::format("rank {}", run.asked.rank),
                      same ? "" : fmt::format("{:>18}", fmt::format("rank {}", run.fullest.rank)));
  for (const Kind& kind : kKinds) {
    if (asked.*kind.bytes == 0 && fullest.*kind.bytes == 0) continue;
    text += line(kind.text, asked.*kind.bytes, fullest.*kind.bytes);
  }
  text += line("together", asked.total(), fullest.total());
  if (asked.on_host > 0) text += line("on the host", asked.on_host, fullest.on_host);
  text +=
      "  not counted: buffers of collectives, what zero bubble postpones, rotary\n"
      "  tables, the batch, and what libraries take\n";
  return text;
}

std::string traffic_text(const DryRun& run) {
  if (run.traffic.empty()) return "\ncommunication: none\n";
  std::string text = fmt::format("\ncommunication of rank {} in a step\n", run.asked.rank);
  text += fmt::format("  {:<11} {:<21} {:<14} {:>7} {:>10} {:>10}\n", "axis", "what", "operation",
                      "calls", "tensors", "sent");
  std::int64_t sent = 0;
  for (const Traffic& t : run.traffic) {
    text +=
        fmt::format("  {:<11} {:<21} {:<14} {:>7} {:>10} {:>10}\n", t.axis, t.use,
                    to_string(t.operation), t.calls, bytes_text(t.bytes, 1), bytes_text(t.sent, 1));
    sent += t.sent;
  }
  text += fmt::format("  together{:>70}\n", bytes_text(sent, 1));
  text += "  not counted: losses, counts and norms, and all that evaluation and saving send\n";
  return text;
}

std::string schedule_text(const SchedulePlan& schedule) {
  if (schedule.num_ranks == 1) return "\npipeline: one stage rank, no bubble";
  std::string text = fmt::format(
      "\npipeline: {}, {} ranks with {} stage{} each, {} micro-batches, bubble {:.1f}%\n",
      schedule.name, schedule.num_ranks, schedule.num_chunks, schedule.num_chunks == 1 ? "" : "s",
      schedule.num_micro_batches, 100 * schedule.bubble_share);
  text += "  pp     waits   in flight   activations kept";
  for (std::size_t r = 0; r < schedule.waiting_share.size(); ++r) {
    text += fmt::format("\n  {:>2}  {:>7.1f}%  {:>10}  {:>17}", r, 100 * schedule.waiting_share[r],
                        schedule.peak_in_flight[r], schedule.peak_activations[r]);
  }
  return text;
}

nlohmann::json rank_json(const RankPlan& rank) {
  nlohmann::json memory = {{"total", rank.memory.total()}, {"on_host", rank.memory.on_host}};
  for (const Kind& kind : kKinds) memory[kind.key] = rank.memory.*kind.bytes;
  return {{"rank", rank.rank},
          {"place", rank.place},
          {"stages", rank.stages},
          {"parameters", rank.num_parameters},
          {"memory", std::move(memory)}};
}

}  // namespace

std::string short_text(const DryRun& run) {
  const MemoryPlan& memory = run.asked.memory;
  std::string text = fmt::format("parameters  {}\n", count_text(run.num_parameters));
  text +=
      fmt::format("memory      {} on rank {}, of it", bytes_text(memory.total()), run.asked.rank);
  for (const Kind& kind : kKinds) {
    if (memory.*kind.bytes > 0) {
      text += fmt::format("\n            {} {}", bytes_text(memory.*kind.bytes), kind.text);
    }
  }
  if (memory.on_host > 0) {
    text += fmt::format("\n            {} on the host beside it", bytes_text(memory.on_host));
  }
  return text;
}

std::string to_text(const DryRun& run) {
  return head_text(run) + memory_text(run) + traffic_text(run) + schedule_text(run.schedule);
}

nlohmann::json to_json(const DryRun& run) {
  const config::ParallelConfig& p = run.config.parallel;
  nlohmann::json traffic = nlohmann::json::array();
  for (const Traffic& t : run.traffic) {
    traffic.push_back({{"axis", t.axis},
                       {"use", t.use},
                       {"operation", to_string(t.operation)},
                       {"calls", t.calls},
                       {"bytes", t.bytes},
                       {"sent", t.sent}});
  }
  const SchedulePlan& s = run.schedule;
  return {{"world_size", p.world_size},
          {"axes",
           {{"tp", p.tensor_model_parallel_size},
            {"cp", p.context_parallel_size},
            {"dp", p.data_parallel_size},
            {"pp", p.pipeline_model_parallel_size}}},
          {"parameters", run.num_parameters},
          {"trained_parameters", run.num_parameters - run.num_frozen},
          {"flops_per_step", run.step_flops},
          {"rank", rank_json(run.asked)},
          {"fullest_rank", rank_json(run.fullest)},
          {"traffic", std::move(traffic)},
          {"schedule",
           {{"name", s.name},
            {"chunks", s.num_chunks},
            {"micro_batches", s.num_micro_batches},
            {"bubble_share", s.bubble_share},
            {"waiting_share", s.waiting_share},
            {"peak_in_flight", s.peak_in_flight},
            {"peak_activations", s.peak_activations}}}};
}

}  // namespace pentatron::training::dry_run
