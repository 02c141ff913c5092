// SPDX-License-Identifier: Apache-2.0
#include "pentatron/families/llama/llama.h"
#include "pentatron/families/registry.h"
#include "pentatron/families/rope_keys.h"
#include "pentatron/families/window_keys.h"

namespace pentatron::families {
namespace {

// As Llama, with an RMSNorm of each query and key head.
void start(ModelConfig& model) {
  start_llama(model);
  model.qk_layernorm = true;
}

// The class's own size of heads is not hidden size / heads.
KeyRules keys() {
  return joined(llama_sizes({.head_size = 128}),
                {attention_biases(), rope_keys(), windows_by_layer({.switched = true}),
                 tied_embeddings(/*missing=*/false)});
}

}  // namespace

const Family& qwen3() {
  static const Family kFamily = of_llama_kind(
      {.name = "qwen3", .architecture = "Qwen3ForCausalLM", .start = start, .keys = keys});
  return kFamily;
}

}  // namespace pentatron::families
