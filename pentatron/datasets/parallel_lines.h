// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace pentatron::datasets {

struct ParallelLinesOptions {
  std::int64_t workers = 1;
  // Called by the reading thread: lines and bytes (unpacked) so far.
  std::function<void(std::int64_t lines, std::uint64_t bytes)> progress = {};
};

// Reads text files ("-": standard input; packed ones, too) one after the other, and hands their
// lines, each with its line feed, to worker threads in no set order: take(worker, line), one call a
// worker at a time. Memory is a few blocks of lines a worker. Errors: those of the files and of
// take(), which end it; kData for a line of more than 256 MiB; kConfig for a bad number of workers.
void read_lines_in_parallel(
    std::span<const std::string> paths, const ParallelLinesOptions& options,
    const std::function<void(std::size_t worker, std::string_view line)>& take);

}  // namespace pentatron::datasets
