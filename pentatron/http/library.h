// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "pentatron/base/ranged_source.h"

// Of libpentatron_http.so, which is loaded when a corpus is named by an address: opens the object
// at `url`. Errors: those of HttpRangedSource.
using PentatronOpenHttpSource = void(const std::string& url,
                                     std::unique_ptr<pentatron::RangedSource>& out);
extern "C" PentatronOpenHttpSource pentatron_open_http_source;
