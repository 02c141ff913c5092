// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/option_binding.h"
#include "pentatron/config/option_conditions.h"

// Which stage of the pipeline holds what, in which order a rank runs its stages, and what backward
// computes again.
namespace pentatron::config {
namespace {

template <auto kField>
constexpr Binding parallel() {
  return bind<&RunConfig::parallel, kField>();
}
template <auto kField>
constexpr Binding model() {
  return bind<&RunConfig::model, kField>();
}

constexpr OptionSpec kRows[] = {
    {.names = "--decoder-first-pipeline-num-layers",
     .dest = "decoder_first_pipeline_num_layers",
     .kind = OptionKind::kInt,
     .check = at_least<1>,
     .topic = Topic::kParallel,
     .help = "layers of the first pipeline rank; the others share the rest",
     .test = "config_test PipelineLayout.EndsWithOtherNumbersOfLayers; functional_test "
             "Options.UnevenPipeline",
     .field = parallel<&ParallelConfig::decoder_first_pipeline_num_layers>()},
    {.names = "--decoder-last-pipeline-num-layers",
     .dest = "decoder_last_pipeline_num_layers",
     .kind = OptionKind::kInt,
     .check = at_least<1>,
     .topic = Topic::kParallel,
     .help = "layers of the last pipeline rank; the others share the rest",
     .test = "config_test PipelineLayout.EndsWithOtherNumbersOfLayers; functional_test "
             "Options.UnevenPipeline",
     .field = parallel<&ParallelConfig::decoder_last_pipeline_num_layers>()},
    {.names = "--account-for-embedding-in-pipeline-split",
     .dest = "account_for_embedding_in_pipeline_split",
     .kind = OptionKind::kSwitchOn,
     .default_repr = "False",
     .topic = Topic::kParallel,
     .help = "the embedding counts as a layer where layers are shared among stages",
     .test = "config_test PipelineLayout.EmbeddingAndLossCountAsLayers; functional_test "
             "Options.UnevenPipeline",
     .field = parallel<&ParallelConfig::account_for_embedding_in_pipeline_split>()},
    {.names = "--account-for-loss-in-pipeline-split",
     .dest = "account_for_loss_in_pipeline_split",
     .kind = OptionKind::kSwitchOn,
     .default_repr = "False",
     .topic = Topic::kParallel,
     .help = "the loss counts as a layer where layers are shared among stages",
     .test = "config_test PipelineLayout.EmbeddingAndLossCountAsLayers; functional_test "
             "Options.UnevenPipeline",
     .field = parallel<&ParallelConfig::account_for_loss_in_pipeline_split>()},
    {.names = "--pipeline-model-parallel-layout",
     .dest = "pipeline_model_parallel_layout",
     .check = not_empty,
     .topic = Topic::kParallel,
     .help = "what each stage holds: E embedding, t layer, L loss, | next stage, x*n and (..)*n; "
             "e.g. Et|(tt|)*2tL",
     .test = "config_test PipelineLayout.TheLanguage; functional_test Options.UnevenPipeline",
     .field = parallel<&ParallelConfig::pipeline_model_parallel_layout>()},
    {.names = "--num-layers-per-virtual-pipeline-stage",
     .dest = "num_layers_per_virtual_pipeline_stage",
     .kind = OptionKind::kInt,
     .check = at_least<1>,
     .topic = Topic::kParallel,
     .help = "layers of each stage where a rank holds several (interleaved 1F1B)",
     .test = "config_test PipelineLayout.VirtualStages; functional_test Options.VirtualStages",
     .field = parallel<&ParallelConfig::num_layers_per_virtual_pipeline_stage>()},
    {.names = "--num-virtual-stages-per-pipeline-rank",
     .dest = "num_virtual_stages_per_pipeline_rank",
     .kind = OptionKind::kInt,
     .check = at_least<1>,
     .topic = Topic::kParallel,
     .help = "stages of each pipeline rank (interleaved 1F1B)",
     .test = "config_test PipelineLayout.VirtualStages; functional_test Options.VirtualStages",
     .field = parallel<&ParallelConfig::num_virtual_stages_per_pipeline_rank>()},
    {.names = "--microbatch-group-size-per-virtual-pipeline-stage",
     .dest = "microbatch_group_size_per_vp_stage",
     .kind = OptionKind::kInt,
     .check = at_least<1>,
     .topic = Topic::kParallel,
     .help = "micro-batches that a rank takes through one of its stages before the next; default "
             "--pipeline-model-parallel-size",
     .test = "training_test Engine.GroupSizeOfVirtualStages; pipeline_parallel_test "
             "Schedule.InterleavedIsSound",
     .needs = kSeveralStagesARank,
     .field = parallel<&ParallelConfig::microbatch_group_size_per_vp_stage>()},
    {.names = "--pipeline-schedule",
     .dest = "pipeline_schedule",
     .default_repr = "'1f1b'",
     .choices = "1f1b|gpipe|zb-h1|zb-auto",
     .topic = Topic::kParallel,
     .help = "order of forwards and backwards; zb-h1: weight gradients fill the bubble at 1f1b's "
             "memory; zb-auto: planned for --pipeline-schedule-costs and -max-in-flight",
     .test = "training_test Schedules.TheStepDoesWhatIsPlanned; functional_test "
             "Options.PipelineSchedule",
     .needs = kPipelineParallel,
     .field = parallel<&ParallelConfig::pipeline_schedule>(),
     .ours = true},
    {.names = "--pipeline-schedule-max-in-flight",
     .dest = "pipeline_schedule_max_in_flight",
     .kind = OptionKind::kInt,
     .check = at_least<1>,
     .topic = Topic::kParallel,
     .help = "zb-auto: micro-batches whose activations a rank keeps at most; default "
             "--pipeline-model-parallel-size, as 1f1b",
     .test = "training_test Schedules.TheLimitOnActivations",
     .needs = kPlannedSchedule,
     .field = parallel<&ParallelConfig::pipeline_schedule_max_in_flight>(),
     .ours = true},
    {.names = "--pipeline-schedule-costs",
     .dest = "pipeline_schedule_costs",
     .kind = OptionKind::kFloat,
     .nargs = '+',
     .check = at_least<0>,
     .topic = Topic::kParallel,
     .help = "zb-auto plans for these times of forward, backward for input, weight gradients and "
             "sending, in any one unit; default 1 1 1 0",
     .test = "training_test Schedules.TheCosts; config_test Resolve.PipelineSchedules",
     .needs = kPlannedSchedule,
     .field = parallel<&ParallelConfig::pipeline_schedule_costs>(),
     .ours = true},
    {.names = "--recompute-granularity",
     .dest = "recompute_granularity",
     .choices = "full|selective",
     .topic = Topic::kTraining,
     .help = "activations that backward computes again: of whole layers, or of --recompute-modules",
     .test = "training_test Engine.RecomputeKeepsLessAndChangesNoBit",
     .resume = Resume::kFree,
     .field = model<&ModelConfig::recompute_granularity>()},
    {.names = "--recompute-method",
     .dest = "recompute_method",
     .choices = "uniform|block",
     .topic = Topic::kTraining,
     .help = "full: uniform takes all layers in runs of --recompute-num-layers, block the first so "
             "many of each stage",
     .test = "training_test Engine.RecomputeKeepsLessAndChangesNoBit",
     .needs = kRecomputesLayers,
     .resume = Resume::kFree,
     .field = model<&ModelConfig::recompute_method>()},
    {.names = "--recompute-num-layers",
     .dest = "recompute_num_layers",
     .kind = OptionKind::kInt,
     .check = at_least<1>,
     .topic = Topic::kTraining,
     .help = "uniform: layers a run; block: layers a stage",
     .test = "training_test Engine.RecomputeKeepsLessAndChangesNoBit",
     .needs = kRecomputesLayers,
     .resume = Resume::kFree,
     .field = model<&ModelConfig::recompute_num_layers>()},
    {.names = "--recompute-modules",
     .dest = "recompute_modules",
     .nargs = '+',
     .topic = Topic::kTraining,
     .help = "selective: core_attn, layernorm, mlp; default core_attn",
     .test = "training_test Engine.RecomputeKeepsLessAndChangesNoBit; config_test "
             "Resolve.Recompute",
     .needs = kRecomputesModules,
     .resume = Resume::kFree,
     .field = model<&ModelConfig::recompute_modules>()},
    {.names = "--distribute-saved-activations",
     .dest = "distribute_saved_activations",
     .kind = OptionKind::kSwitchOn,
     .default_repr = "False",
     .topic = Topic::kTraining,
     .help = "full: the saved input of each run of layers is kept in slices, one a tensor-parallel "
             "rank, and gathered in backward; without --sequence-parallel, which shares rows",
     .test = "training_test Engine.DistributedSavesKeepAShareAndChangeNoBit; config_test "
             "Resolve.DistributedSaves",
     .resume = Resume::kFree,
     .field = model<&ModelConfig::distribute_saved_activations>()},
};

}  // namespace

std::span<const OptionSpec> pipeline_options() { return kRows; }

}  // namespace pentatron::config
