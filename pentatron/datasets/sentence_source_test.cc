// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/sentence_source.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "pentatron/base/temp_folder.h"
#include "pentatron/base/test_support.h"
#include "pentatron/datasets/bert_dataset.h"
#include "pentatron/datasets/t5_dataset.h"
#include "pentatron/datasets/test_corpus.h"

// The caches of BERT's and T5's indices.
namespace pentatron::datasets {
namespace {

namespace fs = std::filesystem;

class SentenceCaches : public ::testing::Test {
 protected:
  SentenceCaches() {
    write(11);
    for (int id = 0; id < 100; ++id) words_->continues.push_back(id >= 60 && id < 90);
    for (int id = 90; id < 100; ++id) words_->sentinels.push_back(id);
  }
  // 30 documents of 2 to 5 sentences; `step` decides their lengths, not their sum over the corpus.
  void write(int step) {
    fs::remove(prefix_ + ".bin");
    fs::remove(prefix_ + ".idx");
    IndexedDatasetWriter writer(prefix_, TokenDtype::kUint16);
    for (int d = 0; d < 30; ++d) {
      for (int s = 0; s < 2 + d % 4; ++s) {
        writer.add_sequence(std::vector<std::int32_t>(
            static_cast<std::size_t>(3 + (d * 5 + s * step) % 17), 5 + d));
      }
      writer.end_document();
    }
    writer.finish();
  }
  // The runs of a source, which is made anew.
  std::vector<SentenceSpan> spans(bool bert, bool cached = true) {
    log_ = std::make_unique<CacheLog>();
    const auto corpus = std::make_shared<const IndexedDataset>(prefix_);
    const SentenceCache where = cached ? SentenceCache{.use = true,
                                                       .dataset_path = prefix_,
                                                       .folder = folder_name_,
                                                       .log = log_.get()}
                                       : SentenceCache{};
    std::unique_ptr<SentenceSource> source;
    if (bert) {
      source = std::make_unique<BertDataset>(
          corpus, words_, BertDatasetOptions{.split = "1", .sequence_length = 40, .cache = where},
          DataSplit::kTrain, 100);
    } else {
      source = std::make_unique<T5Dataset>(corpus, words_,
                                           T5DatasetOptions{.split = "1",
                                                            .encoder_sequence_length = 40,
                                                            .decoder_sequence_length = 40,
                                                            .cache = where},
                                           DataSplit::kTrain, 100);
    }
    std::vector<SentenceSpan> all;
    for (std::int64_t i = 0; i < source->num_samples(); ++i) all.push_back(source->span(i));
    return all;
  }
  [[nodiscard]] CacheLog::Fate fate() const { return log_->lines().at(0).fate; }
  [[nodiscard]] std::vector<fs::path> files() const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(folder_name_)) found.push_back(entry.path());
    return found;
  }

  TempFolder folder_;
  std::string prefix_ = (folder_.path() / "s").string();
  std::string folder_name_ = (folder_.path() / "cache").string();
  std::unique_ptr<CacheLog> log_;
  std::shared_ptr<MaskVocabulary> words_ = std::make_shared<MaskVocabulary>(
      MaskVocabulary{.size = 100, .cls = 1, .sep = 2, .mask = 3, .pad = 0, .bos = 1, .eos = 2});
};

TEST_F(SentenceCaches, AreWrittenOnceAndRead) {
  for (const bool bert : {true, false}) {
    const auto drawn = spans(bert, /*cached=*/false);
    EXPECT_TRUE(log_->lines().empty());
    EXPECT_EQ(spans(bert), drawn);
    EXPECT_EQ(fate(), CacheLog::Fate::kWritten);
    EXPECT_EQ(spans(bert), drawn);
    EXPECT_EQ(fate(), CacheLog::Fate::kServed);
  }
  int sums = 0;
  for (const fs::path& file : files()) {
    const std::string name = file.filename().string();
    EXPECT_NE(name.find("MaskedWordPieceDataset-train-"), std::string::npos) << name;
    sums += name.ends_with("-checksums.txt") ? 1 : 0;
  }
  EXPECT_EQ(files().size(), 6U);
  EXPECT_EQ(sums, 2);
}

TEST_F(SentenceCaches, DamagedOrStaleOnesAreBuiltAgain) {
  const auto drawn = spans(true);
  for (const fs::path& file : files()) {
    const std::string good = read_text_file(file);
    for (const std::string& bad : {good.substr(0, good.size() - 1), good + "x",
                                   good.substr(0, good.size() - 8) + std::string(8, '\x01')}) {
      testing::write_text(file, bad);
      ::testing::internal::CaptureStderr();
      EXPECT_EQ(spans(true), drawn) << file;
      EXPECT_EQ(fate(), CacheLog::Fate::kWritten);
      EXPECT_NE(::testing::internal::GetCapturedStderr().find("is damaged and will be built again"),
                std::string::npos);
      EXPECT_EQ(read_text_file(file), good);
    }
  }
  write(3);  // as many sentences, of other lengths
  const auto other = spans(true);
  EXPECT_EQ(fate(), CacheLog::Fate::kWritten);
  EXPECT_NE(other, drawn);
  EXPECT_EQ(other, spans(true, /*cached=*/false));
}

TEST_F(SentenceCaches, AFolderThatCannotBeWrittenChangesNothing) {
  testing::write_text(folder_name_, "in the way");
  EXPECT_EQ(spans(false), spans(false, /*cached=*/false));
  (void)spans(false);
  EXPECT_EQ(fate(), CacheLog::Fate::kUnwritten);
}

TEST_F(SentenceCaches, StandBesideTheCorpusByDefault) {
  folder_name_.clear();
  (void)spans(false);
  EXPECT_EQ(fate(), CacheLog::Fate::kWritten);
  EXPECT_TRUE(fs::is_directory(fs::path(prefix_) / "cache" / "T5MaskedWordPieceDataset_indices"));
}

}  // namespace
}  // namespace pentatron::datasets
