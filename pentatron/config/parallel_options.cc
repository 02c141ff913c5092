// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/option_binding.h"

namespace pentatron::config {
namespace {

template <auto kField>
constexpr Binding parallel() {
  return bind<&RunConfig::parallel, kField>();
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
    {.names = "--sequence-parallel",
     .dest = "sequence_parallel",
     .kind = OptionKind::kSwitchOn,
     .default_repr = "False",
     .topic = Topic::kParallel,
     .help = "split token rows between the tensor-parallel ranks outside the matrices",
     .test = "config_test Effects.NamesValuesWithoutEffect; functional_test Options.Layout",
     .field = parallel<&ParallelConfig::sequence_parallel>()},
    {.names = "--use-distributed-optimizer",
     .dest = "use_distributed_optimizer",
     .kind = OptionKind::kSwitchOn,
     .default_repr = "False",
     .topic = Topic::kParallel,
     .help = "shard optimizer state over the data-parallel ranks",
     .test = "functional_test Options.DistributedOptimizer",
     .field = parallel<&ParallelConfig::use_distributed_optimizer>()},
    {.names = "--distributed-backend",
     .dest = "distributed_backend",
     .default_repr = "'auto'",
     .choices = "nccl|gloo",
     .supported = "auto|nccl|gloo|threads|fake",
     .topic = Topic::kParallel,
     .help =
         "nccl: processes with a card each; gloo: processes on the CPU; auto: one of the two by "
         "--device; threads: ranks of one process; fake: one rank of a world that is not there",
     .reason = "mpi and ucc are not built",
     .test = "functional_test Options.DistributedBackend",
     .default_note = "auto is Megatron's default nccl where cards are; auto, threads and fake are "
                     "ours",
     .field = parallel<&ParallelConfig::distributed_backend>()},
    {.names = "--distributed-timeout-minutes",
     .dest = "distributed_timeout_minutes",
     .kind = OptionKind::kInt,
     .default_repr = "10",
     .check = at_least<1>,
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
     .help = "ranks of the run, for the backends threads and fake; launchers set WORLD_SIZE",
     .test = "config_test LaunchEnv.OptionsAndEnvironmentAgree; functional_test "
             "Options.WorldSizeThreads",
     .field = parallel<&ParallelConfig::world_size>(),
     .ours = true},
    {.names = "--rank",
     .dest = "rank",
     .kind = OptionKind::kInt,
     .default_repr = "0",
     .check = at_least<0>,
     .topic = Topic::kParallel,
     .help = "the rank to play, for the backend fake",
     .test = "config_test LaunchEnv.OptionsAndEnvironmentAgree",
     .field = parallel<&ParallelConfig::rank>(),
     .ours = true},
    {.names = "--cpu-threads-per-rank",
     .dest = "cpu_threads_per_rank",
     .kind = OptionKind::kInt,
     .default_repr = "0",
     .check = at_least<0>,
     .topic = Topic::kParallel,
     .help = "CPU threads of each rank; part of the layout; 0: all cores / local ranks",
     .test = "functional_test Options.CpuThreadsPerRank",
     .field = parallel<&ParallelConfig::cpu_threads_per_rank>(),
     .ours = true},
};

}  // namespace

std::span<const OptionSpec> parallel_options() { return kRows; }

}  // namespace pentatron::config
