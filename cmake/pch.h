// SPDX-License-Identifier: Apache-2.0
// The one precompiled header: Tensor.h (3.6 s a file without it) and the standard headers that most
// files use.
#pragma once
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>
