// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/option_binding.h"
#include "pentatron/config/option_conditions.h"

namespace pentatron::config {
namespace {

template <auto kField>
constexpr Binding checkpoint() {
  return bind<&RunConfig::checkpoint, kField>();
}

constexpr OptionSpec kRows[] = {
    {.names = "--save",
     .dest = "save",
     .check = not_empty,
     .topic = Topic::kCheckpoint,
     .help = "folder that checkpoints are saved to",
     .test = "functional_test Options.Save",
     .field = checkpoint<&CheckpointConfig::save>()},
    {.names = "--load",
     .dest = "load",
     .check = not_empty,
     .topic = Topic::kCheckpoint,
     .help =
         "folder to resume from; equal to --save and empty: start from scratch; with --finetune "
         "also a Hugging Face folder",
     .test = "functional_test Options.Load",
     .field = checkpoint<&CheckpointConfig::load>()},
    {.names = "--save-interval --persistent-save-interval",
     .dest = "save_interval",
     .kind = OptionKind::kInt,
     .check = at_least<1>,
     .topic = Topic::kCheckpoint,
     .help = "iterations between saves",
     .test = "functional_test Options.SaveInterval",
     .needs = kSaves,
     .field = checkpoint<&CheckpointConfig::save_interval>()},
    {.names = "--save-retain-interval",
     .dest = "save_retain_interval",
     .kind = OptionKind::kInt,
     .check = at_least<1>,
     .topic = Topic::kCheckpoint,
     .help = "keep only checkpoints of iterations that this divides, and the newest",
     .test = "functional_test Options.SaveRetainInterval",
     .needs = kSaves,
     .field = checkpoint<&CheckpointConfig::save_retain_interval>()},
    {.names = "--keep-checkpoints",
     .dest = "keep_checkpoints",
     .kind = OptionKind::kInt,
     .default_repr = "0",
     .check = at_least<0>,
     .topic = Topic::kCheckpoint,
     .help = "keep the newest so many checkpoints; 0: all",
     .test = "functional_test Options.KeepCheckpoints",
     .needs = kSaves,
     .field = checkpoint<&CheckpointConfig::keep_checkpoints>(),
     .ours = true},
    {.names = "--ckpt-step",
     .dest = "ckpt_step",
     .kind = OptionKind::kInt,
     .check = at_least<1>,
     .topic = Topic::kCheckpoint,
     .help = "load this iteration instead of the newest",
     .test = "functional_test Options.CkptStep",
     .needs = kLoads,
     .field = checkpoint<&CheckpointConfig::ckpt_step>()},
    {.names = "--finetune",
     .dest = "finetune",
     .kind = OptionKind::kSwitchOn,
     .default_repr = "False",
     .topic = Topic::kCheckpoint,
     .help = "load weights only and start at iteration 0",
     .test = "functional_test Options.Finetune",
     .needs = kLoads,
     .field = checkpoint<&CheckpointConfig::finetune>()},
    {.names = "--no-load-optim",
     .dest = "no_load_optim",
     .kind = OptionKind::kSwitchOn,
     .topic = Topic::kCheckpoint,
     .help = "do not load the optimizer's state",
     .test = "functional_test Options.NoLoadOptim",
     .needs = kLoads,
     .field = checkpoint<&CheckpointConfig::no_load_optim>()},
    {.names = "--no-save-optim",
     .dest = "no_save_optim",
     .kind = OptionKind::kSwitchOn,
     .topic = Topic::kCheckpoint,
     .help = "do not save the optimizer's state",
     .test = "functional_test Options.NoSaveOptim",
     .needs = kSaves,
     .field = checkpoint<&CheckpointConfig::no_save_optim>()},
    {.names = "--exit-on-missing-checkpoint",
     .dest = "exit_on_missing_checkpoint",
     .kind = OptionKind::kSwitchOn,
     .default_repr = "False",
     .topic = Topic::kCheckpoint,
     .help = "stop when --load holds no checkpoint yet, even if it equals --save",
     .test = "functional_test Options.ExitOnMissingCheckpoint",
     .needs = kLoads,
     .field = checkpoint<&CheckpointConfig::exit_on_missing_checkpoint>()},
};

}  // namespace

std::span<const OptionSpec> checkpoint_options() { return kRows; }

}  // namespace pentatron::config
