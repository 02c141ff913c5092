// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "apps/command.h"
#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/base/json.h"
#include "pentatron/base/log.h"
#include "pentatron/pipeline_parallel/compare_schedules.h"
#include "pentatron/pipeline_parallel/schedule_picture.h"

namespace pentatron::apps {
namespace {

namespace pp = pipeline_parallel;

constexpr std::int64_t kMaxSize = 1024;       // ranks, stages a rank
constexpr std::int64_t kMaxNumber = 1 << 20;  // of anything else
constexpr std::int64_t kMaxWork = 1 << 16;    // micro-batches x stages: planned in seconds

std::vector<Flags::Spec> options() {
  return {
      {"--pipeline-model-parallel-size", "P", "pipeline ranks", "", true},
      {"--num-micro-batches", "M",
       "micro-batches a step: global batch / (micro-batch x data ranks)", "", true},
      {"--pipeline-schedule", "NAME", "the one to draw: 1f1b, gpipe, zb-h1 or zb-auto", "1f1b"},
      {"--pipeline-schedule-costs", "F B W P2P",
       "times of a rank's forward, backward for input, weight gradients, and of sending", "1 1 1 0",
       false, true},
      {"--pipeline-schedule-max-in-flight", "N", "zb-auto: activations a rank keeps, 0: P", "0"},
      {"--num-virtual-stages-per-pipeline-rank", "V", "stages a rank: interleaved 1F1B", "0"},
      {"--microbatch-group-size-per-virtual-pipeline-stage", "G", "0: P", "0"},
      {"--num-layers", "N", "layers of the model; 0: equal stages", "0"},
      {"--decoder-first-pipeline-num-layers", "N", "layers of the first rank; 0: as the others",
       "0"},
      {"--decoder-last-pipeline-num-layers", "N", "layers of the last rank; 0: as the others", "0"},
      {"--account-for-embedding-in-pipeline-split", "", "the embedding counts as a layer"},
      {"--account-for-loss-in-pipeline-split", "", "the loss counts as a layer"},
      {"--pipeline-model-parallel-layout", "TEXT", "what each stage holds, e.g. Et*3|(tt|)*2tL",
       ""},
      {"--width", "N", "columns of the picture; 0: the terminal's, else 120", "0"},
      {"--json", "FILE", "write the schedule and the comparison", ""},
      {"--svg", "FILE", "write the picture", ""}};
}

constexpr std::string_view kDescription =
    "Plays pipeline schedules without a model: a picture of one, its bubble and the activations "
    "that each rank keeps,\nand a table of all. Example:\n\n  pentatron plan_schedule "
    "--pipeline-model-parallel-size 4 --num-micro-batches 8 \\\n      --pipeline-schedule zb-h1 "
    "--pipeline-schedule-costs 1 1.1 0.9 0.05 --svg zb.svg";

std::int64_t integer(const Flags& flags, const char* name, std::int64_t least, std::int64_t most) {
  const std::int64_t value = flags.integer(name, least);
  PENTATRON_CHECK(value <= most, kConfig, "{} {}: expected at most {}", name, value, most);
  return value;
}

config::ParallelConfig parallel_of(const Flags& flags) {
  const auto number = [&flags](const char* name) { return integer(flags, name, 0, kMaxNumber); };
  config::ParallelConfig parallel;
  parallel.pipeline_model_parallel_size =
      integer(flags, "--pipeline-model-parallel-size", 1, kMaxSize);
  parallel.pipeline_schedule = flags.text("--pipeline-schedule");
  parallel.pipeline_schedule_max_in_flight = number("--pipeline-schedule-max-in-flight");
  if (flags.has("--pipeline-schedule-costs")) {
    parallel.pipeline_schedule_costs = flags.texts("--pipeline-schedule-costs");
  }
  parallel.num_virtual_stages_per_pipeline_rank =
      integer(flags, "--num-virtual-stages-per-pipeline-rank", 0, kMaxSize);
  parallel.microbatch_group_size_per_vp_stage =
      number("--microbatch-group-size-per-virtual-pipeline-stage");
  parallel.decoder_first_pipeline_num_layers = number("--decoder-first-pipeline-num-layers");
  parallel.decoder_last_pipeline_num_layers = number("--decoder-last-pipeline-num-layers");
  parallel.account_for_embedding_in_pipeline_split =
      flags.has("--account-for-embedding-in-pipeline-split");
  parallel.account_for_loss_in_pipeline_split = flags.has("--account-for-loss-in-pipeline-split");
  parallel.pipeline_model_parallel_layout = flags.text("--pipeline-model-parallel-layout");
  return parallel;
}

pp::ScheduleCase case_of(const Flags& flags) {
  const pp::ScheduleCase asked =
      pp::schedule_case(parallel_of(flags), integer(flags, "--num-layers", 0, kMaxNumber),
                        integer(flags, "--num-micro-batches", 1, kMaxNumber));
  const pp::ScheduleShape& shape = asked.shape;
  PENTATRON_CHECK(shape.group_size == 0 || shape.num_chunks > 1, kConfig,
                  "--microbatch-group-size-per-virtual-pipeline-stage {} has no effect with one "
                  "stage a rank: drop it, or give --num-virtual-stages-per-pipeline-rank",
                  shape.group_size);
  const std::int64_t stages = std::int64_t{shape.num_ranks} * shape.num_chunks;
  PENTATRON_CHECK(stages * shape.num_micro_batches <= kMaxWork, kConfig,
                  "--num-micro-batches {} on {} stages is too much to draw: expected at most {}",
                  shape.num_micro_batches, stages, kMaxWork / stages);
  return asked;
}

int columns(const Flags& flags) {
  constexpr std::int64_t kMaxColumns = 10'000;
  constexpr int kDefault = 120;
  const std::int64_t asked = integer(flags, "--width", 0, kMaxColumns);
  if (asked > 0) return static_cast<int>(asked);
  winsize size{};
  const bool known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : kDefault;
}

bool in_colour() {
  const char* no_colour = std::getenv("NO_COLOR");  // https://no-color.org
  return ::isatty(STDOUT_FILENO) == 1 && (no_colour == nullptr || *no_colour == '\0');
}

void write_file(const std::string& path, std::string_view text) {
  write_file_atomically(path, text);
  log::print_line(fmt::format("wrote {}", path));
}

}  // namespace

int plan_schedule(const Words& words) {
  const Flags flags("plan_schedule", std::string(kDescription), {}, options(), words);
  if (flags.help()) return 0;
  const pp::ScheduleCase asked = case_of(flags);
  const pp::PlayedSchedule schedule = pp::play(asked.choice, asked.shape);
  PENTATRON_CHECK(schedule.refused.empty(), kConfig, "--pipeline-schedule {}: {}",
                  asked.choice.name, schedule.refused);
  PENTATRON_CHECK(schedule.sound(), kInternal, "{}", schedule.result.problem);
  const std::vector<pp::PlayedSchedule> all = pp::play_all(asked.choice, asked.shape);
  log::print_line(fmt::format("{}\n{}\n{}\n{}\n\n{}", pp::headline(schedule),
                              pp::terminal_picture(schedule, {columns(flags), in_colour()}),
                              pp::rank_table(schedule), pp::verdict(schedule),
                              pp::comparison_table(all)));
  if (flags.has("--svg")) write_file(flags.text("--svg"), pp::svg_picture(schedule));
  if (flags.has("--json")) {
    nlohmann::json json = pp::to_json(schedule);
    for (const pp::PlayedSchedule& other : all) json["comparison"].push_back(pp::summary(other));
    write_file(flags.text("--json"), dump_json(json, 1) + "\n");
  }
  return 0;
}

}  // namespace pentatron::apps
