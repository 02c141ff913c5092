// SPDX-License-Identifier: Apache-2.0
#include "pentatron/base/busy_machine.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace pentatron {
namespace {

TEST(BusyMachine, ThreadsSleepWhereOthersWantTheCores) {
  EXPECT_FALSE(should_give_way({.load = 0.1, .cores = 2}));
  EXPECT_TRUE(should_give_way({.load = 1.0, .cores = 2}));
  EXPECT_TRUE(should_give_way({.load = 20.0, .cores = 16, .ranks_here = 8}));
  EXPECT_FALSE(should_give_way({.load = 20.0, .cores = 1}));  // nobody to wait for
  EXPECT_FALSE(should_give_way({.load = 20.0, .cores = 8, .ranks_here = 8}));
  EXPECT_FALSE(should_give_way({.load = 20.0, .cores = 2, .user_decided = true}));
}

TEST(BusyMachine, TheUserDecides) {
  ::unsetenv("GOMP_SPINCOUNT");
  ::unsetenv("OMP_WAIT_POLICY");
  for (const char* threads : {"1", "2"}) {  // 1: what torchrun sets
    ::setenv("OMP_NUM_THREADS", threads, 1);
    EXPECT_FALSE(look_at_machine().user_decided) << threads;
  }
  ::setenv("OMP_WAIT_POLICY", "active", 1);
  EXPECT_TRUE(look_at_machine().user_decided);
  ::unsetenv("OMP_WAIT_POLICY");
  ::setenv("GOMP_SPINCOUNT", "1", 1);
  EXPECT_TRUE(look_at_machine().user_decided);
  ::unsetenv("GOMP_SPINCOUNT");
  EXPECT_GE(look_at_machine().cores, 1);
}

}  // namespace
}  // namespace pentatron
