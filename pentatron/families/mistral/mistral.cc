// SPDX-License-Identifier: Apache-2.0
#include "pentatron/families/llama/llama.h"
#include "pentatron/families/registry.h"
#include "pentatron/families/rope_keys.h"
#include "pentatron/families/window_keys.h"

namespace pentatron::families {
namespace {

KeyRules keys() {
  return joined(llama_sizes(), {rope_keys(), window_of_all_layers(/*missing=*/4096),
                                tied_embeddings(/*missing=*/false)});
}

}  // namespace

const Family& mistral() {
  static const Family kFamily =
      of_llama_kind({.name = "mistral", .architecture = "MistralForCausalLM", .keys = keys});
  return kFamily;
}

}  // namespace pentatron::families
