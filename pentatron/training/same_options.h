// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/comm/group.h"
#include "pentatron/config/config.h"

namespace pentatron::training {

// Every rank must run with the same options, apart from those that only say who it is, where rank 0
// is, and where one rank's logs and the index caches lie: a kConfig error on all ranks that names
// the options, their values and the rank. Collective over `world`; made before anything whose shape
// depends on an option.
void check_same_options(comm::Group& world, const config::RunConfig& config);

}  // namespace pentatron::training
