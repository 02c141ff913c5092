// SPDX-License-Identifier: Apache-2.0
// Times the index of a blend, or of one corpus: drawn with all cache files written, then read from
// the cache, each in a process of its own. Corpora are made first: a true .idx, and a .bin that is
// sparse, whose tokens nothing here reads. Prints one JSON object.
//
//   index_bench --folder NEW_FOLDER [--corpora 2400] [--documents 20000000] [--tokens 1e12]
//               [--seq-length 8192] [--rounds 1]
//
// Lengths of documents are exponential. A blend's weights are in proportion to the corpora's sizes,
// and 99 % of its tokens are asked for; of one corpus, one epoch. The folder is made, and removed
// at the end.
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "pentatron/base/error.h"
#include "pentatron/base/screen.h"
#include "pentatron/datasets/gpt_sources.h"
#include "pentatron/tokenizers/null_tokenizer.h"

extern char** environ;

namespace {

using namespace pentatron;
namespace fs = std::filesystem;
using nlohmann::json;

struct Workload {
  std::string folder;
  std::int64_t corpora = 2400;
  std::int64_t documents = 20'000'000;
  double tokens = 1e12;
  std::int64_t seq_length = 8192;
  int rounds = 1;
};

double wall_seconds() {
  using Clock = std::chrono::steady_clock;
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

double processor_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double peak_gb() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024 / 1e9;
}

std::string prefix(const Workload& work, std::int64_t i) {
  return work.folder + "/corpus_" + std::to_string(i);
}

// One corpus in Megatron's layout, uint16, one sequence a document. Returns its tokens.
std::int64_t write_corpus(const std::string& prefix, std::int64_t documents, double mean,
                          std::mt19937_64& random) {
  std::exponential_distribution<double> draw(1 / mean);
  std::vector<std::int32_t> lengths(static_cast<std::size_t>(documents));
  for (std::int32_t& length : lengths) {
    length = static_cast<std::int32_t>(std::clamp(draw(random), 1.0, 2e9));
  }
  std::ofstream index(prefix + ".idx", std::ios::binary);
  const auto put = [&index](const auto* data, std::size_t count) {
    index.write(reinterpret_cast<const char*>(data),
                static_cast<std::streamsize>(count * sizeof(*data)));
  };
  const std::uint64_t version = 1;
  const std::uint8_t uint16_code = 8;
  const std::vector<std::uint64_t> counts = {static_cast<std::uint64_t>(documents),
                                             static_cast<std::uint64_t>(documents) + 1};
  put("MMIDIDX\0\0", 9);
  put(&version, 1);
  put(&uint16_code, 1);
  put(counts.data(), 2);
  put(lengths.data(), lengths.size());
  std::int64_t tokens = 0;
  std::vector<std::int64_t> column;
  column.reserve(lengths.size() + 1);
  for (const std::int32_t length : lengths) {
    column.push_back(2 * tokens);
    tokens += length;
  }
  put(column.data(), column.size());
  for (std::size_t i = 0; i < column.size(); ++i) column[i] = static_cast<std::int64_t>(i);
  column.push_back(documents);
  put(column.data(), column.size());
  std::ofstream(prefix + ".bin").close();
  fs::resize_file(prefix + ".bin", 2 * static_cast<std::uintmax_t>(tokens));
  return tokens;
}

// Builds or loads, and prints a JSON object of what it took.
void measure(const Workload& work, const std::vector<double>& weights, std::int64_t samples) {
  screen::set_terse(true);
  datasets::GptSourceOptions options;
  options.dataset.split = "1";
  options.dataset.sequence_length = work.seq_length;
  options.dataset.vocab_size = 50257;
  options.dataset.data_cache_path = work.folder + "/cache";
  options.dataset.tokenizer = tokenizers::NullTokenizer(50257).description();
  for (std::int64_t i = 0; i < work.corpora; ++i) {
    options.mix.blend.prefixes.push_back(prefix(work, i));
  }
  if (work.corpora > 1) options.mix.blend.weights = weights;
  const double wall = wall_seconds();
  const double processor = processor_seconds();
  const datasets::GptSources sources = datasets::build_gpt_sources(options, {.train = samples});
  json line = {{"seconds", wall_seconds() - wall},
               {"processor_seconds", processor_seconds() - processor},
               {"peak_gb", peak_gb()},
               {"samples", sources.train->num_samples()}};
  const double identity = wall_seconds();
  line["identity"] = sources.train->identity().size() > 0;
  line["identity_seconds"] = wall_seconds() - identity;
  std::ofstream(work.folder + "/result.json") << line.dump();
}

// This program again with `phase`.
json in_new_process(char** argv, const Workload& work) {
  std::vector<char*> words;
  for (char** word = argv; *word != nullptr; ++word) words.push_back(*word);
  std::string phase = "--measure";
  words.push_back(phase.data());
  words.push_back(nullptr);
  pid_t child = 0;
  if (::posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, words.data(), environ) != 0) {
    PENTATRON_THROW(kIo, "cannot start a process");
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  PENTATRON_CHECK(status == 0, kIo, "the measuring process ended with {}", status);
  return json::parse(std::ifstream(work.folder + "/result.json"));
}

double folder_gb(const fs::path& folder) {
  std::uintmax_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(folder)) bytes += entry.file_size();
  return static_cast<double>(bytes) / 1e9;
}

Workload read_words(int argc, char** argv, bool& measures) {
  Workload work;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--measure") {
      measures = true;
      continue;
    }
    PENTATRON_CHECK(i + 1 < argc, kConfig, "{}: a value is missing", name);
    const std::string value = argv[++i];
    if (name == "--folder") {
      work.folder = value;
    } else if (name == "--corpora") {
      work.corpora = std::stoll(value);
    } else if (name == "--documents") {
      work.documents = std::stoll(value);
    } else if (name == "--tokens") {
      work.tokens = std::stod(value);
    } else if (name == "--seq-length") {
      work.seq_length = std::stoll(value);
    } else if (name == "--rounds") {
      work.rounds = std::stoi(value);
    } else {
      PENTATRON_THROW(kConfig, "unknown option {}", name);
    }
  }
  PENTATRON_CHECK(!work.folder.empty(), kConfig, "--folder: a new folder for the files");
  return work;
}

json run(char** argv, const Workload& work) {
  fs::create_directory(work.folder);
  std::mt19937_64 random(1);
  std::vector<double> sizes;
  for (std::int64_t i = 0; i < work.corpora; ++i) {
    const std::int64_t documents =
        work.documents * (i + 1) / work.corpora - work.documents * i / work.corpora;
    sizes.push_back(static_cast<double>(write_corpus(
        prefix(work, i), documents, work.tokens / static_cast<double>(work.documents), random)));
  }
  std::ofstream(work.folder + "/sizes.json") << json(sizes).dump();
  json result = {{"corpora", work.corpora}, {"documents", work.documents},
                 {"tokens", work.tokens},   {"seq_length", work.seq_length},
                 {"cold", json::array()},   {"cached", json::array()}};
  for (int round = 0; round < work.rounds; ++round) {
    fs::remove_all(work.folder + "/cache");
    result["cold"].push_back(in_new_process(argv, work));
    result["cached"].push_back(in_new_process(argv, work));
    result["cache_gb"] = folder_gb(work.folder + "/cache");
  }
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    bool measures = false;
    const Workload work = read_words(argc, argv, measures);
    if (measures) {
      const auto sizes =
          json::parse(std::ifstream(work.folder + "/sizes.json")).get<std::vector<double>>();
      double tokens = 0;
      for (const double size : sizes) tokens += size;
      // Of one corpus, all samples of an epoch.
      const double share = work.corpora > 1 ? 0.99 : 1;
      measure(work, sizes, static_cast<std::int64_t>(share * (tokens - 1)) / work.seq_length);
      return 0;
    }
    const json result = run(argv, work);
    fs::remove_all(work.folder);
    std::cout << result.dump(2) << "\n";
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
