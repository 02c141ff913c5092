// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "pentatron/pipeline_parallel/compare_schedules.h"

// Pictures of a schedule: time to the right, a line a rank, work named by kind (F, B, W),
// micro-batch and, where a rank has several stages, its chunk (a, b, ..).
namespace pentatron::pipeline_parallel {

struct PictureOptions {
  int width = 120;  // columns at most; below what the names need they are cut, one column an action
                    // stays as long as it has one
  bool colour = false;  // ANSI; without it waits are dots
};

// The schedule is sound.
[[nodiscard]] std::string terminal_picture(const PlayedSchedule& schedule,
                                           const PictureOptions& options);
// A self-contained SVG, at most some 4,000 pixels wide.
[[nodiscard]] std::string svg_picture(const PlayedSchedule& schedule);

}  // namespace pentatron::pipeline_parallel
