// SPDX-License-Identifier: Apache-2.0
#include "pentatron/base/mapping_faults.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

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
