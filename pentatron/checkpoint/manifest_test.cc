// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>
#include <random>

#include "pentatron/base/file.h"
#include "pentatron/base/json.h"
#include "pentatron/base/sha256.h"
#include "pentatron/base/temp_folder.h"
#include "pentatron/checkpoint/manifest_rules.h"
#include "pentatron/checkpoint/test_support.h"

namespace pentatron::checkpoint {
namespace {
using namespace testing_support;
using nlohmann::json;

std::string good_text() {
  static const std::string kText = [] {
    const TempFolder temp;
    save_layout(temp.path(), 10, layouts()[6], 1);
    return read_text_file(temp.path() / iteration_folder(10) / kManifestName);
  }();
  return kText;
}

// With a right checksum, so that only the rules can object.
std::string seal(const json& body) {
  const std::string inner = dump_json(body);
  return "{\"manifest\":" + inner + ",\"sha256\":\"" + sha256_hex(inner) + "\"}\n";
}

json good_body() { return parse_json(good_text(), "good")["manifest"]; }

TEST(Manifest, TextIsCanonical) {
  const Manifest manifest = parse_manifest(good_text(), "m");
  EXPECT_EQ(manifest_to_text(manifest), good_text());
  EXPECT_EQ(seal(good_body()), good_text());
  EXPECT_EQ(manifest.iteration, 10);
  EXPECT_EQ(manifest.tensors.size(), state_tensors().size());
  EXPECT_EQ(manifest.files.size(), 4U);
  EXPECT_EQ(manifest.config, R"({"lr":0.0003,"model":{"num_layers":2}})");
  for (const ManifestTensor& tensor : manifest.tensors) {
    EXPECT_EQ(tensor.decay, tensor.name != "param/bias");
  }
}

struct BrokenRule {
  const char* pointer;
  json value;
  const char* part;
};

// tensors: exp_avg/embedding.weight, param/bias, param/cube, param/embedding.weight, ...
std::vector<BrokenRule> broken_rules() {
  return {
      {"/version", 3, "'version' is '3'"},
      {"/version", "2", "'version' is"},
      {"/version", 1, "unknown field 'tokenizer'"},
      {"/iteration", -1, "'iteration' is '-1'"},
      {"/iteration", 1.5, "'iteration' is '1.5'"},
      {"/iteration", 18446744073709551615ULL, "expected an integer"},
      {"/files/0/name", "../rank_00000.safetensors", "is no file name"},
      {"/files/0/name", "a/b.safetensors", "is no file name"},
      {"/files/0/name", "..safetensors", "is no file name"},
      {"/files/0/name", "/etc/passwd", "is no file name"},
      {"/files/0/name", "rank_00009.safetensors", "which is not listed"},
      {"/files/0/name", "rank_00001.safetensors", "listed twice"},
      {"/files/0/name", 7, "should be a text"},
      {"/files/0/bytes", 0, "'bytes' is '0'"},
      {"/files/0/bytes", 8, "too small for its slices"},
      {"/files/0/sha256", std::string(64, 'G'), "hexadecimal"},
      {"/files/0/sha256", "abc", "hexadecimal"},
      {"/files", json::array(), "which is not listed"},
      {"/files", 1, "should be a list"},
      {"/tensors/0/name", "exp_avg/../x", "is no name of a stored tensor"},
      {"/tensors/0/name", "embedding", "is no name of a stored tensor"},
      {"/tensors/0/name", "/x", "is no name of a stored tensor"},
      {"/tensors/0/name", "param/a\nb", "is no name of a stored tensor"},
      {"/tensors/0/name", "param/bias", "twice or out of order"},
      {"/tensors/0/name", "zzz/last", "twice or out of order"},
      {"/tensors/0/dtype", "F31", "not supported"},
      {"/tensors/0/shape", {10, 7}, "do not cover the shape"},
      {"/tensors/0/shape", {9, 6}, "is not inside the shape"},
      {"/tensors/0/shape", {60}, "is not inside the shape"},
      {"/tensors/0/shape", {0, 6}, "expected an integer from 1"},
      {"/tensors/0/shape", {1LL << 40, 1LL << 40}, "more than 2^48"},
      {"/tensors/0/shape", {1, 1, 1, 1, 1, 1, 1, 1, 1}, "at most 8"},
      {"/tensors/0/shape/0", 1e300, "expected an integer"},
      {"/tensors/0/decay", 1, "true or false"},
      {"/tensors/0/slices", json::array(), "has no slices"},
      {"/tensors/0/slices/0/range", {0, 14}, "elements 14 to 15 of the box"},
      {"/tensors/0/slices/0/range", {0, 16}, "elements 15 to 16 of the box"},
      {"/tensors/0/slices/0/range", {5, 5}, "is not inside a box"},
      {"/tensors/0/slices/0/range", {0, 31}, "is not inside a box"},
      {"/tensors/0/slices/0/range", {0}, "is not inside a box"},
      {"/tensors/0/slices/0/offset", {0, 1}, "is not inside the shape"},
      {"/tensors/0/slices/0/offset", {-1, 0}, "expected an integer from 0"},
      {"/tensors/0/slices/0/size", {4, 6}, "are missing"},
      {"/tensors/0/slices/0/file", "rank_00001.safetensors", "share the key"},
      {"/tensors/0/slices/0/key", "", "expected 1 to"},
      {"/tensors/0", nullptr, "expected an object"},
      {"/tensors", json::object(), "should be a list"},
      {"/surplus", 1, "unknown field 'surplus'"},
      {"/tensors/0/surplus", 1, "unknown field 'surplus'"},
  };
}

TEST(Manifest, EachRuleIsEnforced) {
  for (const BrokenRule& c : broken_rules()) {
    SCOPED_TRACE(std::string(c.pointer) + " = " + c.value.dump());
    json body = good_body();
    body[json::json_pointer(c.pointer)] = c.value;
    expect_error(ErrorKind::kCheckpoint, c.part, [&] { (void)parse_manifest(seal(body), "m"); });
  }
  for (const char* name :
       {"version", "iteration", "config", "layout", "train_state", "files", "tensors"}) {
    json body = good_body();
    body.erase(name);
    expect_error(ErrorKind::kCheckpoint, "is missing",
                 [&] { (void)parse_manifest(seal(body), "m"); });
  }
}

TEST(Manifest, MissingAndDoubleSlicesAreFound) {
  const json good = good_body();
  for (std::size_t t = 0; t < good["tensors"].size(); ++t) {
    const std::size_t count = good["tensors"][t]["slices"].size();
    for (std::size_t s = 0; s < count; ++s) {
      json body = good;
      json& slices = body["tensors"][t]["slices"];
      if (count > 1) {
        slices.erase(s);
        EXPECT_THROW((void)parse_manifest(seal(body), "m"), Error) << t << " " << s;
        slices = good["tensors"][t]["slices"];
      }
      json twice = slices[s];
      twice["key"] = "another#0";
      slices.insert(slices.begin() + static_cast<std::ptrdiff_t>(s), twice);
      EXPECT_THROW((void)parse_manifest(seal(body), "m"), Error) << t << " " << s;
    }
  }
}

// Any change of bytes is refused, with the right kind of error and no crash.
TEST(Manifest, RandomBytesAreRefused) {
  std::mt19937 random(11);
  const std::string good = good_text();
  for (int round = 0; round < 10'000; ++round) {
    std::string text = good;
    const std::size_t edits = 1 + random() % 4;
    for (std::size_t i = 0; i < edits; ++i) {
      const std::size_t at = random() % text.size();
      switch (random() % 4) {
        case 0:
          text[at] = static_cast<char>(text[at] ^ (1U << random() % 8));
          break;
        case 1:
          text.erase(at, 1 + random() % 20);
          break;
        case 2:
          text.insert(at, 1, static_cast<char>(random() % 256));
          break;
        default:
          text.resize(at);
          break;
      }
      if (text.empty()) break;
    }
    if (text == good) continue;
    try {
      (void)parse_manifest(text, "m");
      ADD_FAILURE() << "accepted in round " << round;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kCheckpoint) << error.what();
    }
  }
}

void collect(json& node, std::vector<json*>& nodes) {
  nodes.push_back(&node);
  if (node.is_structured()) {
    for (json& child : node) collect(child, nodes);
  }
}

// Changed values under a right checksum: refused, or accepted as what their own text says.
TEST(Manifest, RandomValuesNeverCrash) {
  std::mt19937 random(13);
  const json good = good_body();
  const std::vector<json> junk = {0,
                                  1,
                                  2,
                                  3,
                                  15,
                                  30,
                                  -1,
                                  9223372036854775807LL,
                                  1e18,
                                  true,
                                  nullptr,
                                  "",
                                  "x",
                                  "param/bias",
                                  "rank_00001.safetensors",
                                  "F64",
                                  json::array(),
                                  json::object(),
                                  {1, 2},
                                  {0, 15},
                                  {{"a", 1}}};
  int accepted = 0;
  for (int round = 0; round < 10'000; ++round) {
    json body = good;
    for (std::size_t i = 0; i < 1 + random() % 3; ++i) {
      std::vector<json*> nodes;
      collect(body, nodes);
      json& node = *nodes[random() % nodes.size()];
      node = random() % 3 == 0 ? *nodes[random() % nodes.size()] : junk[random() % junk.size()];
    }
    const std::string text = seal(body);
    try {
      const Manifest manifest = parse_manifest(text, "m");
      EXPECT_EQ(manifest_to_text(manifest), text);
      ++accepted;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kCheckpoint) << error.what();
    }
  }
  EXPECT_LT(accepted, 10'000);  // changes of free texts and counters are legal
}

}  // namespace
}  // namespace pentatron::checkpoint
