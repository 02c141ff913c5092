// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/option_binding.h"
#include "pentatron/config/option_conditions.h"

namespace pentatron::config {
namespace {

template <auto kField>
constexpr Binding parallel() {
  return bind<&RunConfig::parallel, kField>();
}

// Beyond any patience, and far from where a clock's sums overflow.
std::string_view within_a_year(const OptionValue& value) {
  const std::int64_t minutes = std::get<std::int64_t>(value);
  return minutes >= 1 && minutes <= 525'600 ? "" : "a number from 1 to 525600, a year";
}

// A machine that is asked for a million threads stands still.
std::string_view thread_count(const OptionValue& value) {
  const std::int64_t threads = std::get<std::int64_t>(value);
  return threads >= 0 && threads <= 4096 ? "" : "a number from 0 to 4096";
}

constexpr OptionSpec kRows[] = {
    {.names = "--tensor-model-parallel-size",
     .dest = "tensor_model_parallel_size",
     .kind = OptionKind::kInt,
     .default_repr = "1",
     .check = at_least<1>,
     .topic = Topic::kParallel,
     .help = "ranks that share each layer's matrices",
     .test = "config_test Resolve.RefusesWhatDoesNotDivide; functional_test Options.Layout",
     .field = parallel<&ParallelConfig::tensor_model_parallel_size>()},
    {.names = "--pipeline-model-parallel-size",
     .dest = "pipeline_model_parallel_size",
     .kind = OptionKind::kInt,
     .default_repr = "1",
     .check = at_least<1>,
     .topic = Topic::kParallel,
     .help = "stages that the layers are split into",
     .test = "config_test Resolve.RefusesWhatDoesNotDivide; functional_test Options.Layout",
     .field = parallel<&ParallelConfig::pipeline_model_parallel_size>()},
    {.names = "--use-tp-pp-dp-mapping",
     .dest = "use_tp_pp_dp_mapping",
     .kind = OptionKind::kSwitchOn,
     .default_repr = "False",
     .topic = Topic::kParallel,
     .help = "neighbouring ranks hold the stages of one pipeline, not data-parallel copies of one "
             "stage: the order tp-cp-ep-pp-dp",
     .test = "functional_test Options.UseTpPpDpMapping; comm_test Places.OrderOfTheOption",
     .needs = kPipelineParallel,
     .field = parallel<&ParallelConfig::use_tp_pp_dp_mapping>()},
    {.names = "--context-parallel-size",
     .dest = "context_parallel_size",
     .kind = OptionKind::kInt,
     .default_repr = "1",
     .check = at_least<1>,
     .topic = Topic::kParallel,
     .help = "ranks that share each sample's tokens",
     .test = "functional_test Options.ContextParallel; config_test Resolve.ContextParallel",
     .field = parallel<&ParallelConfig::context_parallel_size>()},
    {.names = "--cp-comm-type",
     .dest = "cp_comm_type",
     .nargs = '+',
     .default_repr = "['p2p']",
     .topic = Topic::kParallel,
     .help = "how context-parallel ranks bring queries and keys together, once or one a layer: p2p "
             "(keys go round a ring), all_gather (allgather), a2a (rows for heads), a2a+p2p",
     .test = "planted_faults_test FaultyCollectives.EachIsCaught; config_test "
             "Resolve.ContextCommunication",
     .needs = kContextParallel,
     .resume = Resume::kFree,
     .field = bind<&RunConfig::model, &ModelConfig::cp_comm_type>()},
    {.names = "--hierarchical-context-parallel-sizes",
     .dest = "hierarchical_context_parallel_sizes",
     .kind = OptionKind::kInt,
     .nargs = '+',
     .topic = Topic::kParallel,
     .help = "for a2a+p2p: neighbours that exchange heads, and groups of them that form a ring",
     .test = "config_test Resolve.ContextCommunication; planted_faults_test "
             "FaultyCollectives.EachIsCaught",
     .needs = kContextOfTwoLevels,
     .field = parallel<&ParallelConfig::hierarchical_context_parallel_sizes>()},
    {.names = "--hybrid-context-parallel",
     .dest = "hybrid_context_parallel",
     .kind = OptionKind::kSwitchOn,
     .default_repr = "False",
     .topic = Topic::kParallel,
     .help = "dynamic context parallelism: each conversation of --sft is shared by as many of the "
             "data x context ranks as its length needs, 1, 2, 4, ..., and dealt so that they end "
             "together",
     .test = "functional_test Options.DynamicContextParallel; training_test "
             "DynamicContext.EqualsOneProcess; "
             "datasets_test ContextPlan.EveryPromiseForManyMixes",
     .field = parallel<&ParallelConfig::dynamic_context_parallel>()},
    {.names = "--max-seqlen-per-dp-cp-rank",
     .dest = "max_seqlen_per_dp_cp_rank",
     .kind = OptionKind::kInt,
     .check = at_least<1>,
     .topic = Topic::kParallel,
     .help = "--hybrid-context-parallel: tokens that a rank holds of a micro-batch at most",
     .test = "datasets_test ContextPlan.SmallestGroupThatHolds; config_test "
             "Resolve.DynamicContextParallel",
     .needs = kDynamicContext,
     .field = parallel<&ParallelConfig::max_seqlen_per_dp_cp_rank>()},
    {.names = "--min-dynamic-context-parallel-size",
     .dest = "min_dynamic_context_parallel_size",
     .kind = OptionKind::kInt,
     .default_repr = "1",
     .check = at_least<1>,
     .topic = Topic::kParallel,
     .help = "--hybrid-context-parallel: ranks that share a sample at least, a power of two",
     .test = "datasets_test ContextPlan.EveryPromiseForManyMixes; config_test "
             "Resolve.DynamicContextParallel",
     .needs = kDynamicContext,
     .field = parallel<&ParallelConfig::min_dynamic_context_parallel_size>(),
     .ours = true},
    {.names = "--sequence-parallel",
     .dest = "sequence_parallel",
     .kind = OptionKind::kSwitchOn,
     .default_repr = "False",
     .topic = Topic::kParallel,
     .help = "split token rows between the tensor-parallel ranks outside the matrices",
     .test = "config_test Effects.NamesValuesWithoutEffect; functional_test Options.Layout",
     .needs = kTensorParallel,
     .field = parallel<&ParallelConfig::sequence_parallel>()},
    {.names = "--use-distributed-optimizer",
     .dest = "use_distributed_optimizer",
     .kind = OptionKind::kSwitchOn,
     .default_repr = "False",
     .topic = Topic::kParallel,
     .help = "shard optimizer state over the data-parallel ranks",
     .test = "functional_test Options.DistributedOptimizer",
     .field = parallel<&ParallelConfig::use_distributed_optimizer>()},
    {.names = "--use-megatron-fsdp",
     .dest = "use_megatron_fsdp",
     .kind = OptionKind::kSwitchOn,
     .default_repr = "False",
     .topic = Topic::kParallel,
     .help = "shard what --data-parallel-sharding-strategy says over the data-parallel ranks",
     .test = "functional_test Options.ShardingStrategy",
     .field = parallel<&ParallelConfig::use_megatron_fsdp>()},
    {.names = "--data-parallel-sharding-strategy",
     .dest = "data_parallel_sharding_strategy",
     .default_repr = "'optim_grads_params'",
     .choices = "no_shard|optim|optim_grads|optim_grads_params",
     .topic = Topic::kParallel,
     .help = "with --use-megatron-fsdp: optimizer state; gradients too, reduced in every "
             "micro-batch; parameters too, gathered ahead of each layer and freed after it",
     .test = "functional_test Options.ShardingStrategy",
     .needs = kMegatronFsdp,
     .field = parallel<&ParallelConfig::data_parallel_sharding_strategy>()},
    {.names = "--num-distributed-optimizer-instances",
     .dest = "num_distributed_optimizer_instances",
     .kind = OptionKind::kInt,
     .default_repr = "1",
     .check = at_least<1>,
     .topic = Topic::kParallel,
     .help = "copies of what is sharded, each over as many neighbouring data-parallel ranks",
     .test = "functional_test Options.OptimizerInstances",
     .needs = kShards,
     .field = parallel<&ParallelConfig::num_distributed_optimizer_instances>()},
    {.names = "--overlap-param-gather",
     .dest = "overlap_param_gather",
     .kind = OptionKind::kSwitchOn,
     .default_repr = "False",
     .topic = Topic::kParallel,
     .help = "wait for updated parameters where the next forward uses them, not at the end of the "
             "optimizer step",
     .test = "distributed_test ParameterGather.OverlappedEndsAtFirstUse; training_test "
             "EngineStore.ShardingFollowsTheOptions",
     .needs = kShards,
     .field = parallel<&ParallelConfig::overlap_param_gather>()},
    {.names = "--distributed-backend",
     .dest = "distributed_backend",
     .default_repr = "'auto'",
     .choices = "nccl|gloo",
     .supported = "auto|nccl|gloo|threads|fake",
     .topic = Topic::kParallel,
     .help = "nccl: processes with a GPU each; gloo: processes on the CPU; auto: one of the two by "
             "--device; threads: ranks of one process; fake: one rank of a world that is not there",
     .reason = "mpi and ucc are not built",
     .test = "functional_test Options.DistributedBackend",
     .default_note = "auto is Megatron's default nccl where GPUs are; auto, threads and fake are "
                     "ours",
     .field = parallel<&ParallelConfig::distributed_backend>()},
    {.names = "--check-collectives",
     .dest = "check_collectives",
     .kind = OptionKind::kSwitchOn,
     .default_repr = "False",
     .topic = Topic::kParallel,
     .help =
         "nccl: ranks tell each other over the network what they call, so that a wrong order of "
         "collectives is named and not waited for; costs a message a call. gloo and threads "
         "always do",
     .test = "training_test Run.CheckCollectivesReachesNccl; comm_test CheckedGroup.NamesBothCalls",
     .field = parallel<&ParallelConfig::check_collectives>(),
     .ours = true},
    {.names = "--distributed-timeout-minutes",
     .dest = "distributed_timeout_minutes",
     .kind = OptionKind::kInt,
     .default_repr = "10",
     .check = within_a_year,
     .topic = Topic::kParallel,
     .help = "how long a rank waits for its peers",
     .test = "training_test Run.TimeoutReachesEveryBackend",
     .field = parallel<&ParallelConfig::distributed_timeout_minutes>()},
    {.names = "--local-rank",
     .dest = "local_rank",
     .kind = OptionKind::kInt,
     .default_repr = "0",
     .check = at_least<0>,
     .topic = Topic::kParallel,
     .help = "rank on this machine, as older launchers pass it; LOCAL_RANK does the same",
     .test = "config_test LaunchEnv.OptionsAndEnvironmentAgree",
     .field = parallel<&ParallelConfig::local_rank>()},
    {.names = "--world-size",
     .dest = "world_size",
     .kind = OptionKind::kInt,
     .default_repr = "1",
     .check = at_least<1>,
     .topic = Topic::kParallel,
     .help = "ranks of the run, for the backends threads and fake and for --dry-run; launchers set "
             "WORLD_SIZE",
     .test = "config_test LaunchEnv.OptionsAndEnvironmentAgree; functional_test "
             "Options.WorldSizeThreads",
     .field = parallel<&ParallelConfig::world_size>(),
     .ours = true},
    {.names = "--grad-reduce-in-bf16",
     .dest = "grad_reduce_in_bf16",
     .kind = OptionKind::kSwitchOn,
     .default_repr = "False",
     .topic = Topic::kPrecision,
     .help = "gradients are accumulated and reduced in bf16; their sums then depend on the layout, "
             "within bf16's step",
     .test = "training_test RunPolicy.FollowsTheOptions; training_test "
             "GradReduceInBf16.EveryShardingWithinBf16; functional_test Options.GradReduceInBf16",
     .needs = kBf16,
     .field = parallel<&ParallelConfig::grad_reduce_in_bf16>()},
    {.names = "--rank",
     .dest = "rank",
     .kind = OptionKind::kInt,
     .default_repr = "0",
     .check = at_least<0>,
     .topic = Topic::kParallel,
     .help = "the rank to play, for the backend fake and for --dry-run",
     .test = "config_test LaunchEnv.OptionsAndEnvironmentAgree",
     .needs = kProcesses,
     .field = parallel<&ParallelConfig::rank>(),
     .ours = true},
    {.names = "--cpu-threads-per-rank",
     .dest = "cpu_threads_per_rank",
     .kind = OptionKind::kInt,
     .default_repr = "0",
     .check = thread_count,
     .topic = Topic::kParallel,
     .help = "CPU threads of each rank; part of the layout; 0: all cores / local ranks",
     .test = "functional_test Options.CpuThreadsPerRank",
     .field = parallel<&ParallelConfig::cpu_threads_per_rank>(),
     .ours = true},
};

}  // namespace

std::span<const OptionSpec> parallel_options() { return kRows; }

}  // namespace pentatron::config
