// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "pentatron/training/test_support.h"

// What tests of whole models change in a tiny run. Only tests include it.
namespace pentatron::training::testing_support {

// The parts of a Llama layer; sizes, groups of keys and dropout stay as they are.
inline void make_llama(config::ModelConfig& model) {
  model.normalization = "RMSNorm";
  model.position_embedding_type = "rope";
  model.swiglu = true;
  model.add_bias_linear = false;
  model.untie_embeddings_and_output_weights = true;
}

// Each sample attends as a whole, so that all micro-batches have one shape.
inline void join_documents(Batch& batch) {
  SequenceRows rows = batch.text().rows();
  rows.boundaries = rows.samples;
  batch.sequences[std::string(Batch::kText)] = SequenceLayout(rows);
}
inline std::vector<Batch> whole_samples(Engine& engine, std::int64_t step) {
  std::vector<Batch> batches = micro_batches(engine, step);
  for (Batch& batch : batches) join_documents(batch);
  return batches;
}

}  // namespace pentatron::training::testing_support
