// SPDX-License-Identifier: Apache-2.0
#include "pentatron/base/mapping_faults.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "pentatron/base/file.h"
#include "pentatron/base/temp_folder.h"

namespace pentatron {
namespace {

std::filesystem::path big_file(const TempFolder& folder) {
  const std::filesystem::path path = folder.path() / "corpus.bin";
  std::ofstream(path) << std::string(1 << 20, 'x');
  return path;
}

TEST(MappingFaultsDeathTest, A10_ACutFileIsNamed) {
  const TempFolder folder;
  const std::filesystem::path path = big_file(folder);
  EXPECT_EXIT(
      {
        tell_mapping_faults();
        const MappedFile other(path);  // of another map the name is another
        const MappedFile file(path);
        std::filesystem::resize_file(path, 4096);
        volatile const std::byte* const bytes = file.bytes().data();
        (void)bytes[1 << 19];
      },
      ::testing::ExitedWithCode(3), "error: .*corpus.bin was cut short");
}

// What the process has written ends with one message, whole, however many readers there are.
TEST(MappingFaultsDeathTest, A10_SeveralReadersTellItOnce) {
  const TempFolder folder;
  const std::filesystem::path path = big_file(folder);
  EXPECT_EXIT(
      {
        tell_mapping_faults();
        const MappedFile file(path);
        std::filesystem::resize_file(path, 4096);
        std::vector<std::thread> readers;
        std::atomic<int> ready = 0;
        for (int i = 0; i < 8; ++i) {
          readers.emplace_back([&] {
            for (++ready; ready < 8;) {
            }
            volatile const std::byte* const bytes = file.bytes().data();
            (void)bytes[1 << 19];
          });
        }
        for (std::thread& reader : readers) reader.join();
      },
      ::testing::ExitedWithCode(3),
      ::testing::MatchesRegex("[^:]*\nerror: [^:]*corpus.bin was cut short[^:]*"));
}

TEST(MappingFaultsDeathTest, A10_OtherBusErrorsStaySignals) {
  const TempFolder folder;
  const std::filesystem::path path = big_file(folder);
  EXPECT_EXIT(
      {
        tell_mapping_faults();
        const void* begin = nullptr;
        {
          const MappedFile file(path);  // forgotten at its end
          begin = file.bytes().data();
        }
        void* const again =
            ::mmap(const_cast<void*>(begin), 1 << 20, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        (void)again;
        ::raise(SIGBUS);
        ::raise(SIGBUS);
      },
      ::testing::KilledBySignal(SIGBUS), "");
}

}  // namespace
}  // namespace pentatron
