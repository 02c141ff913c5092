// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace pentatron::comm {

inline constexpr const char* kJobTokenVariable = "PENTATRON_JOB_TOKEN";

// What the processes of one job know and other programs do not; whoever connects to the rendezvous
// must prove that he knows it. The first of these that is there:
// - PENTATRON_JOB_TOKEN: `pentatron launch` on one machine draws 128 random bits for each job; on
//   several machines, and under mpirun, set one and the same on all.
// - torchrun's TORCHELASTIC_RUN_ID (its --rdzv-id; random with --standalone) and restart count.
// - Slurm's job and step number: they keep jobs apart, but are no secret.
// Empty where the environment says nothing.
[[nodiscard]] std::string job_token();

// The launcher says that all ranks of the world run on this machine; false where it says nothing.
[[nodiscard]] bool all_ranks_here(std::int64_t world_size);

// 128 bits of the system's random generator, hexadecimal. kIo where there is none.
[[nodiscard]] std::string random_token();

// HMAC-SHA-256 (RFC 2104) of the message under the key, hexadecimal.
[[nodiscard]] std::string keyed_digest(std::string_view key, std::string_view message);

}  // namespace pentatron::comm
