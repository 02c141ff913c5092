// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/block_cache.h"

#include <algorithm>
#include <utility>

#include "pentatron/base/error.h"

namespace pentatron::datasets {

BlockCache::BlockCache(std::shared_ptr<const RangedSource> source, std::size_t block_bytes,
                       std::size_t max_blocks)
    : source_(std::move(source)), block_bytes_(block_bytes), max_blocks_(max_blocks) {
  PENTATRON_CHECK(block_bytes_ > 0 && max_blocks_ > 0, kInternal, "{} blocks of {} bytes",
                  max_blocks_, block_bytes_);
}

std::size_t BlockCache::num_blocks() const {
  const std::lock_guard lock(mutex_);
  return blocks_.size();
}

void BlockCache::read(std::uint64_t offset, std::span<std::byte> out) const {
  PENTATRON_CHECK(offset <= source_->size() && out.size() <= source_->size() - offset, kInternal,
                  "{}: bytes {} to {} of {}", source_->name(), offset, offset + out.size(),
                  source_->size());
  while (!out.empty()) {
    const Block from = block(offset / block_bytes_);
    const auto begin = static_cast<std::size_t>(offset % block_bytes_);
    const std::size_t count = std::min(out.size(), from->size() - begin);
    std::copy_n(from->begin() + static_cast<std::ptrdiff_t>(begin), count, out.begin());
    out = out.subspan(count);
    offset += count;
  }
}

BlockCache::Block BlockCache::fetch(std::uint64_t number) const {
  const std::uint64_t offset = number * block_bytes_;
  auto bytes = std::make_shared<std::vector<std::byte>>(
      static_cast<std::size_t>(std::min<std::uint64_t>(block_bytes_, source_->size() - offset)));
  source_->read(offset, *bytes);
  return bytes;
}

BlockCache::Block BlockCache::block(std::uint64_t number) const {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (const auto found = blocks_.find(number); found != blocks_.end()) {
      used_.splice(used_.begin(), used_, found->second.used);
      return found->second.block;
    }
    if (coming_.insert(number).second) break;
    fetched_.wait(lock);
  }
  // This thread fetches it; the others wait, and try themselves when it fails.
  lock.unlock();
  Block block;
  try {
    block = fetch(number);
  } catch (...) {
    lock.lock();
    coming_.erase(number);
    fetched_.notify_all();
    throw;
  }
  lock.lock();
  coming_.erase(number);
  used_.push_front(number);
  blocks_.emplace(number, Entry{.block = block, .used = used_.begin()});
  if (blocks_.size() > max_blocks_) {
    blocks_.erase(used_.back());
    used_.pop_back();
  }
  fetched_.notify_all();
  return block;
}

}  // namespace pentatron::datasets
