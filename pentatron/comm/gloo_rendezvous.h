// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <cstdint>
#include <exception>
#include <memory>
#include <string>

#include "pentatron/comm/backend.h"
#include "pentatron/comm/store.h"

// How ranks find each other: the library's TCP store. Inside comm only; it brings c10d along.
// Errors are kComm.
namespace pentatron::comm {

// The first line, without the library's stack trace.
[[nodiscard]] std::string short_message(const std::exception& error);

// A connection to rank 0's store; `serve`: this rank opens the port and serves it.
[[nodiscard]] c10::intrusive_ptr<c10d::Store> connect_store(const GlooOptions& options, bool serve);

// The same values as a Store of our own, through a connection of its own.
[[nodiscard]] std::unique_ptr<Store> open_rendezvous_store(const GlooOptions& options,
                                                           const std::string& prefix);

// The address of this machine that the route to `host` leaves from: the one that peers can reach as
// well. No packet is sent.
[[nodiscard]] std::string local_address_towards(const std::string& host, std::int64_t port);

}  // namespace pentatron::comm
