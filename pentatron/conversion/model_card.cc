// SPDX-License-Identifier: Apache-2.0
#include "pentatron/conversion/model_card.h"

#include <fmt/format.h>

namespace pentatron::conversion {

std::string model_card(const CardFacts& facts) {
  const config::ModelConfig& m = facts.model;
  std::string text =
      "---\nlibrary_name: transformers\npipeline_tag: text-generation\ntags:\n- pentatron\n---\n\n"
      "# Model card\n\n";
  text += fmt::format(
      "A language model of the {} family ({}), trained or fine-tuned with Pentatron and exported "
      "from iteration {}.\n\n",
      facts.family.name, facts.family.architecture, facts.iteration);
  text += "| | |\n| --- | --- |\n";
  text += fmt::format("| parameters | {} |\n", facts.parameters);
  text += fmt::format("| layers | {} |\n| hidden size | {} |\n| feed-forward size | {} |\n",
                      m.num_layers, m.hidden_size, m.ffn_hidden_size);
  text += fmt::format("| attention heads | {} of {} channels, {} key and value heads |\n",
                      m.num_attention_heads, m.kv_channels, m.num_query_groups);
  text += fmt::format("| vocabulary | {} |\n| positions | {} |\n| dtype | {} |\n\n", m.vocab_size,
                      m.max_position_embeddings, facts.dtype);
  text +=
      "## Use\n\n```python\nfrom transformers import AutoModelForCausalLM\nmodel = "
      "AutoModelForCausalLM.from_pretrained(\".\")\n```\n\n"
      "## To be filled in\n\n- Training data:\n- Evaluation:\n- Intended use and limits:\n"
      "- Licence:\n";
  return text;
}

}  // namespace pentatron::conversion
