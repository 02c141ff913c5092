// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/validate.h"

#include <gtest/gtest.h>

#include <functional>

#include "pentatron/base/error.h"
#include "pentatron/base/test_support.h"
#include "pentatron/config/batch_schedule.h"
#include "pentatron/config/config_json.h"
#include "pentatron/config/print.h"
#include "pentatron/config/validate_test_support.h"

namespace pentatron::config {
namespace {

using namespace testing_support;  // NOLINT: test vocabulary

TEST(Resolve, RelativePositions) {
  const auto said = [](auto change) {
    return problem([&](RunConfig& c) {
      c.model.position_embedding_type = "relative";
      change(c);
    });
  };
  EXPECT_EQ(said([](RunConfig&) {}), "");
  EXPECT_NE(said([](RunConfig& c) {
              c.model.relative_attention_max_distance = 16;
            }).find("--relative-attention-max-distance 16"),
            std::string::npos);
  EXPECT_NE(said([](RunConfig& c) {
              c.parallel.world_size = c.parallel.pipeline_model_parallel_size = 2;
              c.parallel.num_virtual_stages_per_pipeline_rank = 2;
            }).find("each rank runs one stage"),
            std::string::npos);
  EXPECT_NE(said([](RunConfig& c) {
              c.model.heterogeneous_layers_config_encoded_json = "{}";
            }).find("relative is for layers that all have attention"),
            std::string::npos);
  const auto muon = [](RunConfig& c) {
    c.parallel.world_size = 4;
    c.parallel.pipeline_model_parallel_size = 2;
    c.optimizer.optimizer = "muon";
  };
  EXPECT_EQ(said(muon), "");
  EXPECT_NE(said([&](RunConfig& c) {
              muon(c);
              c.parallel.use_distributed_optimizer = true;
            }).find("does not go with --use-distributed-optimizer"),
            std::string::npos);
}

TEST(Resolve, DerivesModelSizes) {
  RunConfig config = small();
  resolve(config);
  EXPECT_EQ(config.model.ffn_hidden_size, 256);
  EXPECT_EQ(config.model.kv_channels, 8);
  EXPECT_EQ(config.model.num_query_groups, 8);
  // Llama-7B: 8 * 4096 / 3 = 10922.67, / 64 = 170.67 -> 170 * 64.
  config = small();
  config.model.hidden_size = 4096;
  config.model.swiglu = true;
  resolve(config);
  EXPECT_EQ(config.model.ffn_hidden_size, 10880);
  config = small();
  config.model.ffn_hidden_size = 100;
  config.model.kv_channels = 5;
  resolve(config);
  EXPECT_EQ(config.model.ffn_hidden_size, 100);
  EXPECT_EQ(config.model.kv_channels, 5);
}

TEST(Resolve, DerivesQueryGroups) {
  RunConfig config = small();
  config.model.group_query_attention = true;
  resolve(config);
  EXPECT_EQ(config.model.num_query_groups, 1);
  config.model.num_query_groups = 2;
  resolve(config);
  EXPECT_EQ(config.model.num_query_groups, 2);
}

TEST(Resolve, DerivesLayout) {
  RunConfig config = small();
  config.parallel.world_size = 16;
  config.parallel.tensor_model_parallel_size = 2;
  config.parallel.pipeline_model_parallel_size = 4;
  resolve(config);
  EXPECT_EQ(config.parallel.data_parallel_size, 2);
}

TEST(Resolve, DerivesBatch) {
  RunConfig config = small();
  config.parallel.world_size = 4;
  config.training.micro_batch_size = 3;
  resolve(config);
  EXPECT_EQ(config.training.global_batch_size, 12);
}

TEST(Resolve, LowersBatchesThatDoNotDivide) {
  RunConfig config = small();
  config.parallel.world_size = 4;
  config.training.micro_batch_size = 2;
  config.training.global_batch_size = 20;
  config.training.decrease_batch_size_if_needed = true;
  resolve(config);
  EXPECT_EQ(config.training.global_batch_size, 20) << "what is asked for stays";
  EXPECT_EQ(running_batch_size(config), 16);
  EXPECT_EQ(asked_batch_schedule(config).size_at(0), 20);
  EXPECT_EQ(config.training.eval_global_batch_size, 16);
  EXPECT_NE(lowered_batches_line(config).find("from 20 to 16 samples"), std::string::npos);
  EXPECT_NE(layout_line(config).find("global batch 16 = micro batch 2 x data 4 x 2 acc"),
            std::string::npos);
  resolve(config);
  EXPECT_EQ(running_batch_size(config), 16);
  config.training.global_batch_size = 24;
  EXPECT_EQ(running_batch_size(config), 24);
  EXPECT_EQ(lowered_batches_line(config), "");
  config.training.global_batch_size = 7;
  expect_error(ErrorKind::kConfig, "--global-batch-size 7", [&] { resolve(config); });
  config.training.global_batch_size = 0;
  config.training.step_batch_size_schedule = "0:9 1000:23";
  resolve(config);
  EXPECT_EQ(batch_schedule(config).sizes(), (std::vector<std::int64_t>{8, 16}));
  config.training.decrease_batch_size_if_needed = false;
  expect_error(ErrorKind::kConfig, "--decrease-batch-size-if-needed", [&] { resolve(config); });
}

TEST(Resolve, DerivesEvaluationBatchAndSwitches) {
  RunConfig config = small();
  config.training.micro_batch_size = 3;
  config.training.step_batch_size_schedule = "0:3 1000:6";
  resolve(config);
  EXPECT_EQ(config.training.global_batch_size, 6);
  EXPECT_EQ(config.training.eval_global_batch_size, 6);
  EXPECT_EQ(config.training.eval_micro_batch_size, 3);
  EXPECT_TRUE(config.training.check_for_nan_in_loss_and_grad);
  EXPECT_FALSE(config.training.exit_signal_handler);
  resolve(config);  // resolved is resolved
  EXPECT_EQ(config.training.global_batch_size, 6);
  config.training.precision = "fp16";
  config.training.exit_signal_handler_for_training = true;
  resolve(config);
  EXPECT_FALSE(config.training.check_for_nan_in_loss_and_grad) << "overflows are usual";
  EXPECT_TRUE(config.training.exit_signal_handler);
}

TEST(Resolve, DerivesDecay) {
  RunConfig config = small();
  resolve(config);
  EXPECT_EQ(config.optimizer.lr_decay_iters, 10);
  config = small();
  config.training.train_iters = 0;
  config.training.train_samples = 70;
  resolve(config);
  EXPECT_EQ(config.optimizer.lr_decay_iters, 0);
  EXPECT_EQ(config.optimizer.lr_decay_samples, 70);
  config = small();
  config.optimizer.lr_decay_iters = 7;
  resolve(config);
  EXPECT_EQ(config.optimizer.lr_decay_iters, 7);
}

TEST(Resolve, DefaultSplit) {
  RunConfig config = small();
  resolve(config);
  EXPECT_EQ(config.data.split, "969, 30, 1");
  config = small();
  config.data.mock_data = true;
  resolve(config);
  EXPECT_EQ(config.data.split, "1,1,1");
  config = small();
  config.data.mock_data = true;
  config.data.split = "8,1,1";
  resolve(config);
  EXPECT_EQ(config.data.split, "8,1,1");
}

TEST(Resolve, NullTokenizer) {
  RunConfig config = small();
  config.data.tokenizer_type = "NullTokenizer";
  config.model.vocab_size = 255;
  resolve(config);
  EXPECT_EQ(config.data.null_tokenizer_eod_id, 255);
  EXPECT_EQ(config.data.null_tokenizer_vocab_size, 255);
  resolve_vocab(config, 256);
  EXPECT_EQ(config.model.vocab_size, 256);
  EXPECT_NE(
      problem([](RunConfig& c) { c.data.tokenizer_type = "NullTokenizer"; }).find("--vocab-size"),
      std::string::npos);
}

TEST(Resolve, Vocabulary) {
  RunConfig config = small();
  config.parallel.world_size = config.parallel.tensor_model_parallel_size = 2;
  resolve(config);
  resolve_vocab(config, 50257);
  EXPECT_EQ(config.model.vocab_size, 50257);
  EXPECT_EQ(config.model.padded_vocab_size, 50432);  // 197 * 256
  config.model.vocab_size = 60;
  config.model.padded_vocab_size = 0;
  config.model.make_vocab_size_divisible_by = 10;
  resolve_vocab(config, 50);
  EXPECT_EQ(config.model.padded_vocab_size, 60);
  EXPECT_THROW(resolve_vocab(config, 61), Error);
  config.model.padded_vocab_size = 64;
  resolve_vocab(config, 60);
  EXPECT_EQ(config.model.padded_vocab_size, 64);
  config.model.padded_vocab_size = 63;
  EXPECT_THROW(resolve_vocab(config, 60), Error);
}

TEST(Resolve, ResolvedConfigResolvesToItself) {
  RunConfig config = small();
  config.model.swiglu = true;
  config.parallel.world_size = 4;
  config.parallel.tensor_model_parallel_size = 2;
  config.data.mock_data = true;
  resolve(config);
  resolve_vocab(config, 1000);
  const std::string once = to_json(config);
  resolve(config);
  resolve_vocab(config, 1000);
  EXPECT_EQ(to_json(config), once);
}

TEST(Resolve, Recompute) {
  const auto layers = [](const char* method, std::int64_t count) {
    return problem([=](RunConfig& c) {
      c.model.recompute_granularity = "full";
      c.model.recompute_method = method;
      c.model.recompute_num_layers = count;
    });
  };
  EXPECT_EQ(layers("block", 2), "");
  EXPECT_NE(layers("", 2).find("needs --recompute-method"), std::string::npos);
  EXPECT_NE(layers("uniform", 0).find("needs --recompute-num-layers"), std::string::npos);
  RunConfig config = small();
  config.model.recompute_granularity = "selective";
  resolve(config);
  EXPECT_EQ(config.model.recompute_modules, std::vector<std::string>{"core_attn"});
  EXPECT_EQ(problem([](RunConfig& c) {
              c.model.recompute_granularity = "selective";
              c.model.recompute_modules = {"mlp", "moe"};
            }),
            "--recompute-modules 'moe': expected core_attn, layernorm or mlp");
}

TEST(Resolve, Offload) {
  const auto with = [](const std::vector<std::string>& modules, const auto& change) {
    return problem([&](RunConfig& c) {
      c.model.fine_grained_activation_offloading = true;
      c.model.offload_modules = modules;
      change(c.model);
    });
  };
  const auto nothing = [](ModelConfig&) {};
  const auto norms_again = [](ModelConfig& m) {
    m.recompute_granularity = "selective";
    m.recompute_modules = {"layernorm"};
  };
  const auto layers_again = [](const char* method) {
    return [method](ModelConfig& m) {
      m.recompute_granularity = "full";
      m.recompute_method = method;
      m.recompute_num_layers = 1;
    };
  };
  EXPECT_EQ(with({"attn_norm", "qkv_linear", "core_attn", "attn_proj", "mlp_norm"}, nothing), "");
  EXPECT_EQ(with({}, nothing),
            "--fine-grained-activation-offloading needs --offload-modules, of attn_norm, "
            "qkv_linear, core_attn, attn_proj or mlp_norm");
  EXPECT_EQ(with({"mlp"}, nothing),
            "--offload-modules 'mlp': expected attn_norm, qkv_linear, core_attn, attn_proj or "
            "mlp_norm");
  EXPECT_NE(with({"moe_act"}, nothing).find("this model has no experts"), std::string::npos);
  EXPECT_EQ(with({"attn_norm", "core_attn"}, norms_again), "");
  EXPECT_NE(with({"qkv_linear"}, norms_again).find("drop one of the two"), std::string::npos);
  EXPECT_EQ(with({"core_attn"}, layers_again("block")), "");
  EXPECT_NE(with({"core_attn"}, layers_again("uniform")).find("keeps nothing to move"),
            std::string::npos);
}

TEST(Resolve, RecordedLayers) {
  const auto with = [](const auto& change) {
    return problem([&](RunConfig& c) {
      c.training.cuda_graph_impl = "local";
      change(c);
    });
  };
  EXPECT_EQ(with([](RunConfig&) {}), "");
  EXPECT_EQ(with([](RunConfig& c) { c.optimizer.optimizer_cpu_offload = true; }), "");
  EXPECT_EQ(with([](RunConfig& c) { c.training.cuda_graph_modules = {"mlp", "attn"}; }), "");
  EXPECT_EQ(with([](RunConfig& c) { c.training.cuda_graph_modules = {"mlp"}; }),
            "--cuda-graph-modules 'mlp': --cuda-graph-impl local records whole layers: leave it "
            "out, or name attn and mlp");
  const auto expect = [&](const auto& change, const char* option) {
    const std::string text = with(change);
    EXPECT_NE(text.find("--cuda-graph-impl local"), std::string::npos) << option << ": " << text;
    EXPECT_NE(text.find(option), std::string::npos) << text;
  };
  expect([](RunConfig& c) { c.parallel.pipeline_schedule = "zb-h1"; }, "--pipeline-schedule zb-h1");
  expect([](RunConfig& c) { c.parallel.use_megatron_fsdp = true; },
         "--data-parallel-sharding-strategy optim_grads_params");
  expect(
      [](RunConfig& c) {
        c.model.fine_grained_activation_offloading = true;
        c.model.offload_modules = {"core_attn"};
      },
      "--fine-grained-activation-offloading");
  expect(
      [](RunConfig& c) {
        c.model.recompute_granularity = "full";
        c.model.recompute_method = "block";
        c.model.recompute_num_layers = 1;
      },
      "--recompute-granularity full");
  expect(
      [](RunConfig& c) {
        c.parallel.world_size = c.parallel.context_parallel_size = 2;
        c.training.global_batch_size = 2;
      },
      "--context-parallel-size 2");
}

TEST(Resolve, ProfileIsATraceIntoItsFolder) {
  RunConfig config = small();
  resolve(config);
  EXPECT_EQ(config.training.trace, "");
  config.training.profile = true;
  resolve(config);
  EXPECT_EQ(config.training.trace, "profile");
  config.training.trace = "elsewhere";
  resolve(config);
  EXPECT_EQ(config.training.trace, "elsewhere");
}

TEST(Resolve, MicroBatchesFillTheVirtualStages) {
  const auto with = [](std::int64_t micro_batches, std::int64_t group) {
    return problem([=](RunConfig& c) {
      c.parallel.world_size = c.parallel.pipeline_model_parallel_size = 2;
      c.parallel.num_virtual_stages_per_pipeline_rank = 2;
      c.parallel.microbatch_group_size_per_vp_stage = group;
      c.training.global_batch_size = micro_batches;
    });
  };
  EXPECT_EQ(with(4, 0), "");
  EXPECT_EQ(with(5, 3), "") << "the rest fills the pipeline";
  EXPECT_NE(with(3, 0).find("change --global-batch-size"), std::string::npos);
  EXPECT_NE(with(4, 3).find("the rest, 1,"), std::string::npos);
  EXPECT_NE(with(4, 1).find("is below --pipeline-model-parallel-size 2"), std::string::npos);
  EXPECT_NE(problem([](RunConfig& c) {
              c.parallel.world_size = c.parallel.pipeline_model_parallel_size = 2;
              c.parallel.num_virtual_stages_per_pipeline_rank = 2;
              c.parallel.pipeline_schedule = "zb-h1";
            }).find("--pipeline-schedule zb-h1"),
            std::string::npos);
}

TEST(Resolve, PipelineSchedules) {
  const auto with = [](const char* schedule, std::int64_t chunks, std::int64_t micro_batches) {
    return problem([=](RunConfig& c) {
      c.parallel.world_size = c.parallel.pipeline_model_parallel_size = 2;
      c.parallel.num_virtual_stages_per_pipeline_rank = chunks;
      c.parallel.pipeline_schedule = schedule;
      c.training.global_batch_size = micro_batches;
    });
  };
  for (const char* schedule : {"gpipe", "zb-h1", "zb-auto"}) {
    EXPECT_EQ(with(schedule, 1, 1), "") << "fewer micro-batches than stages";
  }
  EXPECT_EQ(with("gpipe", 2, 3), "") << "it needs no groups";
  EXPECT_NE(with("zb-auto", 2, 4).find("runs one stage a rank"), std::string::npos);
  const auto costs = [](std::vector<std::string> numbers) {
    return problem([&](RunConfig& c) {
      c.parallel.world_size = c.parallel.pipeline_model_parallel_size = 2;
      c.parallel.pipeline_schedule = "zb-auto";
      c.parallel.pipeline_schedule_costs = std::move(numbers);
    });
  };
  EXPECT_EQ(costs({"1", "1.5", "0.5", "0"}), "");
  EXPECT_NE(costs({"1", "1", "1"}).find("--pipeline-schedule-costs 1 1 1: expected four numbers"),
            std::string::npos);
  EXPECT_NE(costs({"1", "0", "1", "0"}).find("above 0"), std::string::npos);
  for (const char* send : {"-1", "none"}) {
    EXPECT_NE(costs({"1", "1", "1", send}).find("of sending, at least 0"), std::string::npos)
        << send;
  }
}

TEST(Resolve, RefusesWhatDoesNotDivide) {
  const auto tp = [](RunConfig& c, std::int64_t size) {
    c.parallel.world_size = c.parallel.tensor_model_parallel_size = size;
  };
  EXPECT_EQ(problem([](RunConfig& c) {
              c.parallel.world_size = c.parallel.pipeline_model_parallel_size = 3;
            }),
            "--num-layers 4 does not divide by --pipeline-model-parallel-size 3");
  EXPECT_NE(problem([&](RunConfig& c) {
              tp(c, 16);
            }).find("--num-attention-heads 8 does not divide by --tensor-model-parallel-size 16"),
            std::string::npos);
  EXPECT_EQ(
      problem([](RunConfig& c) { c.model.hidden_size = 60; }),
      "--hidden-size 60 does not divide by --num-attention-heads 8: change one of them or set "
      "--kv-channels");
  EXPECT_EQ(problem([](RunConfig& c) {
              c.parallel.world_size = 3, c.parallel.tensor_model_parallel_size = 2;
            }),
            "3 ranks do not divide by --tensor-model-parallel-size 2 x "
            "--pipeline-model-parallel-size 1 x --context-parallel-size 1: change the number of "
            "ranks (--world-size or the launcher's) or these sizes");
  EXPECT_EQ(
      problem([&](RunConfig& c) {
        tp(c, 4);
        c.model.group_query_attention = true;
        c.model.num_query_groups = 8;
        c.model.seq_length = 30;
        c.parallel.sequence_parallel = true;
      }),
      "--sequence-parallel: --seq-length 30 does not divide by --tensor-model-parallel-size 4");
  EXPECT_EQ(
      problem([&](RunConfig& c) {
        tp(c, 4);
        c.model.num_attention_heads = 24;
        c.model.kv_channels = 8;
        c.model.group_query_attention = true;
        c.model.num_query_groups = 6;
      }),
      "--num-query-groups 6 must be a multiple or a divisor of --tensor-model-parallel-size 4");
  EXPECT_EQ(problem([&](RunConfig& c) {
              tp(c, 4);
              c.model.group_query_attention = true;
              c.model.num_query_groups = 2;
            }),
            "");
  EXPECT_EQ(problem([](RunConfig& c) {
              c.model.group_query_attention = true;
              c.model.num_query_groups = 3;
            }).find("--num-attention-heads 8 does not divide by --num-query-groups 3"),
            0U);
  EXPECT_EQ(problem([](RunConfig& c) { c.model.seq_length = 65; }),
            "--seq-length 65 is longer than --max-position-embeddings 64");
  EXPECT_EQ(problem([](RunConfig& c) {
              c.parallel.world_size = 2;
              c.training.global_batch_size = 9;
              c.training.micro_batch_size = 2;
            }),
            "--global-batch-size 9 does not divide by --micro-batch-size 2 x data-parallel size 2; "
            "change "
            "it, or let --decrease-batch-size-if-needed lower it");
  EXPECT_EQ(problem([&](RunConfig& c) {
              tp(c, 2);
              c.model.ffn_hidden_size = 33;
            }),
            "--ffn-hidden-size 33 does not divide by --tensor-model-parallel-size 2");
  EXPECT_NE(problem([](RunConfig& c) {
              c.model.position_embedding_type = "rope";
              c.model.rotary_percent = 0.4;
            }).find("rotates 3 channels"),
            std::string::npos);
}

using Contradictions = std::vector<std::pair<std::function<void(RunConfig&)>, std::string>>;

void expect_refused(const Contradictions& cases) {
  for (const auto& [change, part] : cases) {
    const std::string message = problem(change);
    EXPECT_NE(message.find(part), std::string::npos) << part << " in: " << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

TEST(Resolve, RefusesContradictionsOfLengthAndSchedule) {
  expect_refused({
      {[](RunConfig& c) { c.training.train_iters = 0; }, "the length of the run is missing"},
      {[](RunConfig& c) { c.training.train_samples = 5; }, "exclude each other"},
      {[](RunConfig& c) { c.optimizer.lr = 0; }, "--lr is missing"},
      {[](RunConfig& c) { c.optimizer.min_lr = 1; }, "--min-lr 1 is above --lr 0.1"},
      {[](RunConfig& c) { c.optimizer.lr_warmup_init = 1; }, "--lr-warmup-init 1 is above"},
      {[](RunConfig& c) { c.optimizer.lr_warmup_iters = 11; },
       "--lr-warmup-iters 11 is above the decay of 10"},
      {[](RunConfig& c) {
         c.optimizer.lr_warmup_fraction = 0.1;
         c.optimizer.lr_warmup_iters = 1;
       },
       "--lr-warmup-fraction 0.1 and --lr-warmup-iters 1 exclude each other"},
      {[](RunConfig& c) { c.optimizer.lr_decay_samples = 5; },
       "--lr-decay-samples 5 cannot be mixed"},
      {[](RunConfig& c) {
         c.training.train_iters = 0;
         c.training.train_samples = 50;
         c.optimizer.lr_warmup_iters = 5;
       },
       "--lr-warmup-iters 5 cannot be mixed with --train-samples 50"},
      {[](RunConfig& c) { c.optimizer.lr_decay_style = "WSD"; }, "WSD needs --lr-wsd-decay-iters"},
      {[](RunConfig& c) {
         c.optimizer.lr_decay_style = "WSD";
         c.optimizer.lr_wsd_decay_iters = 11;
       },
       "--lr-wsd-decay-iters 11 is above the whole decay of 10"},
      {[](RunConfig& c) { c.optimizer.decoupled_min_lr = 0.1; },
       "--decoupled-min-lr needs --decoupled-lr"},
      {[](RunConfig& c) { c.optimizer.weight_decay_incr_style = "linear"; },
       "needs --start-weight-decay and --end-weight-decay"},
      {[](RunConfig& c) { c.optimizer.end_weight_decay = 1; }, "a constant weight decay is"},
  });
}

TEST(Resolve, RefusesContradictions) {
  expect_refused({
      {[](RunConfig& c) { c.optimizer.min_loss_scale = 1e12; },
       "--min-loss-scale 1000000000000 is above --initial-loss-scale 4294967296"},
      {[](RunConfig& c) { c.training.step_batch_size_schedule = "0:2 x"; },
       "'x' is no tokens:samples"},
      {[](RunConfig& c) {
         c.training.step_batch_size_schedule = "0:2 1000:4";
         c.training.global_batch_size = 2;
       },
       "--global-batch-size 2 and --step-batch-size-schedule \"0:2 1000:4\", which ends with 4"},
      {[](RunConfig& c) { c.training.eval_micro_batch_size = 3; },
       "--eval-global-batch-size 1 does not divide by --eval-micro-batch-size 3"},
      {[](RunConfig& c) { c.training.multiple_validation_sets = true; },
       "--multiple-validation-sets needs --valid-data-path"},
      {[](RunConfig& c) { c.data.validation_set_names = {"a"}; },
       "--validation-set-names has 1 names for 0 corpora"},
      {[](RunConfig& c) { c.data.train_data_path = {"a"}; }, "--data-path excludes"},
      {[](RunConfig& c) { c.data.data_path.clear(); }, "--data-path is missing"},
      {[](RunConfig& c) {
         c.data.tokenizer_type.clear();
         c.data.vocab_file.clear();
       },
       "--tokenizer-type GPT2BPETokenizer needs --vocab-file"},
      {[](RunConfig& c) { c.data.merge_file.clear(); }, "needs --merge-file"},
      {[](RunConfig& c) { c.data.vocab_file.clear(); }, "needs --vocab-file"},
      {[](RunConfig& c) { c.checkpoint.save = "x"; }, "--save 'x' needs --save-interval"},
      {[](RunConfig& c) {
         c.checkpoint.save = "x";
         c.checkpoint.save_interval = 4;
         c.checkpoint.save_retain_interval = 6;
       },
       "--save-retain-interval 6 does not divide by --save-interval 4"},
      {[](RunConfig& c) {
         c.optimizer.override_opt_param_scheduler = true;
         c.optimizer.use_checkpoint_opt_param_scheduler = true;
       },
       "exclude each other"},
      {[](RunConfig& c) { c.parallel.rank = 1; }, "--rank 1 must be from 0"},
      {[](RunConfig& c) { c.model.hidden_size = 1'000'000'000'000'000; }, "too large"},
      {[](RunConfig& c) { c.parallel.world_size = 1'000'000'000'000'000; }, "too large"},
      {[](RunConfig& c) { c.training.micro_batch_size = 1'000'000'000'000'000; }, "at most"},
      {[](RunConfig& c) { c.training.train_iters = 1'000'000'000'000'000; }, "too large"},
      {[](RunConfig& c) {
         c.model.hidden_size = 8;
         c.model.swiglu = true;
       },
       "set --ffn-hidden-size"},
  });
}

TEST(Resolve, AllProblemsAtOnceAndByPurpose) {
  const auto empty = [](RunConfig& c) { c = RunConfig{}; };
  const std::string train = problem(empty);
  for (const char* part :
       {"--num-layers is missing", "--hidden-size is missing", "--num-attention-heads is missing",
        "--seq-length is missing", "--max-position-embeddings is missing", "--lr is missing",
        "the length of the run", "--data-path", "--tokenizer-type"}) {
    EXPECT_NE(train.find(part), std::string::npos) << part;
  }
  EXPECT_EQ(problem(empty, Purpose::kModel).find("--lr is missing"), std::string::npos);
  EXPECT_NE(problem(empty, Purpose::kModel).find("--num-layers is missing"), std::string::npos);
}

TEST(LoadOptions, JoinsParsingAndResolving) {
  ParseRequest request;
  request.words = {"--num-layers", "x", "--hidden-size", "60", "--num-attention-heads", "8"};
  try {
    static_cast<void>(load_options(request));
    FAIL() << "no error";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("--num-layers 'x': expected an integer"), std::string::npos) << text;
    EXPECT_EQ(text.find("--num-layers is missing"), std::string::npos) << text;
    EXPECT_NE(text.find("--hidden-size 60 does not divide"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace pentatron::config
