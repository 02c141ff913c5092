// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "pentatron/checkpoint/manifest.h"
#include "pentatron/comm/group.h"

namespace pentatron::checkpoint {

// Values of a part that this rank stores: row-major elements [box_begin, box_begin + numel) of the
// part's box.
struct SourceSlice {
  std::string kind;
  const nn::ShardPart* part = nullptr;
  std::int64_t box_begin = 0;
  Tensor values;  // contiguous, CPU
};

struct SaveRequest {
  std::filesystem::path root;
  std::int64_t iteration = 0;
  std::vector<SourceSlice> slices;  // of this rank
  std::string config;
  std::string layout;
  std::string train_state;
  std::int64_t keep_checkpoints = 0;
  std::int64_t save_retain_interval = 0;
  std::int64_t protect_iteration = -1;  // the one being loaded from
};

struct SaveResult {
  std::filesystem::path folder;
  std::uint64_t bytes = 0;
  double seconds = 0;
};

// Collective over `world`. Shards into .saving_iter_N, each synced; manifest with checksums; one
// rename; only then the tracker. A failure on any rank fails the save on all ranks, naming the rank
// and the reason, and leaves the old state as it was. Saving an iteration that exists and verifies
// replaces it only after the new one is complete.
[[nodiscard]] SaveResult save_checkpoint(const SaveRequest& request, comm::Group& world);

}  // namespace pentatron::checkpoint
