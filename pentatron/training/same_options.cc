// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/same_options.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "pentatron/base/error.h"
#include "pentatron/base/printable.h"
#include "pentatron/base/sha256.h"
#include "pentatron/config/config_json.h"
#include "pentatron/config/option_index.h"

namespace pentatron::training {
namespace {

constexpr std::size_t kMaxNamed = 8;  // differences in one message
constexpr std::size_t kMaxValueBytes = 120;

std::string agreed_text(const config::RunConfig& config) {
  config::RunConfig agreed = config;
  const config::ParallelConfig none;
  agreed.parallel.rank = none.rank;
  agreed.parallel.local_rank = none.local_rank;
  agreed.parallel.master_addr = none.master_addr;  // one machine may have several names
  agreed.parallel.master_port = none.master_port;
  // One rank's output, and what is the same wherever it lies.
  agreed.training.metrics_file.clear();
  agreed.logging.tensorboard_dir.clear();
  agreed.data.data_cache_path.clear();
  agreed.logging.log_format.clear();
  agreed.logging.quiet = false;
  return config::to_json(agreed);
}

// "--micro-batch-size 2 on rank 0, 4 on rank 1; ..."
std::string differences(const nlohmann::json& first, const nlohmann::json& other,
                        std::size_t rank) {
  const config::OptionIndex options;
  std::string text;
  std::size_t named = 0;
  for (const auto& [part, fields] : first.items()) {
    for (const auto& [field, value] : fields.items()) {
      const nlohmann::json theirs =
          other.value(part, nlohmann::json::object()).value(field, nlohmann::json());
      if (theirs == value || ++named > kMaxNamed) continue;
      const config::OptionSpec* row = options.find_dest(field);
      const std::string name(row == nullptr ? std::string_view(field)
                                            : row->names.substr(0, row->names.find(' ')));
      const bool inverted = row != nullptr && row->kind == config::OptionKind::kSwitchOff;
      const auto shown = [&](const nlohmann::json& of) {
        // Of "--no-..." the option, where the field is what it turns off.
        const bool flips = inverted && of.is_boolean();
        return printable((flips ? nlohmann::json(!of.get<bool>()) : of).dump(), kMaxValueBytes);
      };
      text += fmt::format("{}{} is {} on rank 0, {} on rank {}", text.empty() ? "" : "; ", name,
                          shown(value), shown(theirs), rank);
    }
  }
  if (named > kMaxNamed) text += fmt::format("; and {} more", named - kMaxNamed);
  return text;
}

}  // namespace

void check_same_options(comm::Group& world, const config::RunConfig& config) {
  if (world.size() == 1) return;
  const std::string mine = agreed_text(config);
  // Hashes first: the texts only where they differ, which all ranks then know.
  const auto hashes = comm::all_gather_bytes(world, sha256_hex(mine));
  const auto differs = [&](const std::string& hash) { return hash != hashes[0]; };
  if (std::ranges::none_of(hashes, differs)) return;
  const auto texts = comm::all_gather_bytes(world, mine);
  const auto rank =
      static_cast<std::size_t>(std::ranges::find_if(hashes, differs) - hashes.begin());
  PENTATRON_THROW(
      kConfig, "the ranks have different options: {}; give all ranks the same",
      differences(nlohmann::json::parse(texts[0]), nlohmann::json::parse(texts[rank]), rank));
}

}  // namespace pentatron::training
