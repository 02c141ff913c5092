// SPDX-License-Identifier: Apache-2.0
#include "pentatron/families/window_keys.h"

#include <algorithm>
#include <charconv>

#include "pentatron/base/error.h"
#include "pentatron/base/format.h"
#include "pentatron/config/layer_pattern.h"

namespace pentatron::families {
namespace {

constexpr const char* kFull = "full_attention";
constexpr const char* kSliding = "sliding_attention";

bool any(const std::vector<bool>& flags) {
  return std::find(flags.begin(), flags.end(), true) != flags.end();
}
bool all(const std::vector<bool>& flags) {
  return std::find(flags.begin(), flags.end(), false) == flags.end();
}

std::size_t num_layers(const ModelConfig& model) {
  return static_cast<std::size_t>(model.num_layers);
}

// layer_types as flags; nothing when the file has none.
std::vector<bool> listed_layers(const ConfigFile& file, const ModelConfig& model) {
  const Json* list = file.find("layer_types");
  if (list == nullptr) return {};
  if (!list->is_array() || list->size() != num_layers(model)) {
    file.refuse("layer_types", fmt::format("a list of {} layers", model.num_layers));
  }
  std::vector<bool> sliding;
  for (const Json& kind : *list) {
    if (kind != kFull && kind != kSliding) {
      file.refuse("layer_types", fmt::format("{} and {} only", kFull, kSliding));
    }
    sliding.push_back(kind == kSliding);
  }
  return sliding;
}

// Every n-th layer sees all keys.
std::vector<bool> by_pattern(std::int64_t n, std::int64_t layers) {
  std::vector<bool> sliding;
  for (std::int64_t layer = 1; layer <= layers; ++layer) sliding.push_back(layer % n != 0);
  return sliding;
}

std::vector<bool> sliding_layers(const ConfigFile& file, const WindowKeys& keys,
                                 const ModelConfig& model) {
  if (std::vector<bool> listed = listed_layers(file, model); !listed.empty()) return listed;
  if (keys.switched) {
    const std::int64_t first = file.find("max_window_layers") == nullptr
                                   ? keys.missing_max_window_layers
                                   : file.integer("max_window_layers", 0);
    std::vector<bool> sliding(num_layers(model), false);
    for (std::size_t layer = 0; layer < sliding.size(); ++layer) {
      sliding[layer] = static_cast<std::int64_t>(layer) >= first;
    }
    return sliding;
  }
  const bool said = !keys.pattern_key.empty() && file.find(keys.pattern_key) != nullptr;
  const std::int64_t n = said ? file.integer(keys.pattern_key) : keys.missing_pattern;
  return by_pattern(n, model.num_layers);
}

}  // namespace

void set_windows(const Windows& windows, ModelConfig& model) {
  model.window_size.clear();
  model.window_attn_skip_freq.clear();
  if (windows.size == 0 || !any(windows.layers)) return;
  // A query sees itself and size - 1 keys before it.
  model.window_size = fmt::format("{},0", windows.size - 1);
  if (all(windows.layers)) return;
  for (std::int64_t n = 2; n <= model.num_layers; ++n) {
    if (by_pattern(n, model.num_layers) == windows.layers) {
      model.window_attn_skip_freq = std::to_string(n);
      return;
    }
  }
  // As Megatron's list has it: 1 where a layer has the window.
  std::string list;
  for (const bool sliding : windows.layers) {
    list += fmt::format("{}{}", list.empty() ? "" : ",", sliding ? 1 : 0);
  }
  model.window_attn_skip_freq = "[" + list + "]";
}

Windows windows_of(const ModelConfig& model) {
  if (model.window_size.empty()) return {.size = 0, .layers = std::vector<bool>(num_layers(model))};
  const std::string& text = model.window_size;
  std::int64_t before = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), before);
  PENTATRON_CHECK(error == std::errc() && before >= 0 &&
                      std::string_view(end, text.data() + text.size()) == ",0",
                  kUnsupported,
                  "--window-size {}: a config.json can only say keys before a token, \"L,0\"",
                  quoted_for_message(text));
  Windows windows{.size = before + 1, .layers = std::vector<bool>(num_layers(model), true)};
  const std::string& skips = model.window_attn_skip_freq;
  if (skips.empty()) return windows;
  std::int64_t n = 0;
  const auto [last, bad] = std::from_chars(skips.data(), skips.data() + skips.size(), n);
  // A number may not divide the layers; a list says 1 where a layer has the window.
  const bool number = bad == std::errc() && last == skips.data() + skips.size() && n > 0;
  windows.layers = number
                       ? by_pattern(n, model.num_layers)
                       : config::layer_pattern(skips, model.num_layers, "--window-attn-skip-freq");
  return windows;
}

KeyRule window_of_all_layers(std::int64_t missing) {
  KeyRule rule{.keys = {"sliding_window"}};
  rule.read = [missing](const ConfigFile& file, ModelConfig& model) {
    std::int64_t size = missing;
    if (file.json().contains("sliding_window")) {
      size = file.find("sliding_window") == nullptr ? 0 : file.integer("sliding_window");
    }
    set_windows({.size = size, .layers = std::vector<bool>(num_layers(model), true)}, model);
  };
  rule.write = [](const ModelConfig& model, Json& json) {
    const Windows windows = windows_of(model);
    json["sliding_window"] = windows.size > 0 ? Json(windows.size) : Json(nullptr);
  };
  return rule;
}

KeyRule windows_by_layer(const WindowKeys& keys) {
  KeyRule rule{.keys = {"sliding_window", "layer_types"}};
  if (keys.switched) {
    rule.keys.insert(rule.keys.end(), {"use_sliding_window", "max_window_layers"});
  }
  if (!keys.pattern_key.empty()) rule.keys.push_back(keys.pattern_key);
  rule.read = [keys](const ConfigFile& file, ModelConfig& model) {
    const bool off = keys.switched && (file.find("use_sliding_window") == nullptr ||
                                       !file.flag("use_sliding_window"));
    const bool null =
        file.json().contains("sliding_window") && file.find("sliding_window") == nullptr;
    const std::vector<bool> listed = listed_layers(file, model);
    if (off || null) {
      if (any(listed)) file.refuse("layer_types", "full_attention only, for the window is off");
      return set_windows({}, model);
    }
    const std::int64_t size = file.find("sliding_window") == nullptr
                                  ? keys.missing_window
                                  : file.integer("sliding_window");
    set_windows({.size = size, .layers = sliding_layers(file, keys, model)}, model);
  };
  rule.write = [keys](const ModelConfig& model, Json& json) {
    const Windows windows = windows_of(model);
    json["sliding_window"] = windows.size > 0 ? Json(windows.size) : Json(nullptr);
    if (keys.switched) json["use_sliding_window"] = windows.size > 0;
    Json kinds = Json::array();
    for (const bool sliding : windows.layers) kinds.push_back(sliding ? kSliding : kFull);
    json["layer_types"] = kinds;
  };
  return rule;
}

}  // namespace pentatron::families
