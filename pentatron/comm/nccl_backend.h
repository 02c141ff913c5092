// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "pentatron/comm/backend.h"

namespace pentatron::comm {

// Processes, one GPU each, over NCCL. CPU tensors (host values, checkpoint metadata, barriers) go
// over a companion gloo backend on the same rendezvous, so a Group takes tensors of both kinds.
//
// - Each communicator has its own stream: Work::wait() makes the current stream wait and does not
//   block the host. Collectives of a group share a communicator; each direction between two members
//   has one of its own, so that a send that waits for its receiver holds nothing else up.
// - Communicators are made in the background at the first use of their lane; only a wait that comes
//   before the peers' arrival blocks. In a step that is recorded as a graph every lane must have
//   been used before.
// - Reductions of 16-bit floats round where NCCL rounds (once a hop), not once in all.
// - A failed or silent peer (--distributed-timeout-minutes) ends all communicators of this rank.
//   Every later call is a kComm error that names group, operation and rank; work that was queued
//   behind the failed operation on the GPU has then run on undefined values.
struct NcclOptions {
  std::int64_t rank = 0;
  std::int64_t world_size = 1;
  std::string master_addr = "127.0.0.1";
  std::int64_t master_port = 29500;
  std::chrono::milliseconds timeout{600'000};
  Device device = kCpu;  // this rank's GPU
  // Members tell each other what they call, over the companion backend: a wrong order is named
  // instead of hanging until the time is over. Steps that are recorded are compared once, when they
  // are.
  bool check_collectives = false;
};
// kUnsupported error with the reason where the CUDA library is not loaded; kConfig error if the
// device is no GPU. All ranks compare their GPUs: two ranks on one GPU are refused.
[[nodiscard]] std::unique_ptr<Backend> make_nccl_backend(const NcclOptions& options);

// Called by the CUDA library.
using MakeNcclBackend = std::unique_ptr<Backend> (*)(const NcclOptions& options);
void register_nccl_backend(MakeNcclBackend make);

}  // namespace pentatron::comm
