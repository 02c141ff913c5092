// SPDX-License-Identifier: Apache-2.0
#include "pentatron/http/library.h"

#include "pentatron/http/http_ranged_source.h"

void pentatron_open_http_source(const std::string& url,
                                std::unique_ptr<pentatron::RangedSource>& out) {
  out = std::make_unique<pentatron::http::HttpRangedSource>(url);
}
