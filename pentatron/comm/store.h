// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pentatron/comm/backend.h"
#include "pentatron/comm/phase.h"

namespace pentatron::comm {

// Small values that all ranks of a run see; rank 0 serves them. One connection, safe from several
// threads; no call waits for another rank. Failures are kComm errors.
class Store {
 public:
  virtual ~Store() = default;
  virtual void set(const std::string& key, const std::string& bytes) = 0;
  [[nodiscard]] virtual std::optional<std::string> get(const std::string& key) = 0;
  // Adds to the counter of this name (0 at first) and returns the new value.
  virtual std::int64_t add(const std::string& key, std::int64_t amount) = 0;
};

// A gloo backend that another backend stands on: its store and its news of failed ranks.
class RendezvousBackend : public Backend, public PhaseListener {
 public:
  // A connection of its own.
  [[nodiscard]] virtual std::unique_ptr<Store> open_store() = 0;
  // The first failure of any rank that is known here (peers' with up to 0.1 s of delay), or
  // nothing.
  [[nodiscard]] virtual std::string failure() = 0;
  // As Session's: calls of this rank in a group, and who has made fewer.
  virtual void note_calls(const std::string& group, std::int64_t calls) = 0;
  [[nodiscard]] virtual std::string missing(const std::string& group, std::int64_t calls,
                                            const std::vector<std::int64_t>& ranks) = 0;
};
[[nodiscard]] std::unique_ptr<RendezvousBackend> make_rendezvous_backend(
    const GlooOptions& options);

}  // namespace pentatron::comm
