// SPDX-License-Identifier: Apache-2.0
// clang-format off
// sources: pentatron/sentencepiece/sentence_piece_api.cc pentatron/tokenizers/sentence_piece_model_check.cc pentatron/tokenizers/charsmap.cc pentatron/tokenizers/tokenizer.cc pentatron/base/error.cc pentatron/base/env.cc pentatron/base/printable.cc
// libs: sentencepiece sentencepiece_train icuuc fmt
// max_len: 2048
// clang-format on
//
// The functions of libpentatron_sentencepiece.so. The first byte chooses, modulo 3. 0: the rest is
// a model file. 1: changes of a good model (a place in 16 bits, a byte) up to a place beyond it,
// then a text. 2: a text and ids for good models. A model is refused with a message, or has ids
// inside its vocabulary for any bytes, places in order inside them, and a text for any of its ids.
// (The library itself is the system's, without sanitisers; what it reads of ours is checked.)
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "pentatron/base/error.h"
#include "pentatron/sentencepiece/sentence_piece_api.h"
#include "pentatron/tokenizers/sentence_piece_model_check.h"
#include "tests/fuzz/require.h"

using pentatron::fuzz::require;

namespace {

std::string trained(const char* settings) {
  static int line = 0;
  static std::string model;
  line = 0;
  const auto next = [](void*, const char** text, std::size_t* size) {
    static constexpr std::array<std::string_view, 5> kLines = {
        "the cat sat on the mat", "a dog ate the cat", "eat the hat that sat", "123 4 dogs",
        "mad cats and hot dogs"};
    if (line == 200) return false;
    *text = kLines[static_cast<std::size_t>(line) % kLines.size()].data();
    *size = kLines[static_cast<std::size_t>(line++) % kLines.size()].size();
    return true;
  };
  const auto take = [](void*, const char* bytes, std::size_t size) { model.assign(bytes, size); };
  require(pentatron_sentence_piece_train(settings, next, take, nullptr) == nullptr);
  return model;
}

class Model final {
 public:
  explicit Model(std::string_view bytes) {
    try {
      pentatron::tokenizers::check_sentence_piece_model(bytes, "m");
    } catch (const pentatron::Error& error) {
      require(error.kind() == pentatron::ErrorKind::kData);
      return;
    }
    const char* problem = pentatron_sentence_piece_open(bytes.data(), bytes.size(), &handle_);
    require((problem == nullptr) == (handle_ != nullptr));
    require(problem == nullptr || *problem != '\0');
  }
  ~Model() {
    if (handle_ != nullptr) pentatron_sentence_piece_close(handle_);
  }
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  void check_text(std::string_view text) const {
    if (handle_ == nullptr) return;
    const int size = pentatron_sentence_piece_describe(handle_).size;
    std::vector<int> ids;
    const auto take_ids = [](void* to, const int* found, std::size_t count) {
      static_cast<std::vector<int>*>(to)->assign(found, found + count);
    };
    if (pentatron_sentence_piece_encode(handle_, text.data(), text.size(), take_ids, &ids)) return;
    for (const int id : ids) require(id >= 0 && id < size);
    struct Spans {
      std::vector<int> ids;
      std::size_t at = 0;
      std::size_t size = 0;
    } spans;
    spans.size = text.size();
    const auto take_span = [](void* to, int id, std::size_t begin, std::size_t end) {
      auto& all = *static_cast<Spans*>(to);
      require(begin >= all.at && begin <= end && end <= all.size);
      all.at = end;
      all.ids.push_back(id);
    };
    require(pentatron_sentence_piece_spans(handle_, text.data(), text.size(), take_span, &spans) ==
            nullptr);
    require(spans.ids == ids);
    check_ids(ids);
  }

  void check_ids(const std::vector<int>& ids) const {
    std::string text;
    const auto take = [](void* to, const char* bytes, std::size_t size) {
      static_cast<std::string*>(to)->assign(bytes, size);
    };
    require(pentatron_sentence_piece_decode(handle_, ids.data(), ids.size(), take, &text) ==
            nullptr);
    for (const int id : ids) {
      const int kind = pentatron_sentence_piece_kind(handle_, id);
      require(kind >= 0 && kind <= 2);
    }
  }

  [[nodiscard]] int size() const { return pentatron_sentence_piece_describe(handle_).size; }

 private:
  pentatron_sentence_piece* handle_ = nullptr;
};

const std::string& plain_model() {
  static const std::string kModel = trained(
      "model_type=unigram\nvocab_size=300\nbyte_fallback=true\nhard_vocab_limit=false\n"
      "normalization_rule_name=identity\n");
  return kModel;
}

void check_changed(std::string_view data) {
  std::string model = plain_model();
  while (data.size() >= 3) {
    const std::size_t place =
        static_cast<std::uint8_t>(data[0]) << 8 | static_cast<std::uint8_t>(data[1]);
    const char value = data[2];
    data.remove_prefix(3);
    if (place >= model.size()) break;
    model[place] = value;
  }
  Model(model).check_text(data);
}

void check_good(std::string_view data) {
  static const Model kPlain(plain_model());
  static const Model kBpe(trained("model_type=bpe\nvocab_size=60\nhard_vocab_limit=false\n"));
  for (const Model* model : {&kPlain, &kBpe}) {
    model->check_text(data);
    std::vector<int> ids;
    for (const char c : data) ids.push_back(static_cast<std::uint8_t>(c) % model->size());
    model->check_ids(ids);
    (void)model->size();
  }
}

}  // namespace

// The models are trained before any input's time is taken.
extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** /*argv*/) {
  check_good("");
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view data(reinterpret_cast<const char*>(bytes) + 1, size - 1);
  if (bytes[0] % 3 == 0) Model(data).check_text("the cat \xE2\x82\xAC\xFF");
  if (bytes[0] % 3 == 1) check_changed(data);
  if (bytes[0] % 3 == 2) check_good(data);
  return 0;
}
