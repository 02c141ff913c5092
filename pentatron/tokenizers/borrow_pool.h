// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace pentatron::tokenizers {

// Objects that a const method needs to itself for the time of a call (caches, buffers): a call
// borrows one that no other call has, so threads neither wait for each other nor share cache lines.
// There are as many as there were calls at once; the one given back last is lent first.
template <typename T>
class BorrowPool final {
 public:
  class Loan final {
   public:
    Loan(const BorrowPool& pool, std::unique_ptr<T> object)
        : pool_(pool), object_(std::move(object)) {}
    ~Loan() {
      const std::lock_guard lock(pool_.mutex_);
      --pool_.lent_;
      pool_.idle_.push_back(std::move(object_));
    }
    Loan(const Loan&) = delete;
    Loan& operator=(const Loan&) = delete;
    [[nodiscard]] T& operator*() const { return *object_; }

   private:
    const BorrowPool& pool_;
    std::unique_ptr<T> object_;
  };

  // make() gives a unique_ptr to a new object, when all others are lent.
  template <typename Make>
  [[nodiscard]] Loan borrow(Make&& make) const {
    std::unique_ptr<T> object;
    {
      const std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        object = std::move(idle_.back());
        idle_.pop_back();
      }
      idle_.reserve(idle_.size() + ++lent_);  // so that giving back needs no memory
    }
    return Loan(*this, object != nullptr ? std::move(object) : make());
  }

 private:
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<T>> idle_;
  mutable std::size_t lent_ = 0;
};

}  // namespace pentatron::tokenizers
