// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <exception>
#include <functional>
#include <memory>
#include <string>

#include "pentatron/comm/rendezvous_client.h"

// Inside comm only; it brings c10d along.
namespace pentatron::comm {

// The first line, without the library's stack trace.
[[nodiscard]] std::string short_message(const std::exception& error);

// Our rendezvous as the library's process groups ask for it, keys under a prefix. Waits end with a
// kComm error after the client's limit, and as soon as `failure` returns a text.
[[nodiscard]] c10::intrusive_ptr<c10d::Store> make_library_store(
    std::shared_ptr<RendezvousClient> client, std::string prefix,
    std::function<std::string()> failure);

}  // namespace pentatron::comm
