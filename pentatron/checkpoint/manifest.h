// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "pentatron/nn/shard_spec.h"

namespace pentatron::checkpoint {

// Where values of one logical tensor lie: row-major elements [range_begin, range_end) of `box`,
// stored as tensor `key` of `file`.
struct ManifestSlice {
  std::string tensor;  // "<kind>/<part name>": kinds param (main-parameter dtype), exp_avg,
                       // exp_avg_sq, momentum
  nn::Box box;
  std::int64_t range_begin = 0;
  std::int64_t range_end = 0;
  std::string file;
  std::string key;
};
struct ManifestTensor {
  std::string name;   // as ManifestSlice::tensor
  std::string dtype;  // safetensors spelling
  Shape logical_shape;
  bool decay = true;
};
struct ManifestFile {
  std::string name;  // inside its folder: no '/', no '..'
  std::uint64_t bytes = 0;
  std::string sha256;
};

// Everything about one saved step. Stored as manifest.json: {"sha256": <of the canonical dump of
// "manifest">, "manifest": {...}}.
struct Manifest {
  int version = 2;  // 1: before `tokenizer`; read, no longer written
  std::int64_t iteration = 0;
  std::vector<ManifestTensor> tensors;  // sorted by name
  std::vector<ManifestSlice> slices;
  std::vector<ManifestFile> files;      // shards, in the checkpoint's folder
  std::vector<ManifestFile> tokenizer;  // in its folder "tokenizer"; by name
  std::string config;                   // JSON text of the run's configuration
  std::string layout;  // JSON text: axes and sizes, backend, threads; not part of the state hash
  std::string train_state;  // JSON text: consumed samples, counters, schedules, data identity; part
                            // of the state hash

  [[nodiscard]] bool lists_tokenizer() const { return version >= 2; }
};

// Canonical text: sorted, so that equal manifests give equal bytes. A slice of a tensor that is not
// listed: kInternal.
[[nodiscard]] std::string manifest_to_text(const Manifest& manifest);
// Validates everything: sizes bounded, names safe, boxes inside shapes, ranges inside boxes, the
// slices of each tensor cover it exactly once, files known, checksum right. ErrorKind::kCheckpoint
// otherwise, naming `path`.
[[nodiscard]] Manifest parse_manifest(const std::string& text, const std::string& path);

}  // namespace pentatron::checkpoint
