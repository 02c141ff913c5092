// SPDX-License-Identifier: Apache-2.0
#include "tests/functional/tiny_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <fstream>
#include <limits>
#include <mutex>
#include <sstream>
#include <thread>

#include "pentatron/base/temp_folder.h"
#include "pentatron/datasets/indexed_dataset_writer.h"

namespace pentatron::functional {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::int32_t kEndToken = 63;

const fs::path& scratch() {
  static const TempFolder kFolder("pentatron_functional");
  return kFolder.path();
}

void write_corpus(const std::string& prefix, std::uint32_t seed) {
  constexpr int kDocuments = 40;
  datasets::IndexedDatasetWriter writer(prefix, datasets::TokenDtype::kUint16);
  std::uint32_t state = seed;
  const auto draw = [&state](std::uint32_t below) {
    state = state * 1664525U + 1013904223U;
    return static_cast<std::int32_t>((state >> 8) % below);
  };
  for (int i = 0; i < kDocuments; ++i) {
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(5 + draw(20)));
    for (std::int32_t& token : tokens) token = draw(kEndToken);
    tokens.push_back(kEndToken);
    writer.add_sequence(tokens);
    writer.end_document();
  }
  writer.finish();
}

template <typename Visit>
void for_each_line(const std::string& text, Visit&& visit) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) visit(line);
}

}  // namespace

Options Options::with(const std::string& name, std::vector<std::string> values) const {
  Options copy = *this;
  copy.values_[name] = std::move(values);
  return copy;
}

Options Options::without(const std::string& name) const {
  Options copy = *this;
  copy.values_.erase(name);
  return copy;
}

std::string Options::value(const std::string& name) const {
  const auto found = values_.find(name);
  return found == values_.end() || found->second.empty() ? "" : found->second.front();
}

std::vector<std::string> Options::words(const std::string& command) const {
  std::vector<std::string> words{command};
  for (const auto& [name, values] : values_) {
    words.push_back(name);
    words.insert(words.end(), values.begin(), values.end());
  }
  return words;
}

std::vector<double> TinyRun::series(const std::string& kind, const std::string& name) const {
  std::vector<double> values;
  if (!fs::exists(metrics_file)) return values;
  for_each_line(read_file(metrics_file), [&](const std::string& line) {
    const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (json.is_object() && json.value("kind", "") == kind && json.contains(name)) {
      values.push_back(json[name].get<double>());
    }
  });
  return values;
}

double TinyRun::first_loss() const {
  const std::vector<double> all = losses();
  EXPECT_FALSE(all.empty()) << "no training loss in " << metrics_file;
  return all.empty() ? std::numeric_limits<double>::quiet_NaN() : all.front();
}

double TinyRun::last_loss() const {
  const std::vector<double> all = losses();
  EXPECT_FALSE(all.empty()) << "no training loss in " << metrics_file;
  return all.empty() ? std::numeric_limits<double>::quiet_NaN() : all.back();
}

std::vector<std::string> TinyRun::iteration_lines() const {
  std::vector<std::string> lines;
  for_each_line(program.out, [&](const std::string& line) {
    if (line.find("] iteration ") != std::string::npos &&
        line.find("| consumed samples:") != std::string::npos) {
      lines.push_back(line);
    }
  });
  return lines;
}

fs::path new_folder() {
  static std::atomic<int> number{0};
  const fs::path folder = scratch() / fmt::format("run_{}", number++);
  fs::create_directories(folder);
  return folder;
}

std::string corpus(int number) {
  static const std::vector<std::string> kPrefixes = [] {
    std::vector<std::string> made;
    for (std::uint32_t i = 0; i < 2; ++i) {
      made.push_back((scratch() / fmt::format("corpus_{}", i)).string());
      write_corpus(made.back(), 17 + i);
    }
    return made;
  }();
  return kPrefixes.at(static_cast<std::size_t>(number));
}

Options base() {
  return {{"--num-layers", {"2"}},
          {"--hidden-size", {"16"}},
          {"--num-attention-heads", {"2"}},
          {"--seq-length", {"16"}},
          {"--max-position-embeddings", {"16"}},
          // Large enough that attention is far from uniform.
          {"--init-method-std", {"0.5"}},
          {"--hidden-dropout", {"0"}},
          {"--attention-dropout", {"0"}},
          {"--micro-batch-size", {"2"}},
          {"--global-batch-size", {"4"}},
          {"--train-iters", {"3"}},
          {"--lr", {"1e-2"}},
          {"--lr-decay-style", {"constant"}},
          {"--tokenizer-type", {"NullTokenizer"}},
          {"--vocab-size", {"63"}},
          {"--make-vocab-size-divisible-by", {"16"}},
          {"--data-path", {corpus(0)}},
          {"--data-cache-path", {(scratch() / "index_cache").string()}},
          {"--split", {"80,10,10"}},
          {"--num-workers", {"0"}},
          {"--eval-iters", {"0"}},
          {"--log-interval", {"1"}},
          {"--cpu-threads-per-rank", {"1"}}};
}

TinyRun try_train(const Options& options, ProgramRequest request) {
  TinyRun run;
  run.folder = new_folder();
  const Options full =
      options.has("--metrics-file")
          ? options
          : options.with("--metrics-file", (run.folder / "metrics.jsonl").string());
  run.metrics_file = full.value("--metrics-file");
  request.words = full.words("pretrain_gpt");
  run.program = run_program(request);
  return run;
}

std::vector<double> rates(const Options& options) {
  return train(options).series("train", "applied_learning_rate");
}

void expect_near(const std::vector<double>& found, const std::vector<double>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_NEAR(found[i], expected[i], 1e-12) << "step " << i + 1;
  }
}

Options small_llama() {
  return base()
      .with("--position-embedding-type", "rope")
      .with("--normalization", "RMSNorm")
      .with("--swiglu")
      .with("--ffn-hidden-size", 64)
      .with("--disable-bias-linear")
      .with("--untie-embeddings-and-output-weights")
      .with("--num-attention-heads", 4)
      .with("--group-query-attention")
      .with("--num-query-groups", 2)
      .with("--max-position-embeddings", 64);
}

ProgramResult convert_export(const std::filesystem::path& load, const std::filesystem::path& hf,
                             const std::vector<std::string>& more) {
  std::vector<std::string> words{"convert", "export", "--load", load.string(), "--hf", hf.string()};
  words.insert(words.end(), more.begin(), more.end());
  return call(words);
}

TinyRun train(const Options& options) {
  static std::mutex mutex;
  static std::map<std::vector<std::string>, TinyRun> finished;
  const bool pure =
      !options.has("--save") && !options.has("--load") && !options.has("--metrics-file");
  const std::vector<std::string> key = options.words("");
  if (pure) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (const auto found = finished.find(key); found != finished.end()) return found->second;
  }
  TinyRun run = try_train(options);
  EXPECT_TRUE(run.program.ok()) << fmt::format("{}", fmt::join(options.words("pretrain_gpt"), " "))
                                << "\n"
                                << run.program.describe();
  if (pure) {
    const std::lock_guard<std::mutex> lock(mutex);
    finished.emplace(key, run);
  }
  return run;
}

std::vector<TinyRun> train_all(const std::vector<Options>& options) {
  std::vector<TinyRun> runs(options.size());
  std::atomic<std::size_t> next{0};
  std::vector<std::thread> workers;
  for (int i = 0; i < 2; ++i) {
    workers.emplace_back([&] {
      for (std::size_t n = next++; n < options.size(); n = next++) runs[n] = train(options[n]);
    });
  }
  for (std::thread& worker : workers) worker.join();
  return runs;
}

Options saving(const Options& options, const fs::path& folder, int interval) {
  return options.with("--save", folder.string()).with("--save-interval", interval);
}

Options resuming(const Options& options, const fs::path& folder, int interval) {
  return saving(options, folder, interval).with("--load", folder.string());
}

std::string iteration_name(int iteration) { return fmt::format("iter_{:07d}", iteration); }

std::vector<int> saved_iterations(const fs::path& folder) {
  std::vector<int> found;
  if (!fs::exists(folder)) return found;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("iter_") && fs::exists(entry.path() / "manifest.json")) {
      found.push_back(std::stoi(name.substr(5)));
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

Json manifest(const fs::path& folder, int iteration) {
  const Json json =
      Json::parse(read_file(folder / iteration_name(iteration) / "manifest.json"), nullptr, false);
  EXPECT_TRUE(json.is_object() && json.contains("manifest"))
      << "no manifest of iteration " << iteration << " in " << folder;
  return json.is_object() ? json.value("manifest", Json::object()) : Json::object();
}

std::map<std::string, std::vector<std::int64_t>> saved_shapes(const fs::path& folder,
                                                              int iteration) {
  std::map<std::string, std::vector<std::int64_t>> shapes;
  const Json all = manifest(folder, iteration);
  for (const Json& tensor : all.value("tensors", Json::array())) {
    shapes[tensor.at("name")] = tensor.at("shape").get<std::vector<std::int64_t>>();
  }
  return shapes;
}

std::string state_hash(const fs::path& folder, int iteration) {
  std::vector<std::string> words{"checkpoint", "hash", folder.string()};
  if (iteration > 0) words.insert(words.end(), {"--ckpt-step", std::to_string(iteration)});
  const ProgramResult result = call(words);
  EXPECT_TRUE(result.ok()) << result.describe();
  constexpr std::size_t kDigits = 64;
  const std::string hash = result.out.substr(0, result.out.find('\n'));
  EXPECT_EQ(hash.size(), kDigits) << result.describe();
  return hash;
}

std::vector<std::string> timeless_lines(const fs::path& file) {
  std::vector<std::string> lines;
  std::ifstream text(file);
  for (std::string line; std::getline(text, line);) {
    nlohmann::json json = nlohmann::json::parse(line);
    for (const char* name :
         {"seconds", "data_wait_seconds", "host_seconds", "tokens_per_second", "tflops_per_gpu",
          "memory_allocated", "memory_reserved", "memory_max_allocated", "time", "cpu_utilisation",
          "gpu_utilisation"}) {
      json.erase(name);
    }
    if (json["kind"] == "run") continue;  // one each start
    lines.push_back(json.dump());
  }
  return lines;
}

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void write_file(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++found;
  }
  return found;
}

void expect_same_losses(const TinyRun& a, const TinyRun& b, double tolerance) {
  const std::vector<double> first = a.losses();
  const std::vector<double> second = b.losses();
  ASSERT_FALSE(second.empty());
  ASSERT_EQ(first.size(), second.size());
  for (std::size_t i = 0; i < first.size(); ++i) {
    EXPECT_NEAR(first[i], second[i], tolerance * std::abs(second[i])) << "step " << i + 1;
  }
}

void expect_refusal(const ProgramResult& result, int exit_code,
                    const std::vector<std::string>& parts) {
  EXPECT_EQ(result.exit_code, exit_code) << result.describe();
  EXPECT_FALSE(result.timed_out || result.left_children) << result.describe();
  for (const std::string& part : parts) {
    EXPECT_NE(result.err.find(part), std::string::npos)
        << "expected in the message: " << part << "\n"
        << result.describe();
  }
}

void expect_no_effect(const ProgramResult& result, const std::string& part) {
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  const std::size_t line = result.out.find("no effect here:");
  ASSERT_NE(line, std::string::npos) << result.describe();
  EXPECT_NE(result.out.substr(line, result.out.find('\n', line) - line).find(part),
            std::string::npos)
      << part << " in " << result.describe();
}

}  // namespace pentatron::functional
