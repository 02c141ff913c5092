// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/option_binding.h"

namespace pentatron::config {
namespace {

template <auto kField>
constexpr Binding training() {
  return bind<&RunConfig::training, kField>();
}

// One field holds the precision; each switch sees its own name in it. Two of them at once are
// refused by resolve().
struct PrecisionName {
  char text[5];
};

template <PrecisionName kName>
constexpr Binding precision() {
  return {[](RunConfig& config, const OptionValue& value) {
            if (std::get<bool>(value)) {
              config.training.precision = kName.text;
            } else if (config.training.precision == kName.text) {
              config.training.precision = "fp32";
            }
          },
          [](const RunConfig& config) -> OptionValue {
            return config.training.precision == kName.text;
          }};
}

constexpr OptionSpec kRows[] = {
    {.names = "--bf16",
     .dest = "bf16",
     .kind = OptionKind::kSwitchOn,
     .default_repr = "False",
     .topic = Topic::kPrecision,
     .help = "compute in bfloat16 with fp32 weights, gradients and optimizer state",
     .test = "functional_test Options.Precision",
     .field = precision<PrecisionName{"bf16"}>()},
    {.names = "--fp64",
     .dest = "fp64",
     .kind = OptionKind::kSwitchOn,
     .default_repr = "False",
     .topic = Topic::kPrecision,
     .help = "everything in double precision, for tests",
     .test = "functional_test Options.Precision",
     .field = precision<PrecisionName{"fp64"}>(),
     .ours = true},
    {.names = "--micro-batch-size",
     .dest = "micro_batch_size",
     .kind = OptionKind::kInt,
     .default_repr = "1",
     .check = at_least<1>,
     .topic = Topic::kTraining,
     .help = "samples of one forward and backward pass on one rank",
     .test = "config_test Resolve.RefusesWhatDoesNotDivide; functional_test Options.MicroBatchSize",
     .default_note = "Megatron's default is None and refused",
     .field = training<&TrainingConfig::micro_batch_size>()},
    {.names = "--global-batch-size",
     .dest = "global_batch_size",
     .kind = OptionKind::kInt,
     .check = at_least<1>,
     .topic = Topic::kTraining,
     .help = "samples of one optimizer step; default micro-batch size x data-parallel size",
     .test = "config_test Resolve.DerivesBatch; functional_test Options.GlobalBatchSize",
     .field = training<&TrainingConfig::global_batch_size>()},
    {.names = "--train-iters",
     .dest = "train_iters",
     .kind = OptionKind::kInt,
     .check = at_least<1>,
     .topic = Topic::kTraining,
     .help = "optimizer steps of the whole run",
     .test = "functional_test Options.TrainIters",
     .field = training<&TrainingConfig::train_iters>()},
    {.names = "--train-samples",
     .dest = "train_samples",
     .kind = OptionKind::kInt,
     .check = at_least<1>,
     .topic = Topic::kTraining,
     .help = "the same in samples",
     .test = "functional_test Options.TrainSamples",
     .field = training<&TrainingConfig::train_samples>()},
    {.names = "--eval-interval",
     .dest = "eval_interval",
     .kind = OptionKind::kInt,
     .check = at_least<1>,
     .topic = Topic::kTraining,
     .help = "evaluate every so many iterations; default: at the end only",
     .test = "functional_test Options.EvalInterval",
     .field = training<&TrainingConfig::eval_interval>()},
    {.names = "--eval-iters",
     .dest = "eval_iters",
     .kind = OptionKind::kInt,
     .default_repr = "100",
     .check = at_least<0>,
     .topic = Topic::kTraining,
     .help = "global batches of one evaluation; 0: none",
     .test = "functional_test Options.EvalIters",
     .field = training<&TrainingConfig::eval_iters>()},
    {.names = "--skip-train",
     .dest = "skip_train",
     .kind = OptionKind::kSwitchOn,
     .default_repr = "False",
     .topic = Topic::kTraining,
     .help = "load and evaluate, without training",
     .test = "functional_test Options.SkipTrain",
     .field = training<&TrainingConfig::skip_train>()},
    {.names = "--exit-interval",
     .dest = "exit_interval",
     .kind = OptionKind::kInt,
     .check = at_least<1>,
     .topic = Topic::kTraining,
     .help = "save and exit after an iteration that this divides",
     .test = "functional_test Options.ExitInterval",
     .field = training<&TrainingConfig::exit_interval>()},
    {.names = "--exit-duration-in-mins",
     .dest = "exit_duration_in_mins",
     .kind = OptionKind::kInt,
     .check = at_least<1>,
     .topic = Topic::kTraining,
     .help = "save and exit after so many minutes",
     .test = "training_test Exit.AfterDuration",
     .field = training<&TrainingConfig::exit_duration_in_mins>()},
    {.names = "--exit-signal-handler",
     .dest = "exit_signal_handler",
     .kind = OptionKind::kSwitchOn,
     .default_repr = "False",
     .topic = Topic::kTraining,
     .help = "on the exit signal, save at the end of the iteration and exit",
     .test = "functional_test Options.ExitSignal",
     .field = training<&TrainingConfig::exit_signal_handler>()},
    {.names = "--exit-signal",
     .dest = "exit_signal",
     .kind = OptionKind::kSignal,
     .default_repr = "15",
     .choices =
         "1|2|3|4|5|6|7|8|9|10|11|12|13|14|15|16|17|18|19|20|21|22|23|24|25|26|27|28|29|30|31|"
         "34|64",
     .supported = "SIGTERM|SIGINT|SIGHUP|SIGQUIT|SIGUSR1|SIGUSR2",
     .topic = Topic::kTraining,
     .help = "name or number of that signal, with --exit-signal-handler",
     .reason = "the other signals stop a process, report its errors or cannot be caught",
     .test = "functional_test Options.ExitSignal",
     .field = training<&TrainingConfig::exit_signal>()},
    {.names = "--no-check-for-nan-in-loss-and-grad",
     .dest = "check_for_nan_in_loss_and_grad",
     .kind = OptionKind::kSwitchOff,
     .default_repr = "True",
     .topic = Topic::kTraining,
     .help = "go on when a loss or gradient is not finite",
     .test = "training_test NanCheck.StopsUnlessSwitchedOff",
     .field = training<&TrainingConfig::check_for_nan_in_loss_and_grad>()},
    {.names = "--deterministic-mode",
     .dest = "deterministic_mode",
     .kind = OptionKind::kSwitchOn,
     .default_repr = "False",
     .topic = Topic::kTraining,
     .help = "on cards: the same bits in every run, slower; the CPU always is deterministic",
     .test = "training_gpu_test Placement.DeterministicMode",
     .field = training<&TrainingConfig::deterministic_mode>()},
    {.names = "--device",
     .dest = "device",
     .default_repr = "'auto'",
     .choices = "auto|cpu|cuda",
     .topic = Topic::kTraining,
     .help =
         "where to compute; cuda: card LOCAL_RANK of this machine; auto: cuda where each rank has "
         "a card",
     .test = "functional_test Options.Device",
     .field = training<&TrainingConfig::device>(),
     .ours = true},
    {.names = "--log-interval",
     .dest = "log_interval",
     .kind = OptionKind::kInt,
     .default_repr = "100",
     .check = at_least<1>,
     .topic = Topic::kLogging,
     .help = "iterations between log lines",
     .test = "functional_test Options.LogInterval",
     .field = training<&TrainingConfig::log_interval>()},
    {.names = "--log-throughput",
     .dest = "log_throughput",
     .kind = OptionKind::kSwitchOn,
     .default_repr = "False",
     .topic = Topic::kLogging,
     .help = "model TFLOP/s in the log line",
     .test = "functional_test Options.LogThroughput",
     .field = training<&TrainingConfig::log_throughput>()},
    {.names = "--log-params-norm",
     .dest = "log_params_norm",
     .kind = OptionKind::kSwitchOn,
     .default_repr = "False",
     .topic = Topic::kLogging,
     .help = "norm of all weights in the log line",
     .test = "functional_test Options.LogParamsNorm",
     .field = training<&TrainingConfig::log_params_norm>()},
    {.names = "--metrics-file",
     .dest = "metrics_file",
     .check = not_empty,
     .topic = Topic::kLogging,
     .help = "append every logged value, in full precision, as JSON lines",
     .test = "functional_test Options.MetricsFile",
     .field = training<&TrainingConfig::metrics_file>(),
     .ours = true},
};

}  // namespace

std::span<const OptionSpec> training_options() { return kRows; }

}  // namespace pentatron::config
