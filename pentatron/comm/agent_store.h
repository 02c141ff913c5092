// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "pentatron/comm/backend.h"

namespace pentatron::comm {

// torchrun's agent serves a store of the library on the master port (TORCHELASTIC_USE_AGENT_STORE),
// so rank 0 cannot: it tells its peers through that store where it serves instead.
[[nodiscard]] bool agent_serves();

// Both end within options.timeout, else kComm.
void write_to_agent(const GlooOptions& options, const std::string& key, const std::string& value);
// Waits for the key.
[[nodiscard]] std::string read_from_agent(const GlooOptions& options, const std::string& key);

}  // namespace pentatron::comm
