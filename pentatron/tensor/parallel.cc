// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tensor/parallel.h"

#include <ATen/Parallel.h>

#include <algorithm>

namespace pentatron::tensor {

int num_threads() { return at::get_num_threads(); }
void set_num_threads(int threads) { at::set_num_threads(threads); }
bool runs_alone() { return at::get_num_threads() == 1 || at::in_parallel_region(); }

void parallel_for(std::int64_t begin, std::int64_t end, std::int64_t grain,
                  const std::function<void(std::int64_t, std::int64_t)>& body) {
  at::parallel_for(begin, end, std::max<std::int64_t>(grain, 1), body);
}

void parallel_tasks(std::int64_t count, const std::function<void(TaskSource&)>& worker) {
  if (count <= 0) return;
  TaskSource source(count);
  const std::int64_t workers = std::min<std::int64_t>(count, num_threads());
  at::parallel_for(0, workers, 1, [&](std::int64_t, std::int64_t) { worker(source); });
}

}  // namespace pentatron::tensor
