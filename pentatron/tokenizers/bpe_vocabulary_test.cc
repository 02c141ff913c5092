// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/bpe_vocabulary.h"

#include <gtest/gtest.h>

#include <fstream>

#include "pentatron/base/error.h"
#include "pentatron/base/temp_folder.h"
#include "pentatron/tokenizers/bpe_test_support.h"

namespace pentatron::tokenizers {
namespace {

using testing::small_vocabulary;

// vocab.json with the 256 bytes, the end-of-document token and `extra` members.
std::string alphabet_json(const std::string& extra = "", int skipped_byte = -1) {
  std::string json = "{\"<|endoftext|>\": 0";
  int id = 1;
  for (const std::uint8_t byte : alphabet_bytes()) {
    if (byte == skipped_byte) continue;
    std::string visible = bytes_to_visible(std::string(1, static_cast<char>(byte)));
    if (visible == "\"" || visible == "\\") visible = "\\" + visible;
    json += ",\n\"" + visible + "\": " + std::to_string(id++);
  }
  return json + extra + "}";
}

std::string message_of(const std::string& vocab, const std::string& merges) {
  try {
    (void)BpeVocabulary::parse(vocab, "v.json", merges, "m.txt");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kData);
    return error.what();
  }
  return "no error";
}

TEST(ByteAlphabet, MapsEveryByteAndBack) {
  EXPECT_EQ(bytes_to_visible(" \n\t\x7F"), "\u0120\u010a\u0109\u0121");
  EXPECT_EQ(byte_to_code_point(0xAD), U'\u0143');
  EXPECT_EQ(byte_to_code_point('A'), U'A');
  for (int byte = 0; byte < 256; ++byte) {
    const std::string raw(1, static_cast<char>(byte));
    EXPECT_EQ(visible_to_bytes(bytes_to_visible(raw)), raw);
  }
  EXPECT_FALSE(visible_to_bytes(" ").has_value());
  EXPECT_FALSE(visible_to_bytes("\u0144").has_value());
  EXPECT_FALSE(visible_to_bytes("\xFF").has_value());
  const auto bytes = alphabet_bytes();
  EXPECT_EQ(bytes[0], '!');
  EXPECT_EQ(bytes[255], 0xAD);
}

TEST(BpeVocabulary, ReadsGpt2Files) {
  const auto vocabulary =
      BpeVocabulary::parse(alphabet_json(", \"ab\": 257, \"\\u0120ab\":258, \"##\": 259"), "v.json",
                           "#version: 0.2\na b\r\n\u0120 ab\n# #\n", "m.txt");
  EXPECT_EQ(vocabulary.size(), 260);
  EXPECT_EQ(vocabulary.eod(), 0);
  EXPECT_EQ(vocabulary.token(258), " ab");
  ASSERT_EQ(vocabulary.num_merges(), 3U);
  EXPECT_EQ(vocabulary.merge(1), std::pair(vocabulary.byte_id(' '), 257));
  const auto* merge = vocabulary.merges().find(vocabulary.byte_id('#'), vocabulary.byte_id('#'));
  ASSERT_NE(merge, nullptr);
  EXPECT_EQ(merge->rank, 2U);
  EXPECT_EQ(merge->product, 259);
  EXPECT_EQ(vocabulary.merges().find(257, 257), nullptr);
}

TEST(BpeVocabulary, WritesWhatItReads) {
  const TempFolder folder("bpe");
  const BpeVocabulary vocabulary = small_vocabulary();
  vocabulary.save(folder.path() / "vocab.json", folder.path() / "merges.txt");
  const auto again =
      BpeVocabulary::load(folder.path() / "vocab.json", folder.path() / "merges.txt");
  EXPECT_EQ(again.identity_hash(), vocabulary.identity_hash());
  EXPECT_EQ(again.vocab_json(), vocabulary.vocab_json());
  EXPECT_EQ(again.merges_txt(), vocabulary.merges_txt());
  EXPECT_TRUE(again.merges_txt().starts_with("#version: 0.2\n"));
  EXPECT_THROW((void)BpeVocabulary::load(folder.path() / "none.json", folder.path() / "merges.txt"),
               Error);
}

TEST(BpeVocabulary, HashTellsVocabulariesApart) {
  const auto hash = [](const std::string& extra, const std::string& merges) {
    return BpeVocabulary::parse(alphabet_json(extra), "v", merges, "m").identity_hash();
  };
  const std::string two = ",\"ab\":257,\"bc\":258";
  EXPECT_NE(hash(two, "a b\nb c"), hash(two, "b c\na b"));
  EXPECT_NE(hash(two, "a b\nb c"), hash(",\"ab\":258,\"bc\":257", "a b\nb c"));
  EXPECT_EQ(hash(two, "a b\nb c"), hash(two, "#version: 0.2\na b\nb c\n"));
}

TEST(BpeVocabulary, NamesFileAndLineOfWhatIsWrong) {
  const std::string good = alphabet_json(",\n\"ab\": 257");
  const auto expect = [](const std::string& message, std::string_view part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  EXPECT_EQ(message_of(good, "a b\n"), "no error");
  expect(message_of("", ""), "v.json:1: not valid JSON");
  expect(message_of("[1]", ""), "v.json:1: expected one object of token: id");
  expect(message_of("{\n\"a\": {}}", ""), "v.json:2: expected one object");
  expect(message_of("{\"a\": 0,\n\"b\": -1}", ""), "v.json:2: ");
  expect(message_of("{\"a\": 1.5}", ""), "fraction");
  expect(message_of("{\"a\": 0}{", ""), "not valid JSON");
  expect(message_of("{\"a\": 99999999999999999999999}", ""), "v.json:1: ");
  expect(message_of("{\"a b\": 0}", ""), "'a b' must be");
  expect(message_of("{\"\": 0}", ""), "v.json:1: token ''");
  expect(message_of("{\"a\": 0,\n\"b\": 7}", ""), "v.json:2: token 'b' has id 7, but 2 tokens");
  expect(message_of("{\"a\": 0,\n\"b\": 0}", ""), "v.json:2: id 0 is given to 'a' and to 'b'");
  expect(message_of(alphabet_json(",\"a\": 257"), ""), "token 'a' has two ids");
  expect(message_of(alphabet_json("", 'q'), ""), "no token for byte 0x71 ('q')");
  expect(message_of("{" + good.substr(good.find('\n') + 1), ""), "id 257, but 257 tokens");
  expect(message_of(good, "#version: 0.2\na b c\n"), "m.txt:2: expected two tokens");
  expect(message_of(good, "ab\n"), "m.txt:1: expected two tokens");
  expect(message_of(good, "\n\na zz\n"), "m.txt:3: 'zz' is not in the vocabulary");
  expect(message_of(good, "a \xFF\n"), "m.txt:1: ");
  expect(message_of(good, "a b\nb a\n"), "m.txt:2: the merge's product 'ba'");
  expect(message_of(good, "a b\na b\n"), "m.txt:2: merge 'a b' stands twice");
  expect(message_of("{\"" + std::string(70'000, 'a') + "\": 0}", ""), "at most 65536");
}

TEST(BpeVocabulary, NeedsTheEndOfDocumentToken) {
  try {
    (void)BpeVocabulary::parse(alphabet_json(), "v.json", "", "m.txt", "<eod>");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("no end-of-document token '<eod>'"),
              std::string::npos);
  }
}

TEST(BpeVocabulary, DamagedFilesNeverCrash) {
  const BpeVocabulary vocabulary = small_vocabulary();
  std::mt19937 rng(3);
  int refused = 0;
  for (int round = 0; round < 600; ++round) {
    std::string json = vocabulary.vocab_json();
    std::string merges = vocabulary.merges_txt();
    std::string& damaged = round % 2 == 0 ? json : merges;
    if (round % 3 == 0) {
      damaged.resize(rng() % damaged.size());
    } else {
      damaged[rng() % damaged.size()] = static_cast<char>(rng());
    }
    try {
      const auto read = BpeVocabulary::parse(json, "v", merges, "m");
      EXPECT_GE(read.size(), 257);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kData);
      ++refused;
    }
  }
  EXPECT_GT(refused, 300);
}

}  // namespace
}  // namespace pentatron::tokenizers
