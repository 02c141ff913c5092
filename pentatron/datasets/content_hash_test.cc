// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/content_hash.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "pentatron/base/temp_folder.h"
#include "pentatron/datasets/indexed_dataset.h"
#include "pentatron/datasets/test_corpus.h"

namespace pentatron::datasets {
namespace {

std::string hash_of(const std::vector<std::byte>& bytes, ContentHash how,
                    std::vector<std::uint64_t>* offsets = nullptr) {
  return content_hash(
      bytes.size(),
      [&](std::uint64_t offset, std::span<std::byte> out) {
        ASSERT_LE(offset + out.size(), bytes.size());
        std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(offset), out.size(), out.begin());
        if (offsets != nullptr) offsets->push_back(offset);
      },
      how);
}

TEST(ContentHash, SmallFilesAreReadWhole) {
  for (const std::size_t size : {0UL, 1UL, 4096UL, 1UL << 20}) {
    std::vector<std::byte> bytes(size, std::byte{7});
    const std::string before = hash_of(bytes, ContentHash::kSampled);
    EXPECT_EQ(before, hash_of(bytes, ContentHash::kWhole)) << size;
    if (size == 0) continue;
    for (const std::size_t at : {std::size_t{0}, size / 2, size - 1}) {
      bytes[at] ^= std::byte{1};
      EXPECT_NE(hash_of(bytes, ContentHash::kSampled), before) << at << " of " << size;
      bytes[at] ^= std::byte{1};
    }
  }
}

TEST(ContentHash, LargeFilesAreSampledFromEndToEnd) {
  std::vector<std::byte> bytes((5UL << 20) + 77, std::byte{7});
  std::vector<std::uint64_t> offsets;
  const std::string before = hash_of(bytes, ContentHash::kSampled, &offsets);
  ASSERT_EQ(offsets.size(), 256U);
  EXPECT_EQ(offsets.front(), 0U);
  EXPECT_EQ(offsets.back(), bytes.size() - 4096);
  const std::uint64_t step = (bytes.size() - 4096) / 255;
  for (std::size_t i = 1; i < offsets.size(); ++i) {
    EXPECT_NEAR(static_cast<double>(offsets[i] - offsets[i - 1]), static_cast<double>(step), 1);
  }
  const std::string whole = hash_of(bytes, ContentHash::kWhole);
  bytes[5000] ^= std::byte{1};  // between two blocks
  EXPECT_EQ(hash_of(bytes, ContentHash::kSampled), before);
  EXPECT_NE(hash_of(bytes, ContentHash::kWhole), whole);
  bytes[offsets[100] + 9] ^= std::byte{1};
  EXPECT_NE(hash_of(bytes, ContentHash::kSampled), before);
}

TEST(ContentHash, A5_OtherTokensOfEqualLengths) {
  const TempFolder folder("content");
  const std::string a = (folder.path() / "a").string();
  const std::string b = (folder.path() / "b").string();
  testing::write_corpus(a, {{1, 2, 3}, {4}});
  testing::write_corpus(b, {{1, 2, 5}, {4}});
  for (const bool mmap : {true, false}) {
    const IndexedDataset first(a, {.mmap_bin_files = mmap});
    const IndexedDataset second(b, {.mmap_bin_files = mmap});
    EXPECT_EQ(first.identity(), second.identity()) << "lengths only";
    EXPECT_NE(first.content(ContentHash::kSampled), second.content(ContentHash::kSampled));
    EXPECT_EQ(first.content(ContentHash::kSampled),
              IndexedDataset(a, {.mmap_bin_files = !mmap}).content(ContentHash::kSampled));
  }
}

}  // namespace
}  // namespace pentatron::datasets
