// SPDX-License-Identifier: Apache-2.0
// clang-format off
// sources: pentatron/monitor/record.cc pentatron/monitor/run_data.cc pentatron/monitor/run_json.cc pentatron/monitor/thin_out.cc
// libs: simdjson fmt
// max_len: 8192
// clang-format on
//
// Any bytes as lines of a metrics file: what is taken is within its bounds, and whatever was taken,
// the answers to a page are JSON, whole and in pieces.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "pentatron/monitor/run_data.h"
#include "tests/fuzz/require.h"

using pentatron::fuzz::require;

namespace {

nlohmann::json object_of(const std::string& members) {
  return nlohmann::json::parse("{" + members + "}");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace pentatron::monitor;
  std::string_view text(reinterpret_cast<const char*>(data), size);
  RunData run;
  SeriesRequest request{.num_buckets = 3, .smoothing = 0.5, .fields = {kLossField, kSpeedField}};
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    if (auto record = parse_record(text.substr(0, end))) {
      require(record->iteration >= 0 && record->iteration <= (1LL << 53));
      require(record->set.size() <= 63 && record->prompt.size() <= 4003);
      if (record->kind == RecordKind::kRun) {
        require(nlohmann::json::parse(record->text).is_object());
      }
      run.add(std::move(*record));
    }
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  for (const Axis axis : {Axis::kIteration, Axis::kTokens, Axis::kTime}) {
    request.axis = axis;
    const nlohmann::json all = object_of(run.series_json(request));
    require(all["series"].size() == request.fields.size());
    SeriesRequest more = request;
    more.generation = all["generation"];
    more.width = all["width"];
    more.since = all["last"];
    require(object_of(run.series_json(more))["series"].is_object());
  }
  (void)object_of(run.summary_json(5));
  (void)object_of(run.about_json());
  require(nlohmann::json::parse(run.samples_json()).is_array());
  const std::size_t before = run.num_records();
  run.thin_out();
  require(run.num_records() <= before);
  for (std::size_t from = 0;;) {
    const std::string rows = run.csv_rows(from);
    if (rows.empty()) break;
    from += static_cast<std::size_t>(std::count(rows.begin(), rows.end(), '\n'));
  }
  return 0;
}
