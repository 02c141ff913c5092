// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "pentatron/base/error.h"
#include "pentatron/config/validate.h"

// A run that is fine, and what is said of a changed one. Only tests include it.
namespace pentatron::config::testing_support {

inline RunConfig small() {
  RunConfig config;
  config.model.num_layers = 4;
  config.model.hidden_size = 64;
  config.model.num_attention_heads = 8;
  config.model.max_position_embeddings = 64;
  config.model.seq_length = 32;
  config.data.data_path = {"corpus"};
  config.data.tokenizer_type = "GPT2BPETokenizer";
  config.data.vocab_file = "v";
  config.data.merge_file = "m";
  config.optimizer.lr = 0.1;
  config.training.train_iters = 10;
  return config;
}

// The message for a changed config; empty when it is fine.
template <typename Change>
std::string problem(const Change& change, Purpose purpose = Purpose::kTrain) {
  RunConfig config = small();
  change(config);
  try {
    resolve(config, purpose);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    return error.what();
  }
  return {};
}

}  // namespace pentatron::config::testing_support
