// SPDX-License-Identifier: Apache-2.0
#include <set>

#include "pentatron/config/option_binding.h"

namespace pentatron::config {
namespace {

// Derived values, those of the launcher, and the precision, which three switches set.
constexpr ConfigField kWithoutOption[] = {
    {"parallel", "master_addr", nullptr, Resume::kFree,
     bind<&RunConfig::parallel, &ParallelConfig::master_addr>()},
    {"parallel", "master_port", nullptr, Resume::kFree,
     bind<&RunConfig::parallel, &ParallelConfig::master_port>()},
    {"parallel", "data_parallel_size", nullptr, Resume::kFree,
     bind<&RunConfig::parallel, &ParallelConfig::data_parallel_size>()},
    {"data", "null_tokenizer_vocab_size", nullptr, Resume::kFree,
     bind<&RunConfig::data, &DataConfig::null_tokenizer_vocab_size>()},
    {"training", "precision", nullptr, Resume::kRun,
     bind<&RunConfig::training, &TrainingConfig::precision>()}};

Resume resume_of(const OptionSpec& spec) {
  if (spec.resume != Resume::kOfPart) return spec.resume;
  if (spec.field.part == "model") return Resume::kModel;
  return spec.field.part == "optimizer" ? Resume::kSchedule : Resume::kFree;
}

}  // namespace

std::vector<ConfigField> config_fields() {
  std::vector<ConfigField> fields;
  std::set<std::string_view> names;  // several rows may lead to one field
  for (const OptionSpec* spec : all_options()) {
    if (spec->field.part.empty() || !names.insert(spec->dest).second) continue;
    fields.push_back({spec->field.part, spec->dest, spec->check, resume_of(*spec), spec->field});
  }
  fields.insert(fields.end(), std::begin(kWithoutOption), std::end(kWithoutOption));
  return fields;
}

}  // namespace pentatron::config
