// SPDX-License-Identifier: Apache-2.0
// Encodes documents with a new tokenizer, one call a document, and prints one JSON object: seconds
// of loading and of each pass over the documents (the first one with cold caches), processor
// seconds, tokens. bench/data/tokenizers.py runs it beside other programs.
//
//   tokenizer_bench TOKENIZER --documents FILE [--threads N] [--passes N] [--ids FILE]
//   tokenizer_bench TOKENIZER --input FILE.jsonl --output-prefix PREFIX [--threads N]
//   TOKENIZER: --tokenizer-json FILE | --vocab-file FILE --merge-file FILE
//
// A file of documents holds each one's size (32 bits, in this machine's order) and bytes; a file of
// ids each document's number of ids and the ids, 32 bits all. The second form times preprocess().
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/datasets/preprocess.h"
#include "pentatron/tokenizers/bpe_tokenizer.h"
#include "pentatron/tokenizers/hugging_face_tokenizer.h"

namespace {

using namespace pentatron;

struct Times {
  double wall;
  double processor;  // of all threads
};

Times now() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now().time_since_epoch();
  return {wall.count(), seconds(usage.ru_utime) + seconds(usage.ru_stime)};
}

nlohmann::json timed(const std::function<void()>& work) {
  const Times before = now();
  work();
  const Times after = now();
  return {{"seconds", after.wall - before.wall},
          {"processor_seconds", after.processor - before.processor}};
}

std::vector<std::string_view> documents_of(std::string_view bytes) {
  std::vector<std::string_view> documents;
  while (!bytes.empty()) {
    std::uint32_t size = 0;
    PENTATRON_CHECK(bytes.size() >= sizeof(size), kData, "--documents: a size is cut short");
    std::memcpy(&size, bytes.data(), sizeof(size));
    bytes.remove_prefix(sizeof(size));
    PENTATRON_CHECK(size <= bytes.size(), kData, "--documents: a document is cut short");
    documents.push_back(bytes.substr(0, size));
    bytes.remove_prefix(size);
  }
  return documents;
}

using Ids = std::vector<std::int32_t>;

// Threads take the next documents in turn; each keeps its ids in one buffer, as a corpus writer
// does.
struct Encoded {
  std::vector<Ids> documents;  // only when they are asked for
  std::size_t tokens = 0;
};
Encoded encode_all(const tokenizers::Tokenizer& tokenizer,
                   const std::vector<std::string_view>& documents, std::size_t num_threads,
                   bool keep) {
  constexpr std::size_t kRun = 16;
  Encoded result;
  if (keep) result.documents.resize(documents.size());
  std::atomic<std::size_t> next{0};
  std::atomic<std::size_t> tokens{0};
  const auto work = [&] {
    Ids ids;
    for (;;) {
      const std::size_t begin = next.fetch_add(kRun);
      if (begin >= documents.size()) return;
      for (std::size_t i = begin; i < std::min(begin + kRun, documents.size()); ++i) {
        ids.clear();
        tokenizer.encode_append(documents[i], ids);
        tokens += ids.size();
        if (keep) result.documents[i] = ids;
      }
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t i = 1; i < num_threads; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  result.tokens = tokens;
  return result;
}

void write_ids(const std::string& path, const std::vector<Ids>& documents) {
  std::string bytes;
  for (const Ids& ids : documents) {
    const auto count = static_cast<std::uint32_t>(ids.size());
    bytes.append(reinterpret_cast<const char*>(&count), sizeof(count));
    bytes.append(reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(ids[0]));
  }
  write_file_atomically(path, bytes);
}

nlohmann::json run(std::map<std::string, std::string> options) {
  const auto number = [&](const char* name) {
    const std::string& text = options[name];
    return text.empty() ? std::size_t{1} : std::stoul(text);
  };
  std::unique_ptr<tokenizers::Tokenizer> tokenizer;
  nlohmann::json report;
  report["load"] = timed([&] {
    if (!options["--tokenizer-json"].empty()) {
      tokenizer = tokenizers::load_hugging_face_tokenizer(options["--tokenizer-json"]);
    } else {
      tokenizer = std::make_unique<tokenizers::BpeTokenizer>(options["--vocab-file"],
                                                             options["--merge-file"]);
    }
  });
  const std::size_t threads = number("--threads");
  if (!options["--input"].empty()) {
    datasets::PreprocessOptions work;
    work.inputs = {options["--input"]};
    work.output_prefix = options["--output-prefix"];
    work.workers = static_cast<std::int64_t>(threads);
    work.log_interval = 0;
    work.force = true;
    datasets::PreprocessStats stats;
    report["passes"].push_back(timed([&] { stats = datasets::preprocess(work, *tokenizer); }));
    report["tokens"] = stats.keys.at(0).tokens;
    report["documents"] = stats.keys.at(0).documents;
    return report;
  }
  const std::string text = read_text_file(options["--documents"]);
  const std::vector<std::string_view> documents = documents_of(text);
  report["documents"] = documents.size();
  std::size_t bytes = 0;
  for (const std::string_view document : documents) bytes += document.size();
  report["bytes"] = bytes;
  for (std::size_t pass = 0; pass < number("--passes"); ++pass) {
    Encoded encoded;
    report["passes"].push_back(
        timed([&] { encoded = encode_all(*tokenizer, documents, threads, false); }));
    report["tokens"] = encoded.tokens;
  }
  if (!options["--ids"].empty()) {
    write_ids(options["--ids"], encode_all(*tokenizer, documents, threads, true).documents);
  }
  return report;
}

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::string> options;
  for (int i = 1; i + 1 < argc; i += 2) options[argv[i]] = argv[i + 1];
  try {
    std::cout << run(std::move(options)).dump() << "\n";
  } catch (const Error& error) {
    std::cerr << "error: " << error.what() << "\n";
    return exit_code(error.kind());
  }
  return 0;
}
