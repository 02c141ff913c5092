// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <unordered_map>
#include <vector>

#include "pentatron/base/ranged_source.h"

namespace pentatron::datasets {

// Reads a ranged source in blocks, of which the last used ones are kept. Memory is bounded by
// (blocks kept + threads reading) * bytes of a block. A block that several threads want is fetched
// once. Const methods are safe from any number of threads.
class BlockCache final {
 public:
  static constexpr std::size_t kBlockBytes = std::size_t{256} << 10;
  static constexpr std::size_t kMaxBlocks = 16;

  explicit BlockCache(std::shared_ptr<const RangedSource> source,
                      std::size_t block_bytes = kBlockBytes, std::size_t max_blocks = kMaxBlocks);

  // As RangedSource::read, whose errors come through; the next call tries again.
  void read(std::uint64_t offset, std::span<std::byte> out) const;

  [[nodiscard]] std::size_t num_blocks() const;

 private:
  using Block = std::shared_ptr<const std::vector<std::byte>>;
  struct Entry {
    Block block;
    std::list<std::uint64_t>::iterator used;
  };
  [[nodiscard]] Block block(std::uint64_t number) const;
  [[nodiscard]] Block fetch(std::uint64_t number) const;

  std::shared_ptr<const RangedSource> source_;
  std::size_t block_bytes_;
  std::size_t max_blocks_;
  mutable std::mutex mutex_;
  mutable std::condition_variable fetched_;
  mutable std::unordered_map<std::uint64_t, Entry> blocks_;
  mutable std::list<std::uint64_t> used_;  // last used first
  mutable std::set<std::uint64_t> coming_;
};

}  // namespace pentatron::datasets
