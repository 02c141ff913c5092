// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/parser.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/base/temp_folder.h"
#include "pentatron/base/test_support.h"
#include "pentatron/config/check.h"
#include "pentatron/config/parser_test_support.h"
#include "pentatron/config/print.h"

namespace pentatron::config {
namespace {

using namespace testing_support;  // NOLINT: test vocabulary

// One word of several numbers, as a shell makes it of a quoted value.
TEST(Parser, ListsOfNumbersTakeBlanksInAWord) {
  ParseRequest asked = request(
      "--num-layers 2 --hidden-size 32 --num-attention-heads 4 --seq-length 16 "
      "--max-position-embeddings 16 --mock-data --tokenizer-type NullTokenizer --vocab-size 63 "
      "--micro-batch-size 1 --train-iters 2 --lr 0.1 --context-parallel-size 4 --world-size 4 "
      "--cp-comm-type a2a+p2p --distributed-backend threads --hierarchical-context-parallel-sizes");
  asked.words.emplace_back(" 2  2");
  EXPECT_EQ(parse(asked).config.parallel.hierarchical_context_parallel_sizes,
            (std::vector<std::string>{"2", "2"}));
  asked.words.back() = "2 two";
  expect_error(ErrorKind::kConfig, "expected an integer", [&] { (void)parse(asked); });
  asked.words.back() = " ";
  expect_error(ErrorKind::kConfig, "expected an integer", [&] { (void)parse(asked); });
}

TEST(Parser, ReadsEveryKindOfOption) {
  const RunConfig config =
      parse(request(
                "--num-layers 12 --lr=6e-4 --swiglu --disable-bias-linear --data-path 0.5 a 0.5 b "
                "--normalization RMSNorm --lr-warmup-fraction .1 --null-tokenizer-pad-id -1 "
                "--tokenizer-type NullTokenizer --exit-signal-handler --exit-signal 2 "
                "--override-opt-param-scheduler --load x --exit-duration-in-mins 5 --bf16"))
          .config;
  EXPECT_EQ(config.model.num_layers, 12);
  EXPECT_EQ(config.optimizer.lr, 6e-4);
  EXPECT_TRUE(config.model.swiglu);
  EXPECT_FALSE(config.model.add_bias_linear);
  EXPECT_EQ(config.data.data_path, (std::vector<std::string>{"0.5", "a", "0.5", "b"}));
  EXPECT_EQ(config.model.normalization, "RMSNorm");
  EXPECT_EQ(config.optimizer.lr_warmup_fraction, 0.1);
  EXPECT_EQ(config.data.null_tokenizer_pad_id, -1);
  EXPECT_EQ(config.training.exit_signal, "SIGINT");
  EXPECT_TRUE(config.optimizer.override_opt_param_scheduler);
  EXPECT_EQ(config.training.exit_duration_in_mins, 5.0);
  EXPECT_EQ(config.training.precision, "bf16");
}

TEST(Parser, LastOnTheCommandLineWins) {
  EXPECT_EQ(parse(request("--num-layers 1 --num-layers 2")).config.model.num_layers, 2);
}

TEST(Parser, ListsThatRepeatAreJoined) {
  ParseRequest two = request("--sample-prompt a b --micro-batch-size 2 --sample-prompt c");
  EXPECT_EQ(parse(two).config.logging.sample_prompt, (std::vector<std::string>{"a", "b", "c"}));
  // What --set says replaces what stood before.
  two.words.insert(two.words.end(), {"--set", "sample_prompt=d"});
  EXPECT_EQ(parse(two).config.logging.sample_prompt, (std::vector<std::string>{"d"}));
  EXPECT_EQ(parse(request("--data-path a --data-path b")).config.data.data_path,
            (std::vector<std::string>{"b"}));
}

TEST(Parser, RefusesBadValues) {
  EXPECT_EQ(problem_of("--num-layers x"), "--num-layers 'x': expected an integer");
  EXPECT_EQ(problem_of("--num-layers 1e3"), "--num-layers '1e3': expected an integer");
  EXPECT_EQ(problem_of("--num-layers 0"), "--num-layers '0': expected a number of at least 1");
  EXPECT_EQ(problem_of("--num-layers 99999999999999999999"),
            "--num-layers '99999999999999999999': expected an integer");
  EXPECT_EQ(problem_of("--num-layers"), "--num-layers: expected one value");
  EXPECT_EQ(problem_of("--num-layers --swiglu"), "--num-layers: expected one value");
  EXPECT_EQ(problem_of("--num-layers="), "--num-layers '': expected an integer");
  EXPECT_EQ(problem_of("--lr nan"), "--lr 'nan': expected a number");
  EXPECT_EQ(problem_of("--lr 0.1x"), "--lr '0.1x': expected a number");
  EXPECT_EQ(problem_of("--hidden-dropout 1"),
            "--hidden-dropout '1': expected a number of at least 0 and below 1");
  EXPECT_EQ(problem_of("--normalization rmsnorm"),
            "--normalization 'rmsnorm': expected one of LayerNorm, RMSNorm");
  EXPECT_EQ(problem_of("--swiglu=true"), "--swiglu: a switch takes no value");
  EXPECT_EQ(problem_of("--swiglu 1"), "unexpected word '1': it belongs to no option");
  EXPECT_EQ(problem_of("--bf16 --fp64"), "--bf16 and --fp64 exclude each other: give one");
}

TEST(Parser, RefusesUnsupportedChoices) {
  EXPECT_EQ(
      problem_of("--dataloader-type external"),
      "--dataloader-type 'external': this value does not work here (external is an iterator of "
      "one's own program, which hands its samples to the library (SessionOptions::train)); "
      "expected "
      "one of single, cyclic");
  EXPECT_EQ(problem_of("--device tpu"), "--device 'tpu': expected one of auto, cpu, cuda");
  EXPECT_EQ(problem_of("--expert-model-parallel-size 2"),
            "--expert-model-parallel-size '2': this value does not work here (the expert-parallel "
            "size is 1; larger ones come with mixture of experts); expected one of 1");
  EXPECT_NE(problem_of("--exit-signal-handler --exit-signal SIGKILL").find("SIGTERM"),
            std::string::npos);
}

TEST(Parser, NamesTheNearestOption) {
  EXPECT_EQ(problem_of("--num-layer 3"),
            "unknown option '--num-layer'; did you mean --num-layers?");
  EXPECT_EQ(problem_of("--hidden_size 3"),
            "unknown option '--hidden_size'; did you mean --hidden-size?");
  EXPECT_EQ(problem_of("--qqqqqqqq 3 4"), "unknown option '--qqqqqqqq'");
}

TEST(Parser, DoesNotAbbreviate) {
  EXPECT_NE(problem_of("--tensor-model-parallel 2")
                .find("unknown option '--tensor-model-parallel'; did "
                      "you mean --tensor-model-parallel-size?"),
            std::string::npos);
}

TEST(Parser, RefusesKnownOptionsWithReason) {
  EXPECT_EQ(problem_of("--num-experts 8"),
            "--num-experts: not supported yet: comes with mixture of experts");
  EXPECT_EQ(problem_of("--batch-size 8"),
            "--batch-size: not supported: removed spelling; use --micro-batch-size");
}

// What cannot change a result is accepted and named, whether the option or its place says so.
TEST(Parser, OptionsWithoutEffectAreNamed) {
  const ParsedOptions parsed =
      parse(request("--no-rope-fusion --async-save --no-rope-fusion --rotary-base 500000"));
  EXPECT_EQ(no_effect_line(parsed),
            "no effect here: --no-rope-fusion (asks for an unfused kernel; results are the same "
            "and there is one path), --async-save (a save ends before the next step begins; what "
            "is saved is the same), --rotary-base (it belongs to --position-embedding-type rope, "
            "yarn, longrope and mrope and to --multi-latent-attention)");
  EXPECT_EQ(no_effect_line(parse(request(""))), "");
  // A value that could not be meant is refused all the same.
  EXPECT_EQ(problem_of("--empty-unused-memory-level much"),
            "--empty-unused-memory-level 'much': expected an integer");
}

// Asking for what Megatron does by default asks for nothing that is missing.
TEST(Parser, PlannedOptionsTakeTheirDefault) {
  const ParsedOptions parsed = parse(request("--moe-router-topk 2 --dataloader-type single"));
  EXPECT_EQ(always_so_line(parsed), "always so here: --moe-router-topk (the default)");
  EXPECT_NE(problem_of("--moe-router-topk 1"), "");
  EXPECT_NE(problem_of("--moe-router-topk x"), "");
}

TEST(Parser, SynonymsStandForAValueThatIsNotSet) {
  const auto positions = [](std::string_view words) {
    return parse(request(std::string(words))).config.model.position_embedding_type;
  };
  EXPECT_EQ(positions("--use-rotary-position-embeddings"), "rope");
  EXPECT_EQ(positions("--no-position-embedding"), "none");
  // Scripts of Megatron-LM give both, in any order, and mean rotary ones.
  EXPECT_EQ(positions("--use-rotary-position-embeddings --no-position-embedding"), "rope");
  EXPECT_EQ(positions("--no-position-embedding --use-rotary-position-embeddings"), "rope");
  EXPECT_EQ(positions("--no-position-embedding --position-embedding-type rope"), "rope");
  const ParsedOptions parsed =
      parse(request("--no-position-embedding --position-embedding-type rope --rotary-base 5"));
  EXPECT_EQ(no_effect_line(parsed),
            "no effect here: --no-position-embedding (--position-embedding-type rope says it)");
  EXPECT_EQ(always_so_line(parse(request("--use-rotary-position-embeddings"))),
            "always so here: --use-rotary-position-embeddings (stands for "
            "--position-embedding-type rope)");
}

TEST(Parser, ReportsAllProblemsAtOnce) {
  try {
    static_cast<void>(
        parse(request("--num-layer 3 --lr x --perform-rl-step --num-experts 8 stray")));
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    const std::string text = error.what();
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 5) << text;
    EXPECT_TRUE(text.starts_with("5 problems with the options:\n")) << text;
    for (const char* part :
         {"--num-layers?", "--lr 'x'", "--perform-rl-step: not", "--num-experts", "stray"}) {
      EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
    }
  }
}

TEST(Parser, AlwaysSoOptionsAreNamed) {
  const ParsedOptions parsed =
      parse(request("--use-mcore-models --transformer-impl local --use-mcore-models"));
  ASSERT_EQ(parsed.always_so.size(), 2U);
  EXPECT_EQ(always_so_line(parsed),
            "always so here: --use-mcore-models (there is one implementation of each model), "
            "--transformer-impl (there is one implementation of each layer)");
  EXPECT_EQ(always_so_line(parse(request(""))), "");
  EXPECT_NE(problem_of("--transformer-impl te"), "");
  // A value of its own, one of those that are so, a list of them.
  for (const char* words : {"--train-sync-interval 100", "--lion-beta1 0.95",
                            "--ddp-param-name-patterns-for-fp32-local-accumulation all"}) {
    EXPECT_EQ(parse(request(words)).always_so.size(), 1U) << words;
  }
  EXPECT_EQ(problem_of("--muon-scalar-optimizer lion"),
            "--muon-scalar-optimizer 'lion': this value does not work here (embeddings, output "
            "layer and vectors follow AdamW); expected one of adam");
}

TEST(Parser, ReadsYamlAndJsonFiles) {
  const TempFolder folder;
  const std::string yaml = folder.path() / "run.yaml";
  write_file_atomically(yaml,
                        "# a run\nmodel:\n  num_layers: 4\n  norm-epsilon: 1e-6\n  swiglu: true\n"
                        "  add_bias_linear: false\n  moe_grouped_gemm: false\n  num_experts: null\n"
                        "no-mmap-bin-files: true\ndata_path: [0.5, a, 0.5, b]\nlr: 1.0e-3\n"
                        "load: None\n");
  const ParsedOptions parsed = parse(request("--yaml-cfg " + yaml));
  EXPECT_EQ(parsed.config.model.num_layers, 4);
  EXPECT_EQ(parsed.config.model.layernorm_epsilon, 1e-6);
  EXPECT_TRUE(parsed.config.model.swiglu);
  EXPECT_FALSE(parsed.config.model.add_bias_linear);
  EXPECT_FALSE(parsed.config.data.mmap_bin_files);
  EXPECT_EQ(parsed.config.data.data_path, (std::vector<std::string>{"0.5", "a", "0.5", "b"}));
  EXPECT_EQ(parsed.config.optimizer.lr, 1e-3);
  EXPECT_EQ(parsed.config.checkpoint.load, "");
  EXPECT_EQ(parsed.origins.at("num_layers").where, yaml + ":3");

  const std::string json = folder.path() / "run.json";
  write_file_atomically(json,
                        "{\n\t\"model\": {\"hidden_size\": 64, \"rotary_percent\": 1e-1,\n"
                        "\"position_embedding_type\": \"rope\", \"data_path\": [\"x\"]}}");
  const RunConfig config = parse(request("--yaml-cfg " + json)).config;
  EXPECT_EQ(config.model.hidden_size, 64);
  EXPECT_EQ(config.model.rotary_percent, 0.1);
  EXPECT_EQ(config.data.data_path, std::vector<std::string>{"x"});
}

TEST(Parser, RefusesBadFiles) {
  const TempFolder folder;
  const std::string path = folder.path() / "run.yaml";
  const auto problem = [&](const std::string& text) {
    write_file_atomically(path, text);
    return problem_of("--yaml-cfg " + path);
  };
  EXPECT_EQ(problem("num_layer: 3\n"),
            path + ":1: unknown key 'num_layer'; did you mean num_layers?");
  EXPECT_EQ(problem("a:\n  lr: 1\nb:\n  lr: 2\n"), path + ":4: lr is set twice");
  EXPECT_EQ(problem("lr: [1, 2]\n"), path + ":1: lr: expected one value, got a list");
  EXPECT_EQ(problem("swiglu: 3\n"), path + ":1: swiglu: expected true or false");
  EXPECT_EQ(problem("num_layers: x\n"), path + ":1: num_layers 'x': expected an integer");
  EXPECT_EQ(problem("perform_rl_step: true\n"),
            path + ":1: perform_rl_step: not supported yet: comes with reinforcement learning");
  EXPECT_EQ(problem("yaml_cfg: x\n"), path + ":1: yaml_cfg belongs on the command line");
  EXPECT_NE(problem("a: [1\n").find("not YAML or JSON"), std::string::npos);
  EXPECT_NE(problem("[1, 2]\n").find("expected a mapping"), std::string::npos);
  EXPECT_NE(problem("data_path: [[1]]\n").find("a list of something but values"),
            std::string::npos);
  std::string deep;
  for (int i = 0; i < 40; ++i) deep += std::string(static_cast<std::size_t>(i), ' ') + "a:\n";
  EXPECT_NE(problem(deep + std::string(40, ' ') + "lr: 1\n").find("nested sections"),
            std::string::npos);
  EXPECT_NE(problem("a: " + std::string(100'000, '[')).find("not YAML or JSON"), std::string::npos);
  EXPECT_EQ(problem(""), "");
  EXPECT_NE(problem_of("--yaml-cfg " + path + ".missing").find(".missing"), std::string::npos);
  EXPECT_EQ(problem_of("--yaml-cfg"), "--yaml-cfg: expected a value");
  const std::string json = folder.path() / "run.json";
  write_file_atomically(json, "{\"lr\": 1, \"lr\": 2}");
  EXPECT_NE(problem_of("--yaml-cfg " + json).find("twice"), std::string::npos);
}

TEST(Parser, OriginsWinInOrder) {
  const TempFolder folder;
  const std::string path = folder.path() / "run.yaml";
  write_file_atomically(path, "hidden_size: 4\nffn_hidden_size: 4\nkv_channels: 4\n");
  ParseRequest from =
      request("--set kv_channels=6 --ffn-hidden-size 5 --kv-channels 5 --yaml-cfg " + path +
              " --set lr=0.5 min_lr=null --min-lr 3");
  const auto layer = [](Origin origin, std::vector<std::string> dests, std::int64_t value) {
    ValueLayer result{.origin = origin, .label = "L"};
    for (std::string& dest : dests) result.values.emplace_back(std::move(dest), value);
    return result;
  };
  const std::vector<std::string> all = {"num_layers", "seq_length", "hidden_size",
                                        "ffn_hidden_size", "kv_channels"};
  from.layers.push_back(layer(Origin::kCheckpoint, {all.begin() + 1, all.end()}, 3));
  from.layers.push_back(layer(Origin::kPreset, all, 2));
  const ParsedOptions parsed = parse(from);
  EXPECT_EQ(parsed.config.model.num_attention_heads, 0);
  EXPECT_EQ(parsed.config.model.num_layers, 2);
  EXPECT_EQ(parsed.config.model.seq_length, 3);
  EXPECT_EQ(parsed.config.model.hidden_size, 4);
  EXPECT_EQ(parsed.config.model.ffn_hidden_size, 5);
  EXPECT_EQ(parsed.config.model.kv_channels, 6);
  EXPECT_EQ(parsed.config.optimizer.lr, 0.5);
  EXPECT_EQ(parsed.config.optimizer.min_lr, 0.0);
  EXPECT_FALSE(parsed.origins.contains("min_lr"));
  const std::vector<Origin> expected = {Origin::kPreset, Origin::kCheckpoint, Origin::kFile,
                                        Origin::kCommandLine, Origin::kSet};
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(parsed.origins.at(all[i]).origin, expected[i]) << all[i];
    EXPECT_EQ(set_by_user(parsed.origins, all[i]), i >= 2) << all[i];
  }
}

TEST(Parser, RefusesBadSet) {
  EXPECT_EQ(problem_of("--set lr"), "--set 'lr': expected dest=value");
  EXPECT_EQ(problem_of("--set num_layer=3"),
            "--set: unknown destination 'num_layer'; did you mean num_layers?");
  EXPECT_EQ(problem_of("--set num_layers=x"), "--set num_layers 'x': expected an integer");
  EXPECT_EQ(problem_of("--set swiglu=1"), "--set: --set swiglu: expected true or false");
  EXPECT_EQ(parse(request("--set swiglu=true add_bias_linear=false")).config.model.add_bias_linear,
            false);
}

TEST(Parser, PrecisionFollowsTheOriginThatWins) {
  EXPECT_EQ(parse(request("--bf16 --set fp64=true")).config.training.precision, "fp64");
  EXPECT_EQ(parse(request("--bf16 --set bf16=false")).config.training.precision, "fp32");
}

TEST(Parser, ProgramOptionsAreKeptApart) {
  ParseRequest from = request("--prompt hello --log-interval 7 --echo --files a b --num-layers 2");
  from.program_options = {{"--prompt"}, {"--log-interval"}, {"--echo", 0}, {"--files", '+'}};
  const ParsedOptions parsed = parse(from);
  EXPECT_EQ(parsed.program_values.at("--prompt"), std::vector<std::string>{"hello"});
  EXPECT_EQ(parsed.program_values.at("--log-interval"), std::vector<std::string>{"7"});
  EXPECT_TRUE(parsed.program_values.at("--echo").empty());
  EXPECT_EQ(parsed.program_values.at("--files"), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(parsed.config.training.log_interval, 100);
  from.words = {"--prompt"};
  EXPECT_EQ(problems_of(from), std::vector<std::string>{"--prompt: expected a value"});
}

TEST(Parser, LayerFromConfigRebuildsTheModel) {
  RunConfig config = parse(request("--num-layers 3 --vocab-size 255 --tokenizer-type NullTokenizer "
                                   "--group-query-attention --num-query-groups 2"))
                         .config;
  config.data.null_tokenizer_vocab_size = 255;
  config.model.vocab_size = 256;
  config.model.padded_vocab_size = 384;
  ParseRequest from = request("--num-layers 5");
  from.layers.push_back(layer_from_config(config, Origin::kCheckpoint, "ckpt", "model"));
  const RunConfig again = parse(from).config;
  EXPECT_EQ(again.model.num_layers, 5);
  EXPECT_EQ(again.model.vocab_size, 255);
  EXPECT_EQ(again.model.padded_vocab_size, 0);
  EXPECT_EQ(again.model.num_query_groups, 2);
}

TEST(CheckOptions, ReportsLayoutOrProblems) {
  const std::string fine =
      "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 32 "
      "--max-position-embeddings 32 --train-iters 10 --lr 1e-3 --mock-data --vocab-size 100 "
      "--tokenizer-type NullTokenizer --distributed-backend threads --world-size 4 "
      "--tensor-model-parallel-size 2 --global-batch-size 8 --use-flash-attn --check-options";
  EXPECT_EQ(parse(request(fine)).action, Action::kCheck);
  const CheckReport report = check_options(request(fine));
  EXPECT_EQ(report.exit_code, 0);
  EXPECT_TRUE(report.text.starts_with(
      "the options fit together\nworld size 4 = data 2 x context 1 x tensor 2 x pipeline 1; global "
      "batch 8 = micro batch 1 x data 2 x 4 accumulation steps\nalways so here: --use-flash-attn"))
      << report.text;
  EXPECT_NE(report.text.find("  lr = 0.001  (command line: --lr)\n"), std::string::npos)
      << report.text;
  const CheckReport bad = check_options(request("--num-layer 2 --lr 1"));
  EXPECT_EQ(bad.exit_code, 2);
  EXPECT_NE(bad.text.find("did you mean --num-layers?"), std::string::npos);
  EXPECT_EQ(bad.text.find("--num-layers is missing"), std::string::npos) << bad.text;
  EXPECT_NE(bad.text.find("--hidden-size is missing"), std::string::npos) << bad.text;
}

}  // namespace
}  // namespace pentatron::config
