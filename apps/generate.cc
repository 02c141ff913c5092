// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/command.h"
#include "apps/model_flags.h"
#include "apps/prompts.h"
#include "apps/text_printer.h"
#include "pentatron/base/log.h"
#include "pentatron/base/timer.h"
#include "pentatron/inference/chat_prompt.h"
#include "pentatron/inference/generator.h"

namespace pentatron::apps {
namespace {

std::vector<Flags::Spec> specs() {
  std::vector<Flags::Spec> all = prompt_flags();
  const std::vector<Flags::Spec> of_drawing{
      {.name = "--max-new-tokens",
       .value = "N",
       .help = "tokens to write at most",
       .default_text = "128",
       .also = {"--num-tokens-to-generate", "--out-seq-length"}},
      {"--temperature", "T", "0: greedy", "1.0"},
      {"--top-k", "K", "draw from the K likeliest tokens; 0: off", "0"},
      {"--top-p", "P", "draw from the likeliest tokens of this mass; 0: off", "0"},
      {.name = "--seed",
       .value = "N",
       .help = "of the draws",
       .default_text = "1234",
       .also = {"--random-seed"}},
      {"--stop", "TEXT", "end before one of these texts", "", false, true},
      {"--no-kv-cache", "", "read the whole text again for every token"},
      {"--tokens", "", "print token ids instead of text"}};
  all.insert(all.end(), of_drawing.begin(), of_drawing.end());
  return with_model_flags(std::move(all));
}

// Writes what a model has to say to one prompt after the other. All ranks of the model have one and
// call the same; the first reads the prompts and prints.
class Writer final {
 public:
  Writer(const Flags& flags, Prompts& prompts, const inference::LoadOptions& load)
      : flags_(flags),
        prompts_(prompts),
        model_(inference::load_model(flags.text("--load"), load)),
        tokenizer_(model_tokenizer(flags, model_)),
        runner_(model_.runner()),
        reads_(load.backend->rank() == 0),
        options_{.sampling = {.temperature = flags.number("--temperature", 0),
                              .top_k = flags.integer("--top-k", 0),
                              .top_p = flags.number("--top-p", 0),
                              .seed = static_cast<std::uint64_t>(flags.integer("--seed", 0))},
                 .max_new_tokens = flags.integer("--max-new-tokens", 1),
                 .stop_tokens = {},
                 .use_kv_cache = !flags.has("--no-kv-cache")} {}

  void run() {
    const Timer timer;
    std::int64_t count = 0;
    while (take_prompt()) count += write_one();
    if (!reads_) return;
    log::info("{} tokens in {:.2f} s ({:.1f} tokens/s) from iteration {}", count, timer.seconds(),
              static_cast<double>(count) / std::max(1e-9, timer.seconds()), model_.iteration);
  }

 private:
  // Rank 0's next prompt on every rank; false when there is none.
  bool take_prompt() {
    std::vector<std::int32_t> tokens;  // behind a one; nothing at the end
    if (reads_) {
      if (const std::optional<std::string> text = prompts_.next()) {
        tokens = encode(*text);
        tokens.insert(tokens.begin(), 1);
      }
    }
    tokens = inference::prompt_of_rank_0(model_.context->world(), tokens);
    if (tokens.empty()) return false;
    tokens_.assign(tokens.begin() + 1, tokens.end());
    return true;
  }

  std::vector<std::int32_t> encode(const std::string& text) {
    options_.stop_tokens = {tokenizer_->eod()};
    shown_ = text;
    if (!prompts_.chats()) return tokenizer_->encode(text);
    shown_.clear();
    std::string messages = text;
    if (!prompts_.are_messages()) {
      if (!prompts_.is_conversation()) said_ = nlohmann::json::array();
      said_.push_back({{"role", "user"}, {"content", text}});
      messages = said_.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    }
    inference::ChatPrompt chat =
        inference::make_chat_prompt(messages, prompts_.name(), flags_.text("--chat-template"),
                                    tokenizer_path(flags_, model_), *tokenizer_);
    options_.stop_tokens.insert(options_.stop_tokens.end(), chat.stop_tokens.begin(),
                                chat.stop_tokens.end());
    return std::move(chat.tokens);
  }

  // Returns the number of tokens written.
  std::int64_t write_one() {
    // The ends of a chat's answer are known to the rank that read its template.
    options_.stop_tokens =
        inference::prompt_of_rank_0(model_.context->world(), options_.stop_tokens);
    const bool ids = flags_.has("--tokens");
    const std::vector<std::int32_t> context =
        prompts_.chats() ? std::vector<std::int32_t>{} : tokens_;
    TextPrinter printer(*tokenizer_, shown_, flags_.texts("--stop"), reads_ && !ids, context);
    const inference::Generated result =
        inference::generate(runner_, tokenizer_->vocab_size(), tokens_, options_,
                            [&](std::int32_t token) { return printer.add(token); });
    if (reads_ && ids) log::print_line(fmt::format("{}", fmt::join(result.tokens, " ")));
    if (reads_ && !ids) printer.finish();
    if (prompts_.is_conversation()) {
      said_.push_back({{"role", "assistant"}, {"content", tokenizer_->decode_utf8(result.tokens)}});
    }
    return static_cast<std::int64_t>(result.tokens.size());
  }

  const Flags& flags_;
  Prompts& prompts_;
  inference::LoadedModel model_;
  std::unique_ptr<tokenizers::Tokenizer> tokenizer_;
  inference::ModelRunner runner_;
  bool reads_;
  inference::GenerationOptions options_;
  std::vector<std::int32_t> tokens_;               // of the prompt
  std::string shown_;                              // printed before what is written
  nlohmann::json said_ = nlohmann::json::array();  // messages of the conversation so far
};

}  // namespace

int generate(const Words& words) {
  const Flags flags("generate",
                    "Continues prompts with a trained checkpoint, or chats with it. Text appears "
                    "token by token.",
                    {}, specs(), words);
  if (flags.help()) return 0;
  Prompts prompts(flags);
  on_model_ranks("generate", flags,
                 [&](const inference::LoadOptions& load) { Writer(flags, prompts, load).run(); });
  return 0;
}

}  // namespace pentatron::apps
