// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pentatron/tokenizers/borrow_pool.h"
#include "pentatron/tokenizers/bpe_merger.h"
#include "pentatron/tokenizers/pair_table.h"
#include "pentatron/tokenizers/word_cache.h"
#include "pentatron/tokenizers/word_rules.h"

namespace pentatron::tokenizers {

// Byte-level BPE of texts and words, the fast path of GPT-2's tokenizer, tiktoken's and most
// tokenizer.json files. Words are cut and looked up in blocks, so that the memory of their cache
// slots is on its way while others are cut; the rest of the work is a word's first time.
//
// Const methods may be called by several threads; each call borrows a cache of its own.
class ByteBpe final {
 public:
  // `tokens`: bytes by id; `byte_ids`: the tokens of the bytes; `merges` must outlive the object.
  // `whole_words`: a word that is a token is that token, whatever its merges.
  ByteBpe(std::span<const std::string> tokens, const std::array<std::int32_t, 256>& byte_ids,
          const MergeTable& merges, bool whole_words,
          std::size_t cache_slots = WordCache::kDefaultSlots);
  ~ByteBpe();

  // Appends the ids of the text's words, and adds the work done.
  void encode(WordRule rule, std::string_view text, std::vector<std::int32_t>& ids,
              BpeWork& work) const;
  // The same for one word, which is not empty.
  void encode_word(std::string_view word, std::vector<std::int32_t>& ids) const;

 private:
  struct Scratch;

  template <WordRule kRule>
  void encode_text(std::string_view text, std::vector<std::int32_t>& ids, Scratch& scratch,
                   BpeWork& work) const;
  void look_up_block(std::string_view text, std::size_t num_words, std::vector<std::int32_t>& ids,
                     Scratch& scratch, BpeWork& work) const;
  [[nodiscard]] std::size_t merge(std::string_view word, Scratch& scratch, std::int32_t* ids,
                                  BpeWork& work) const;
  [[nodiscard]] std::size_t merge_short(std::string_view word, Scratch& scratch, std::int32_t* ids,
                                        BpeWork& work) const;
  void encode_huge_word(std::string_view word, std::vector<std::int32_t>& ids, BpeWork& work) const;

  std::array<std::int32_t, 256> byte_ids_;
  PairTable pairs_;
  BpeMerger merger_;
  bool whole_words_;
  WordCache known_words_;  // what each cache begins with
  BorrowPool<Scratch> scratches_;
};

}  // namespace pentatron::tokenizers
