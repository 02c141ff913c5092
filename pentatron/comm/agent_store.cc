// SPDX-License-Identifier: Apache-2.0
#include "pentatron/comm/agent_store.h"

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <functional>
#include <future>
#include <thread>

#include "pentatron/base/env.h"
#include "pentatron/base/error.h"
#include "pentatron/comm/library_store.h"
#include "pentatron/comm/rendezvous_address.h"

namespace pentatron::comm {
namespace {

using Call = std::function<std::string(c10d::Store&)>;

// The library waits without a limit for a server that has stopped, so the call has a thread, which
// is left behind then.
std::string call_agent(const GlooOptions& options, const Call& call) {
  static_cast<void>(resolve_host(options.master_addr, options.master_port));
  auto promise = std::make_shared<std::promise<std::string>>();
  std::future<std::string> answer = promise->get_future();
  std::thread([promise, options, call] {
    try {
      c10d::TCPStoreOptions store;
      store.port = static_cast<std::uint16_t>(options.master_port);
      store.waitWorkers = false;
      store.timeout = options.timeout;
      const auto client = c10::make_intrusive<c10d::TCPStore>(options.master_addr, store);
      promise->set_value(call(*client));
    } catch (...) {
      promise->set_exception(std::current_exception());
    }
  }).detach();
  const auto refuse = [&](const std::string& why) {
    PENTATRON_THROW(kComm, "rank {}: the store of torchrun's agent at {}:{}: {}", options.rank,
                    options.master_addr, options.master_port, why);
  };
  if (answer.wait_for(options.timeout) != std::future_status::ready) {
    refuse(fmt::format("no answer within {} ms", options.timeout.count()));
  }
  try {
    return answer.get();
  } catch (const std::exception& error) {
    refuse(short_message(error));
  }
  return {};
}

// A restarted job must not read what it wrote before the restart.
std::string key_of_attempt(const std::string& key) {
  return fmt::format("pentatron/{}/{}", env_string("TORCHELASTIC_RESTART_COUNT").value_or("0"),
                     key);
}

}  // namespace

bool agent_serves() { return env_string("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True"; }

void write_to_agent(const GlooOptions& options, const std::string& key, const std::string& value) {
  static_cast<void>(call_agent(options, [key, value](c10d::Store& store) {
    store.set(key_of_attempt(key), std::vector<std::uint8_t>(value.begin(), value.end()));
    return std::string();
  }));
}

std::string read_from_agent(const GlooOptions& options, const std::string& key) {
  return call_agent(options, [key](c10d::Store& store) {
    const auto bytes = store.get(key_of_attempt(key));
    return std::string(bytes.begin(), bytes.end());
  });
}

}  // namespace pentatron::comm
