// SPDX-License-Identifier: Apache-2.0
#include "pentatron/checkpoint/together.h"

#include "pentatron/base/error.h"

namespace pentatron::checkpoint {
namespace {

// What a rank tells the others: a line that names its kind of error or says that there is none,
// and behind it the result or the error's text.
constexpr std::string_view kDone = "done";

std::string told(std::string_view kind, std::string_view text) {
  return fmt::format("{}\n{}", kind, text);
}

ErrorKind kind_named(std::string_view name) {
  for (const ErrorKind kind :
       {ErrorKind::kConfig, ErrorKind::kData, ErrorKind::kIo, ErrorKind::kCuda, ErrorKind::kComm,
        ErrorKind::kCheckpoint, ErrorKind::kUnsupported}) {
    if (to_string(kind) == name) return kind;
  }
  return ErrorKind::kInternal;
}

}  // namespace

std::vector<std::string> run_together(comm::Group& world, std::string_view failure,
                                      const std::function<std::string()>& work,
                                      const std::function<void()>& clean_up) {
  std::string message;
  try {
    message = told(kDone, work());
  } catch (const Error& error) {
    message = told(to_string(error.kind()), error.what());
  } catch (const std::exception& error) {
    message = told(to_string(ErrorKind::kInternal), error.what());
  }
  std::vector<std::string> results = comm::all_gather_bytes(world, message);
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    const std::string_view result = results[rank];
    const std::size_t line = result.find('\n');
    if (result.substr(0, line) == kDone) continue;
    if (world.rank() == 0) clean_up();
    world.barrier();
    const std::string_view reason = result.substr(line + 1);
    throw Error(kind_named(result.substr(0, line)),
                failure.empty()
                    ? std::string(reason)
                    : fmt::format("{}: rank {}: {}", failure, world.world_ranks()[rank], reason),
                __FILE__, __LINE__);
  }
  for (std::string& result : results) result.erase(0, kDone.size() + 1);
  return results;
}

}  // namespace pentatron::checkpoint
