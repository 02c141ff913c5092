// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "apps/command.h"
#include "apps/model_flags.h"
#include "apps/text_printer.h"
#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/base/log.h"
#include "pentatron/base/timer.h"
#include "pentatron/inference/chat_prompt.h"
#include "pentatron/inference/generator.h"

namespace pentatron::apps {
namespace {

std::vector<Flags::Spec> specs() {
  return with_model_flags(
      {{"--prompt", "TEXT", "text to continue", ""},
       {"--prompt-file", "FILE", "the same from a file", ""},
       {"--chat", "", "the prompt is a message to a chat model; prints the answer alone"},
       {"--messages", "FILE",
        "a chat so far: JSON list of messages, or an object with \"messages\" and \"tools\"", ""},
       {"--chat-template", "FILE", "Jinja template of the chat; default: the tokenizer's", ""},
       {"--max-new-tokens", "N", "tokens to write at most", "128"},
       {"--temperature", "T", "0: greedy", "1.0"},
       {"--top-k", "K", "draw from the K likeliest tokens; 0: off", "0"},
       {"--top-p", "P", "draw from the likeliest tokens of this mass; 0: off", "0"},
       {"--seed", "N", "of the draws", "1234"},
       {"--stop", "TEXT", "end before one of these texts", "", false, true},
       {"--no-kv-cache", "", "read the whole text again for every token"},
       {"--tokens", "", "print token ids instead of text"}});
}

bool chats(const Flags& flags) { return flags.has("--chat") || flags.has("--messages"); }

// The text, or the messages of a chat as JSON.
std::string read_prompt(const Flags& flags) {
  int sources = 0;
  for (const char* name : {"--prompt", "--prompt-file", "--messages"}) {
    sources += flags.has(name) ? 1 : 0;
  }
  PENTATRON_CHECK(sources == 1, kConfig,
                  "pentatron generate: give exactly one of --prompt, --prompt-file and --messages");
  PENTATRON_CHECK(!flags.has("--chat-template") || chats(flags), kConfig,
                  "--chat-template has no effect without --chat or --messages");
  constexpr std::uint64_t kLongestPrompt = 64ULL << 20;
  if (flags.has("--messages")) return read_text_file(flags.text("--messages"), kLongestPrompt);
  const std::string text = flags.has("--prompt")
                               ? flags.text("--prompt")
                               : read_text_file(flags.text("--prompt-file"), kLongestPrompt);
  return flags.has("--chat") ? inference::user_message(text) : text;
}

// What the model continues; a chat's tokens that end the answer are added to `stop_tokens`.
std::vector<std::int32_t> prompt_tokens(const Flags& flags, const std::string& prompt,
                                        const std::filesystem::path& tokenizer_path,
                                        const tokenizers::Tokenizer& tokenizer,
                                        std::vector<std::int32_t>& stop_tokens) {
  if (!chats(flags)) return tokenizer.encode(prompt);
  const std::string name = flags.has("--messages") ? flags.text("--messages") : "--prompt";
  inference::ChatPrompt chat = inference::make_chat_prompt(
      prompt, name, flags.text("--chat-template"), tokenizer_path, tokenizer);
  stop_tokens.insert(stop_tokens.end(), chat.stop_tokens.begin(), chat.stop_tokens.end());
  return std::move(chat.tokens);
}

// What a rank does: all load their part and write together, the first one prints.
void write_text(const Flags& flags, const std::string& prompt, const inference::LoadOptions& load) {
  inference::LoadedModel model = inference::load_model(flags.text("--load"), load);
  const auto tokenizer = model_tokenizer(flags, model);
  inference::GenerationOptions options{
      .sampling = {.temperature = flags.number("--temperature", 0),
                   .top_k = flags.integer("--top-k", 0),
                   .top_p = flags.number("--top-p", 0),
                   .seed = static_cast<std::uint64_t>(flags.integer("--seed", 0))},
      .max_new_tokens = flags.integer("--max-new-tokens", 1),
      .stop_tokens = {tokenizer->eod()},
      .use_kv_cache = !flags.has("--no-kv-cache")};
  const std::vector<std::int32_t> tokens = inference::prompt_of_rank_0(
      model.context->world(),
      prompt_tokens(flags, prompt, tokenizer_path(flags, model), *tokenizer, options.stop_tokens));
  const bool ids = flags.has("--tokens");
  TextPrinter printer(*tokenizer, chats(flags) ? "" : prompt, flags.texts("--stop"),
                      load.backend->rank() == 0 && !ids);
  const auto sink = [&](std::int32_t token) { return printer.add(token); };
  const Timer timer;
  inference::ModelRunner runner = model.runner();
  const inference::Generated result =
      inference::generate(runner, tokenizer->vocab_size(), tokens, options, sink);
  if (load.backend->rank() != 0) return;
  if (ids) {
    log::print_line(fmt::format("{}", fmt::join(result.tokens, " ")));
  } else {
    printer.finish();
  }
  log::info("{} tokens in {:.2f} s ({:.1f} tokens/s) from iteration {}", result.tokens.size(),
            timer.seconds(),
            static_cast<double>(result.tokens.size()) / std::max(1e-9, timer.seconds()),
            model.iteration);
}

}  // namespace

int generate(const Words& words) {
  const Flags flags("generate", "Continues a prompt with a trained checkpoint.", {}, specs(),
                    words);
  if (flags.help()) return 0;
  const std::string prompt = read_prompt(flags);
  on_model_ranks("generate", flags,
                 [&](const inference::LoadOptions& load) { write_text(flags, prompt, load); });
  return 0;
}

}  // namespace pentatron::apps
