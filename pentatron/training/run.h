// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "pentatron/comm/backend.h"
#include "pentatron/comm/nccl_backend.h"
#include "pentatron/config/parser.h"
#include "pentatron/training/placement.h"
#include "pentatron/training/trainer.h"

namespace pentatron::training {

// What the configuration asks of each backend (--distributed-timeout-minutes among it).
[[nodiscard]] comm::ThreadsOptions threads_options(const config::ParallelConfig& parallel);
[[nodiscard]] comm::GlooOptions gloo_options(const config::ParallelConfig& parallel);
[[nodiscard]] comm::NcclOptions nccl_options(const config::ParallelConfig& parallel, Device device);

// What one rank of a program does. The backend can move tensors of `device`.
using RankBody = std::function<void(comm::Backend& backend, Device device)>;

// Runs `body` on this process's rank, or on all ranks where they are threads of it, and ends the
// backend after it; an error in one rank reaches the others. `place` is that of place_run(), set up
// by set_up_place(). Another backend than can train: kUnsupported; what `body` throws comes out.
void on_place(const config::ParallelConfig& parallel, const Placement& place, const RankBody& body);

// The same for a program of one's own, placed by `config`: the rank that a launcher (torchrun,
// Slurm, Open MPI, `pentatron launch`) started, else config.parallel.world_size ranks as threads of
// this process. Sets up the process; call it before the first tensor operation.
void on_ranks(const config::RunConfig& config, const RankBody& body);

// A whole `pretrain_gpt` of this process: prints the arguments, makes the backend that
// --distributed-backend and the launcher ask for (one rank, processes over gloo, threads of this
// process, or one fake rank) and trains. Signals are caught when --exit-signal-handler asks for it.
// Every kind of error comes out of it; ranks that disagree about their device are kConfig.
[[nodiscard]] TrainerReport run_pretrain(const config::ParsedOptions& options);

}  // namespace pentatron::training
