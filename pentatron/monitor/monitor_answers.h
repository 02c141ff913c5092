// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/monitor/http_server.h"
#include "pentatron/monitor/run_store.h"

namespace pentatron::monitor {

// The answer to a request for the page, its parts or the store's runs (server.h lists the paths).
// Does not look at the host.
[[nodiscard]] HttpAnswer answer_request(RunStore& store, const HttpRequest& request);

// Whether a Host header or an address to listen on names this machine only.
[[nodiscard]] bool is_loopback(const std::string& host);

}  // namespace pentatron::monitor
