// SPDX-License-Identifier: Apache-2.0
#include "pentatron/checkpoint/inspect.h"

#include <fmt/chrono.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <ctime>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "pentatron/base/printable.h"
#include "pentatron/base/terminal.h"
#include "pentatron/checkpoint/manifest_rules.h"
#include "pentatron/checkpoint/reader.h"
#include "pentatron/checkpoint/shard_files.h"

namespace pentatron::checkpoint {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kParameters = "param/";

std::int64_t elements_of(const ManifestTensor& tensor) {
  std::int64_t count = 1;
  for (const std::int64_t size : tensor.logical_shape) count *= size;  // bounded by the parser
  return count;
}

// Of one element, by safetensors' spelling: F32, BF16, F8_E4M3, I64.
std::int64_t bits_of(std::string_view dtype) {
  if (dtype == "BOOL") return 8;
  const std::size_t digit = dtype.find_first_of("123456789");
  std::int64_t bits = 0;
  for (std::size_t i = digit; i < dtype.size() && dtype[i] >= '0' && dtype[i] <= '9'; ++i) {
    bits = bits * 10 + (dtype[i] - '0');
  }
  return bits;
}

struct KindSum {
  std::int64_t tensors = 0;
  std::int64_t elements = 0;
  std::int64_t bytes = 0;
};

// By what stands before the first slash of a name.
std::map<std::string, KindSum> sums_by_kind(const Manifest& manifest) {
  std::map<std::string, KindSum> sums;
  for (const ManifestTensor& tensor : manifest.tensors) {
    KindSum& sum = sums[tensor.name.substr(0, tensor.name.find('/'))];
    ++sum.tensors;
    sum.elements += elements_of(tensor);
    sum.bytes += elements_of(tensor) * bits_of(tensor.dtype) / 8;
  }
  return sums;
}

std::int64_t bytes_of_files(const Manifest& manifest) {
  std::int64_t bytes = 0;
  for (const ManifestFile& file : manifest.files) bytes += static_cast<std::int64_t>(file.bytes);
  return bytes;
}

// When the manifest was written; 0 where the system does not say.
std::time_t saved_at(const fs::path& folder) {
  struct stat info {};
  return ::stat((folder / "manifest.json").c_str(), &info) == 0 ? info.st_mtime : 0;
}

// JSON text from a file, as a value; text that is no JSON stays text.
nlohmann::json as_json(const std::string& text) {
  nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  return json.is_discarded() ? nlohmann::json(text) : json;
}

// "tp 2, pp 1, ..., precision fp32": plain values and those of inner objects, in a line.
std::string plain_values(const nlohmann::json& json, bool numbers_only) {
  std::vector<std::string> words;
  const auto add = [&](const std::string& key, const nlohmann::json& value) {
    if (value.is_structured() || (numbers_only && !value.is_number())) return;
    if (numbers_only && value == 0) return;
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    words.push_back(printable(fmt::format("{} {}", key, text), 200));
  };
  if (!json.is_object()) return printable(json.dump(), 200);
  for (const auto& [key, value] : json.items()) {
    if (value.is_object() && !numbers_only) {
      for (const auto& [inner, of_inner] : value.items()) add(inner, of_inner);
    } else {
      add(key, value);
    }
  }
  return fmt::format("{}", fmt::join(words, ", "));
}

std::string counted(std::int64_t number) {
  std::string text = std::to_string(number);
  for (std::ptrdiff_t at = static_cast<std::ptrdiff_t>(text.size()) - 3; at > 0; at -= 3) {
    text.insert(static_cast<std::size_t>(at), ",");
  }
  return text;
}

std::string header_text(const fs::path& folder, const Manifest& manifest) {
  std::string text = folder.string() + "\n";
  const auto line = [&text](std::string_view name, const std::string& value) {
    text += fmt::format("  {:<12}{}\n", name, value);
  };
  std::string date;
  if (const std::time_t when = saved_at(folder); when > 0) {
    std::tm local{};
    if (::localtime_r(&when, &local) != nullptr) date = fmt::format("{:%Y-%m-%d %H:%M:%S}", local);
  }
  line("iteration", fmt::format("{}{}", manifest.iteration, date.empty() ? "" : ", saved " + date));
  for (const auto& [kind, sum] : sums_by_kind(manifest)) {
    line(kind == "param" ? "parameters" : printable(kind, 40),
         fmt::format("{} in {} tensors, {}", counted(sum.elements), sum.tensors,
                     short_bytes(static_cast<double>(sum.bytes))));
  }
  line("files", fmt::format("{}, {}", manifest.files.size(),
                            short_bytes(static_cast<double>(bytes_of_files(manifest)))));
  line("layout", plain_values(as_json(manifest.layout), false));
  line("counters", plain_values(as_json(manifest.train_state), true));
  return text;
}

}  // namespace

std::string inspect_checkpoint(const fs::path& folder) {
  const Manifest manifest = read_manifest(folder);
  std::size_t name_width = std::string_view("parameter").size();
  std::size_t shape_width = std::string_view("shape").size();
  const auto shape_of = [](const ManifestTensor& tensor) {
    return fmt::format("[{}]", fmt::join(tensor.logical_shape, ", "));
  };
  std::vector<const ManifestTensor*> shown;
  for (const ManifestTensor& tensor : manifest.tensors) {
    if (!tensor.name.starts_with(kParameters)) continue;
    shown.push_back(&tensor);
    name_width = std::max(name_width, tensor.name.size() - kParameters.size());
    shape_width = std::max(shape_width, shape_of(tensor).size());
  }
  std::string text = header_text(folder, manifest);
  text += fmt::format("\n{:<{}}  {:<{}}  {:<6}  {:>14}  decay\n", "parameter", name_width, "shape",
                      shape_width, "dtype", "elements");
  for (const ManifestTensor* tensor : shown) {
    text += fmt::format("{:<{}}  {:<{}}  {:<6}  {:>14}  {}\n",
                        printable(tensor->name.substr(kParameters.size())), name_width,
                        shape_of(*tensor), shape_width, tensor->dtype,
                        counted(elements_of(*tensor)), tensor->decay ? "yes" : "no");
  }
  text.pop_back();
  return text;
}

std::string inspect_checkpoint_json(const fs::path& folder) {
  const Manifest manifest = read_manifest(folder);
  std::map<std::string_view, std::size_t> slices_of;
  for (const ManifestSlice& slice : manifest.slices) ++slices_of[slice.tensor];
  nlohmann::ordered_json json;
  json["folder"] = folder.string();
  json["iteration"] = manifest.iteration;
  const std::map<std::string, KindSum> sums = sums_by_kind(manifest);
  const auto parameters = sums.find("param");
  json["parameters"] = parameters == sums.end() ? 0 : parameters->second.elements;
  json["bytes"] = bytes_of_files(manifest);
  json["saved"] = static_cast<std::int64_t>(saved_at(folder));
  json["layout"] = as_json(manifest.layout);
  json["train_state"] = as_json(manifest.train_state);
  json["config"] = as_json(manifest.config);
  json["tensors"] = nlohmann::ordered_json::array();
  for (const ManifestTensor& tensor : manifest.tensors) {
    nlohmann::ordered_json one;
    one["name"] = tensor.name;
    one["shape"] = tensor.logical_shape;
    one["dtype"] = tensor.dtype;
    one["decay"] = tensor.decay;
    one["elements"] = elements_of(tensor);
    one["slices"] = slices_of[tensor.name];
    json["tensors"].push_back(std::move(one));
  }
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace pentatron::checkpoint
