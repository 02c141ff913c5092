// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "pentatron/base/safetensors.h"
#include "pentatron/base/sha256.h"
#include "tests/functional/converted.h"
#include "tests/functional/tiny_run.h"
#include "tests/functional/trained_bpe.h"

// `pentatron convert`, --load of Hugging Face folders and --model-preset, end to end. What the
// folders mean to another program: tools/reference/hugging_face_reference.py.
namespace pentatron::functional {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// A trained checkpoint and its Hugging Face folder.
struct Trained {
  fs::path checkpoint;
  fs::path hf;
};
const Trained& trained() {
  static const Trained kMade = [] {
    const fs::path folder = new_folder();
    const Trained paths{folder / "checkpoint", folder / "hf"};
    (void)train(saving(small_llama(), paths.checkpoint));
    const ProgramResult result = convert_export(paths.checkpoint, paths.hf);
    EXPECT_TRUE(result.ok()) << result.describe();
    EXPECT_EQ(count(result.out, "family llama, 21 tensors"), 1U) << result.out;
    return paths;
  }();
  return kMade;
}

// A copy in which one text of a file is replaced by another of the same length.
fs::path changed(const std::string& file, const std::string& before, const std::string& after) {
  const fs::path copy = new_folder() / "hf";
  fs::copy(trained().hf, copy);
  std::string text = read_file(copy / file);
  const std::size_t at = text.find(before);
  EXPECT_NE(at, std::string::npos) << before;
  text.replace(at, before.size(), after);
  write_file(copy / file, text);
  return copy;
}

std::map<std::string, std::string> tensors_of(const fs::path& folder) {
  std::map<std::string, std::string> tensors;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".safetensors") continue;
    const SafetensorsFile file(entry.path());
    for (const auto& [name, place] : file.header().entries) {
      const auto bytes = file.bytes(name);
      tensors[name] =
          place.dtype + std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
  }
  return tensors;
}

// Largest resident memory of a call that ends so and says so, in bytes.
std::int64_t peak_memory(const std::vector<std::string>& words, int exit_code,
                         const std::string& part = "") {
  std::int64_t peak = 0;
  ProgramRequest request{.words = words};
  request.observe = [&](const RunningProgram& program) {
    peak = std::max(peak, process_status(program.pid, "VmHWM") * 1024);
  };
  const ProgramResult result = run_program(request);
  EXPECT_EQ(result.exit_code, exit_code) << result.describe();
  EXPECT_NE((result.out + result.err).find(part), std::string::npos) << result.describe();
  EXPECT_GT(peak, 0);
  return peak;
}

}  // namespace

TEST(HuggingFace, ExportImportExportGivesTheSameBytes) {
  const fs::path folder = new_folder();
  const ProgramResult imported = convert_import(trained().hf, folder / "save");
  ASSERT_TRUE(imported.ok()) << imported.describe();
  EXPECT_TRUE(call({"checkpoint", "verify", (folder / "save").string()}).ok());
  const ProgramResult back =
      convert_export(folder / "save", folder / "back", {"--max-shard-size", "5000"});
  ASSERT_TRUE(back.ok()) << back.describe();
  EXPECT_EQ(tensors_of(folder / "back"), tensors_of(trained().hf));
  EXPECT_EQ(read_file(folder / "back/config.json"), read_file(trained().hf / "config.json"));
  const Json index = Json::parse(read_file(folder / "back/model.safetensors.index.json"));
  EXPECT_EQ(index.at("weight_map").size(), 21U);
  EXPECT_GT(index.at("metadata").at("total_size").get<int>(), 5000);
  EXPECT_EQ(count(read_file(folder / "back/README.md"), "LlamaForCausalLM"), 1U);
  // Shards are read as well as one file; bf16 halves the bytes and is said in config.json.
  ASSERT_TRUE(convert_import(folder / "back", folder / "bf16", {"--dtype", "bf16"}).ok());
  ASSERT_TRUE(convert_export(folder / "bf16", folder / "small", {"--dtype", "bf16"}).ok());
  EXPECT_EQ(tensors_of(folder / "small").at("lm_head.weight").substr(0, 4), "BF16");
  EXPECT_EQ(Json::parse(read_file(folder / "small/config.json")).at("torch_dtype"), "bfloat16");
}

// All files of a folder but the model card, which tells of the checkpoint.
std::map<std::string, std::string> files_of(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name != "README.md") files[name] = read_file(entry.path());
  }
  return files;
}

// There and back.
fs::path through_a_checkpoint(const fs::path& hf, const std::vector<std::string>& more = {}) {
  const fs::path folder = new_folder();
  const ProgramResult in = convert_import(hf, folder / "save");
  EXPECT_TRUE(in.ok()) << in.describe();
  const ProgramResult out = convert_export(folder / "save", folder / "back", more);
  EXPECT_TRUE(out.ok()) << out.describe();
  return folder / "back";
}

void write_safetensors_file(const fs::path& path, const std::vector<SafetensorsItem>& items,
                            const std::map<std::string, std::string>& metadata) {
  std::string text;
  write_safetensors(items, metadata, [&](std::span<const std::byte> bytes) {
    text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  });
  write_file(path, text);
}

// Of the trained model's file, by name.
std::map<std::string, SafetensorsItem> items_of(const SafetensorsFile& file) {
  std::map<std::string, SafetensorsItem> items;
  for (const auto& [name, entry] : file.header().entries) {
    items[name] = {name, entry.dtype, entry.shape, file.bytes(name)};
  }
  return items;
}

TEST(HuggingFace, ImportThenExportGivesTheSameFiles) {
  const auto expect_same = [](const fs::path& hf) {
    const fs::path back = through_a_checkpoint(hf);
    EXPECT_EQ(files_of(back), files_of(hf));
  };
  expect_same(trained().hf);
  const fs::path folder = new_folder();
  ASSERT_TRUE(
      convert_export(trained().checkpoint, folder / "shards", {"--max-shard-size", "5000"}).ok());
  EXPECT_GT(files_of(folder / "shards").size(), 3U);
  expect_same(folder / "shards");
  // Another order than any library's, other metadata, blanks in the header, a second dtype.
  const fs::path odd = changed("config.json", "llama", "llama");
  const SafetensorsFile file(trained().hf / "model.safetensors");
  std::vector<SafetensorsItem> items;
  for (const auto& [name, item] : items_of(file)) items.insert(items.begin(), item);
  const std::vector<std::uint16_t> halves(16, 0x3F80);
  for (SafetensorsItem& item : items) {
    if (item.name != "model.norm.weight") continue;
    ASSERT_EQ(item.shape, (std::vector<std::int64_t>{16}));
    item.dtype = "BF16";
    item.bytes = std::as_bytes(std::span(halves));
  }
  write_safetensors_file(odd / "model.safetensors", items, {{"made", "by hand"}});
  expect_same(odd);
  // Rounded, cut otherwise or as a family writes it, the files are made anew.
  EXPECT_NE(files_of(through_a_checkpoint(odd, {"--dtype", "fp32"})), files_of(odd));
  const fs::path anew = through_a_checkpoint(odd, {"--max-shard-size", "1000000"});
  EXPECT_EQ(tensors_of(anew), tensors_of(odd));
  EXPECT_NE(files_of(anew).at("model.safetensors"), files_of(odd).at("model.safetensors"));
}

// Names in order of the alphabet behind wider dtypes, as the reference library writes them.
TEST(HuggingFace, ExportLaysTensorsOutAsTheLibraryDoes) {
  const SafetensorsFile file(trained().hf / "model.safetensors");
  std::uint64_t end = 0;
  for (const auto& [name, entry] : file.header().entries) {
    EXPECT_EQ(entry.begin, end) << name;
    end = entry.end;
  }
  EXPECT_TRUE(file.header_text().starts_with(
      R"({"__metadata__":{"format":"pt"},"lm_head.weight":{"dtype":"F32","shape":[)"));
}

// A tied output that is in the file goes there again; tables that no model reads do not.
TEST(HuggingFace, CopiesStayAndUnreadTablesGo) {
  const fs::path tied =
      changed("config.json", "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true ");
  const SafetensorsFile file(trained().hf / "model.safetensors");
  std::map<std::string, SafetensorsItem> items = items_of(file);
  items.at("lm_head.weight").bytes = items.at("model.embed_tokens.weight").bytes;
  const auto write = [&] {
    std::vector<SafetensorsItem> list;
    for (const auto& [name, item] : items) list.push_back(item);
    write_safetensors_file(tied / "model.safetensors", list, {{"format", "pt"}});
  };
  write();
  EXPECT_EQ(files_of(through_a_checkpoint(tied)), files_of(tied));
  const std::vector<float> angles(4, 1.0F);
  const std::string table = "model.layers.0.self_attn.rotary_emb.inv_freq";
  items[table] = {table, "F32", {4}, std::as_bytes(std::span(angles))};
  write();
  auto expected = tensors_of(tied);
  expected.erase(table);
  expected.erase("lm_head.weight");
  EXPECT_EQ(tensors_of(through_a_checkpoint(tied)), expected);
}

// A kept layout is outside data: what is not true of the tensors is not written.
TEST(HuggingFace, AKeptLayoutIsChecked) {
  const fs::path folder = new_folder();
  ASSERT_TRUE(convert_import(trained().hf, folder / "save").ok());
  const fs::path file = folder / "save" / iteration_name(0) / "manifest.json";
  const fs::path kept = folder / "save" / iteration_name(0) / "tokenizer/weights_layout.json";
  const Json layout = Json::parse(read_file(kept));
  const auto with = [&](const Json& other) {
    const std::string text = other.dump();
    write_file(kept, text);
    Json whole = Json::parse(read_file(file));
    for (Json& entry : whole["manifest"]["tokenizer"]) {
      if (entry.at("name") != "weights_layout.json") continue;
      entry["bytes"] = text.size();
      entry["sha256"] = sha256_hex(text);
    }
    whole["sha256"] = sha256_hex(whole["manifest"].dump());
    write_file(file, whole.dump() + "\n");
    return convert_export(folder / "save", folder / "out");
  };
  Json outside = layout;
  outside["files"]["../x.safetensors"] = layout.at("files").at("model.safetensors");
  expect_refusal(with(outside), 3, {"no name of a .safetensors file"});
  Json broken = layout;
  broken["files"]["model.safetensors"]["header"] = "{\"a\": 3}";
  expect_refusal(with(broken), 3, {"model.safetensors"});
  EXPECT_FALSE(fs::exists(folder / "out"));
  EXPECT_FALSE(fs::exists(folder / "x.safetensors"));
}

TEST(HuggingFace, TheFolderGeneratesAsTheCheckpointDoes) {
  const std::string tokens = generated(trained().checkpoint);
  EXPECT_GT(tokens.size(), 10U);
  EXPECT_EQ(generated(trained().hf), tokens);
  const fs::path save = new_folder() / "save";
  ASSERT_TRUE(convert_import(trained().hf, save).ok());
  EXPECT_EQ(generated(save), tokens);
  expect_refusal(
      call({"generate", "--load", trained().hf.string(), "--ckpt-step", "3", "--prompt", "3"}), 2,
      {"--ckpt-step 3", "no iterations"});
}

TEST(HuggingFace, FinetuneStartsFromTheFolder) {
  const Options tune = small_llama().with("--finetune");
  const TinyRun from_checkpoint = train(tune.with("--load", trained().checkpoint.string()));
  const TinyRun from_folder = train(tune.with("--load", trained().hf.string()));
  EXPECT_EQ(from_folder.losses(), from_checkpoint.losses());
  EXPECT_NE(from_folder.first_loss(), train(small_llama()).first_loss());
  // The model's options need not be repeated, and ranks share the weights.
  Options short_tune = base().with("--finetune").with("--load", trained().hf.string());
  for (const char* name :
       {"--num-layers", "--hidden-size", "--num-attention-heads", "--max-position-embeddings"}) {
    short_tune = short_tune.without(name);
  }
  const TinyRun filled = train(short_tune);
  EXPECT_EQ(filled.losses(), from_checkpoint.losses());
  EXPECT_EQ(count(filled.program.out, "--load " + trained().hf.string() + " gives: "), 1U)
      << filled.program.out;
  const TinyRun split = train(short_tune.with("--distributed-backend", "threads")
                                  .with("--world-size", 4)
                                  .with("--tensor-model-parallel-size", 2)
                                  .with("--pipeline-model-parallel-size", 2));
  expect_same_losses(split, filled, 1e-5);
  // What contradicts the folder is named.
  expect_refusal(try_train(short_tune.with("--rotary-base", 500)).program, 7,
                 {"rotary_base 10000.0 and 500.0", trained().hf.string()});
  expect_refusal(try_train(short_tune.without("--finetune")).program, 2, {"add --finetune"});
  expect_refusal(try_train(short_tune.with("--ckpt-step", 3)).program, 2,
                 {"--ckpt-step", "no iterations"});
}

// --pretrained-checkpoint: the folder's weights at first, its model and tokenizer always.
TEST(HuggingFace, OneCommandStartsAndGoesOn) {
  const fs::path save = new_folder();
  Options run = saving(base(), save).with("--load", save.string());
  run = run.with("--pretrained-checkpoint", trained().hf.string());
  for (const char* name :
       {"--num-layers", "--hidden-size", "--num-attention-heads", "--max-position-embeddings"}) {
    run = run.without(name);
  }
  const TinyRun whole =
      train(small_llama().with("--finetune").with("--load", trained().hf.string()));
  const std::vector<double> losses = whole.losses();
  ASSERT_GT(losses.size(), 1U);
  const TinyRun first = train(run.with("--exit-interval", 1));
  EXPECT_EQ(first.losses(), std::vector<double>(losses.begin(), losses.begin() + 1));
  const TinyRun second = train(run);
  EXPECT_EQ(second.losses(), std::vector<double>(losses.begin() + 1, losses.end()));
}

TEST(HuggingFace, EveryTensorIsAccountedFor) {
  const auto refused = [](const fs::path& hf, const std::vector<std::string>& parts) {
    const fs::path save = new_folder() / "save";
    expect_refusal(convert_import(hf, save), 3, parts);
    EXPECT_FALSE(fs::exists(save));
  };
  refused(
      changed("model.safetensors", "layers.1.mlp.up_proj", "layers.1.mlp.op_proj"),
      {"model.layers.1.mlp.up_proj.weight is missing; there is model.layers.1.mlp.op_proj.weight",
       "'model.layers.1.mlp.op_proj.weight' is unexpected"});
  refused(changed("config.json", "\"intermediate_size\": 64", "\"intermediate_size\": 48"),
          {"mlp.up_proj.weight has the shape [64, 16], expected [48, 16]"});
  refused(changed("model.safetensors", "\"F32\"", "\"I32\""), {"is I32, expected F64, F32"});
  refused(changed("config.json", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3"),
          {"model.layers.2."});
}

TEST(HuggingFace, HostileFoldersAreRefused) {
  const fs::path save = new_folder() / "save";
  // A header that says it is longer than the file, before anything is allocated
  const fs::path cut = changed("config.json", "llama", "llama");
  std::string weights = read_file(cut / "model.safetensors");
  weights.replace(0, 8, std::string("\xff\xff\xff\xff\xff\xff\xff\x7f", 8));
  write_file(cut / "model.safetensors", weights);
  expect_refusal(convert_import(cut, save), 3, {"header length"});
  const fs::path way_out = changed("config.json", "llama", "llama");
  fs::rename(way_out / "model.safetensors", way_out / "other.safetensors");
  write_file(way_out / "model.safetensors.index.json",
             R"({"weight_map": {"lm_head.weight": "../hf/other.safetensors"}})");
  expect_refusal(convert_import(way_out, save), 3, {"expected the name of a .safetensors"});
  write_file(way_out / "model.safetensors.index.json",
             R"({"weight_map": {"lm_head.weight": "absent.safetensors"}})");
  EXPECT_EQ(convert_import(way_out, save).exit_code, 4);
  fs::remove(way_out / "model.safetensors.index.json");
  expect_refusal(convert_import(way_out, save), 3, {"neither model.safetensors"});
  EXPECT_EQ(convert_import(new_folder(), save).exit_code, 4);
  EXPECT_FALSE(fs::exists(save));
}

TEST(HuggingFace, NothingIsOverwritten) {
  const fs::path folder = new_folder();
  write_file(folder / "mine", "text");
  expect_refusal(convert_import(trained().hf, folder), 2, {"nothing is overwritten"});
  expect_refusal(convert_export(trained().checkpoint, folder), 2, {"nothing is overwritten"});
  expect_refusal(convert_export(trained().checkpoint, folder / "mine"), 2,
                 {"nothing is overwritten"});
  EXPECT_EQ(read_file(folder / "mine"), "text");
  std::size_t names = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(folder)) ++names;
  EXPECT_EQ(names, 1U);
}

TEST(HuggingFace, WordsThatAreWrong) {
  const std::string hf = trained().hf.string();
  expect_refusal(call({"convert", "turn", "--hf", hf}), 2, {"import or export"});
  expect_refusal(call({"convert", "import", "--hf", hf}), 2, {"--save is missing"});
  expect_refusal(convert_import(hf, "x", {"--family", "llama"}), 2, {"--family belongs to"});
  expect_refusal(convert_import(hf, "x", {"--dtype", "int8"}), 2, {"--dtype int8"});
  const fs::path out = new_folder() / "out";
  expect_refusal(convert_export(trained().checkpoint, out, {"--family", "gpt2"}), 8,
                 {"normalization"});
  expect_refusal(convert_export(trained().checkpoint, out, {"--family", "lama"}), 2, {"llama"});
  EXPECT_FALSE(fs::exists(out));
}

TEST(HuggingFace, FilesOfAFolderGoAlong) {
  const fs::path folder = new_folder();
  const fs::path hf = changed("config.json", "llama", "llama");
  write_file(hf / "tokenizer_config.json", "{\"model_max_length\": 64}\n");
  ASSERT_TRUE(convert_import(hf, folder / "save").ok());
  ASSERT_TRUE(convert_export(folder / "save", folder / "back").ok());
  EXPECT_EQ(read_file(folder / "back/tokenizer_config.json"),
            read_file(hf / "tokenizer_config.json"));
  EXPECT_EQ(read_file(folder / "save" / iteration_name(0) / "tokenizer/config.json"),
            read_file(hf / "config.json"));
  EXPECT_EQ(manifest(folder / "save", 0).at("tokenizer").size(), 3U);
  // What another program has put into the checkpoint, or changed in it, does not go out.
  write_file(folder / "save" / iteration_name(0) / "tokenizer/config.json", "{}");
  expect_refusal(convert_export(folder / "save", folder / "none"), 7, {"config.json has 2 bytes"});
  EXPECT_FALSE(fs::exists(folder / "none"));
  // A checkpoint that training wrote has those of its tokenizer alone: others come from a folder of
  // the same model.
  ASSERT_TRUE(convert_export(trained().checkpoint, folder / "like", {"--like", hf.string()}).ok());
  EXPECT_EQ(read_file(folder / "like/tokenizer_config.json"),
            read_file(hf / "tokenizer_config.json"));
  const fs::path other =
      changed("config.json", "\"rms_norm_eps\": 1e-05", "\"rms_norm_eps\": 2e-05");
  expect_refusal(convert_export(trained().checkpoint, folder / "no", {"--like", other.string()}), 2,
                 {"layernorm_epsilon"});
}

// Gemma 3 with pictures: the language model is read, the rest named, and nothing written as if it
// were there.
TEST(HuggingFace, OfTextAndPicturesTheLanguageModel) {
  const fs::path folder = new_folder();
  const std::string text = R"({"model_type": "gemma3_text", "vocab_size": 40, "hidden_size": 16,
    "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 4,
    "max_position_embeddings": 64, "layer_types": ["sliding_attention", "full_attention"]})";
  std::vector<std::pair<std::string, std::vector<std::int64_t>>> shapes = {
      {"embed_tokens", {40, 16}}, {"norm", {16}}};
  for (const char* layer : {"layers.0.", "layers.1."}) {
    const auto add = [&](const char* name, std::vector<std::int64_t> shape) {
      shapes.emplace_back(std::string(layer) + name, std::move(shape));
    };
    for (const char* norm : {"input_layernorm", "post_attention_layernorm",
                             "pre_feedforward_layernorm", "post_feedforward_layernorm"}) {
      add(norm, {16});
    }
    add("self_attn.q_proj", {16, 16});
    add("self_attn.k_proj", {8, 16});
    add("self_attn.v_proj", {8, 16});
    add("self_attn.o_proj", {16, 16});
    add("self_attn.q_norm", {8});
    add("self_attn.k_norm", {8});
    add("mlp.gate_proj", {24, 16});
    add("mlp.up_proj", {24, 16});
    add("mlp.down_proj", {16, 24});
  }
  std::vector<float> values(40 * 16 + shapes.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>((i * 7919) % 101) / 101.0F - 0.5F;
  }
  const auto write = [&](const fs::path& hf, const std::string& prefix, const std::string& config) {
    fs::create_directories(hf);
    write_file(hf / "config.json", config);
    std::vector<SafetensorsItem> items;
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      const auto& [name, shape] = shapes[i];
      const std::size_t count =
          static_cast<std::size_t>(shape[0] * (shape.size() > 1 ? shape[1] : 1));
      items.push_back({prefix + name + ".weight", "F32", shape,
                       std::as_bytes(std::span(values).subspan(i, count))});
    }
    if (prefix != "model.") {
      items.push_back({"vision_tower.vision_model.weight",
                       "F32",
                       {3},
                       std::as_bytes(std::span(values).first(3))});
    }
    write_safetensors_file(hf / "model.safetensors", items, {{"format", "pt"}});
  };
  write(folder / "text", "model.", text);
  write(folder / "pictures", "language_model.model.",
        R"({"model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"],
            "vision_config": {"hidden_size": 8}, "text_config": )" +
            text + "}");
  const std::string tokens = generated(folder / "text");
  EXPECT_GT(tokens.size(), 10U);
  EXPECT_EQ(generated(folder / "pictures"), tokens);
  const ProgramResult in = convert_import(folder / "pictures", folder / "save");
  ASSERT_TRUE(in.ok()) << in.describe();
  EXPECT_EQ(count(in.out + in.err, "left out: vision_tower (1 tensors)"), 1U) << in.describe();
  ASSERT_TRUE(convert_export(folder / "save", folder / "back").ok());
  EXPECT_EQ(tensors_of(folder / "back"), tensors_of(folder / "text"));
  EXPECT_EQ(Json::parse(read_file(folder / "back/config.json")).at("architectures").at(0),
            "Gemma3ForCausalLM");
  expect_refusal(
      convert_export(folder / "save", folder / "no", {"--like", (folder / "pictures").string()}), 8,
      {"Gemma3ForConditionalGeneration", "leave out --like"});
}

// The checkpoint's own copy, wherever the files of the run have gone.
TEST(HuggingFace, ATrainedCheckpointExportsItsTokenizer) {
  const fs::path folder = new_folder();
  const fs::path made = trained_bpe("the cat sat on the mat and the rat ran to the hat\n", 270);
  const std::string prefix =
      bpe_corpus(R"({"text": "the cat sat on the mat and the rat ran to it"})"
                 "\n",
                 made);
  (void)train(saving(with_bpe(small_llama(), made).with("--data-path", prefix), folder / "save"));
  const std::string vocabulary_text = read_file(made / "vocab.json");
  const std::string merges_text = read_file(made / "merges.txt");
  fs::remove_all(made);
  const ProgramResult out = convert_export(folder / "save", folder / "hf");
  ASSERT_TRUE(out.ok()) << out.describe();
  EXPECT_EQ(read_file(folder / "hf/vocab.json"), vocabulary_text);
  EXPECT_EQ(read_file(folder / "hf/merges.txt"), merges_text);
  // There and back: kept once, under the names that stand for the options.
  ASSERT_TRUE(convert_import(folder / "hf", folder / "again").ok());
  const fs::path kept = folder / "again" / iteration_name(0) / "tokenizer";
  EXPECT_EQ(read_file(kept / "vocab_file"), vocabulary_text);
  EXPECT_FALSE(fs::exists(kept / "vocab.json"));
  ASSERT_TRUE(convert_export(folder / "again", folder / "back").ok());
  EXPECT_EQ(read_file(folder / "back/vocab.json"), vocabulary_text);
  EXPECT_EQ(read_file(folder / "back/merges.txt"), merges_text);
  EXPECT_EQ(read_file(folder / "back/config.json"), read_file(folder / "hf/config.json"));
}

// Options from outside are held against the tensors before anything is made of them (A12).
TEST(HuggingFace, HostileSizesAreRefusedBeforeMemoryIsTaken) {
  const fs::path folder = new_folder();
  fs::copy(trained().checkpoint, folder / "save", fs::copy_options::recursive);
  constexpr std::int64_t kRoom = std::int64_t{64} << 20;
  const fs::path file = folder / "save" / iteration_name(3) / "manifest.json";
  const std::int64_t usual = peak_memory({"checkpoint", "inspect", (folder / "save").string()}, 0);
  const auto refused = [&](const char* option, std::int64_t value, const std::string& part) {
    SCOPED_TRACE(option);
    Json whole = Json::parse(read_file(trained().checkpoint / iteration_name(3) / "manifest.json"));
    whole["manifest"]["config"]["model"][option] = value;
    whole["sha256"] = sha256_hex(whole["manifest"].dump());
    write_file(file, whole.dump() + "\n");
    for (const std::vector<std::string>& words :
         {std::vector<std::string>{"generate", "--load", (folder / "save").string(), "--prompt",
                                   "3"},
          {"convert", "export", "--load", (folder / "save").string(), "--hf",
           (folder / "out").string()}}) {
      EXPECT_LT(peak_memory(words, 7, part), usual + kRoom);
    }
  };
  refused("num_layers", 1000000, "num_layers of 1000000, but its weights allow 21 at most");
  refused("hidden_size", 1 << 20, "has the shape");
  refused("max_position_embeddings", 1 << 28, "max_position_embeddings of 268435456");
  const fs::path hf = changed("config.json", "llama", "llama");
  Json config = Json::parse(read_file(hf / "config.json"));
  config["num_hidden_layers"] = 1000000;
  write_file(hf / "config.json", config.dump());
  EXPECT_LT(peak_memory({"convert", "import", "--hf", hf.string(), "--save",
                         (folder / "imported").string()},
                        3, "num_layers of 1000000"),
            usual + kRoom);
}

TEST(ModelPreset, FillsInWhatIsNotSet) {
  const std::vector<std::string> words{"pretrain_gpt",
                                       "--check-options",
                                       "--model-preset",
                                       "llama3.2-1b",
                                       "--seq-length",
                                       "128",
                                       "--num-layers",
                                       "2",
                                       "--mock-data",
                                       "--tokenizer-type",
                                       "NullTokenizer",
                                       "--vocab-size",
                                       "100",
                                       "--micro-batch-size",
                                       "1",
                                       "--train-iters",
                                       "1",
                                       "--lr",
                                       "1e-3"};
  const ProgramResult result = call(words);
  EXPECT_TRUE(result.ok()) << result.describe();
  EXPECT_EQ(count(result.out, "hidden_size = 2048  (preset: llama3.2-1b)"), 1U) << result.out;
  EXPECT_EQ(count(result.out, "num_layers = 2  (command line: --num-layers)"), 1U) << result.out;
  std::vector<std::string> wrong = words;
  wrong[3] = "llama3.2-1bb";
  const ProgramResult refused = call(wrong);
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_EQ(count(refused.out, "did you mean llama3.2-1b?"), 1U) << refused.describe();
  const ProgramResult list = call({"options", "--presets"});
  EXPECT_TRUE(list.ok()) << list.describe();
  EXPECT_EQ(count(list.out, "\nllama3.2-1b "), 1U);
}

}  // namespace pentatron::functional
