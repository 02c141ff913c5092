// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/gpt_index.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "pentatron/base/error.h"
#include "pentatron/datasets/numpy_random.h"

namespace pentatron::datasets {
namespace {

constexpr std::int64_t kInt32Max = std::numeric_limits<std::int32_t>::max();
// From here on the shuffle index is int64: NumPy's iinfo(uint32).max - 1.
constexpr std::int64_t kFirstWideShuffle = std::numeric_limits<std::uint32_t>::max() - 1LL;

std::int64_t multiply(std::int64_t a, std::int64_t b, std::string_view what) {
  std::int64_t result = 0;
  PENTATRON_CHECK(!__builtin_mul_overflow(a, b, &result), kConfig,
                  "{} ({} x {}) is past 2^63: ask for fewer samples", what, a, b);
  return result;
}

// Lengths of a corpus's sequences, without a call for each where they lie in memory.
class Lengths final {
 public:
  explicit Lengths(const Corpus& corpus) : corpus_(corpus), table_(corpus.length_table()) {}

  [[nodiscard]] std::int32_t operator[](std::int64_t sequence) const {
    if (table_ == nullptr) return corpus_.sequence_length(sequence);
    std::int32_t length = 0;
    std::memcpy(&length, at(sequence), sizeof(length));
    return length;
  }
  void prefetch(std::int64_t sequence) const {
    if (table_ != nullptr) __builtin_prefetch(at(sequence));
  }

 private:
  [[nodiscard]] const std::byte* at(std::int64_t sequence) const {
    return table_ + static_cast<std::size_t>(sequence) * sizeof(std::int32_t);
  }

  const Corpus& corpus_;
  const std::byte* table_;
};

// Calls put(place, token) for the begin of each sample and of the one after the last; put returns
// false to stop. `documents`: sequences of the corpus, as int32.
template <typename Put>
void walk_samples(const GptIndexSource& source, const IntegerArray& documents,
                  std::int64_t num_samples, Put put) {
  constexpr std::int64_t kAhead = 32;  // documents whose lengths are on their way into the cache
  const Lengths lengths(*source.corpus);
  const std::byte* const entries = documents.bytes().data();
  const auto document = [entries](std::int64_t place) {
    std::int32_t sequence = 0;
    std::memcpy(&sequence, entries + static_cast<std::size_t>(place) * sizeof(sequence),
                sizeof(sequence));
    return sequence;
  };
  std::int64_t place = 0;
  std::int64_t token = 0;
  if (!put(place, token)) return;
  for (std::int64_t n = 0; n < num_samples; ++n) {
    token += source.sequence_length;
    // Whole samples end inside the documents: the plan leaves one token more than num_samples *
    // sequence_length. A short one ends with them.
    for (;;) {
      if (place + kAhead < documents.size()) lengths.prefetch(document(place + kAhead));
      const std::int64_t length = lengths[document(place)];
      if (token < length) break;
      if (source.keep_partial_sample && place + 1 == documents.size()) {
        token = std::max<std::int64_t>(length - 1, 0);
        break;
      }
      token -= length;
      ++place;
    }
    if (!put(place, token)) return;
  }
}

std::vector<std::int32_t> build_document_index(const GptIndexSource& source,
                                               const GptIndexPlan& plan, NumpyRandomState& random) {
  const std::int64_t documents = source.end - source.begin;
  const std::int64_t size = multiply(documents, plan.num_epochs, "the document index");
  std::vector<std::int32_t> index(static_cast<std::size_t>(size));
  for (auto epoch = index.begin(); epoch != index.end(); epoch += documents) {
    std::iota(epoch, epoch + documents, static_cast<std::int32_t>(source.begin));
  }
  const std::span<std::int32_t> all(index);
  if (!plan.separate_last_epoch) {
    random.shuffle(all);
  } else {
    const auto last = static_cast<std::size_t>(size - documents);
    random.shuffle(all.first(last));
    random.shuffle(all.subspan(last));
  }
  return index;
}

template <typename T>
IntegerArray build_sample_index(const GptIndexSource& source, const IntegerArray& documents,
                                std::int64_t num_samples, ArraySink& sink) {
  sink.begin(sample_index_kind(documents.size()), multiply(2, num_samples + 1, "the sample index"));
  std::vector<T> block(std::size_t{1} << 15);  // that a core's cache holds
  std::size_t used = 0;
  const auto put = [&] { sink.put(std::as_bytes(std::span(block).first(std::exchange(used, 0)))); };
  walk_samples(source, documents, num_samples, [&](std::int64_t place, std::int64_t token) {
    block[used++] = static_cast<T>(place);
    block[used++] = static_cast<T>(token);
    if (used == block.size()) put();
    return true;
  });
  put();
  return sink.finish();
}

template <typename T>
IntegerArray build_shuffle_index(const GptIndexPlan& plan, NumpyRandomState& random) {
  std::vector<T> index(static_cast<std::size_t>(plan.num_samples));
  std::iota(index.begin(), index.end(), T{0});
  const std::span<T> all(index);
  if (!plan.separate_last_epoch) {
    random.shuffle(all);
  } else {
    const auto first = static_cast<std::size_t>(plan.samples_before_last_epoch);
    random.shuffle(all.first(first));
    random.shuffle(all.subspan(first));
  }
  return IntegerArray(std::move(index));
}

// Each sequence of the source `epochs` times within places [first, last).
bool holds_epochs(const GptIndexSource& source, const IntegerArray& documents, std::int64_t first,
                  std::int64_t last, std::int64_t epochs) {
  std::vector<std::int64_t> seen(static_cast<std::size_t>(source.end - source.begin), 0);
  for (std::int64_t i = first; i < last; ++i) {
    const std::int64_t document = documents[i];
    if (document < source.begin || document >= source.end) return false;
    ++seen[static_cast<std::size_t>(document - source.begin)];
  }
  return std::all_of(seen.begin(), seen.end(), [&](std::int64_t n) { return n == epochs; });
}

bool permutes(const IntegerArray& shuffle, std::int64_t first, std::int64_t last) {
  std::vector<bool> seen(static_cast<std::size_t>(last - first), false);
  for (std::int64_t i = first; i < last; ++i) {
    const std::int64_t sample = shuffle[i];
    if (sample < first || sample >= last) return false;
    if (seen[static_cast<std::size_t>(sample - first)]) return false;
    seen[static_cast<std::size_t>(sample - first)] = true;
  }
  return true;
}

std::optional<std::string> check_document_index(const GptIndexSource& source,
                                                const GptIndex& index) {
  const GptIndexPlan& plan = index.plan;
  const IntegerArray& documents = index.document_index;
  const std::int64_t epoch = source.end - source.begin;
  const std::int64_t last = plan.separate_last_epoch ? documents.size() - epoch : documents.size();
  const std::int64_t first_epochs = plan.num_epochs - (plan.separate_last_epoch ? 1 : 0);
  if (!holds_epochs(source, documents, 0, last, first_epochs) ||
      (plan.separate_last_epoch && !holds_epochs(source, documents, last, documents.size(), 1))) {
    return "document index: not each sequence stands in it once an epoch";
  }
  return std::nullopt;
}

// `of` begins messages: whose tokens they are.
GptIndexPlan make_plan(const std::string& of, std::int64_t tokens_per_epoch,
                       std::optional<std::int64_t> num_samples, std::int64_t sequence_length,
                       bool keep_partial_sample) {
  PENTATRON_CHECK(sequence_length >= 1, kConfig, "--seq-length {}: expected 1 or more",
                  sequence_length);
  PENTATRON_CHECK(!num_samples || *num_samples >= 0, kConfig, "{} samples asked for",
                  num_samples.value_or(0));
  PENTATRON_CHECK(tokens_per_epoch > 0, kData, "{}there are no tokens to draw samples from", of);
  GptIndexPlan plan;
  if (num_samples) {
    const std::int64_t tokens =
        multiply(*num_samples, sequence_length, "the number of tokens asked for");
    plan.num_epochs = tokens / tokens_per_epoch + 1;  // = ceil((tokens + 1) / tokens_per_epoch)
  }
  const std::int64_t all_tokens =
      multiply(plan.num_epochs, tokens_per_epoch, "the number of tokens in all epochs");
  plan.num_samples = (all_tokens - 1) / sequence_length;
  if (keep_partial_sample && (all_tokens - 1) % sequence_length > 0) ++plan.num_samples;
  PENTATRON_CHECK(plan.num_samples > 0, kData,
                  "{}{} tokens are fewer than one sample needs: --seq-length {} plus one", of,
                  tokens_per_epoch, sequence_length);
  if (plan.num_epochs == 1) return plan;
  plan.samples_before_last_epoch = (all_tokens - tokens_per_epoch - 1) / sequence_length;
  const std::int64_t from_last = *num_samples - plan.samples_before_last_epoch;
  const std::int64_t per_epoch = (tokens_per_epoch - 1) / sequence_length;
  // Truncated like Python's int(): part of the order.
  plan.separate_last_epoch =
      from_last < static_cast<std::int64_t>(0.80 * static_cast<double>(per_epoch));
  return plan;
}

}  // namespace

GptIndexPlan plan_gpt_index(std::int64_t tokens_per_epoch, std::optional<std::int64_t> num_samples,
                            std::int64_t sequence_length, bool keep_partial_sample) {
  return make_plan("", tokens_per_epoch, num_samples, sequence_length, keep_partial_sample);
}

GptIndexPlan plan_gpt_index(const GptIndexSource& source, std::optional<std::int64_t> num_samples) {
  const std::string of = fmt::format("{}, {} of its {} sequences: ", source.corpus->name(),
                                     source.end - source.begin, source.corpus->num_sequences());
  return make_plan(of, tokens_per_epoch(source), num_samples, source.sequence_length,
                   source.keep_partial_sample);
}

std::int64_t tokens_per_epoch(const GptIndexSource& source) {
  const Lengths lengths(*source.corpus);
  std::int64_t tokens = 0;
  for (std::int64_t i = source.begin; i < source.end; ++i) tokens += lengths[i];
  return tokens;
}

IntegerArray::Kind sample_index_kind(std::int64_t num_documents) {
  return num_documents <= kInt32Max ? IntegerArray::Kind::kInt32 : IntegerArray::Kind::kInt64;
}

IntegerArray::Kind shuffle_index_kind(std::int64_t num_samples) {
  return num_samples >= kFirstWideShuffle ? IntegerArray::Kind::kInt64
                                          : IntegerArray::Kind::kUint32;
}

GptIndex build_gpt_index(const GptIndexSource& source, std::optional<std::int64_t> num_samples) {
  ArraySink memory;
  return build_gpt_index(source, num_samples, memory);
}

GptIndex build_gpt_index(const GptIndexSource& source, std::optional<std::int64_t> num_samples,
                         ArraySink& sample_index) {
  PENTATRON_CHECK(source.corpus->num_sequences() <= kInt32Max, kData,
                  "{} has {} sequences; GPT indices hold at most {}", source.corpus->name(),
                  source.corpus->num_sequences(), kInt32Max);
  GptIndex index;
  index.plan = plan_gpt_index(source, num_samples);
  NumpyRandomState random(source.seed);
  index.document_index = IntegerArray(build_document_index(source, index.plan, random));
  const std::int64_t samples = index.plan.num_samples;
  index.sample_index =
      sample_index_kind(index.document_index.size()) == IntegerArray::Kind::kInt32
          ? build_sample_index<std::int32_t>(source, index.document_index, samples, sample_index)
          : build_sample_index<std::int64_t>(source, index.document_index, samples, sample_index);
  index.shuffle_index = shuffle_index_kind(samples) == IntegerArray::Kind::kUint32
                            ? build_shuffle_index<std::uint32_t>(index.plan, random)
                            : build_shuffle_index<std::int64_t>(index.plan, random);
  return index;
}

std::optional<std::string> check_gpt_index_sizes(const GptIndexSource& source,
                                                 const GptIndex& index) {
  const GptIndexPlan& plan = index.plan;
  const IntegerArray& documents = index.document_index;
  const std::int64_t epoch = source.end - source.begin;
  if (documents.kind() != IntegerArray::Kind::kInt32) return "document index: expected int32";
  if (documents.size() != epoch * plan.num_epochs) {
    return fmt::format("document index: expected {} epochs of {} entries, found {} entries",
                       plan.num_epochs, epoch, documents.size());
  }
  const IntegerArray& samples = index.sample_index;
  if (samples.kind() != sample_index_kind(documents.size()) ||
      samples.size() != 2 * (plan.num_samples + 1)) {
    return fmt::format("sample index: expected {} numbers, found {}, or another dtype",
                       2 * (plan.num_samples + 1), samples.size());
  }
  const IntegerArray& shuffle = index.shuffle_index;
  if (shuffle.kind() != shuffle_index_kind(plan.num_samples) ||
      shuffle.size() != plan.num_samples) {
    return fmt::format("shuffle index: expected {} numbers, found {}, or another dtype",
                       plan.num_samples, shuffle.size());
  }
  return std::nullopt;
}

std::optional<std::string> check_gpt_index(const GptIndexSource& source, const GptIndex& index) {
  if (auto problem = check_gpt_index_sizes(source, index)) return problem;
  if (auto problem = check_document_index(source, index)) return problem;
  const GptIndexPlan& plan = index.plan;
  const IntegerArray& samples = index.sample_index;
  std::int64_t at = 0;
  walk_samples(source, index.document_index, plan.num_samples,
               [&](std::int64_t place, std::int64_t token) {
                 if (samples[at] != place || samples[at + 1] != token) return false;
                 at += 2;
                 return true;
               });
  if (at != samples.size()) return fmt::format("sample index: entry {} is wrong", at / 2);
  const IntegerArray& shuffle = index.shuffle_index;
  const std::int64_t middle =
      plan.separate_last_epoch ? plan.samples_before_last_epoch : plan.num_samples;
  if (!permutes(shuffle, 0, middle) || !permutes(shuffle, middle, plan.num_samples)) {
    return "shuffle index: not a permutation";
  }
  return std::nullopt;
}

}  // namespace pentatron::datasets
