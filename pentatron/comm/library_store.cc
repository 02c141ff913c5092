// SPDX-License-Identifier: Apache-2.0
#include "pentatron/comm/library_store.h"

#include <algorithm>

#include "pentatron/base/error.h"

namespace pentatron::comm {
namespace {

class LibraryStore final : public c10d::Store {
 public:
  using Bytes = std::vector<std::uint8_t>;

  LibraryStore(std::shared_ptr<RendezvousClient> client, std::string prefix,
               std::function<std::string()> failure)
      : c10d::Store(client->limit()),
        client_(std::move(client)),
        prefix_(std::move(prefix)),
        failure_(std::move(failure)) {}

  c10::intrusive_ptr<c10d::Store> clone() override {
    return c10::make_intrusive<LibraryStore>(client_, prefix_, failure_);
  }
  void set(const std::string& key, const Bytes& value) override {
    client_->set(prefix_ + key, std::string(value.begin(), value.end()));
  }
  Bytes get(const std::string& key) override {
    const std::string value = wait_for(key, getTimeout());
    return {value.begin(), value.end()};
  }
  std::int64_t add(const std::string& key, std::int64_t value) override {
    return client_->add(prefix_ + key, value);
  }
  bool deleteKey(const std::string& key) override { return client_->remove(prefix_ + key); }
  bool check(const std::vector<std::string>& keys) override {
    return std::ranges::all_of(
        keys, [&](const std::string& key) { return client_->get(prefix_ + key).has_value(); });
  }
  std::int64_t getNumKeys() override { return client_->count(); }
  void wait(const std::vector<std::string>& keys) override { wait(keys, getTimeout()); }
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override {
    for (const std::string& key : keys) static_cast<void>(wait_for(key, timeout));
  }

 private:
  std::string wait_for(const std::string& key, std::chrono::milliseconds timeout) {
    using Clock = std::chrono::steady_clock;
    constexpr std::chrono::milliseconds kSlice{200};  // between looks at the failure
    const auto deadline = Clock::now() + timeout;
    while (true) {
      if (auto value = client_->await(prefix_ + key, std::min(kSlice, timeout))) {
        return std::move(*value);
      }
      if (const std::string reason = failure_(); !reason.empty()) {
        PENTATRON_THROW(kComm, "{}", reason);
      }
      PENTATRON_CHECK(Clock::now() < deadline, kComm, "no peer has set '{}' within {} ms",
                      prefix_ + key, timeout.count());
    }
  }

  std::shared_ptr<RendezvousClient> client_;
  std::string prefix_;
  std::function<std::string()> failure_;
};

}  // namespace

std::string short_message(const std::exception& error) {
  const auto* library = dynamic_cast<const c10::Error*>(&error);
  std::string text = library != nullptr ? library->what_without_backtrace() : error.what();
  return text.substr(0, text.find('\n'));
}

c10::intrusive_ptr<c10d::Store> make_library_store(std::shared_ptr<RendezvousClient> client,
                                                   std::string prefix,
                                                   std::function<std::string()> failure) {
  return c10::make_intrusive<LibraryStore>(std::move(client), std::move(prefix),
                                           std::move(failure));
}

}  // namespace pentatron::comm
