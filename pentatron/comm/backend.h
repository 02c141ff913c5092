// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "pentatron/comm/group.h"

namespace pentatron::comm {

// Makes groups. One object per rank; all ranks of a world make the same groups in the same order.
class Backend {
 public:
  virtual ~Backend() = default;
  [[nodiscard]] virtual std::string name() const = 0;
  [[nodiscard]] virtual std::int64_t rank() const = 0;
  [[nodiscard]] virtual std::int64_t world_size() const = 0;
  // `ranks` ascending world ranks, this rank among them; `name` equal on all members and unique.
  [[nodiscard]] virtual std::unique_ptr<Group> make_group(const std::vector<std::int64_t>& ranks,
                                                          const std::string& name) = 0;
  // This rank failed: peers that wait for it get a kComm error with this message instead of
  // hanging.
  virtual void poison(const std::string& message) = 0;
  // Called before destruction on every rank in a clean run.
  virtual void shutdown() = 0;
};

// N ranks as threads of this process: deterministic (reductions in order of rank), data is copied,
// each meeting compares a fingerprint of op, dtype, sizes and sequence number, an exception in one
// rank poisons all groups. Runs `body` once per rank on its own thread (label set, library threads
// = threads_per_rank) and rethrows the first rank's error after all have ended. A world below 1:
// kConfig; tensors that are not on the CPU: kUnsupported.
struct ThreadsOptions {
  std::int64_t world_size = 1;
  int threads_per_rank = 1;
  std::chrono::milliseconds timeout{600'000};
};
void run_threads(const ThreadsOptions& options, const std::function<void(Backend&)>& body);

// Processes over TCP: the library's Gloo; rank 0 serves the rendezvous store at
// master_addr:master_port. Returns when all ranks have joined; one that does not within the
// timeout, or a port that is taken: kComm. Rank, world or port out of range: kConfig. Tensors that
// are not on the CPU: kUnsupported.
struct GlooOptions {
  std::int64_t rank = 0;
  std::int64_t world_size = 1;
  std::string master_addr = "127.0.0.1";
  std::int64_t master_port = 29500;
  std::chrono::milliseconds timeout{600'000};
};
[[nodiscard]] std::unique_ptr<Backend> make_gloo_backend(const GlooOptions& options);

// Rank `rank` of any world without peers: collectives act as if all members held this rank's data
// (all-reduce sum multiplies by size), receives give zeros. For dry runs and memory planning. A
// rank outside the world: kConfig.
[[nodiscard]] std::unique_ptr<Backend> make_fake_backend(std::int64_t rank,
                                                         std::int64_t world_size);

// world_size 1.
[[nodiscard]] std::unique_ptr<Backend> make_single_backend();

}  // namespace pentatron::comm
