// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/make_ledger.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/comm/group.h"

namespace pentatron::training {
namespace {

using Json = nlohmann::json;

Json describe(const nn::LedgerEntry& entry) {
  return {{"name", entry.name},
          {"kind", static_cast<int>(entry.kind)},
          {"size", entry.size},
          {"coefficient", entry.coefficient}};
}

}  // namespace

std::unique_ptr<nn::StepLedger> make_ledger(const nn::Module& model, comm::ParallelContext& context,
                                            const std::vector<std::string>& asked,
                                            std::vector<nn::LedgerEntry> results, DType loss_dtype,
                                            Device device) {
  Json mine = Json::array();
  std::map<std::string, nn::LedgerEntry> own;
  model.for_each_scalar([&](const nn::LedgerEntry& entry) {
    const bool wanted = std::find(asked.begin(), asked.end(), entry.name) != asked.end();
    if (entry.on_request && !wanted) return;
    if (own.emplace(entry.name, entry).second) mine.push_back(describe(entry));
  });
  // A stage without some module has its entries too: sums over the world are of one length.
  std::vector<nn::LedgerEntry> entries;
  std::map<std::string, Json> known;
  for (const std::string& text : comm::all_gather_bytes(context.world(), mine.dump())) {
    for (const Json& theirs : Json::parse(text)) {
      const auto name = theirs["name"].get<std::string>();
      const auto [found, is_new] = known.emplace(name, theirs);
      PENTATRON_CHECK(found->second == theirs, kInternal,
                      "'{}' is declared as {} on one rank, as {} on another", name,
                      found->second.dump(), theirs.dump());
      if (!is_new) continue;
      const auto declared = own.find(name);
      entries.push_back(declared != own.end()
                            ? declared->second
                            : nn::LedgerEntry{.name = name,
                                              .kind = theirs["kind"].get<nn::ScalarKind>(),
                                              .coefficient = theirs["coefficient"].get<double>(),
                                              .size = theirs["size"].get<std::int64_t>()});
    }
  }
  entries.insert(entries.end(), std::make_move_iterator(results.begin()),
                 std::make_move_iterator(results.end()));
  return std::make_unique<nn::StepLedger>(std::move(entries), loss_dtype, device,
                                          context.coordinate("tp") == 0);
}

}  // namespace pentatron::training
