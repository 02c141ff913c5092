// SPDX-License-Identifier: Apache-2.0
#include "pentatron/checkpoint/together.h"

#include "pentatron/base/error.h"

namespace pentatron::checkpoint {

std::vector<std::string> run_together(comm::Group& world, std::string_view failure,
                                      const std::function<std::string()>& work,
                                      const std::function<void()>& clean_up) {
  // First byte: '+' and the result, or the kind of error as a digit and its text.
  std::string message;
  const auto failed = [&](ErrorKind kind, const char* text) {
    message.assign(1, static_cast<char>('0' + static_cast<int>(kind)));
    message += text;
  };
  try {
    message.assign(1, '+');
    message += work();
  } catch (const Error& error) {
    failed(error.kind(), error.what());
  } catch (const std::exception& error) {
    failed(ErrorKind::kInternal, error.what());
  }
  std::vector<std::string> results = comm::all_gather_bytes(world, message);
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    const std::string& result = results[rank];
    if (result.front() == '+') continue;
    if (world.rank() == 0) clean_up();
    world.barrier();
    const auto kind = static_cast<ErrorKind>(result.front() - '0');
    const std::string_view reason = std::string_view(result).substr(1);
    throw Error(kind,
                failure.empty()
                    ? std::string(reason)
                    : fmt::format("{}: rank {}: {}", failure, world.world_ranks()[rank], reason),
                __FILE__, __LINE__);
  }
  for (std::string& result : results) result.erase(0, 1);
  return results;
}

}  // namespace pentatron::checkpoint
