// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace pentatron::datasets {

// For the members of a blend, of which there may be thousands: calls body(i) for i in [0, count),
// on a few threads; after an error no further ones are begun, and the first is thrown again.
template <typename F>
void for_each_member(std::size_t count, F body) {
  constexpr std::size_t kMaxThreads = 8;
  const std::size_t processors = std::max(1U, std::thread::hardware_concurrency());
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::exception_ptr failure;
  const auto work = [&] {
    for (std::size_t i = next++; i < count; i = next++) {
      try {
        body(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
        next = count;
      }
    }
  };
  std::vector<std::jthread> threads;
  for (std::size_t t = 1; t < std::min({count, processors, kMaxThreads}); ++t) {
    threads.emplace_back(work);
  }
  work();
  threads.clear();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace pentatron::datasets
