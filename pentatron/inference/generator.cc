// SPDX-License-Identifier: Apache-2.0
#include "pentatron/inference/generator.h"

#include <algorithm>
#include <numeric>

#include "pentatron/base/error.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::inference {
namespace {

// A micro-batch of one sequence's tokens from position `begin` on.
BatchMeta sequence_meta(const std::vector<std::int32_t>& tokens, std::int64_t begin,
                        const PrecisionPolicy& policy) {
  BatchMeta meta;
  meta.num_tokens = static_cast<std::int64_t>(tokens.size()) - begin;
  meta.cu_seqlens = {0, meta.num_tokens};
  meta.cu_samples = {0, meta.num_tokens};
  meta.max_seqlen = meta.num_tokens;
  std::vector<std::int64_t> ids(tokens.begin() + begin, tokens.end());
  meta.host_positions.resize(ids.size());
  std::iota(meta.host_positions.begin(), meta.host_positions.end(), begin);
  meta.host_token_index = meta.host_positions;
  meta.host_sample_ids.assign(ids.size(), 0);
  meta.tokens = tensor::from_vector(ids);
  meta.labels = tensor::zeros({meta.num_tokens}, DType::Long);
  meta.loss_mask = tensor::zeros({meta.num_tokens}, policy.statistics);
  meta.positions = tensor::from_vector(meta.host_positions);
  meta.sample_ids = tensor::from_vector(meta.host_sample_ids);
  meta.token_index = tensor::from_vector(meta.host_token_index);
  return meta;
}

std::vector<float> last_logits(const Tensor& logits_tv, std::int64_t vocab_size) {
  const Tensor row =
      logits_tv[logits_tv.size(0) - 1].narrow(0, 0, vocab_size).cpu().to(DType::Float).contiguous();
  const float* begin = row.data_ptr<float>();
  return {begin, begin + vocab_size};
}

}  // namespace

Generated generate(nn::Stage& model, const CacheShape& shape, const PrecisionPolicy& policy,
                   std::int64_t vocab_size, const std::vector<std::int32_t>& prompt,
                   const GenerationOptions& options, const TokenSink& sink, Device device) {
  check_sampling_options(options.sampling, vocab_size);
  PENTATRON_CHECK(!prompt.empty(), kConfig, "the prompt has no token; give at least one character");
  const std::int64_t total = static_cast<std::int64_t>(prompt.size()) + options.max_new_tokens;
  PENTATRON_CHECK(
      total <= shape.max_positions, kConfig,
      "{} prompt tokens and {} new ones are more than the model's {} positions; shorten the prompt "
      "or --max-new-tokens",
      prompt.size(), options.max_new_tokens, shape.max_positions);
  for (const std::int32_t token : prompt) {
    PENTATRON_CHECK(token >= 0 && token < vocab_size, kData,
                    "prompt token {} is outside the vocabulary of {}", token, vocab_size);
  }
  const tensor::NoGrad no_grad;
  nn::KvCache cache(shape.num_layers, total, shape.num_kv_heads, shape.head_dim, policy.compute,
                    device);
  std::vector<std::int32_t> sequence = prompt;
  Generated result;
  for (std::int64_t step = 0; step < options.max_new_tokens; ++step) {
    const bool decode = options.use_kv_cache && step > 0;
    const std::int64_t begin = decode ? static_cast<std::int64_t>(sequence.size()) - 1 : 0;
    const BatchMeta meta = to_device(sequence_meta(sequence, begin, policy), device);
    nn::StepContext context{.batch = meta, .policy = policy};
    context.phase = nn::Phase::kEvaluate;
    if (options.use_kv_cache) {
      context.phase = decode ? nn::Phase::kDecode : nn::Phase::kPrefill;
      context.kv_cache = &cache;
    }
    const std::vector<float> logits = last_logits(model.logits({}, context), vocab_size);
    const std::int32_t token = sample_token(logits, options.sampling, /*sequence=*/0,
                                            static_cast<std::int64_t>(sequence.size()));
    if (std::find(options.stop_tokens.begin(), options.stop_tokens.end(), token) !=
        options.stop_tokens.end()) {
      result.reason = FinishReason::kStopToken;
      return result;
    }
    sequence.push_back(token);
    result.tokens.push_back(token);
    if (sink && !sink(token)) {
      result.reason = FinishReason::kStopText;
      return result;
    }
  }
  return result;
}

}  // namespace pentatron::inference
