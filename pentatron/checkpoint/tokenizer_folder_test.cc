// SPDX-License-Identifier: Apache-2.0
#include "pentatron/checkpoint/tokenizer_folder.h"

#include <nlohmann/json.hpp>

#include "pentatron/base/file.h"
#include "pentatron/base/json.h"
#include "pentatron/base/sha256.h"
#include "pentatron/base/temp_folder.h"
#include "pentatron/checkpoint/manifest_rules.h"
#include "pentatron/checkpoint/open.h"
#include "pentatron/checkpoint/test_support.h"
#include "pentatron/checkpoint/verify.h"

namespace pentatron::checkpoint {
namespace {
using namespace testing_support;
using nlohmann::json;
namespace fs = std::filesystem;

void write(const fs::path& path, const std::string& text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

// A checkpoint that keeps two files, one of them empty.
fs::path saved(const fs::path& root) {
  const std::unique_ptr<comm::Backend> backend = comm::make_single_backend();
  const std::unique_ptr<comm::Group> world = backend->make_group({0}, "world");
  RankState state = rank_state(root, 4, layouts()[0], 0, 1);
  state.request.tokenizer_files = {{"vocab_file", "{}"}, {"merge_file", ""}};
  return save_checkpoint(state.request, *world).folder;
}

Manifest manifest_of(const fs::path& folder) { return CheckpointReader(folder).manifest(); }

TEST(TokenizerFolder, IsListedAndRead) {
  const TempFolder temp;
  const fs::path folder = saved(temp.path());
  const Manifest manifest = manifest_of(folder);
  ASSERT_EQ(manifest.tokenizer.size(), 2U);
  EXPECT_EQ(manifest.tokenizer[0].name, "merge_file");
  EXPECT_EQ(manifest.tokenizer[1].sha256, sha256_hex("{}"));
  EXPECT_TRUE(tokenizer_problems(folder, manifest).empty());
  const auto files = read_tokenizer(folder, manifest);
  EXPECT_EQ(files.at("vocab_file"), "{}");
  EXPECT_EQ(files.at("merge_file"), "");
  EXPECT_TRUE(verify_checkpoint(folder).ok);
}

TEST(TokenizerFolder, EveryKindOfDamageIsFoundAndTheWeightsStayUsable) {
  const TempFolder temp;
  const fs::path folder = saved(temp.path());
  const fs::path file = folder / "tokenizer" / "vocab_file";
  const auto expect_problem = [&](const std::string& part) {
    const std::vector<std::string> problems = tokenizer_problems(folder, manifest_of(folder));
    ASSERT_EQ(problems.size(), 1U);
    EXPECT_NE(problems[0].find(part), std::string::npos) << problems[0];
    EXPECT_FALSE(verify_checkpoint(folder).ok);
    expect_error(ErrorKind::kCheckpoint, part,
                 [&] { check_tokenizer(folder, manifest_of(folder)); });
    EXPECT_EQ(open_checkpoint(temp.path(), 0).found.iteration, 4);
  };
  write(file, "[]");
  expect_problem("its checksum is not the manifest's");
  write(file, "{ }");
  expect_problem("has 3 bytes, the manifest says 2");
  fs::remove(file);
  expect_problem("vocab_file is missing");
  fs::create_symlink("/dev/zero", file);
  expect_problem("is not a regular file");
  fs::remove(file);
  write(file, "{}");
  write(folder / "tokenizer" / "another", "");
  expect_problem("does not list 'another'");
}

TEST(TokenizerFolder, RulesOfTheList) {
  const TempFolder temp;
  const fs::path folder = saved(temp.path());
  const json good = parse_json(read_text_file(folder / kManifestName), "m");
  const auto refused = [&](const char* pointer, const json& value, const char* part) {
    SCOPED_TRACE(pointer);
    json body = good["manifest"];
    body[json::json_pointer(pointer)] = value;
    const std::string inner = dump_json(body);
    const std::string text =
        "{\"manifest\":" + inner + ",\"sha256\":\"" + sha256_hex(inner) + "\"}\n";
    expect_error(ErrorKind::kCheckpoint, part, [&] { (void)parse_manifest(text, "m"); });
  };
  refused("/tokenizer/0/name", "../manifest.json", "is no file name");
  refused("/tokenizer/0/name", ".hidden", "is no file name");
  refused("/tokenizer/0/name", "vocab_file", "twice or out of order");
  refused("/tokenizer/0/bytes", 1LL << 40, "'bytes' is");
  refused("/tokenizer/0/sha256", "abc", "hexadecimal");
  refused("/tokenizer", json::object(), "should be a list");
  refused("/version", 1, "unknown field 'tokenizer'");
}

// As it was written before the manifest listed the files.
TEST(TokenizerFolder, VersionOneIsReadAsItLies) {
  const TempFolder temp;
  const fs::path folder = saved(temp.path());
  json body = parse_json(read_text_file(folder / kManifestName), "m")["manifest"];
  body["version"] = 1;
  body.erase("tokenizer");
  const std::string inner = dump_json(body);
  write(folder / kManifestName,
        "{\"manifest\":" + inner + ",\"sha256\":\"" + sha256_hex(inner) + "\"}\n");
  const Manifest manifest = manifest_of(folder);
  EXPECT_FALSE(manifest.lists_tokenizer());
  EXPECT_EQ(read_tokenizer(folder, manifest).at("vocab_file"), "{}");
  EXPECT_TRUE(verify_checkpoint(folder).ok);
}

}  // namespace
}  // namespace pentatron::checkpoint
