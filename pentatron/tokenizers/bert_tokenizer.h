// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>

#include "pentatron/tokenizers/staged_tokenizer.h"

namespace pentatron::tokenizers {

// Megatron's BertWordPieceLowerCase and BertWordPieceCase: `vocab_file` is BERT's vocab.txt, one
// token a line, with [UNK], [CLS], [SEP], [PAD] and [MASK] among them. encode puts [CLS] before a
// text and [SEP] after it, as BERT's tokenizer does; the end of document is [SEP]. Throws kIo and
// kData.
[[nodiscard]] std::unique_ptr<StagedTokenizer> load_bert_tokenizer(
    const std::filesystem::path& vocab_file, bool lower_case);

}  // namespace pentatron::tokenizers
