// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "pentatron/base/error.h"

// Included by tests only.
namespace pentatron {

// Fails unless `action` throws an Error of this kind whose message contains `part`.
template <typename Action>
void expect_error(ErrorKind kind, std::string_view part, Action&& action) {
  try {
    action();
    ADD_FAILURE() << "expected an error of kind " << to_string(kind) << " with: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(to_string(error.kind()), to_string(kind)) << error.what();
    EXPECT_NE(std::string_view(error.what()).find(part), std::string_view::npos)
        << "message: " << error.what() << "\nexpected part: " << part;
  }
}

}  // namespace pentatron
