// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/train_state.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "pentatron/base/test_support.h"
#include "pentatron/config/option_table.h"

namespace pentatron::training {
namespace {

TrainState example() {
  return {.iteration = 7,
          .consumed_train_samples = 1LL << 53,
          .consumed_valid_samples = 3,
          .num_updates = 6,
          .scheduler_samples = 48,
          .skipped_train_samples = 8,
          .skipped_iterations = 1,
          .nan_iterations = 2,
          .loss_scaler = {.scale = 0.1, .good_steps = 5, .hysteresis_left = -3},
          .largest_loss = 1.0 / 3,
          .largest_grad_norm = 7,
          .data_identity = "ab\"cd",
          .model = R"({"hidden_size":64})",
          .run = R"({"seed":1})",
          .schedule = R"({"max_lr":0.1})",
          .tokenizer = "ef"};
}

TEST(TrainState, RoundTrip) {
  const TrainState state = example();
  const TrainState read = parse_train_state(to_json_text(state));
  EXPECT_EQ(read.iteration, state.iteration);
  EXPECT_EQ(read.consumed_train_samples, state.consumed_train_samples);
  EXPECT_EQ(read.consumed_valid_samples, state.consumed_valid_samples);
  EXPECT_EQ(read.num_updates, state.num_updates);
  EXPECT_EQ(read.skipped_iterations, state.skipped_iterations);
  EXPECT_EQ(read.nan_iterations, state.nan_iterations);
  EXPECT_EQ(read.scheduler_samples, state.scheduler_samples);
  EXPECT_EQ(read.skipped_train_samples, state.skipped_train_samples);
  EXPECT_EQ(read.loss_scaler, state.loss_scaler);
  EXPECT_EQ(read.largest_loss, state.largest_loss);
  EXPECT_EQ(read.largest_grad_norm, state.largest_grad_norm);
  EXPECT_EQ(read.data_identity, state.data_identity);
  EXPECT_EQ(read.model, state.model);
  EXPECT_EQ(read.run, state.run);
  EXPECT_EQ(read.schedule, state.schedule);
  EXPECT_EQ(read.tokenizer, state.tokenizer);
  EXPECT_EQ(to_json_text(read), to_json_text(state));
}

// Checkpoints of older versions do not know the contents of their data.
TEST(TrainState, F9_ContentsMayBeUnknown) {
  TrainState state = example();
  EXPECT_EQ(parse_train_state(to_json_text(state)).data_sampled, "");
  EXPECT_EQ(parse_train_state(to_json_text(state)).train_samples_asked, 0);
  state.data_sampled = "s";
  state.data_whole = "w";
  state.train_samples_asked = 48;
  const TrainState read = parse_train_state(to_json_text(state));
  EXPECT_EQ(read.data_sampled, "s");
  EXPECT_EQ(read.data_whole, "w");
  EXPECT_EQ(read.train_samples_asked, 48);
  EXPECT_EQ(to_json_text(read), to_json_text(state));
}

// Written only where epochs were appended, so that the state hashes of all other runs stay.
TEST(TrainState, F10_RemembersWhatWasPlannedBefore) {
  TrainState state = example();
  EXPECT_EQ(to_json_text(state).find("train_samples_before"), std::string::npos);
  state.train_samples_asked = 48;
  state.train_samples_before = {12, 30};
  state.data_identity_before = "not saved";
  const TrainState read = parse_train_state(to_json_text(state));
  EXPECT_EQ(read.train_samples_before, (std::vector<std::int64_t>{12, 30}));
  EXPECT_EQ(read.data_identity_before, "");
  EXPECT_EQ(to_json_text(read), to_json_text(state));
  for (const char* bad : {R"([])", R"([30,12])", R"([0])", R"(["12"])", R"(12)"}) {
    nlohmann::json json = nlohmann::json::parse(to_json_text(state));
    json["train_samples_before"] = nlohmann::json::parse(bad);
    EXPECT_THROW((void)parse_train_state(json.dump()), Error) << bad;
  }
}

TEST(TrainState, EveryFieldIsNeededAndChecked) {
  const nlohmann::json whole = nlohmann::json::parse(to_json_text(example()));
  ASSERT_EQ(whole.size(), 18U);
  const std::set<std::string> reals{"loss_scale", "largest_loss", "largest_grad_norm"};
  for (const auto& [name, value] : whole.items()) {
    nlohmann::json missing = whole;
    missing.erase(name);
    expect_error(ErrorKind::kCheckpoint, name, [&] { (void)parse_train_state(missing.dump()); });
    // What a count or a text may not be.
    std::vector<nlohmann::json> wrong{nullptr, true, nlohmann::json::array()};
    if (value.is_number()) {
      for (const nlohmann::json& bad :
           {nlohmann::json(-1), nlohmann::json(1.5), nlohmann::json("3")}) {
        const bool may_be = (bad == 1.5 && reals.contains(name)) ||
                            (bad == -1 && name == "loss_scale_hysteresis_left");
        if (!may_be) wrong.push_back(bad);
      }
    } else {
      wrong.push_back(3);
    }
    for (const nlohmann::json& bad : wrong) {
      nlohmann::json damaged = whole;
      damaged[name] = bad;
      expect_error(ErrorKind::kCheckpoint, "training state",
                   [&] { (void)parse_train_state(damaged.dump()); });
    }
  }
}

TEST(TrainState, TextsThatAreNoStateAreRefused) {
  const std::string text = to_json_text(example());
  // Cut anywhere, it is no state any more.
  for (std::size_t length = 0; length < text.size(); ++length) {
    expect_error(ErrorKind::kCheckpoint, "training state",
                 [&] { (void)parse_train_state(text.substr(0, length)); });
  }
  for (const char* other : {"null", "[]", "3", "\"x\"", "{}", "\xff\xfe"}) {
    expect_error(ErrorKind::kCheckpoint, "training state", [&] { (void)parse_train_state(other); });
  }
}

TEST(TrainState, DifferencesAreNamedFieldByField) {
  EXPECT_EQ(json_differences(R"({"a":1,"b":"x"})", R"({"b":"x","a":1})"), "");
  EXPECT_EQ(json_differences(R"({"hidden_size":64,"same":1,"seed":1})",
                             R"({"hidden_size":128,"same":1,"seed":2})"),
            "hidden_size 64 in the checkpoint, 128 asked; seed 1 in the checkpoint, 2 asked");
  // A field that only one side has.
  EXPECT_EQ(json_differences(R"({"old":true})", R"({"new":"x"})"),
            "new null in the checkpoint, \"x\" asked; old true in the checkpoint, null asked");
  expect_error(ErrorKind::kCheckpoint, "no JSON object", [] { (void)json_differences("{", "{}"); });
  expect_error(ErrorKind::kCheckpoint, "no JSON object",
               [] { (void)json_differences("[1]", "{}"); });
}

// A checkpoint of a version without the option goes on where it is not given, and only there.
TEST(TrainState, OptionsYoungerThanTheCheckpointWereNotGiven) {
  const config::RunConfig born;
  config::RunConfig asked;
  asked.model.hidden_size = 64;
  const std::string younger = "\"add_mlp_bias\":false,";
  std::string saved = model_identity(asked);
  ASSERT_NE(saved.find(younger), std::string::npos) << saved;
  saved.erase(saved.find(younger), younger.size());
  const std::string filled = with_later_options(saved, model_identity(born));
  EXPECT_EQ(json_differences(filled, model_identity(asked)), "");
  asked.model.add_mlp_bias = true;
  EXPECT_EQ(json_differences(filled, model_identity(asked)),
            "add_mlp_bias false in the checkpoint, true asked");
  // What the checkpoint says stays.
  EXPECT_NE(json_differences(filled, model_identity(born)).find("hidden_size 64"),
            std::string::npos);
}

TEST(TrainState, ModelIdentityHoldsWhatChangesTheRun) {
  const config::RunConfig base;
  const auto changed = [&base](auto&& change) {
    config::RunConfig config = base;
    change(config.model);
    return json_differences(model_identity(base), model_identity(config));
  };
  EXPECT_EQ(changed([](auto&) {}), "");
  EXPECT_NE(changed([](auto& m) { m.hidden_size = 8; }).find("hidden_size 0"), std::string::npos);
  EXPECT_NE(changed([](auto& m) { m.num_query_groups = 2; }), "");
  EXPECT_NE(changed([](auto& m) { m.swiglu = true; }), "");
  EXPECT_NE(changed([](auto& m) { m.layernorm_epsilon = 1e-6; }), "");
  // Layout's padding is no part of the model; seed and dropout are the run's.
  EXPECT_EQ(changed([](auto& m) { m.padded_vocab_size = 1024; }), "");
  EXPECT_EQ(changed([](auto& m) { m.hidden_dropout = 0.2; }), "");
  EXPECT_EQ(changed([](auto& m) { m.seed = 1; }), "");
}

TEST(TrainState, RunIdentityHoldsSeedDropoutAndPrecision) {
  const config::RunConfig base;
  const auto changed = [&base](auto&& change) {
    config::RunConfig config = base;
    change(config);
    return json_differences(run_identity(base), run_identity(config));
  };
  EXPECT_EQ(changed([](auto&) {}), "");
  EXPECT_EQ(changed([](auto& c) { c.model.seed = 1; }), "seed 1234 in the checkpoint, 1 asked");
  EXPECT_EQ(changed([](auto& c) { c.model.hidden_dropout = 0.5; }),
            "hidden_dropout 0.1 in the checkpoint, 0.5 asked");
  EXPECT_NE(changed([](auto& c) { c.model.attention_dropout = 0.5; }), "");
  EXPECT_NE(changed([](auto& c) { c.training.precision = "bf16"; }), "");
  EXPECT_EQ(changed([](auto& c) { c.parallel.tensor_model_parallel_size = 2; }), "");
}

// An option that the schedule's text forgot would change a resumed run without a word.
TEST(TrainState, ScheduleIdentityHoldsEveryOptionOfItsClass) {
  config::RunConfig base;
  base.training.global_batch_size = 8;
  base.training.train_iters = 100;
  base.optimizer.optimizer = "muon";
  base.optimizer.use_precision_aware_optimizer = true;
  base.optimizer.lr_decay_style = "WSD";
  base.optimizer.weight_decay_incr_style = "linear";
  int num_fields = 0;
  for (const config::ConfigField& field : config::config_fields()) {
    if (field.resume != config::Resume::kSchedule) continue;
    ++num_fields;
    // What another optimizer has is part of its schedules alone.
    base.optimizer.optimizer = field.name.starts_with("soap_") ? "soap" : "muon";
    config::RunConfig config = base;
    config::OptionValue value = field.binding.get(config);
    if (auto* flag = std::get_if<bool>(&value)) {
      *flag = !*flag;
    } else if (auto* integer = std::get_if<std::int64_t>(&value)) {
      *integer += 7;
    } else if (auto* text = std::get_if<std::string>(&value)) {
      *text = field.name == "optimizer"            ? "lion"
              : field.name == "lr_wsd_decay_style" ? "cosine"
                                                   : "constant";
    } else {
      value = 0.375;
    }
    field.binding.set(config, value);
    EXPECT_NE(schedule_identity(config), schedule_identity(base)) << field.name;
  }
  EXPECT_GE(num_fields, 25);
}

TEST(TrainState, ASavedScheduleIsPutIntoAnotherConfig) {
  config::RunConfig saved;
  saved.training.global_batch_size = 8;
  saved.optimizer.lr = 0.5;
  saved.optimizer.min_lr = 0.25;
  saved.optimizer.lr_decay_style = "cosine";
  saved.optimizer.lr_warmup_init = 0.125;
  saved.optimizer.lr_warmup_iters = 10;
  saved.optimizer.lr_decay_iters = 100;
  saved.optimizer.weight_decay = 0.75;
  saved.optimizer.lr_decay_style = "WSD";
  saved.optimizer.lr_wsd_decay_style = "cosine";
  saved.optimizer.lr_wsd_decay_iters = 11;
  saved.optimizer.decoupled_lr = 3;
  saved.optimizer.decoupled_min_lr = 2;
  saved.optimizer.weight_decay_incr_style = "linear";
  saved.optimizer.start_weight_decay = 0.1;
  saved.optimizer.end_weight_decay = 0.2;
  for (const bool fraction : {false, true}) {
    if (fraction) {
      saved.optimizer.lr_warmup_iters = 0;
      saved.optimizer.lr_warmup_fraction = 0.5;
    }
    config::RunConfig config;
    config.training.global_batch_size = 8;
    config.optimizer.lr = 7;
    config.optimizer.lr_warmup_iters = 3;
    config.optimizer.lr_decay_iters = 50;
    apply_schedule(schedule_identity(saved), config);
    EXPECT_EQ(json_differences(schedule_identity(saved), schedule_identity(config)), "");
  }
  for (const char* damaged : {"", "{", "[]", "{}", R"({"max_lr":"x"})"}) {
    config::RunConfig config;
    expect_error(ErrorKind::kCheckpoint, "", [&] { apply_schedule(damaged, config); });
  }
}

TEST(TrainState, WithoutTheScheduleTheRestIsStillCompared) {
  config::RunConfig a;
  a.training.global_batch_size = 8;
  config::RunConfig b = a;
  b.optimizer.lr = 1;
  b.optimizer.min_lr = 0.5;
  b.optimizer.lr_decay_style = "WSD";
  b.optimizer.lr_warmup_init = 0.1;
  b.optimizer.lr_warmup_samples = 3;
  b.optimizer.lr_warmup_fraction = 0.1;
  b.optimizer.lr_decay_samples = 50;
  b.optimizer.weight_decay = 0.5;
  b.optimizer.lr_wsd_decay_style = "linear";
  b.optimizer.lr_wsd_decay_samples = 5;
  b.optimizer.decoupled_lr = 2;
  b.optimizer.decoupled_min_lr = 1;
  const auto rest = [](const config::RunConfig& c) {
    return without_schedule_keys(schedule_identity(c));
  };
  EXPECT_NE(schedule_identity(a), schedule_identity(b));
  EXPECT_EQ(rest(a), rest(b));
  b.optimizer.clip_grad = 3;
  EXPECT_EQ(json_differences(rest(a), rest(b)), "clip_grad 1.0 in the checkpoint, 3.0 asked");
  expect_error(ErrorKind::kCheckpoint, "no JSON object", [] { (void)without_schedule_keys("{"); });
}

TEST(TrainState, ScheduleIdentityCountsInSamples) {
  config::RunConfig in_iterations;
  in_iterations.training.global_batch_size = 8;
  in_iterations.optimizer.lr_decay_iters = 100;
  in_iterations.optimizer.lr_warmup_iters = 10;
  config::RunConfig in_samples = in_iterations;
  in_samples.optimizer.lr_decay_iters = in_samples.optimizer.lr_warmup_iters = 0;
  in_samples.optimizer.lr_decay_samples = 800;
  in_samples.optimizer.lr_warmup_samples = 80;
  EXPECT_EQ(schedule_identity(in_iterations), schedule_identity(in_samples));
  in_samples.optimizer.adam_eps = 1e-6;
  EXPECT_NE(json_differences(schedule_identity(in_iterations), schedule_identity(in_samples))
                .find("adam_eps"),
            std::string::npos);
}

TEST(TrainState, A14_ContradictionsAreRefused) {
  const auto refused = [](const TrainState& state) {
    try {
      static_cast<void>(parse_train_state(to_json_text(state)));
      return false;
    } catch (const Error& error) {
      return error.kind() == ErrorKind::kCheckpoint &&
             std::string(error.what()).find("contradicts itself") != std::string::npos;
    }
  };
  EXPECT_FALSE(refused(example()));
  TrainState few = example();
  few.iteration = 8;
  few.consumed_train_samples = 3;
  EXPECT_TRUE(refused(few));
  TrainState many = example();
  many.num_updates = many.iteration + 1;
  EXPECT_TRUE(refused(many));
  TrainState fast = example();
  fast.scheduler_samples = fast.consumed_train_samples + 1;
  EXPECT_TRUE(refused(fast));
}

}  // namespace
}  // namespace pentatron::training
