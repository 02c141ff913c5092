// SPDX-License-Identifier: Apache-2.0
#include "pentatron/base/event_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <span>

#include "event_file.pb.h"
#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/base/log.h"
#include "pentatron/base/sha256.h"

namespace pentatron {
namespace {

constexpr double kFlushSeconds = 120;

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

template <typename Integer>
void append_little_endian(std::string& out, Integer value) {
  for (std::size_t byte = 0; byte < sizeof(value); ++byte) {
    out += static_cast<char>((value >> (8 * byte)) & 0xFFU);
  }
}

// A checksum stored beside the data that it sums is rotated and shifted first, so that a sum over
// both does not degenerate.
std::uint32_t masked_crc(std::string_view bytes) {
  constexpr std::uint32_t kShift = 0xA282EAD8U;
  const std::uint32_t crc = crc32c(std::as_bytes(std::span(bytes)));
  return ((crc >> 15) | (crc << 17)) + kShift;
}

std::filesystem::path new_event_file(const std::filesystem::path& folder) {
  static std::atomic<int> number{0};  // of the files of this process
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  return folder /
         fmt::format("events.out.tfevents.{:010}.{}.{}.{}", static_cast<std::int64_t>(wall_time()),
                     host[0] == '\0' ? "localhost" : host.data(), ::getpid(), number.fetch_add(1));
}

tensorboard::Event event_at(std::int64_t step) {
  tensorboard::Event event;
  event.set_wall_time(wall_time());
  event.set_step(step);
  return event;
}

}  // namespace

std::string event_record(std::string_view payload) {
  std::string record;
  append_little_endian(record, static_cast<std::uint64_t>(payload.size()));
  append_little_endian(record, masked_crc(record));
  record += payload;
  append_little_endian(record, masked_crc(payload));
  return record;
}

EventFile::EventFile(const std::filesystem::path& folder, std::int64_t queue_size)
    : queue_size_(queue_size) {
  create_folders(folder);
  path_ = new_event_file(folder);
  out_.emplace(path_, "--tensorboard-dir: the file");
  tensorboard::Event version = event_at(0);
  version.set_file_version("brain.Event:2");
  add(version.SerializeAsString());
  flush();
}

EventFile::~EventFile() {
  try {
    flush();
  } catch (const std::exception& error) {
    log::error("{}", error.what());
  }
}

void EventFile::scalar(std::string_view tag, double value, std::int64_t step) {
  tensorboard::Event event = event_at(step);
  auto* entry = event.mutable_summary()->add_value();
  entry->set_tag(std::string(tag));
  entry->set_simple_value(static_cast<float>(value));
  add(event.SerializeAsString());
}

void EventFile::text(std::string_view tag, std::string_view text, std::int64_t step) {
  constexpr int kStrings = 7;
  tensorboard::Event event = event_at(step);
  auto* entry = event.mutable_summary()->add_value();
  // The name that TensorBoard's text page looks for.
  entry->set_tag(std::string(tag) + "/text_summary");
  entry->mutable_metadata()->mutable_plugin_data()->set_plugin_name("text");
  entry->mutable_tensor()->set_dtype(kStrings);
  entry->mutable_tensor()->mutable_tensor_shape()->add_dim()->set_size(1);
  entry->mutable_tensor()->add_string_val(std::string(text));
  add(event.SerializeAsString());
}

void EventFile::add(const std::string& payload) {
  buffer_ += event_record(payload);
  if (++waiting_ >= queue_size_ || since_flush_.seconds() > kFlushSeconds) flush();
}

void EventFile::flush() {
  (void)out_->append(buffer_);
  buffer_.clear();
  waiting_ = 0;
  since_flush_.restart();
}

}  // namespace pentatron
