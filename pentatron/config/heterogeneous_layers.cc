// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/heterogeneous_layers.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/base/format.h"
#include "pentatron/base/json.h"

namespace pentatron::config {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kPath = "--heterogeneous-layers-config-path";
constexpr std::string_view kText = "--heterogeneous-layers-config-encoded-json";
constexpr std::string_view kLayers = "heterogeneous layers (--heterogeneous-layers-config-path)";
constexpr std::uint64_t kMaxBytes = std::uint64_t{64} << 20;
constexpr std::int64_t kMaxSize = 1'000'000'000;
constexpr std::int64_t kFfnMultiple = 256;

std::string said(const Json& value) { return quoted_for_message(value.dump()); }

bool is_off(const Json& value) { return value.is_null() || value == false; }

// One half of a layer: "layer 3, attention".
class Half final {
 public:
  Half(const Json& json, std::string where) : json_(json), where_(std::move(where)) {
    PENTATRON_CHECK(json.is_object(), kConfig, "{}, {}: expected an object, not {}", kLayers,
                    where_, said(json));
  }

  [[nodiscard]] SublayerForm form() const {
    const bool none = flag("no_op"), linear = flag("replace_with_linear");
    PENTATRON_CHECK(!none || !linear, kConfig,
                    "{}, {}: no_op and replace_with_linear exclude each other", kLayers, where_);
    if (none) return SublayerForm::kNone;
    return linear ? SublayerForm::kLinear : SublayerForm::kUsual;
  }
  // From 1 on; 0 where there is none.
  [[nodiscard]] std::int64_t count(const char* key) const {
    const auto found = json_.find(key);
    if (found == json_.end() || found->is_null()) return 0;
    const bool fits = found->is_number_unsigned() && found->get<std::uint64_t>() >= 1 &&
                      found->get<std::uint64_t>() <= static_cast<std::uint64_t>(kMaxSize);
    PENTATRON_CHECK(fits, kConfig, "{}, {}: {} is {}, expected a number from 1 to {}", kLayers,
                    where_, key, said(*found), kMaxSize);
    return found->get<std::int64_t>();
  }
  // Above 0; 0 where there is none.
  [[nodiscard]] double factor(const char* key) const {
    const auto found = json_.find(key);
    if (found == json_.end() || found->is_null()) return 0.0;
    const double value = found->is_number() ? found->get<double>() : 0.0;
    PENTATRON_CHECK(value > 0.0 && value <= 1e6, kConfig,
                    "{}, {}: {} is {}, expected a number above 0", kLayers, where_, key,
                    said(*found));
    return value;
  }
  [[nodiscard]] bool has(const char* key) const { return json_.contains(key); }
  // Keys that would change the layer in a way that is not built; null and false ask for nothing.
  void refuse_others(std::initializer_list<std::string_view> known) const {
    for (const auto& [key, value] : json_.items()) {
      if (std::find(known.begin(), known.end(), key) != known.end() || is_off(value)) continue;
      PENTATRON_THROW(kConfig, "{}, {}: {} {} is not supported", kLayers, where_,
                      quoted_for_message(key), said(value));
    }
  }
  void refuse_size(SublayerForm form, std::int64_t size) const {
    PENTATRON_CHECK(form == SublayerForm::kUsual || size == 0, kConfig,
                    "{}, {}: no_op and replace_with_linear have no size, {} was given", kLayers,
                    where_, size);
  }
  [[nodiscard]] const std::string& where() const { return where_; }

 private:
  [[nodiscard]] bool flag(const char* key) const {
    const auto found = json_.find(key);
    if (found == json_.end() || found->is_null()) return false;
    PENTATRON_CHECK(found->is_boolean(), kConfig, "{}, {}: {} is {}, expected true or false",
                    kLayers, where_, key, said(*found));
    return found->get<bool>();
  }

  const Json& json_;
  std::string where_;
};

std::int64_t query_groups(const Half& half, const ModelConfig& model) {
  if (half.has("num_query_groups")) return half.count("num_query_groups");
  const std::int64_t heads = half.count("n_heads_in_group");
  PENTATRON_CHECK(heads == 0 || model.num_attention_heads % heads == 0, kConfig,
                  "{}, {}: --num-attention-heads {} do not divide by n_heads_in_group {}", kLayers,
                  half.where(), model.num_attention_heads, heads);
  return heads == 0 ? 0 : model.num_attention_heads / heads;
}

std::int64_t ffn_size(const Half& half, const ModelConfig& model) {
  if (half.has("ffn_hidden_size")) return half.count("ffn_hidden_size");
  const double factor = half.factor("ffn_mult");
  if (factor == 0.0) return 0;
  const double exact = 2.0 * factor * static_cast<double>(model.hidden_size) / 3.0;
  PENTATRON_CHECK(exact <= static_cast<double>(kMaxSize), kConfig,
                  "{}, {}: ffn_mult {} of --hidden-size {} is above {} channels", kLayers,
                  half.where(), factor, model.hidden_size, kMaxSize);
  const auto whole = static_cast<std::int64_t>(exact);
  return (whole + kFfnMultiple - 1) / kFfnMultiple * kFfnMultiple;
}

// The feed-forward stands under "ffn" unless that is null or empty, else under "mlp".
const Json& feed_forward(const Json& block, std::size_t layer) {
  for (const char* key : {"ffn", "mlp"}) {
    const auto found = block.find(key);
    if (found != block.end() && !found->is_null() && !found->empty()) return *found;
  }
  PENTATRON_THROW(kConfig, "{}, layer {}: there is neither ffn nor mlp", kLayers, layer);
}

// Sizes of 0 are the model's.
LayerShape shape_of(const Json& block, std::size_t layer, const ModelConfig& model) {
  PENTATRON_CHECK(block.is_object() && block.contains("attention"), kConfig,
                  "{}, layer {}: expected an object with attention and ffn, not {}", kLayers, layer,
                  said(block));
  for (const auto& [key, value] : block.items()) {
    PENTATRON_CHECK(key == "attention" || key == "ffn" || key == "mlp" || is_off(value), kConfig,
                    "{}, layer {}: {} is not supported", kLayers, layer, quoted_for_message(key));
  }
  const Half attention(block.at("attention"), fmt::format("layer {}, attention", layer));
  attention.refuse_others({"no_op", "replace_with_linear", "num_query_groups", "n_heads_in_group"});
  const Half mlp(feed_forward(block, layer), fmt::format("layer {}, ffn", layer));
  mlp.refuse_others({"no_op", "replace_with_linear", "ffn_hidden_size", "ffn_mult"});
  const LayerShape shape{.attention = attention.form(),
                         .num_query_groups = query_groups(attention, model),
                         .mlp = mlp.form(),
                         .ffn_hidden_size = ffn_size(mlp, model)};
  attention.refuse_size(shape.attention, shape.num_query_groups);
  mlp.refuse_size(shape.mlp, shape.ffn_hidden_size);
  return shape;
}

std::vector<LayerShape> shapes_of(const Json& document, const ModelConfig& model) {
  PENTATRON_CHECK(document.is_object() && document.contains("block_configs") &&
                      document.at("block_configs").is_array(),
                  kConfig, "{}: expected an object with a list block_configs", kLayers);
  const Json& blocks = document.at("block_configs");
  PENTATRON_CHECK(blocks.size() == static_cast<std::size_t>(model.num_layers), kConfig,
                  "{}: block_configs has {} layers, --num-layers says {}", kLayers, blocks.size(),
                  model.num_layers);
  std::vector<LayerShape> shapes;
  for (const Json& block : blocks) shapes.push_back(shape_of(block, shapes.size(), model));
  return shapes;
}

// What a config.json says beside the list must be what the options say.
void check_same_model(const Json& document, const ModelConfig& model) {
  const auto expect = [&](const char* key, std::string_view option, const Json& value) {
    const auto found = document.find(key);
    if (found == document.end() || found->is_null() || *found == value) return;
    PENTATRON_THROW(kConfig, "{}: {} is {}, but {} says {}", kLayers, key, said(*found), option,
                    value.dump());
  };
  expect("num_hidden_layers", "--num-layers", model.num_layers);
  expect("hidden_size", "--hidden-size", model.hidden_size);
  expect("num_attention_heads", "--num-attention-heads", model.num_attention_heads);
  expect("tie_word_embeddings", "--untie-embeddings-and-output-weights",
         !model.untie_embeddings_and_output_weights);
  expect("rope_theta", "--rotary-base", model.rotary_base);
  const auto act = document.find("hidden_act");
  const bool is_silu = act == document.end() || act->is_null() || *act == "silu";
  PENTATRON_CHECK(is_silu && (act == document.end() || model.swiglu), kConfig,
                  "{}: hidden_act is {}: only silu with --swiglu is supported", kLayers,
                  said(*act));
}

Json written(SublayerForm form, const char* size_key, std::int64_t size) {
  if (form == SublayerForm::kNone) return {{"no_op", true}};
  if (form == SublayerForm::kLinear) return {{"replace_with_linear", true}};
  return {{size_key, size == 0 ? Json() : Json(size)}};
}

std::string canonical(const std::vector<LayerShape>& shapes) {
  Json blocks = Json::array();
  for (const LayerShape& shape : shapes) {
    blocks.push_back(
        {{"attention", written(shape.attention, "num_query_groups", shape.num_query_groups)},
         {"ffn", written(shape.mlp, "ffn_hidden_size", shape.ffn_hidden_size)}});
  }
  return dump_json({{"block_configs", std::move(blocks)}});
}

// The text in its one spelling.
std::string canonical_text(const std::string& text, std::string_view name,
                           const ModelConfig& model) {
  const Json document = parse_json(text, name);
  std::string spelling = canonical(shapes_of(document, model));
  check_same_model(document, model);
  return spelling;
}

void check_sizes(const LayerShape& shape, std::size_t layer, const ModelConfig& model,
                 std::int64_t tp, Problems& problems) {
  const std::int64_t heads = model.num_attention_heads, groups = shape.num_query_groups;
  if (shape.attention == SublayerForm::kUsual && groups > 0) {
    if (groups > heads || heads % groups != 0) {
      problems.add(
          fmt::format("{}, layer {}: --num-attention-heads {} do not divide by {} query "
                      "groups",
                      kLayers, layer, heads, groups));
    } else if (groups % tp != 0 && tp % groups != 0) {
      problems.add(
          fmt::format("{}, layer {}: {} query groups must be a multiple or a divisor of "
                      "--tensor-model-parallel-size {}",
                      kLayers, layer, groups, tp));
    }
  }
  if (shape.mlp == SublayerForm::kUsual && shape.ffn_hidden_size % tp != 0) {
    problems.add(
        fmt::format("{}, layer {}: ffn_hidden_size {} does not divide by "
                    "--tensor-model-parallel-size {}",
                    kLayers, layer, shape.ffn_hidden_size, tp));
  }
  const bool linear =
      shape.attention == SublayerForm::kLinear || shape.mlp == SublayerForm::kLinear;
  if (linear && model.hidden_size % tp != 0) {
    problems.add(
        fmt::format("{}, layer {}: replace_with_linear: --hidden-size {} does not divide "
                    "by --tensor-model-parallel-size {}",
                    kLayers, layer, model.hidden_size, tp));
  }
}

void check_form(const ModelConfig& model, Problems& problems) {
  const auto refuse = [&](std::string_view option) {
    problems.add(
        fmt::format("{} are pre-norm layers, one half after the other: drop {}", kLayers, option));
  };
  if (model.norm_placement != "pre") refuse("--norm-placement " + model.norm_placement);
  if (model.parallel_attention != "none") refuse("--parallel-attention");
  if (model.apply_residual_connection_post_layernorm) {
    refuse("--apply-residual-connection-post-layernorm");
  }
}

}  // namespace

std::vector<LayerShape> layer_shapes(const ModelConfig& model) {
  std::vector<LayerShape> shapes(static_cast<std::size_t>(model.num_layers));
  PENTATRON_CHECK(model.heterogeneous_layers_config_path.empty(), kInternal,
                  "{} {} has not been read", kPath, model.heterogeneous_layers_config_path);
  if (!model.heterogeneous_layers_config_encoded_json.empty()) {
    shapes = shapes_of(parse_json(model.heterogeneous_layers_config_encoded_json, kText), model);
  }
  for (LayerShape& shape : shapes) {
    if (shape.attention == SublayerForm::kUsual && shape.num_query_groups == 0) {
      shape.num_query_groups = model.num_query_groups;
    }
    if (shape.mlp == SublayerForm::kUsual && shape.ffn_hidden_size == 0) {
      shape.ffn_hidden_size = model.ffn_hidden_size;
    }
  }
  return shapes;
}

void resolve_heterogeneous_layers(ModelConfig& model, std::int64_t tp, Problems& problems) {
  std::string& path = model.heterogeneous_layers_config_path;
  std::string& text = model.heterogeneous_layers_config_encoded_json;
  if (path.empty() && text.empty()) return;
  if (model.num_layers == 0 || model.num_attention_heads == 0) return;  // said already
  try {
    if (!text.empty()) text = canonical_text(text, kText, model);
    if (!path.empty()) {
      const std::string read = canonical_text(read_text_file(path, kMaxBytes), path, model);
      PENTATRON_CHECK(text.empty() || text == read, kConfig,
                      "{} {} and {} describe other layers: give one of them", kPath, path, kText);
      text = read;
      path.clear();
    }
    const std::vector<LayerShape> shapes = layer_shapes(model);
    for (std::size_t layer = 0; layer < shapes.size(); ++layer) {
      check_sizes(shapes[layer], layer, model, tp, problems);
    }
    check_form(model, problems);
  } catch (const Error& error) {
    problems.add(error.what());
  }
}

}  // namespace pentatron::config
