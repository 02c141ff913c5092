// SPDX-License-Identifier: Apache-2.0
// clang-format off
// sources: pentatron/monitor/http_request.cc pentatron/monitor/monitor_answers.cc pentatron/monitor/run_store.cc pentatron/monitor/metrics_tail.cc pentatron/monitor/record.cc pentatron/monitor/run_data.cc pentatron/monitor/run_json.cc pentatron/monitor/thin_out.cc pentatron/base/error.cc
// libs: simdjson fmt
// max_len: 12000
// clang-format on
//
// Any bytes that come over a connection of `watch`: requests are read alike whole and in pieces,
// and each has an answer of a known status whose JSON is JSON.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>

#include "pentatron/monitor/monitor_answers.h"
#include "pentatron/monitor/page.h"
#include "tests/fuzz/require.h"

using pentatron::fuzz::require;

// The page's own files are made when the library is built; what requests do is the same without.
namespace pentatron::monitor {
std::span<const EmbeddedFile> page_files() {
  static constexpr EmbeddedFile kPage[] = {{"page.html", "<title>page</title>"}};
  return kPage;
}
}  // namespace pentatron::monitor

namespace {

using namespace pentatron::monitor;

RunStore& store() {
  static RunStore* const kStore = [] {
    const auto folder = std::filesystem::temp_directory_path() /
                        ("http_request_fuzz_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder);
    std::ofstream out(folder / "run.jsonl");
    for (int i = 1; i <= 50; ++i) {
      out << R"({"kind":"train","iteration":)" << i << R"(,"lm_loss":2.5,"seconds":1})"
          << "\n";
    }
    out.close();
    auto* made = new RunStore(folder);
    made->read_all();
    std::filesystem::remove_all(folder);
    return made;
  }();
  return *kStore;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view text(reinterpret_cast<const char*>(data), size);
  while (true) {
    const ParsedRequest parsed = parse_request(text);
    // What was clear from fewer bytes stays so.
    const ParsedRequest half = parse_request(text.substr(0, text.size() / 2));
    require(half.status == 0 || (half.status == parsed.status && half.size == parsed.size));
    if (parsed.status != 200) {
      require(parsed.status == 0 || (parsed.status >= 400 && parsed.status <= 505));
      return 0;
    }
    require(parsed.size > 0 && parsed.size <= text.size() && parsed.size <= kLongestHead);
    require(parsed.request.path.starts_with("/"));
    HttpAnswer answer = answer_request(store(), parsed.request);
    require(answer.status == 200 || answer.status == 400 || answer.status == 404);
    if (answer.type == "application/json") (void)nlohmann::json::parse(answer.body);
    for (int i = 0; answer.next_piece && i < 10; ++i) {
      if (answer.next_piece().empty()) break;
    }
    text.remove_prefix(parsed.size);
  }
}
