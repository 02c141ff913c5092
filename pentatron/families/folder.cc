// SPDX-License-Identifier: Apache-2.0
#include "pentatron/families/folder.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <system_error>

#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/base/format.h"
#include "pentatron/base/json.h"
#include "pentatron/base/mapped_pages.h"
#include "pentatron/families/near_names.h"

namespace pentatron::families {
namespace fs = std::filesystem;
namespace {

constexpr const char* kConfig = "config.json";
constexpr std::uint64_t kMaxConfigBytes = 16ULL << 20;
constexpr std::uint64_t kMaxIndexBytes = 256ULL << 20;
constexpr std::size_t kMaxNamed = 10;  // names in one message

bool is_file(const fs::path& path) {
  std::error_code code;
  return fs::is_regular_file(path, code);
}

bool is_float(const std::string& dtype) {
  return dtype == "F64" || dtype == "F32" || dtype == "F16" || dtype == "BF16";
}

// Compared in pieces that leave memory again.
bool same_bytes(std::span<const std::byte> a, std::span<const std::byte> b) {
  constexpr std::size_t kPiece = std::size_t{2} << 20;
  if (a.size() != b.size()) return false;
  for (std::size_t done = 0; done < a.size(); done += kPiece) {
    const std::size_t count = std::min(kPiece, a.size() - done);
    if (std::memcmp(a.data() + done, b.data() + done, count) != 0) return false;
    release_pages(a.subspan(done, count));
    release_pages(b.subspan(done, count));
  }
  return true;
}

// Lines of a message, at most ten of them.
class Problems final {
 public:
  void add(std::string line) {
    if (lines_.size() < kMaxNamed) lines_.push_back(std::move(line));
    ++count_;
  }
  void throw_if_any(const fs::path& folder) const {
    if (count_ == 0) return;
    std::string text = fmt::format(
        "{}: the tensors are not those of the model that config.json "
        "describes:",
        folder.string());
    for (const std::string& line : lines_) text += "\n  " + line;
    if (count_ > lines_.size()) text += fmt::format("\n  and {} more", count_ - lines_.size());
    PENTATRON_THROW(kData, "{}", text);
  }

 private:
  std::vector<std::string> lines_;
  std::size_t count_ = 0;
};

}  // namespace

bool is_shard_name(const std::string& name) {
  return name.ends_with(".safetensors") && name.size() <= 255 && !name.starts_with('.') &&
         name.find('/') == std::string::npos && name.find('\0') == std::string::npos;
}

std::string tied_output_name(const Family& family, const ModelConfig& model) {
  if (model.untie_embeddings_and_output_weights) return {};
  for (const NameRule& rule : family.names(model)) {
    if (rule.ours == "output_layer.") return std::string(rule.theirs) + "weight";
  }
  return {};
}

Folder::Folder(fs::path path) : path_(std::move(path)) {
  const fs::path config = path_ / kConfig;
  description_ = read_config(read_text_file(config, kMaxConfigBytes), config.string());
  open_shards();
  find_prefixes();
  std::map<std::string, std::uint64_t> bytes;
  for (const auto& [name, file] : tensors_) {
    const SafetensorsEntry& one = file->header().entries.at(name);
    bytes[one.dtype] += one.end - one.begin;
  }
  std::uint64_t most = 0;
  for (const auto& [dtype, count] : bytes) {
    if (count <= most) continue;
    most = count;
    dtype_ = dtype;
  }
}

void Folder::find_prefixes() {
  const auto any = [&](std::string_view prefix) {
    return std::any_of(tensors_.begin(), tensors_.end(),
                       [&](const auto& tensor) { return tensor.first.starts_with(prefix); });
  };
  if (!description_.of_outer) {
    bare_ = !any(description_.family->base_prefix);
    return;
  }
  const std::span<const OuterModel::Prefixes> known = description_.family->outer->prefixes;
  const auto found = std::find_if(known.begin(), known.end(),
                                  [&](const auto& prefixes) { return any(prefixes.base); });
  // Where there is none, links() names what is missing.
  outer_prefixes_ = found == known.end() ? &known.front() : &*found;
}

bool Folder::is_other_part(const std::string& tensor) const {
  if (!description_.of_outer) return false;
  const std::span<const std::string_view> parts = description_.family->outer->other_parts;
  return std::any_of(parts.begin(), parts.end(),
                     [&](std::string_view begin) { return tensor.starts_with(begin); });
}

std::string Folder::left_out() const {
  if (!description_.of_outer) return {};
  std::string text;
  for (std::string_view part : description_.family->outer->other_parts) {
    const auto count = std::count_if(tensors_.begin(), tensors_.end(), [&](const auto& tensor) {
      return tensor.first.starts_with(part);
    });
    if (count == 0) continue;
    text += fmt::format("{}{} ({} tensors)", text.empty() ? "" : ", ",
                        part.substr(0, part.size() - 1), count);
  }
  return text;
}

void Folder::add_file(const std::string& file) {
  const auto [added, fresh] = files_.emplace(file, nullptr);
  if (!fresh) return;
  added->second = std::make_unique<SafetensorsFile>(path_ / file);
  for (const auto& [name, entry] : added->second->header().entries) {
    PENTATRON_CHECK(tensors_.emplace(name, added->second.get()).second, kData,
                    "{}: two files hold the tensor {}", path_.string(), quoted_for_message(name));
  }
}

void Folder::open_shards() {
  if (is_file(path_ / kSingleWeights)) return add_file(kSingleWeights);
  const fs::path index = path_ / kWeightsIndex;
  PENTATRON_CHECK(is_file(index), kData,
                  "{} has neither {} nor {}: weights are read from safetensors only, for other "
                  "files (pytorch_model.bin) are programs",
                  path_.string(), kSingleWeights, kWeightsIndex);
  index_text_ = read_text_file(index, kMaxIndexBytes);
  const Json json = parse_json(index_text_, index.string());
  const auto map = json.is_object() ? json.find("weight_map") : json.end();
  PENTATRON_CHECK(json.is_object() && map != json.end() && map->is_object(), kData,
                  "{}: expected an object with a 'weight_map' of tensor names and files",
                  index.string());
  for (const auto& [tensor, file] : map->items()) {
    PENTATRON_CHECK(file.is_string() && is_shard_name(file.get_ref<const std::string&>()), kData,
                    "{}: the tensor {} is said to be in {}, expected the name of a .safetensors "
                    "file beside it",
                    index.string(), quoted_for_message(tensor),
                    quoted_for_message(dump_json(file)));
    const auto& name = file.get_ref<const std::string&>();
    add_file(name);
    PENTATRON_CHECK(files_.at(name)->header().entries.contains(tensor), kData,
                    "{}: {} does not hold the tensor {}", index.string(), name,
                    quoted_for_message(tensor));
  }
}

std::string Folder::name_here(const std::string& tensor) const {
  const std::string_view prefix = description_.family->base_prefix;
  if (outer_prefixes_ != nullptr && !tensor.empty()) {
    return tensor.starts_with(prefix)
               ? std::string(outer_prefixes_->base) + tensor.substr(prefix.size())
               : std::string(outer_prefixes_->other) + tensor;
  }
  return bare_ && tensor.starts_with(prefix) ? tensor.substr(prefix.size()) : tensor;
}

bool Folder::is_ignored(const std::string& tensor) const {
  return is_other_part(tensor) ||
         std::any_of(description_.family->ignored_tensors.begin(),
                     description_.family->ignored_tensors.end(),
                     [&](std::string_view ending) { return tensor.ends_with(ending); });
}

std::string Folder::tied_output() const {
  return name_here(tied_output_name(*description_.family, description_.model));
}

// A second copy in the file may be there, but must be one.
void Folder::check_tied(const std::vector<TensorLink>& links) const {
  const std::string output = tied_output();
  if (output.empty() || !tensors_.contains(output)) return;
  const auto embedding = std::find_if(links.begin(), links.end(), [](const TensorLink& link) {
    return link.part.name == "embedding.word_embeddings.weight";
  });
  PENTATRON_CHECK(embedding != links.end(), kInternal, "a model without word embeddings");
  const auto one = bytes(output);
  const auto other = bytes(embedding->tensor);
  const bool same = entry(output).dtype == entry(embedding->tensor).dtype && same_bytes(one, other);
  PENTATRON_CHECK(same, kData,
                  "{}: config.json ties the output to the embedding, but {} has other values than "
                  "{}: set \"tie_word_embeddings\" to false if they are meant to differ",
                  path_.string(), output, embedding->tensor);
}

std::vector<TensorLink> Folder::links(const std::vector<Part>& parts) const {
  const Family& family = *description_.family;
  std::vector<TensorLink> links =
      link_parts(family.name, family.names(description_.model), description_.model, parts);
  std::set<std::string> expected;
  for (TensorLink& link : links) {
    link.tensor = name_here(link.tensor);
    expected.insert(link.tensor);
  }
  std::vector<std::string> unexpected;
  const std::string tied = tied_output();
  for (const auto& [name, file] : tensors_) {
    if (!expected.contains(name) && !is_ignored(name) && name != tied) unexpected.push_back(name);
  }
  Problems problems;
  std::vector<std::string> missing;
  std::set<std::string> seen;
  for (const TensorLink& link : links) {
    if (!seen.insert(link.tensor).second) continue;
    if (!tensors_.contains(link.tensor)) {
      missing.push_back(link.tensor);
      const std::string near = nearest_name(link.tensor, unexpected);
      problems.add(fmt::format("{} is missing{}", link.tensor,
                               near.empty() ? "" : fmt::format("; there is {}", near)));
      continue;
    }
    const SafetensorsEntry& found = entry(link.tensor);
    if (found.shape != link.tensor_shape) {
      problems.add(fmt::format("{} has the shape [{}], expected [{}]", link.tensor,
                               fmt::join(found.shape, ", "), fmt::join(link.tensor_shape, ", ")));
    }
    if (!is_float(found.dtype)) {
      problems.add(
          fmt::format("{} is {}, expected F64, F32, F16 or BF16", link.tensor, found.dtype));
    }
  }
  for (const std::string& name : unexpected) {
    const std::string near = nearest_name(name, missing);
    problems.add(fmt::format("{} is unexpected{}", quoted_for_message(name),
                             near.empty() ? "" : fmt::format("; expected is {}", near)));
  }
  problems.throw_if_any(path_);
  check_tied(links);
  return links;
}

const SafetensorsEntry& Folder::entry(const std::string& tensor) const {
  const auto found = tensors_.find(tensor);
  PENTATRON_CHECK(found != tensors_.end(), kInternal, "{}: no tensor {}", path_.string(), tensor);
  return found->second->header().entries.at(tensor);
}

std::span<const std::byte> Folder::bytes(const std::string& tensor) const {
  const auto found = tensors_.find(tensor);
  PENTATRON_CHECK(found != tensors_.end(), kInternal, "{}: no tensor {}", path_.string(), tensor);
  return found->second->bytes(tensor);
}

bool is_hugging_face_folder(const fs::path& path) {
  return is_file(path / kConfig) && !is_file(path / "manifest.json") &&
         (is_file(path / kSingleWeights) || is_file(path / kWeightsIndex));
}

std::vector<std::string> kept_files(const fs::path& folder) {
  std::vector<std::string> names;
  for (const char* name :
       {"LICENSE", "LICENSE.md", "LICENSE.txt", "NOTICE", "added_tokens.json",
        "chat_template.jinja", "chat_template.json", "config.json", "generation_config.json",
        "merges.txt", "special_tokens_map.json", "spiece.model", "tokenizer.json",
        "tokenizer.model", "tokenizer_config.json", "vocab.json", "vocab.txt"}) {
    if (is_file(folder / name)) names.emplace_back(name);
  }
  return names;
}

void set_tokenizer(const fs::path& folder, std::int64_t vocab_size, config::DataConfig& data) {
  const auto has = [&](const char* name) { return is_file(folder / name); };
  const fs::path whole = fs::absolute(folder);
  if (has("tokenizer.json")) {
    data.tokenizer_type = "HuggingFaceTokenizer";
    data.tokenizer_model = whole.string();
  } else if (has("vocab.json") && has("merges.txt")) {
    data.tokenizer_type = "GPT2BPETokenizer";
    data.vocab_file = (whole / "vocab.json").string();
    data.merge_file = (whole / "merges.txt").string();
  } else if (has("tokenizer.model")) {
    data.tokenizer_type = "Llama2Tokenizer";
    data.tokenizer_model = (whole / "tokenizer.model").string();
  } else {
    data.tokenizer_type = "NullTokenizer";
    data.null_tokenizer_vocab_size = vocab_size - 1;
    data.null_tokenizer_eod_id = vocab_size - 1;
  }
}

}  // namespace pentatron::families
