// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/base/error.h"

// The tier below PENTATRON_CHECK, for what only a bug of ours can break and what is asked too often
// to be checked in every run: a kInternal error in debug builds and under AddressSanitizer, nothing
// at all else (the arguments are compiled, never evaluated).
#if !defined(NDEBUG) || defined(__SANITIZE_ADDRESS__)
#define PENTATRON_DEBUG_CHECKS 1
#else
#define PENTATRON_DEBUG_CHECKS 0
#endif

#define PENTATRON_DEBUG_CHECK(condition, ...)                    \
  do {                                                           \
    if constexpr (PENTATRON_DEBUG_CHECKS) {                      \
      if (!(condition)) PENTATRON_THROW(kInternal, __VA_ARGS__); \
    }                                                            \
  } while (false)
