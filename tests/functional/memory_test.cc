// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/functional/tiny_run.h"

namespace pentatron::functional {

// The child's resident memory is read when the log line of a step appears and once more when the
// next does; the smaller of the two leaves out what the step itself holds for a moment.
TEST(Memory, ResidentStaysFlat) {
  const auto at = [](const RunningProgram& program, int step) {
    const std::string number = std::to_string(step);
    const std::string line = "] iteration " + std::string(8 - number.size(), ' ') + number + "/";
    return program.out.find(line) != std::string::npos;
  };
  std::int64_t early_kb = 0;
  std::int64_t late_kb = 0;
  const TinyRun run = try_train(
      base().with("--train-iters", 1020).with("--log-interval", 10).with("--num-workers", 2),
      {.timeout = std::chrono::minutes(5), .observe = [&](const RunningProgram& program) {
         const auto sample = [&](std::int64_t& kept, int begin, int end) {
           if (!at(program, begin) || at(program, end)) return;
           const std::int64_t now = process_status(program.pid, "VmRSS");
           if (now > 0 && (kept == 0 || now < kept)) kept = now;
         };
         sample(early_kb, 100, 110);
         sample(late_kb, 1000, 1010);
       }});
  EXPECT_TRUE(run.program.ok()) << run.program.describe();
  EXPECT_EQ(run.losses().size(), 1020U);
  ASSERT_GT(early_kb, 0);
  ASSERT_GT(late_kb, 0);
  std::cout << "resident after 100 steps " << early_kb << " kB, after 1000 " << late_kb << " kB\n";
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the run itself passed; AddressSanitizer keeps freed memory";
#endif
  EXPECT_LE(static_cast<double>(late_kb), 1.01 * static_cast<double>(early_kb));
}

}  // namespace pentatron::functional
