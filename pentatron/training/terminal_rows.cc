// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/terminal_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "pentatron/config/batch_schedule.h"
#include "pentatron/training/log_format.h"

namespace pentatron::training {
namespace {

std::string title_text(const RowTitle& title, const Terminal& terminal) {
  const std::string all = std::to_string(title.train_iters);
  return toned(fmt::format("{:>{}}/{}", title.iteration, all.size(), all), Tone::kBold, terminal);
}

// How a number of Megatron's line is shown here. Those of the highest rank give way first.
struct Form {
  std::string_view name;
  std::string_view label;
  int rank;
};
constexpr std::array kForms{
    Form{"lm loss", "loss", 0},
    Form{"learning rate", "lr", 4},
    Form{"grad norm", "norm", 3},
    Form{"loss scale", "scale", 6},
    Form{"global batch size", "batch", 7},
    Form{"params norm", "params norm", 5},
    Form{"num zeros", "zeros", 6},
    Form{"max attention logit", "max logit", 6},
    Form{"throughput per GPU (TFLOP/s/GPU)", "TFLOP/s/GPU", 3},
    Form{"energy per GPU (J/iter/GPU)", "J/iter/GPU", 5},
    Form{"power per GPU (W/GPU)", "W/GPU", 5},
    Form{"number of skipped iterations", "skipped", 1},
    Form{"number of nan iterations", "nan", 1},
};

bool shown(const nn::StepScalar& scalar) {
  if (!std::isfinite(scalar.value)) return false;
  if (scalar.name == "loss scale") return scalar.value != 1;
  if (scalar.name.starts_with("number of ")) return scalar.value > 0;
  return true;
}

std::string value_text(const nn::StepScalar& scalar) {
  if (scalar.kind == nn::ScalarKind::kLoss) return fmt::format("{:.4f}", scalar.value);
  if (scalar.name == "learning rate") return fmt::format("{:.2e}", scalar.value);
  if (scalar.name.ends_with("norm")) return fmt::format("{:.3f}", scalar.value);
  return short_number(scalar.value);
}

std::vector<LinePiece> scalar_pieces(const nn::StepScalars& scalars) {
  std::vector<LinePiece> pieces;
  for (const Form& form : kForms) {
    const auto value = scalars.find(form.name);
    if (!value) continue;
    const auto kind = form.name == "lm loss" ? nn::ScalarKind::kLoss : nn::ScalarKind::kResult;
    const nn::StepScalar scalar{.name = std::string(form.name), .value = *value, .kind = kind};
    if (!shown(scalar)) continue;
    pieces.push_back({fmt::format("{} {}", form.label, value_text(scalar)), form.rank});
  }
  // Other losses by their own names, behind all that is known.
  for (const nn::StepScalar& scalar : scalars) {
    if (scalar.kind != nn::ScalarKind::kLoss || scalar.name == "lm loss") continue;
    constexpr int kLast = 8;
    if (shown(scalar)) {
      pieces.push_back({fmt::format("{} {}", scalar.name, value_text(scalar)), kLast});
    }
  }
  return pieces;
}

std::string on_off(bool on, std::string_view text) { return on ? fmt::format(", {}", text) : ""; }

}  // namespace

std::string start_lines(const config::RunConfig& config, std::string_view place,
                        const Terminal& terminal) {
  const config::ModelConfig& m = config.model;
  const config::ParallelConfig& p = config.parallel;
  const config::TrainingConfig& t = config.training;
  std::string layout;
  if (p.world_size > 1) {
    layout = fmt::format("{} ranks", p.world_size);
    const auto axis = [&layout](std::string_view name, std::int64_t size) {
      if (size > 1) layout += fmt::format(", {} {}", name, size);
    };
    axis("data", p.data_parallel_size);
    axis("context", p.context_parallel_size);
    axis("tensor", p.tensor_model_parallel_size);
    axis("pipeline", p.pipeline_model_parallel_size);
    layout += ", ";
  }
  const config::BatchSchedule batches = config::batch_schedule(config);
  const std::int64_t batch = batches.sizes().back();
  const std::int64_t iterations =
      t.train_samples > 0 ? batches.iterations_for(t.train_samples) : t.train_iters;
  const std::string model = fmt::format(
      "model  {} layers, hidden {}, {} heads, sequences of {}{}", m.num_layers, m.hidden_size,
      m.num_attention_heads, m.seq_length, on_off(!m.model_preset.empty(), m.model_preset));
  const std::string run =
      fmt::format("run    {} iterations of {} samples, {} tokens each", iterations, batch,
                  short_number(static_cast<double>(batch) * static_cast<double>(m.seq_length)));
  const std::string where = fmt::format("on     {}{} on {}", layout, t.precision, place);
  std::string text = toned("pentatron", Tone::kBold, terminal);
  for (const std::string& line : {model, run, where}) {
    text += "\n" + cut_to_width(line, terminal.columns);
  }
  return text;
}

std::string iteration_row(const RowTitle& title, const nn::StepScalars& scalars,
                          double tokens_per_second, const Terminal& terminal) {
  std::vector<LinePiece> pieces{{title_text(title, terminal), 0}};
  for (LinePiece& piece : scalar_pieces(scalars)) pieces.push_back(std::move(piece));
  // Behind loss, rate and norm, before what is rarer.
  const auto behind = std::find_if(pieces.begin() + 1, pieces.end(), [](const LinePiece& piece) {
    return !piece.text.starts_with("loss ") && !piece.text.starts_with("lr ") &&
           !piece.text.starts_with("norm ");
  });
  std::vector<LinePiece> speed{{fmt::format("{:>5} tok/s", short_number(tokens_per_second)), 1}};
  if (const auto ms = scalars.find("elapsed time per iteration (ms)")) {
    speed.push_back({fmt::format("{:>6}", short_duration(*ms / 1e3)), 2});
  }
  pieces.insert(behind, speed.begin(), speed.end());
  return fit_pieces(pieces, terminal.columns);
}

std::string evaluation_row(const RowTitle& title, std::string_view what, double loss,
                           std::string_view remark, const Terminal& terminal) {
  return fit_pieces({{title_text(title, terminal), 0},
                     {toned(what, Tone::kCyan, terminal), 0},
                     {fmt::format("loss {:.4f}", loss), 0},
                     {fmt::format("ppl {}", short_number(perplexity(loss))), 2},
                     {toned(remark, Tone::kDim, terminal), 1}},
                    terminal.columns);
}

std::string event_row(const RowTitle& title, std::string_view text, Tone tone,
                      const Terminal& terminal) {
  return fit_pieces({{title_text(title, terminal), 1}, {toned(text, tone, terminal), 0}},
                    terminal.columns);
}

namespace {

// The bar takes what is left of the line, and gives way after the percentage.
std::string training_line(const LiveState& state, const Terminal& terminal, int tick) {
  constexpr int kLeastBar = 6;
  constexpr int kMaxBar = 60;
  constexpr double kLongStep = 5.0;  // seconds
  const int columns = terminal.columns - 1;
  const auto all = static_cast<double>(std::max<std::int64_t>(1, state.at.train_iters));
  const double share = static_cast<double>(state.at.iteration) / all;
  const auto line = [&](int bar) {
    std::vector<LinePiece> pieces{
        {spinner(tick, terminal), 5},
        {fmt::format("{:3.0f} %", 100 * share), 6},
        {progress_bar(share, bar, terminal), 4},
        {fmt::format("{}/{}", state.at.iteration, state.at.train_iters), 0}};
    if (std::isfinite(state.loss)) pieces.push_back({fmt::format("loss {:.4f}", state.loss), 1});
    if (state.tokens_per_second > 0) {
      pieces.push_back({fmt::format("{} tok/s", short_number(state.tokens_per_second)), 3});
    }
    if (state.seconds_left >= 0) {
      // Half a second more or less is nothing that an estimate knows.
      pieces.push_back({fmt::format("{} left", short_duration(std::ceil(state.seconds_left))), 2});
    }
    if (state.seconds_since_step >= kLongStep) {
      pieces.push_back({fmt::format("step {}", short_duration(state.seconds_since_step)), 7});
    }
    return fit_pieces(pieces, columns);
  };
  const int room = columns - display_width(line(kLeastBar));
  return line(std::min(kLeastBar + std::max(0, room), kMaxBar));
}

}  // namespace

std::string live_line(const LiveState& state, const Terminal& terminal, int tick) {
  const int columns = terminal.columns - 1;
  if (!state.phase.empty()) {
    std::vector<LinePiece> pieces{
        {fmt::format("{} {}", spinner(tick, terminal), state.phase), 0},
        {toned(short_duration(state.phase_seconds), Tone::kDim, terminal), 1}};
    if (state.phase_share >= 0) {
      const int width = std::clamp(columns / 4, 6, 40);
      const LinePiece bar{progress_bar(state.phase_share, width, terminal), 2};
      pieces.insert(pieces.begin() + 1, bar);
    }
    return fit_pieces(pieces, columns);
  }
  return training_line(state, terminal, tick);
}

std::string summary_line(const RunSummary& summary, const Terminal& terminal) {
  const std::string done =
      fmt::format("done: {} iterations in {}", summary.iterations, short_duration(summary.seconds));
  return fit_pieces(
      {{toned(done, Tone::kGreen, terminal), 0},
       {fmt::format("{} tokens", short_number(summary.tokens)), 2},
       {fmt::format("{} tok/s", short_number(summary.tokens / std::max(1e-9, summary.seconds))), 3},
       {summary.checkpoint.empty() ? "" : fmt::format("saved in {}", summary.checkpoint), 1}},
      terminal.columns);
}

}  // namespace pentatron::training
