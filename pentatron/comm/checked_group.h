// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "pentatron/comm/group.h"

namespace pentatron::comm {

// Tensors of which device are compared. Those on the CPU need it not where the group hands them to
// one that compares calls itself.
enum class CheckedDevices { kAll, kGpus };

// A group whose members tell each other what they call (--check-collectives): wrong order, sizes,
// dtypes and messages are kComm errors that name both calls, thrown by Work::wait() before it waits
// for the operation itself. `host` has the same members, carries the words (160 bytes a call and a
// message, CPU tensors) and nothing else. Sends are waited for until the peer has begun to receive.
[[nodiscard]] std::unique_ptr<Group> make_checked_group(std::unique_ptr<Group> real,
                                                        std::unique_ptr<Group> host,
                                                        CheckedDevices devices);

}  // namespace pentatron::comm
