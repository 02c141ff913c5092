// SPDX-License-Identifier: Apache-2.0
#include "pentatron/checkpoint/manifest.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <tuple>

#include "pentatron/base/error.h"
#include "pentatron/base/format.h"
#include "pentatron/base/json.h"
#include "pentatron/base/safetensors.h"
#include "pentatron/base/sha256.h"
#include "pentatron/checkpoint/coverage.h"
#include "pentatron/checkpoint/manifest_rules.h"

namespace pentatron::checkpoint {
namespace {

using nlohmann::json;

constexpr int kVersion = 2;
constexpr int kVersionWithoutTokenizer = 1;
constexpr std::size_t kMaxDims = 8;
constexpr std::int64_t kMaxElements = std::int64_t{1} << 48;
constexpr std::int64_t kMaxFileBytes = std::int64_t{1} << 60;
constexpr std::size_t kMaxTokenizerFiles = 64;
constexpr std::int64_t kMaxIteration = std::int64_t{1} << 60;
constexpr std::size_t kMaxNameBytes = 1024;
constexpr std::size_t kMaxFileNameBytes = 128;
constexpr std::size_t kSha256Digits = 64;

// One JSON object with exactly the named fields. `where` begins each message.
class Fields final {
 public:
  Fields(const json& object, const std::string& where, std::initializer_list<const char*> names)
      : object_(object), where_(where) {
    PENTATRON_CHECK(object.is_object(), kCheckpoint, "{}: expected an object, found {}", where,
                    object.type_name());
    for (const char* name : names) {
      PENTATRON_CHECK(object.contains(name), kCheckpoint, "{}: the field '{}' is missing", where,
                      name);
    }
    if (object.size() == names.size()) return;
    for (const auto& [key, value] : object.items()) {
      PENTATRON_CHECK(std::find(names.begin(), names.end(), key) != names.end(), kCheckpoint,
                      "{}: unknown field {}", where, quoted_for_message(key));
    }
  }

  [[nodiscard]] const json& at(const char* name) const { return object_[name]; }

  [[nodiscard]] const json& list(const char* name) const {
    const json& value = at(name);
    PENTATRON_CHECK(value.is_array(), kCheckpoint, "{}: '{}' should be a list, is {}", where_, name,
                    value.type_name());
    return value;
  }

  [[nodiscard]] std::int64_t integer(const char* name, std::int64_t least,
                                     std::int64_t most) const {
    return integer_of(at(name), name, least, most);
  }

  // A list of at most kMaxDims integers.
  [[nodiscard]] Shape sizes(const char* name, std::int64_t least) const {
    const json& values = list(name);
    PENTATRON_CHECK(values.size() <= kMaxDims, kCheckpoint,
                    "{}: '{}' has {} entries, at most {} are allowed", where_, name, values.size(),
                    kMaxDims);
    Shape shape;
    for (const json& value : values) shape.push_back(integer_of(value, name, least, kMaxElements));
    return shape;
  }

  [[nodiscard]] std::string text(const char* name, std::size_t max_bytes) const {
    const json& value = at(name);
    PENTATRON_CHECK(value.is_string(), kCheckpoint, "{}: '{}' should be a text, is {}", where_,
                    name, value.type_name());
    const std::string& words = value.get_ref<const std::string&>();
    PENTATRON_CHECK(!words.empty() && words.size() <= max_bytes, kCheckpoint,
                    "{}: '{}' has {} bytes, expected 1 to {}", where_, name, words.size(),
                    max_bytes);
    return words;
  }

  [[nodiscard]] bool flag(const char* name) const {
    const json& value = at(name);
    PENTATRON_CHECK(value.is_boolean(), kCheckpoint, "{}: '{}' should be true or false, is {}",
                    where_, name, value.type_name());
    return value.get<bool>();
  }

 private:
  [[nodiscard]] std::int64_t integer_of(const json& value, const char* name, std::int64_t least,
                                        std::int64_t most) const {
    const bool fits = value.is_number_unsigned()
                          ? value.get<std::uint64_t>() <= static_cast<std::uint64_t>(most)
                          : value.is_number_integer() && value.get<std::int64_t>() <= most;
    PENTATRON_CHECK(fits && value.get<std::int64_t>() >= least, kCheckpoint,
                    "{}: '{}' is {}, expected an integer from {} to {}", where_, name,
                    quoted_for_message(value.dump()), least, most);
    return value.get<std::int64_t>();
  }

  const json& object_;
  const std::string& where_;
};

std::int64_t checked_elements(const Shape& shape, const std::string& where) {
  std::int64_t product = 1;
  for (const std::int64_t size : shape) {
    PENTATRON_CHECK(!__builtin_mul_overflow(product, size, &product) && product <= kMaxElements,
                    kCheckpoint, "{}: the shape has more than 2^48 elements", where);
  }
  return product;
}

void check_tensor_name(const std::string& name, const std::string& where) {
  const std::size_t slash = name.find('/');
  const bool printable =
      std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c <= '~'; });
  const bool kind_ok =
      slash != std::string::npos && slash > 0 &&
      std::all_of(name.begin(), name.begin() + static_cast<std::ptrdiff_t>(slash), [](char c) {
        return c == '_' || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
      });
  PENTATRON_CHECK(printable && kind_ok && slash + 1 < name.size() &&
                      name.find("..") == std::string::npos && name.size() <= kMaxNameBytes / 2,
                  kCheckpoint, "{}: {} is no name of a stored tensor (<kind>/<part>)", where,
                  quoted_for_message(name));
}

// Nothing that could lead out of its folder or hide.
bool is_plain_name(const std::string& name) {
  const bool plain = std::all_of(name.begin(), name.end(), [](char c) {
    return c == '_' || c == '-' || c == '.' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c >= '0' && c <= '9');
  });
  return plain && !name.starts_with('.') && name.find("..") == std::string::npos;
}

ManifestSlice parse_slice(const json& value, const ManifestTensor& tensor,
                          const std::string& where) {
  const Fields fields(value, where, {"offset", "size", "range", "file", "key"});
  ManifestSlice slice;
  slice.tensor = tensor.name;
  slice.box = {fields.sizes("offset", 0), fields.sizes("size", 1)};
  const Shape range = fields.sizes("range", 0);
  slice.file = fields.text("file", kMaxFileNameBytes);
  slice.key = fields.text("key", kMaxNameBytes);
  const Shape& shape = tensor.logical_shape;
  bool inside = slice.box.offset.size() == shape.size() && slice.box.size.size() == shape.size();
  for (std::size_t d = 0; inside && d < shape.size(); ++d) {
    inside = slice.box.size[d] <= shape[d] && slice.box.offset[d] <= shape[d] - slice.box.size[d];
  }
  PENTATRON_CHECK(inside, kCheckpoint, "{}: a slice at {} of size {} is not inside the shape {}",
                  where, fmt::join(slice.box.offset, "x"), fmt::join(slice.box.size, "x"),
                  fmt::join(shape, "x"));
  const std::int64_t elements = checked_elements(slice.box.size, where);
  PENTATRON_CHECK(range.size() == 2 && range[0] < range[1] && range[1] <= elements, kCheckpoint,
                  "{}: the range [{}] is not inside a box of {} elements", where,
                  fmt::join(range, ", "), elements);
  slice.range_begin = range[0];
  slice.range_end = range[1];
  return slice;
}

void parse_tensor(const json& value, const std::string& path, Manifest& manifest) {
  const std::string tensor_where = path + ": a tensor";
  const Fields fields(value, tensor_where, {"name", "dtype", "shape", "decay", "slices"});
  ManifestTensor tensor;
  tensor.name = fields.text("name", kMaxNameBytes);
  check_tensor_name(tensor.name, path);
  const std::string where = fmt::format("{}: tensor {}", path, tensor.name);
  const Fields named(value, where, {"name", "dtype", "shape", "decay", "slices"});
  tensor.dtype = named.text("dtype", kMaxNameBytes);
  as_checkpoint_error(where, [&] { (void)tensor::from_safetensors_dtype(tensor.dtype); });
  tensor.logical_shape = named.sizes("shape", 1);
  (void)checked_elements(tensor.logical_shape, where);
  tensor.decay = named.flag("decay");
  const json& slices = named.list("slices");
  PENTATRON_CHECK(!slices.empty(), kCheckpoint, "{}: it has no slices", where);
  for (const json& slice : slices) manifest.slices.push_back(parse_slice(slice, tensor, where));
  PENTATRON_CHECK(manifest.tensors.empty() || manifest.tensors.back().name < tensor.name,
                  kCheckpoint, "{}: it appears twice or out of order", where);
  manifest.tensors.push_back(std::move(tensor));
}

// `least`, `most`: bytes.
ManifestFile parse_file(const json& value, const std::string& where, std::int64_t least,
                        std::int64_t most) {
  const Fields fields(value, where, {"name", "bytes", "sha256"});
  ManifestFile file;
  file.name = fields.text("name", kMaxFileNameBytes);
  PENTATRON_CHECK(is_plain_name(file.name), kCheckpoint, "{}: {} is no file name", where,
                  quoted_for_message(file.name));
  file.bytes = static_cast<std::uint64_t>(fields.integer("bytes", least, most));
  file.sha256 = fields.text("sha256", kSha256Digits);
  PENTATRON_CHECK(file.sha256.size() == kSha256Digits &&
                      file.sha256.find_first_not_of("0123456789abcdef") == std::string::npos,
                  kCheckpoint, "{} {}: 'sha256' is not 64 lower-case hexadecimal digits", where,
                  file.name);
  return file;
}

ManifestFile parse_shard(const json& value, const std::string& path) {
  const std::string where = path + ": a file";
  ManifestFile file = parse_file(value, where, 1, kMaxFileBytes);
  PENTATRON_CHECK(file.name.ends_with(".safetensors"), kCheckpoint,
                  "{}: {} is no file name of a shard", where, quoted_for_message(file.name));
  return file;
}

std::vector<ManifestFile> parse_tokenizer(const json& list, const std::string& path) {
  PENTATRON_CHECK(list.size() <= kMaxTokenizerFiles, kCheckpoint,
                  "{}: {} files of a tokenizer, at most {} are allowed", path, list.size(),
                  kMaxTokenizerFiles);
  std::vector<ManifestFile> files;
  for (const json& value : list) {
    files.push_back(parse_file(value, path + ": a file of the tokenizer", 0,
                               static_cast<std::int64_t>(kMaxTokenizerFileBytes)));
    PENTATRON_CHECK(files.size() < 2 || files[files.size() - 2].name < files.back().name,
                    kCheckpoint, "{}: the file {} of the tokenizer appears twice or out of order",
                    path, files.back().name);
  }
  return files;
}

json files_json(const std::vector<ManifestFile>& files) {
  json list = json::array();
  for (const ManifestFile& file : files) {
    list.push_back({{"name", file.name}, {"bytes", file.bytes}, {"sha256", file.sha256}});
  }
  return list;
}

// Slices point to known files, no two to one place, every file is used and large enough.
void check_files(const Manifest& manifest, const std::string& path) {
  struct Use {
    std::uint64_t bytes = 0;  // of the whole file
    std::uint64_t used = 0;
  };
  std::map<std::string_view, Use> files;
  for (const ManifestFile& file : manifest.files) {
    PENTATRON_CHECK(files.emplace(file.name, Use{file.bytes, 0}).second, kCheckpoint,
                    "{}: file {} is listed twice", path, file.name);
  }
  std::map<std::string_view, std::uint64_t> item_bytes;
  for (const ManifestTensor& tensor : manifest.tensors) {
    item_bytes[tensor.name] = safetensors_item_bytes(tensor.dtype).value_or(0);
  }
  std::set<std::pair<std::string_view, std::string_view>> places;
  for (const ManifestSlice& slice : manifest.slices) {
    const auto file = files.find(slice.file);
    PENTATRON_CHECK(file != files.end(), kCheckpoint,
                    "{}: tensor {} has a slice in the file {}, which is not listed", path,
                    slice.tensor, quoted_for_message(slice.file));
    PENTATRON_CHECK(places.emplace(slice.file, slice.key).second, kCheckpoint,
                    "{}: two slices share the key {} of {}", path, quoted_for_message(slice.key),
                    slice.file);
    file->second.used +=
        item_bytes[slice.tensor] * static_cast<std::uint64_t>(slice.range_end - slice.range_begin);
    PENTATRON_CHECK(file->second.used < file->second.bytes, kCheckpoint,
                    "{}: file {} of {} bytes is too small for its slices", path, slice.file,
                    file->second.bytes);
  }
  for (const auto& [name, use] : files) {
    PENTATRON_CHECK(use.used > 0, kCheckpoint, "{}: file {} holds no slice", path, name);
  }
}

int version_of(const json& body, const std::string& path) {
  PENTATRON_CHECK(body.is_object() && body.contains("version"), kCheckpoint,
                  "{}: the field 'version' is missing", path);
  const json& value = body["version"];
  PENTATRON_CHECK(value == kVersion || value == kVersionWithoutTokenizer, kCheckpoint,
                  "{}: 'version' is {}, this program reads the formats {} and {}", path,
                  quoted_for_message(value.dump()), kVersionWithoutTokenizer, kVersion);
  return value.get<int>();
}

Fields fields_of(const json& body, const std::string& path, int version) {
  if (version == kVersionWithoutTokenizer) {
    return {body,
            path,
            {"version", "iteration", "config", "layout", "train_state", "files", "tensors"}};
  }
  return {
      body,
      path,
      {"version", "iteration", "config", "layout", "train_state", "files", "tokenizer", "tensors"}};
}

json parse_text_value(const std::string& text, const char* name) {
  if (text.empty()) return json::object();
  return parse_json(text, name);
}

}  // namespace

void sort_manifest(Manifest& manifest) {
  std::sort(manifest.tensors.begin(), manifest.tensors.end(),
            [](const ManifestTensor& a, const ManifestTensor& b) { return a.name < b.name; });
  std::sort(manifest.slices.begin(), manifest.slices.end(),
            [](const ManifestSlice& a, const ManifestSlice& b) {
              return std::tie(a.tensor, a.box.offset, a.box.size, a.range_begin, a.file, a.key) <
                     std::tie(b.tensor, b.box.offset, b.box.size, b.range_begin, b.file, b.key);
            });
  const auto by_name = [](const ManifestFile& a, const ManifestFile& b) { return a.name < b.name; };
  std::sort(manifest.files.begin(), manifest.files.end(), by_name);
  std::sort(manifest.tokenizer.begin(), manifest.tokenizer.end(), by_name);
}

std::string manifest_to_text(const Manifest& manifest) {
  Manifest sorted = manifest;
  sort_manifest(sorted);
  json body;
  body["version"] = sorted.version;
  body["iteration"] = sorted.iteration;
  body["config"] = parse_text_value(sorted.config, "config");
  body["layout"] = parse_text_value(sorted.layout, "layout");
  body["train_state"] = parse_text_value(sorted.train_state, "train_state");
  body["files"] = files_json(sorted.files);
  if (sorted.lists_tokenizer()) body["tokenizer"] = files_json(sorted.tokenizer);
  json& tensors = body["tensors"] = json::array();
  std::size_t next = 0;
  for (const ManifestTensor& tensor : sorted.tensors) {
    json slices = json::array();
    for (; next < sorted.slices.size() && sorted.slices[next].tensor == tensor.name; ++next) {
      const ManifestSlice& slice = sorted.slices[next];
      slices.push_back({{"offset", slice.box.offset},
                        {"size", slice.box.size},
                        {"range", Shape{slice.range_begin, slice.range_end}},
                        {"file", slice.file},
                        {"key", slice.key}});
    }
    tensors.push_back({{"name", tensor.name},
                       {"dtype", tensor.dtype},
                       {"shape", tensor.logical_shape},
                       {"decay", tensor.decay},
                       {"slices", std::move(slices)}});
  }
  PENTATRON_CHECK(next == sorted.slices.size(), kInternal,
                  "a manifest has slices of the tensor {}, which it does not list",
                  sorted.slices[next].tensor);
  const std::string inner = dump_json(body);
  return fmt::format("{{\"manifest\":{},\"sha256\":\"{}\"}}\n", inner, sha256_hex(inner));
}

Manifest parse_manifest_piece(const std::string& text, const std::string& path) {
  return as_checkpoint_error(path, [&]() -> Manifest {
    PENTATRON_CHECK(text.size() <= kMaxManifestBytes, kCheckpoint,
                    "{}: {} bytes are more than a manifest's {}", path, text.size(),
                    kMaxManifestBytes);
    const json outer = parse_json(text, path);
    const Fields file_fields(outer, path, {"sha256", "manifest"});
    const json& body = file_fields.at("manifest");
    PENTATRON_CHECK(file_fields.text("sha256", kSha256Digits) == sha256_hex(dump_json(body)),
                    kCheckpoint, "{}: the checksum of the manifest is wrong: it was damaged", path);
    Manifest manifest;
    manifest.version = version_of(body, path);
    const Fields fields = fields_of(body, path, manifest.version);
    manifest.iteration = fields.integer("iteration", 0, kMaxIteration);
    manifest.config = dump_json(fields.at("config"));
    manifest.layout = dump_json(fields.at("layout"));
    manifest.train_state = dump_json(fields.at("train_state"));
    for (const json& value : fields.list("files")) {
      manifest.files.push_back(parse_shard(value, path));
    }
    if (manifest.lists_tokenizer()) {
      manifest.tokenizer = parse_tokenizer(fields.list("tokenizer"), path);
    }
    for (const json& value : fields.list("tensors")) parse_tensor(value, path, manifest);
    check_files(manifest, path);
    // One manifest has one text, so nothing can be changed in it unseen.
    PENTATRON_CHECK(manifest_to_text(manifest) == text, kCheckpoint,
                    "{}: the manifest is not in canonical form: it was damaged", path);
    sort_manifest(manifest);
    return manifest;
  });
}

Manifest parse_manifest(const std::string& text, const std::string& path) {
  Manifest manifest = parse_manifest_piece(text, path);
  check_coverage(manifest, path);
  return manifest;
}

}  // namespace pentatron::checkpoint
