// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "pentatron/checkpoint/folder_lock.h"
#include "pentatron/checkpoint/manifest.h"
#include "pentatron/comm/group.h"

namespace pentatron::checkpoint {

// Values of a part that this rank stores: row-major elements [box_begin, box_begin + numel) of the
// part's box.
struct SourceSlice {
  std::string kind;  // of ManifestSlice::tensor, before the '/'
  const nn::ShardPart* part = nullptr;
  std::int64_t box_begin = 0;
  Tensor values;  // contiguous, CPU; stored in its own dtype
  // Instead of `values`: made when it is written, `piece` elements of the `count` at a time (0: all
  // at once), so that slices may be larger than memory. Gives `number` elements of `dtype` from
  // `begin` on, contiguous, CPU.
  std::function<Tensor(std::int64_t begin, std::int64_t number)> make = {};
  std::int64_t count = 0;
  std::int64_t piece = 0;
  DType dtype = DType::Undefined;
};

struct SaveRequest {
  std::filesystem::path root;
  std::int64_t iteration = 0;
  std::vector<SourceSlice> slices;  // of this rank
  std::string config;  // this and the two below: JSON texts (Manifest), rank 0's are stored
  std::string layout;
  std::string train_state;
  // Files of the caller's, rank 0's: names inside the checkpoint's folder "tokenizer", and bytes;
  // the manifest lists them (tokenizer_folder.h).
  std::vector<std::pair<std::string, std::string>> tokenizer_files = {};
  std::int64_t keep_checkpoints = 0;      // newest; 0: all (apply_retention)
  std::int64_t save_retain_interval = 0;  // iterations
  std::int64_t protect_iteration = -1;    // the one being loaded from
  // Rank 0's, on the root; null: taken for the time of this save.
  FolderLock* lock = nullptr;
};

struct SaveResult {
  std::filesystem::path folder;
  std::uint64_t bytes = 0;  // manifest and shards of all ranks
  double seconds = 0;
};

// Collective over `world`. Shards into .saving_iter_N, each synced; manifest with checksums; one
// rename; only then the tracker. A failure on any rank fails the save on all ranks, naming the rank
// and the reason, with the kind of that rank's error, and leaves the old state as it was. Saving an
// iteration that exists replaces it only after the new one is complete; what is there under its
// name and was not written by Pentatron is kept under another name, with a warning. A root that
// another process saves to: kConfig (FolderLock).
[[nodiscard]] SaveResult save_checkpoint(const SaveRequest& request, comm::Group& world);

}  // namespace pentatron::checkpoint
