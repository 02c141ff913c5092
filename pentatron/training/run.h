// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/comm/backend.h"
#include "pentatron/config/parser.h"
#include "pentatron/training/trainer.h"

namespace pentatron::training {

// What the configuration asks of each backend (--distributed-timeout-minutes among it).
[[nodiscard]] comm::ThreadsOptions threads_options(const config::ParallelConfig& parallel);
[[nodiscard]] comm::GlooOptions gloo_options(const config::ParallelConfig& parallel);

// A whole `pretrain_gpt` of this process: prints the arguments, makes the backend that
// --distributed-backend and the launcher ask for (one rank, processes over gloo, threads of this
// process, or one fake rank) and trains. Signals are caught when --exit-signal-handler asks for it.
// Every kind of error comes out of it; ranks that disagree about their device are kConfig.
[[nodiscard]] TrainerReport run_pretrain(const config::ParsedOptions& options);

}  // namespace pentatron::training
