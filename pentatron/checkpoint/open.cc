// SPDX-License-Identifier: Apache-2.0
#include "pentatron/checkpoint/open.h"

#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "pentatron/base/error.h"
#include "pentatron/checkpoint/together.h"
#include "pentatron/comm/backend.h"

namespace pentatron::checkpoint {
namespace {

// Before any rank goes its way: one that saw nothing must not start from scratch beside others that
// load, nor leave them waiting.
Found find_together(const std::filesystem::path& root, std::int64_t step,
                    const PassedOver& passed_over, comm::Group& world) {
  Found found;
  const std::vector<std::string> all = run_together(world, "", [&] {
    found = find_checkpoint(root, step, passed_over);
    return found.result == FindResult::kFound ? fmt::format("iteration {}", found.iteration)
                                              : std::string("no checkpoint");
  });
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    PENTATRON_CHECK(all[rank] == all[0], kConfig,
                    "rank {} and rank 0 differ in what they find (does every rank see the same "
                    "--load folder?): {} and {}",
                    world.world_ranks()[rank], all[rank], all[0]);
  }
  return found;
}

}  // namespace

OpenedCheckpoint open_checkpoint(const std::filesystem::path& root, std::int64_t step,
                                 comm::Group& world) {
  PassedOver passed_over;
  for (;;) {
    OpenedCheckpoint opened{.found = find_together(root, step, passed_over, world),
                            .reader = nullptr};
    if (opened.found.result != FindResult::kFound) return opened;
    std::vector<std::string> problems = run_together(world, "", [&] {
      opened.reader = std::make_unique<CheckpointReader>(opened.found.folder);
      const auto mine = opened.reader->verify_shards(static_cast<std::size_t>(world.rank()),
                                                     static_cast<std::size_t>(world.size()));
      return fmt::format("{}", fmt::join(mine, "; "));
    });
    std::erase(problems, "");
    if (problems.empty()) return opened;
    const std::string what = fmt::format("{}", fmt::join(problems, "; "));
    PENTATRON_CHECK(step <= 0, kCheckpoint,
                    "--ckpt-step {} cannot be used: {}. Name another, or leave it out to load the "
                    "newest that is whole",
                    step, what);
    passed_over[opened.found.iteration] = what;
  }
}

OpenedCheckpoint open_checkpoint(const std::filesystem::path& root, std::int64_t step) {
  const std::unique_ptr<comm::Backend> backend = comm::make_single_backend();
  const std::unique_ptr<comm::Group> alone = backend->make_group({0}, "load");
  return open_checkpoint(root, step, *alone);
}

}  // namespace pentatron::checkpoint
