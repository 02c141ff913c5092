// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/gpt_index_cache.h"

#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <span>
#include <utility>
#include <vector>

#include "pentatron/base/error.h"
#include "pentatron/base/format.h"
#include "pentatron/base/log.h"
#include "pentatron/base/screen.h"
#include "pentatron/base/sha256.h"
#include "pentatron/datasets/index_file.h"
#include "pentatron/datasets/remote_file.h"

namespace pentatron::datasets {
namespace fs = std::filesystem;
namespace {

constexpr std::array kVersions = {MegatronVersion::kNewer, MegatronVersion::k016};

std::string matrix_text(const SplitMatrix& matrix) {
  std::string text = "[\n";
  for (std::size_t i = 0; i < matrix.ranges.size(); ++i) {
    const auto& range = matrix.ranges[i];
    if (!range) {
      text += "        null";
    } else {
      // Megatron's very first bound is the integer 0; all others are floats.
      const std::string begin = i == 0 ? "0" : python_json_float(range->first);
      text += fmt::format("        [\n            {},\n            {}\n        ]", begin,
                          python_json_float(range->second));
    }
    text += i + 1 < matrix.ranges.size() ? ",\n" : "\n";
  }
  return text + "    ]";
}

std::string tokenizer_text(tokenizers::TokenizerDescription tokenizer, MegatronVersion version) {
  tokenizer.class_name = version == MegatronVersion::kNewer ? tokenizers::kMegatronTextClass
                                                            : tokenizers::kMegatronTextClass0161;
  return tokenizers::description_json(tokenizer, 1);
}

constexpr std::size_t kSampleIndex = 1;  // its place in the arrays of cache_entry()

// The files of `index` in the cache; it must outlive the entry.
CacheEntry cache_entry(GptIndex& index, const GptIndexRequest& request, std::uint32_t layout,
                       MegatronVersion version) {
  return {.what = "index",
          .stem = fs::path(gpt_index_cache_folder(request)) / gpt_index_file_stem(request, version),
          .description = gpt_index_description(request, version),
          .made_of = fmt::format("sequences {:08x}{}", layout,
                                 request.keep_partial_sample ? ", partial sample kept" : ""),
          .arrays = {{.name = "document_index", .values = &index.document_index},
                     {.name = "sample_index", .values = &index.sample_index, .columns = 2},
                     {.name = "shuffle_index", .values = &index.shuffle_index}},
          .largest_in_memory = request.quiet ? 0 : request.largest_in_memory,
          .log = request.cache_log};
}

void tell_size(const GptIndex& index) {
  log::info("> total number of samples: {}", index.num_samples());
  log::info("> total number of epochs: {}", index.plan.num_epochs);
}

// From the cache or built, and then written there.
void use_cache(const GptIndexSource& source, const GptIndexRequest& request, bool tells,
               GptIndex& index) {
  const std::uint32_t layout = source.corpus->layout_checksum();
  std::vector<CacheEntry> names;
  for (const MegatronVersion version : kVersions) {
    names.push_back(cache_entry(index, request, layout, version));
  }
  const auto wrong_with = [&] {
    index.plan = plan_gpt_index(source, request.num_samples);
    return check_gpt_index_sizes(source, index);
  };
  const auto build = [&](std::span<ArraySink> sinks) {
    if (tells) {
      log::info("Build and save the {} {} indices", request.class_name, to_string(request.split));
    }
    index = build_gpt_index(source, request.num_samples, sinks[kSampleIndex]);
  };
  if (serve_or_build(names, {.wrong_with = wrong_with, .build = build})) {
    if (!tells) return;
    log::info("Load the {} {} indices from {}", request.class_name, to_string(request.split),
              gpt_index_cache_folder(request));
  } else if (tells) {
    tell_size(index);
  }
}

}  // namespace

std::string gpt_index_description(const GptIndexRequest& request, MegatronVersion version) {
  return fmt::format(
      "{{\n    \"class\": \"{}\",\n    \"dataset_path\": {},\n    \"num_samples\": {},\n"
      "    \"index_split\": \"{}\",\n    \"random_seed\": {},\n    \"sequence_length\": {},\n"
      "    \"split\": {},\n    \"split_matrix\": {},\n    \"tokenizer\": {}\n}}",
      request.class_name, python_json_text(request.dataset_path),
      request.num_samples ? std::to_string(*request.num_samples) : std::string("null"),
      to_string(request.split), request.seed, request.sequence_length,
      python_json_text(request.split_matrix.text), matrix_text(request.split_matrix),
      tokenizer_text(request.tokenizer, version));
}

std::string gpt_index_file_stem(const GptIndexRequest& request, MegatronVersion version) {
  return fmt::format("{}-{}-{}", md5_hex(gpt_index_description(request, version)),
                     request.class_name, to_string(request.split));
}

std::string gpt_index_cache_folder(const GptIndexRequest& request) {
  if (!request.cache_path.empty()) return request.cache_path;
  PENTATRON_CHECK(!is_remote(request.dataset_path), kConfig,
                  "{} is on a server, where no index can be kept: give --data-cache-path a folder",
                  request.dataset_path);
  return (fs::path(request.dataset_path) / "cache" / (request.class_name + "_indices")).string();
}

GptIndexSource gpt_index_source(const Corpus& corpus, const GptIndexRequest& request) {
  const auto [begin, end] =
      split_range(request.split_matrix, request.split, corpus.num_sequences());
  PENTATRON_CHECK(
      begin < end, kData,
      "{} has {} sequences, and --split \"{}\" leaves none of them for {}: change --split, "
      "or ask for no {} samples",
      corpus.name(), corpus.num_sequences(), request.split_matrix.text, to_string(request.split),
      to_string(request.split));
  GptIndexSource source;
  source.corpus = &corpus;
  source.begin = begin;
  source.end = end;
  source.sequence_length = request.sequence_length;
  source.seed = request.seed;
  source.keep_partial_sample = request.keep_partial_sample;
  return source;
}

GptIndex load_or_build_gpt_index(const Corpus& corpus, const GptIndexRequest& request) {
  const GptIndexSource source = gpt_index_source(corpus, request);
  const bool tells = !request.quiet && !screen::is_terse();
  GptIndex index;
  if (request.use_cache) {
    use_cache(source, request, tells, index);
    return index;
  }
  if (tells) log::info("Build the {} {} indices", request.class_name, to_string(request.split));
  index = build_gpt_index(source, request.num_samples);
  if (tells) tell_size(index);
  return index;
}

}  // namespace pentatron::datasets
