// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/preprocess.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <set>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/datasets/byte_source.h"
#include "pentatron/datasets/encode_pipeline.h"
#include "pentatron/datasets/preprocess_output.h"
#include "pentatron/tokenizers/tokenizer.h"

namespace pentatron::datasets {
namespace {

void check_keys(const PreprocessOptions& options) {
  PENTATRON_CHECK(!options.json_keys.empty(), kConfig, "--json-keys is empty: name a key");
  std::set<std::string> seen;
  for (const std::string& key : options.json_keys) {
    PENTATRON_CHECK(
        !key.empty() && key.find('/') == std::string::npos && key.find('\0') == std::string::npos,
        kConfig,
        "--json-keys \"{}\": a key is part of a file name; it may not be empty or hold a slash",
        key);
    PENTATRON_CHECK(seen.insert(key).second, kConfig, "--json-keys \"{}\" stands twice", key);
  }
}

// What both entries need.
std::vector<InputFile> check_input(const PreprocessOptions& options) {
  check_keys(options);
  PENTATRON_CHECK(!options.keep_newlines || options.split_sentences, kConfig,
                  "--keep-newlines has no effect without --split-sentences");
  PENTATRON_CHECK(options.max_line_bytes >= 1 && options.max_bytes_under_way >= 1, kInternal,
                  "limits of {} and {} bytes", options.max_line_bytes, options.max_bytes_under_way);
  std::vector<InputFile> files = list_inputs(options.inputs, options.txt_documents);
  const bool plain = std::any_of(files.begin(), files.end(), [](const InputFile& file) {
    return file.format != InputFormat::kJsonLines;
  });
  PENTATRON_CHECK(!plain || options.json_keys.size() == 1, kConfig,
                  "--json-keys names {} keys, but plain text has none: give one, which then names "
                  "the output",
                  options.json_keys.size());
  return files;
}

void check_workers(std::int64_t workers) {
  PENTATRON_CHECK(workers >= 1 && workers <= 4096, kConfig, "--workers {}: expected 1 to 4096",
                  workers);
}

void check_run(const PreprocessOptions& options) {
  check_workers(options.workers);
  PENTATRON_CHECK(!options.output_prefix.empty(), kConfig, "--output-prefix is missing");
  PENTATRON_CHECK(options.log_interval >= 0, kConfig, "--log-interval {} is negative",
                  options.log_interval);
  PENTATRON_CHECK(options.partitions >= 1 && options.workers % options.partitions == 0, kConfig,
                  "--partitions {} must divide --workers {}", options.partitions, options.workers);
}

}  // namespace

PreprocessStats preprocess(const PreprocessOptions& options,
                           const tokenizers::Tokenizer& tokenizer) {
  check_run(options);
  const std::vector<InputFile> files = check_input(options);
  // Input that cannot be used is told before any output is made. A pipe can be opened only once.
  if (files.front().bytes) (void)open_byte_source(files.front().path);
  PreprocessOutput output(options, tokenizer, files);
  EncodePipeline pipeline(options, tokenizer, files, output.start());
  while (std::optional<EncodedBatch> batch = pipeline.next()) {
    output.write(*batch);
    pipeline.give_back(std::move(*batch));
  }
  return output.finish();
}

std::vector<WorkerRate> measure_workers(const PreprocessOptions& options,
                                        const tokenizers::Tokenizer& tokenizer,
                                        std::span<const std::int64_t> worker_counts,
                                        std::int64_t max_documents) {
  PENTATRON_CHECK(max_documents >= 1, kConfig, "--max-documents {}: expected 1 or more",
                  max_documents);
  PENTATRON_CHECK(!worker_counts.empty(), kConfig, "--workers-to-check is empty");
  const std::vector<InputFile> files = check_input(options);
  for (const InputFile& file : files) {
    PENTATRON_CHECK(file.bytes, kConfig,
                    "--find-optimal-num-workers reads the input several times, which {} cannot be",
                    file.name());
  }
  std::vector<WorkerRate> rates;
  for (const std::int64_t workers : worker_counts) {
    check_workers(workers);
    PreprocessOptions with = options;
    with.workers = workers;
    WorkerRate rate{.workers = workers};
    const auto start = std::chrono::steady_clock::now();
    EncodePipeline pipeline(with, tokenizer, files, {});
    while (rate.documents < max_documents) {
      std::optional<EncodedBatch> batch = pipeline.next();
      if (!batch) break;
      rate.documents += batch->documents;
      pipeline.give_back(std::move(*batch));
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    rate.documents_per_second =
        static_cast<double>(rate.documents) / std::max(seconds.count(), 1e-9);
    rates.push_back(rate);
  }
  return rates;
}

}  // namespace pentatron::datasets
