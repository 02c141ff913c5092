// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/cache_lock.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "pentatron/base/temp_folder.h"
#include "pentatron/datasets/gpt_index_cache.h"
#include "pentatron/datasets/index_file.h"
#include "pentatron/datasets/test_corpus.h"
#include "pentatron/tokenizers/null_tokenizer.h"

namespace pentatron::datasets {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

// A process of its own; its exit code is what `body` returns.
pid_t in_process(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      ::_exit(body());
    } catch (const std::exception& error) {
      static_cast<void>(std::fprintf(stderr, "%s\n", error.what()));
    }
    ::_exit(100);
  }
  return child;
}

int exit_code_of(pid_t child) {
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 200;
}

// A user whose writes are refused by a folder's mode: not root.
class PlainUser final {
 public:
  PlainUser() : was_(::geteuid()) {
    if (was_ == 0 && ::seteuid(65534) != 0) ADD_FAILURE() << "cannot become another user";
  }
  ~PlainUser() {
    if (::seteuid(was_) != 0) ADD_FAILURE() << "cannot become the first user again";
  }
  PlainUser(const PlainUser&) = delete;
  PlainUser& operator=(const PlainUser&) = delete;

 private:
  uid_t was_;
};

class CachedIndex : public ::testing::Test {
 protected:
  CachedIndex() : prefix_((folder_.path() / "d").string()), cache_(folder_.path() / "cache") {
    testing::write_corpus(prefix_, testing::counting_documents(10, 20));
    request_.dataset_path = prefix_;
    request_.split_matrix = parse_split("8,1,1");
    request_.num_samples = 30;
    request_.sequence_length = 16;
    request_.tokenizer = tokenizers::NullTokenizer(255).description();
    request_.cache_path = cache_.string();
  }
  CacheLog::Fate load() {
    CacheLog log;
    request_.cache_log = &log;
    (void)load_or_build_gpt_index(IndexedDataset(prefix_), request_);
    request_.cache_log = nullptr;
    return log.lines().at(0).fate;
  }
  [[nodiscard]] fs::path lock_file() const {
    return cache_ / (gpt_index_file_stem(request_, MegatronVersion::kNewer) + ".lock");
  }
  [[nodiscard]] std::ptrdiff_t num_files() const {
    return std::distance(fs::directory_iterator(cache_), fs::directory_iterator());
  }

  TempFolder folder_;
  std::string prefix_;
  fs::path cache_;
  GptIndexRequest request_;
};

TEST_F(CachedIndex, OneOfSeveralProcessesBuilds) {
  // They start before the lock is taken, so as not to inherit it.
  std::array<int, 2> start{};
  ASSERT_EQ(::pipe(start.data()), 0);
  std::vector<pid_t> children;
  for (int i = 0; i < 3; ++i) {
    children.push_back(in_process([this, &start] {
      char go = 0;
      if (::read(start[0], &go, 1) != 1) return 99;
      return load() == CacheLog::Fate::kWritten ? 1 : 0;
    }));
  }
  {
    const CacheLock held(lock_file(), "index");
    EXPECT_FALSE(held.waited());
    ASSERT_EQ(::write(start[1], "go!", 3), 3);
    // While another builds they wait, and write nothing.
    std::this_thread::sleep_for(200ms);
    for (const pid_t child : children) EXPECT_EQ(::waitpid(child, nullptr, WNOHANG), 0);
    EXPECT_EQ(num_files(), 1) << "the lock alone";
  }
  ::close(start[0]);
  ::close(start[1]);
  int built = 0;
  for (const pid_t child : children) {
    const int code = exit_code_of(child);
    EXPECT_LE(code, 1);
    built += code;
  }
  EXPECT_EQ(built, 1);
  EXPECT_EQ(num_files(), 5);
  EXPECT_FALSE(fs::exists(lock_file()));
  EXPECT_EQ(load(), CacheLog::Fate::kServed);
}

TEST_F(CachedIndex, ThreadsWaitForEachOther) {
  auto held = std::make_optional<CacheLock>(lock_file(), "index");
  bool waited = false;
  std::thread other([&] { waited = CacheLock(lock_file(), "index").waited(); });
  std::this_thread::sleep_for(50ms);
  held.reset();
  other.join();
  EXPECT_TRUE(waited);
  EXPECT_FALSE(CacheLock(lock_file(), "index").waited());
}

TEST_F(CachedIndex, ADeadBuilderHoldsNothing) {
  const pid_t child = in_process([this] {
    const CacheLock lock(lock_file(), "index");
    return ::raise(SIGKILL);
  });
  EXPECT_EQ(exit_code_of(child), 200);
  EXPECT_TRUE(fs::exists(lock_file()));
  EXPECT_EQ(load(), CacheLog::Fate::kWritten);
  EXPECT_EQ(num_files(), 5);
}

TEST_F(CachedIndex, AReadOnlyFolderServesAndIsNotNeeded) {
  EXPECT_EQ(load(), CacheLog::Fate::kWritten);
  fs::permissions(folder_.path(), fs::perms(0755));
  fs::permissions(cache_, fs::perms(0555));
  {
    const PlainUser user;
    EXPECT_EQ(load(), CacheLog::Fate::kServed);
    request_.num_samples = 31;  // another index
    EXPECT_EQ(load(), CacheLog::Fate::kUnwritten);
  }
  EXPECT_EQ(num_files(), 5);
  fs::permissions(cache_, fs::perms(0755));
}

// The same number of sequences and tokens, other lengths: sizes tell nothing, the checksums do.
TEST_F(CachedIndex, OfAChangedCorpusIsBuiltAgain) {
  EXPECT_EQ(load(), CacheLog::Fate::kWritten);
  testing::Documents documents = testing::counting_documents(10, 20);
  documents[2].push_back(7);
  documents[3].pop_back();
  fs::remove(prefix_ + ".bin");
  fs::remove(prefix_ + ".idx");
  testing::write_corpus(prefix_, documents);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(load(), CacheLog::Fate::kWritten);
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("made of other data"), std::string::npos);
  EXPECT_EQ(load(), CacheLog::Fate::kServed);
  const IndexedDataset corpus(prefix_);
  EXPECT_EQ(check_gpt_index(gpt_index_source(corpus, request_),
                            load_or_build_gpt_index(corpus, request_)),
            std::nullopt);
}

// Checksums as they were before they knew the corpus: built once more, and no warning.
TEST_F(CachedIndex, OlderChecksumsAreMadeAnew) {
  EXPECT_EQ(load(), CacheLog::Fate::kWritten);
  const fs::path sums =
      cache_ / (gpt_index_file_stem(request_, MegatronVersion::kNewer) + "-checksums.txt");
  testing::write_text(sums, "crc32c of the description and each array\ndocument_index 0\n");
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(load(), CacheLog::Fate::kWritten);
  EXPECT_EQ(::testing::internal::GetCapturedStderr().find("damaged"), std::string::npos);
  EXPECT_EQ(load(), CacheLog::Fate::kServed);
}

}  // namespace
}  // namespace pentatron::datasets
