// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/step_reruns.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/base/json.h"
#include "pentatron/base/philox.h"

namespace pentatron::training {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kInjectionStream = 0x1e57'e44a;
constexpr const char* kFile = "rerun.json";
constexpr std::uint64_t kMaxFileBytes = 64ULL << 20;  // names of a million devices

bool same_bits(double a, double b) {
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

// Doubles as their bits: JSON has neither NaN nor infinity.
std::string bits_of(double value) {
  return fmt::format("{:016x}", std::bit_cast<std::uint64_t>(value));
}
double from_bits(const Json& json, const char* name) {
  const auto text = json.at(name).get<std::string>();
  PENTATRON_CHECK(
      text.size() == 16 && text.find_first_not_of("0123456789abcdef") == std::string::npos,
      kCheckpoint, "{}: '{}' is not the 16 hexadecimal digits of a number", kFile, name);
  return std::bit_cast<double>(std::stoull(text, nullptr, 16));
}

std::string text_of(const StepNumbers& numbers) {
  return fmt::format("loss {:.17g}, gradient norm {:.17g}", numbers.loss, numbers.grad_norm);
}

}  // namespace

bool StepNumbers::same(const StepNumbers& other) const {
  return same_bits(loss, other.loss) && same_bits(grad_norm, other.grad_norm);
}

int exit_code_of(Verdict verdict) {
  const bool more = verdict == Verdict::kReproduced || verdict == Verdict::kSameDevices;
  return more ? kExitResumeElsewhere : kExitResultRejected;
}

std::string describe(Verdict verdict, std::int64_t iteration, const StepNumbers& first,
                     const StepNumbers& second) {
  const std::string begin = fmt::format("iteration {}: ", iteration);
  const std::string both = fmt::format("({}; before: {})", text_of(second), text_of(first));
  switch (verdict) {
    case Verdict::kTransient:
      return begin + "First rerun: unexpected result is not reproducible " + both +
             ". Possible transient error!";
    case Verdict::kReproduced:
      return begin + "First rerun: unexpected result is reproducible " + both +
             ". It must be run on other devices to tell whether these are faulty";
    case Verdict::kSameDevices:
      return begin +
             "the run stands on the devices of the rejected result again: resume it "
             "on others";
    case Verdict::kPersistent:
      return begin + "Second rerun: unexpected result is not reproducible on other devices " +
             both + ". Possible persistent error!";
    case Verdict::kCorrect:
      return begin + "Second rerun: unexpected result is reproducible on other devices " + both +
             ". Correct result (but possible application error): look at data and options";
  }
  PENTATRON_THROW(kInternal, "no such verdict");
}

StepReruns::StepReruns(const config::RunConfig& config)
    : mode_(config.training.rerun_mode),
      rate_(config.training.error_injection_rate),
      type_(config.training.error_injection_type),
      seed_(config.model.seed) {}

bool StepReruns::injects(std::int64_t iteration) const {
  if (!validates() || rate_ <= 0) return false;
  const double draw =
      philox_uniform(seed_, kInjectionStream, static_cast<std::uint64_t>(iteration));
  return draw * static_cast<double>(rate_) < 1.0;
}

Verdict StepReruns::in_place(const StepNumbers& first, const StepNumbers& second,
                             bool injected) const {
  const bool same = injected ? type_ != "transient_error" : first.same(second);
  return same ? Verdict::kReproduced : Verdict::kTransient;
}

RejectedStep StepReruns::rejected(std::int64_t iteration, const StepNumbers& numbers, bool injected,
                                  std::vector<std::string> devices) const {
  return {.iteration = iteration,
          .numbers = numbers,
          .injected = injected ? type_ : "",
          .devices = std::move(devices)};
}

Verdict StepReruns::elsewhere(const RejectedStep& before, const StepNumbers& now,
                              const std::vector<std::string>& devices) {
  auto there = before.devices;
  auto here = devices;
  std::sort(there.begin(), there.end());
  std::sort(here.begin(), here.end());
  if (there == here) return Verdict::kSameDevices;
  if (before.injected == "persistent_error") return Verdict::kPersistent;
  if (before.injected == "correct_result") return Verdict::kCorrect;
  return before.numbers.same(now) ? Verdict::kCorrect : Verdict::kPersistent;
}

void write_rejected_step(const std::filesystem::path& folder, const RejectedStep& step) {
  const Json json = {{"iteration", step.iteration},
                     {"loss", bits_of(step.numbers.loss)},
                     {"grad_norm", bits_of(step.numbers.grad_norm)},
                     {"injected", step.injected},
                     {"devices", step.devices}};
  write_file_atomically(folder / kFile, dump_json(json) + "\n");
}

std::optional<RejectedStep> read_rejected_step(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / kFile;
  std::error_code code;
  if (!std::filesystem::is_regular_file(path, code)) return std::nullopt;
  try {
    const Json json = Json::parse(read_text_file(path, kMaxFileBytes));
    return RejectedStep{
        .iteration = json.at("iteration").get<std::int64_t>(),
        .numbers = {.loss = from_bits(json, "loss"), .grad_norm = from_bits(json, "grad_norm")},
        .injected = json.at("injected").get<std::string>(),
        .devices = json.at("devices").get<std::vector<std::string>>()};
  } catch (const Json::exception& error) {
    PENTATRON_THROW(kCheckpoint, "{} is no record of a rejected step: {}; remove it to go on",
                    path.string(), error.what());
  }
}

void remove_rejected_step(const std::filesystem::path& folder) {
  std::error_code code;
  std::filesystem::remove(folder / kFile, code);
  PENTATRON_CHECK(!code, kIo, "cannot remove {}: {}", (folder / kFile).string(), code.message());
}

void DeterminismStats::add(const StepNumbers& first, const StepNumbers& second) {
  ++steps_;
  if (same_bits(first.loss, second.loss)) return;
  ++different_;
  const double scale = std::max(std::abs(first.loss), std::abs(second.loss));
  const double difference = std::abs(first.loss - second.loss) / scale;
  sum_ += difference;
  largest_ = std::max(largest_, difference);
}

std::string DeterminismStats::line() const {
  return fmt::format(
      "determinism of {} steps run twice: {} with another loss, relative difference {:.3e} on "
      "average, {:.3e} at most",
      steps_, different_, steps_ > 0 ? sum_ / static_cast<double>(steps_) : 0.0, largest_);
}

}  // namespace pentatron::training
