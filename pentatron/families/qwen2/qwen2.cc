// SPDX-License-Identifier: Apache-2.0
#include "pentatron/families/llama/llama.h"
#include "pentatron/families/registry.h"
#include "pentatron/families/rope_keys.h"
#include "pentatron/families/window_keys.h"

namespace pentatron::families {
namespace {

// As Llama, with biases of query, key and value.
void start(ModelConfig& model) {
  start_llama(model);
  model.add_qkv_bias = true;
}

// Of Qwen2.5's files; the library reads it for models that see pictures.
KeyRule no_mrope() {
  KeyRule rule = fixed_key("use_mrope", false);
  rule.write = nullptr;
  return rule;
}

KeyRules keys() {
  return joined(llama_sizes(), {rope_keys(), no_mrope(), windows_by_layer({.switched = true}),
                                tied_embeddings(/*missing=*/false)});
}

}  // namespace

const Family& qwen2() {
  static const Family kFamily = of_llama_kind(
      {.name = "qwen2", .architecture = "Qwen2ForCausalLM", .start = start, .keys = keys});
  return kFamily;
}

}  // namespace pentatron::families
