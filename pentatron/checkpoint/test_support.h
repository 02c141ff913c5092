// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "pentatron/base/test_support.h"
#include "pentatron/checkpoint/reader.h"
#include "pentatron/checkpoint/store.h"
#include "pentatron/checkpoint/writer.h"
#include "pentatron/comm/backend.h"
#include "pentatron/tensor/ops.h"

// Included by tests only: a small training state and ways to cut it. What a rank holds is cut out
// with the tensor library's own views, never with the code under test.
namespace pentatron::checkpoint::testing_support {

struct StateTensor {
  std::string kind;
  std::string part;
  Shape shape;
  DType dtype;
};

inline const std::vector<StateTensor>& state_tensors() {
  static const std::vector<StateTensor> kTensors = {
      {"param", "embedding.weight", {10, 6}, DType::Float},
      {"exp_avg", "embedding.weight", {10, 6}, DType::Float},
      {"param", "bias", {7}, DType::Float},
      {"param", "cube", {4, 5, 3}, DType::Double},
      {"param", "half", {6, 4}, DType::BFloat16},
      {"param", "tiny", {2, 3}, DType::Float},
  };
  return kTensors;
}

// Different for each tensor, element and version; exact in bf16.
inline Tensor whole_values(const StateTensor& t, int version) {
  const std::int64_t count = tensor::num_elements(t.shape);
  const auto salt = static_cast<std::int64_t>(t.kind.size() * 31 + t.part.size() * 7);
  std::vector<double> values;
  for (std::int64_t i = 0; i < count; ++i) {
    values.push_back(static_cast<double>((i * 37 + salt + version * 101) % 251) - 125.0);
  }
  return tensor::from_vector(values).to(t.dtype).view(t.shape);
}

// tp ranks (fast) cut dimension split_dim in pieces of ceil(size / tp), so that the last may be
// short or empty; tensors without that dimension are replicated. dp ranks cut each box's row-major
// elements.
struct Layout {
  std::string name;
  std::int64_t tp = 1;
  std::int64_t dp = 1;
  std::int64_t split_dim = 0;
  [[nodiscard]] std::int64_t world() const { return tp * dp; }
};

inline const std::vector<Layout>& layouts() {
  static const std::vector<Layout> kAll = {
      {"one rank", 1, 1, 0},
      {"2 cut rows", 2, 1, 0},
      {"2 cut columns", 2, 1, 1},
      {"2 replicas", 2, 1, 9},
      {"4 cut padded rows", 4, 1, 0},
      {"4 share elements", 1, 4, 0},
      {"2 cut rows, 2 share elements", 2, 2, 0},
      {"2 cut columns, 2 share elements", 2, 2, 1},
      {"2 cut the last dimension, 2 share elements", 2, 2, 2},
  };
  return kAll;
}

// With its folders.
inline void write_text(const std::filesystem::path& path, std::string_view text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}
inline std::filesystem::path step(const std::filesystem::path& root, std::int64_t iteration) {
  return root / iteration_folder(iteration);
}

struct Held {
  nn::ShardPart part;
  std::string tensor;
  std::string kind;
  std::int64_t begin = 0;
  Tensor values;  // expected content, 1-D
  bool owner = true;
};

inline Held held_by(const StateTensor& t, const Layout& layout, std::int64_t rank, int version) {
  const std::int64_t tp_rank = rank % layout.tp;
  const std::int64_t dp_rank = rank / layout.tp;
  Held held;
  held.kind = t.kind;
  held.tensor = t.kind + "/" + t.part;
  held.part.name = t.part;
  held.part.logical_shape = t.shape;
  held.part.box = {Shape(t.shape.size(), 0), t.shape};
  held.part.role = t.shape.size() > 1 ? nn::ShardRole::kMatrix : nn::ShardRole::kVector;
  Tensor mine = whole_values(t, version);
  const auto dim = static_cast<std::size_t>(layout.split_dim);
  if (dim < t.shape.size()) {
    const std::int64_t piece = (t.shape[dim] + layout.tp - 1) / layout.tp;
    const std::int64_t begin = std::min(piece * tp_rank, t.shape[dim]);
    const std::int64_t size = std::min(piece, t.shape[dim] - begin);
    held.part.box.offset[dim] = begin;
    held.part.box.size[dim] = size;
    mine = mine.narrow(layout.split_dim, begin, size);
  } else {
    held.part.replica = tp_rank;
    held.owner = tp_rank == 0;
  }
  mine = mine.contiguous().view({-1});
  held.begin = mine.numel() * dp_rank / layout.dp;
  const std::int64_t end = mine.numel() * (dp_rank + 1) / layout.dp;
  held.values = mine.narrow(0, held.begin, end - held.begin).clone();
  return held;
}

// A request of one rank, with the parts it points to.
struct RankState {
  std::deque<Held> held;
  SaveRequest request;
};

inline RankState rank_state(const std::filesystem::path& root, std::int64_t iteration,
                            const Layout& layout, std::int64_t rank, int version) {
  RankState state;
  state.request.root = root;
  state.request.iteration = iteration;
  state.request.config = R"({"model": {"num_layers": 2}, "lr": 0.0003})";
  state.request.layout = R"({"name": ")" + layout.name + "\"}";
  state.request.train_state = R"({"iteration": )" + std::to_string(iteration) + "}";
  for (const StateTensor& t : state_tensors()) {
    state.held.push_back(held_by(t, layout, rank, version));
    const Held& held = state.held.back();
    if (!held.owner) continue;
    state.request.slices.push_back(
        {.kind = held.kind, .part = &held.part, .box_begin = held.begin, .values = held.values});
  }
  return state;
}

inline void save_layout(const std::filesystem::path& root, std::int64_t iteration,
                        const Layout& layout, int version) {
  comm::run_threads({.world_size = layout.world()}, [&](comm::Backend& backend) {
    std::vector<std::int64_t> ranks;
    for (std::int64_t r = 0; r < layout.world(); ++r) ranks.push_back(r);
    const std::unique_ptr<comm::Group> world = backend.make_group(ranks, "world");
    const RankState state = rank_state(root, iteration, layout, backend.rank(), version);
    (void)save_checkpoint(state.request, *world);
  });
}

// One rank in the calling thread; no thread is started.
inline SaveResult save_single(const std::filesystem::path& root, std::int64_t iteration,
                              int version, std::int64_t keep = 0) {
  const std::unique_ptr<comm::Backend> backend = comm::make_single_backend();
  const std::unique_ptr<comm::Group> world = backend->make_group({0}, "world");
  RankState state = rank_state(root, iteration, layouts()[0], 0, version);
  state.request.keep_checkpoints = keep;
  return save_checkpoint(state.request, *world);
}

inline std::string hash_of(const std::filesystem::path& folder) {
  CheckpointReader reader(folder);
  return state_hash(reader);
}

inline bool same_bytes(const Tensor& a, const Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.numel() == b.numel() &&
         (a.numel() == 0 || std::memcmp(a.const_data_ptr(), b.const_data_ptr(),
                                        static_cast<std::size_t>(
                                            a.numel() * tensor::item_bytes(a.scalar_type()))) == 0);
}

}  // namespace pentatron::checkpoint::testing_support
