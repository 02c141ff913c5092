// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <sstream>

#include "pentatron/base/safetensors.h"
#include "tests/functional/converted.h"
#include "tests/functional/tiny_run.h"

// Faults that users reported of checkpoints on several ranks: saves that are broken off, devices
// that are full, and weights that go to other formats and back. docs/public_faults.md lists them.
namespace pentatron::functional {
namespace {

namespace fs = std::filesystem;

struct Operation {
  std::string kind;  // write, sync, rename, unlink
  int number = 0;    // among those of its kind, from 1
  std::string path;
  [[nodiscard]] std::string fault() const { return kind + ":" + std::to_string(number); }
};

// What the log of a program's file operations tells.
std::vector<Operation> operations_in(const fs::path& log) {
  std::vector<Operation> operations;
  std::map<std::string, int> counts;
  std::istringstream lines(read_file(log));
  for (std::string kind, path; lines >> kind >> path;) {
    operations.push_back({kind, ++counts[kind], path});
  }
  return operations;
}

bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Two saves, of iterations 1 and 2.
Options two_saves(const fs::path& folder) {
  return resuming(base().with("--train-iters", 2), folder, 1);
}

ProgramResult train_with(const Options& options, const std::string& name,
                         const std::string& value) {
  ProgramRequest request;
  request.words = options.words("pretrain_gpt");
  request.environment = {{name, value}};
  return run_program(request);
}

// The operations of a run that two_saves() describes, index caches made before.
const std::vector<Operation>& operations_of_two_saves() {
  static const std::vector<Operation> kOperations = [] {
    EXPECT_TRUE(try_train(two_saves(new_folder())).program.ok());
    const fs::path log = new_folder() / "operations.log";
    const ProgramResult run =
        train_with(two_saves(new_folder()), "PENTATRON_FAULT_LOG", log.string());
    EXPECT_TRUE(run.ok()) << run.describe();
    return operations_in(log);
  }();
  return kOperations;
}

// Those of a kind whose path holds the text.
std::vector<Operation> operations_on(const std::string& kind, const std::string& text) {
  std::vector<Operation> found;
  for (const Operation& operation : operations_of_two_saves()) {
    if (operation.kind == kind && holds(operation.path, text)) found.push_back(operation);
  }
  EXPECT_FALSE(found.empty()) << "no " << kind << " of " << text;
  return found;
}

constexpr const char* kTracker = "latest_checkpointed_iteration.txt";
constexpr const char* kStopAt = "PENTATRON_FAULT_STOP_AT";
constexpr const char* kSecondSave = ".saving_iter_0000002";

void expect_whole(const fs::path& folder, int iteration) {
  const ProgramResult verified =
      call({"checkpoint", "verify", (folder / iteration_name(iteration)).string()});
  EXPECT_TRUE(verified.ok()) << verified.describe();
}

Options on_ranks(const Options& options, int ranks) {
  return options.with("--distributed-backend", "threads").with("--world-size", ranks);
}

// The losses of training that starts from an exported folder, on one rank and on two
// tensor-parallel ones.
void expect_same_from_folder(const Options& model, const fs::path& hf) {
  const Options tune = model.with("--finetune").with("--load", hf.string());
  const TinyRun one = train(tune);
  const TinyRun two = train(on_ranks(tune, 2).with("--tensor-model-parallel-size", 2));
  expect_same_losses(two, one, 1e-5);
}

// As many key heads as heads.
Options llama() {
  return small_llama().without("--group-query-attention").without("--num-query-groups");
}

}  // namespace

// The name of the newest moves last: behind everything that the checkpoint consists of.
TEST(Cases, KempnerForge_102) {
  const std::vector<Operation>& all = operations_of_two_saves();
  for (const char* iteration : {"iter_0000001", "iter_0000002"}) {
    std::size_t last_of_folder = 0, tracker = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (holds(all[i].path, iteration) && all[i].kind != "unlink") last_of_folder = i;
      if (holds(all[i].path, kTracker) && tracker < last_of_folder) tracker = i;
    }
    EXPECT_GT(tracker, last_of_folder) << iteration;
  }
  // Killed between the two, a run goes on from what the name says or from what is whole behind it.
  const fs::path folder = new_folder();
  const Operation renamed = operations_on("rename", "iter_0000002").front();
  const ProgramResult killed = train_with(two_saves(folder), kStopAt, renamed.fault());
  EXPECT_EQ(killed.signal, SIGKILL) << killed.describe();
  EXPECT_EQ(read_file(folder / kTracker).substr(0, 1), "1");
  expect_whole(folder, 1);
  EXPECT_TRUE(try_train(two_saves(folder)).program.ok());
  EXPECT_EQ(read_file(folder / kTracker).substr(0, 1), "2");
}

// One checkpoint is kept: killed at any write of the second save, the first is there and whole.
TEST(Cases, MegatronBridge_5184) {
  const std::vector<Operation> writes = operations_on("write", kSecondSave);
  for (const Operation& write : {writes.front(), writes[writes.size() / 2], writes.back()}) {
    const fs::path folder = new_folder();
    const Options run = two_saves(folder).with("--keep-checkpoints", 1);
    const ProgramResult killed = train_with(run, kStopAt, write.fault());
    EXPECT_EQ(killed.signal, SIGKILL) << killed.describe();
    EXPECT_EQ(saved_iterations(folder), (std::vector<int>{1})) << write.path;
    expect_whole(folder, 1);
  }
}

// TERM to the launcher while its ranks evaluate: passed on, one save, an end in good order.
TEST(Cases, MegatronLM_1376) {
  const fs::path folder = new_folder();
  const Options run = saving(base()
                                 .with("--exit-signal-handler")
                                 .with("--train-iters", 100000)
                                 .with("--eval-interval", 2)
                                 .with("--eval-iters", 300),
                             folder);
  ProgramRequest request;
  request.words = {"launch", "--nproc-per-node", "2"};
  const std::vector<std::string> command = run.words("pretrain_gpt");
  request.words.insert(request.words.end(), command.begin(), command.end());
  bool sent = false;
  std::chrono::steady_clock::time_point when;
  request.observe = [&](const RunningProgram& program) {
    // The evaluation follows this line.
    if (sent || !holds(program.out, "] iteration        2/")) return;
    sent = ::kill(program.pid, SIGTERM) == 0;
    when = std::chrono::steady_clock::now();
  };
  const ProgramResult ended = run_program(request);
  EXPECT_TRUE(sent);
  EXPECT_TRUE(ended.ok()) << ended.describe();
  EXPECT_LT(std::chrono::steady_clock::now() - when, std::chrono::seconds(30));
  EXPECT_EQ(count(ended.out, "[exiting program after receiving SIGTERM.] datetime:"), 1U)
      << ended.describe();
  const std::vector<int> saved = saved_iterations(folder);
  ASSERT_EQ(saved.size(), 1U);
  expect_whole(folder, saved[0]);
}

// The device of one of two processes is full: both fail, and say why.
TEST(Cases, Levanter_486) {
  const Options run = base().with("--train-iters", 2).with("--use-distributed-optimizer");
  // Rank 1 alone has the variable.
  const auto launched = [&](const fs::path& folder, const std::string& variable) {
    ProgramRequest request;
    request.words = {"launch",
                     "--nproc-per-node",
                     "2",
                     "sh",
                     "-c",
                     "if [ $RANK = 1 ]; then export " + variable + "; fi; exec \"$0\" \"$@\"",
                     std::getenv("PENTATRON_BIN")};
    const std::vector<std::string> command = saving(run, folder).words("pretrain_gpt");
    request.words.insert(request.words.end(), command.begin(), command.end());
    return run_program(request);
  };
  const fs::path log = new_folder() / "operations.log";
  const ProgramResult good = launched(new_folder(), "PENTATRON_FAULT_LOG=" + log.string());
  ASSERT_TRUE(good.ok()) << good.describe();
  std::string fault;
  for (const Operation& operation : operations_in(log)) {
    if (fault.empty() && operation.kind == "write" && holds(operation.path, ".saving_")) {
      fault = operation.fault();
    }
  }
  ASSERT_FALSE(fault.empty()) << "rank 1 writes nothing of the checkpoint";
  const fs::path folder = new_folder();
  const ProgramResult failed = launched(folder, "PENTATRON_FAULT_STOP_AT=error:" + fault);
  EXPECT_GT(failed.exit_code, 0) << failed.describe();
  EXPECT_FALSE(failed.timed_out);
  EXPECT_TRUE(holds(failed.err, "was not saved: rank 1: cannot")) << failed.describe();
  EXPECT_TRUE(holds(failed.err, "No space left on device")) << failed.describe();
  EXPECT_EQ(saved_iterations(folder), std::vector<int>{});
}

// A folder that a broken save left is no checkpoint, whatever its name; nor is a whole one that
// lost its mark.
TEST(Cases, Speculators_739) {
  const fs::path folder = new_folder();
  const Operation middle = operations_on("write", kSecondSave).back();
  const ProgramResult killed = train_with(two_saves(folder), kStopAt, middle.fault());
  EXPECT_EQ(killed.signal, SIGKILL) << killed.describe();
  // As a save in place would have left it: shards, and no manifest yet.
  fs::copy(folder / iteration_name(1), folder / iteration_name(2), fs::copy_options::recursive);
  ASSERT_TRUE(fs::remove(folder / iteration_name(2) / "manifest.json"));
  const TinyRun again = train(two_saves(folder));
  EXPECT_EQ(again.series("train", "iteration"), (std::vector<double>{2}));
  EXPECT_TRUE(holds(again.program.out + again.program.err, "iteration 1"))
      << again.program.describe();
}

// The device is full at the last save of a run: no success.
TEST(Cases, SagemakerTrainingToolkit_204) {
  const fs::path folder = new_folder();
  const Operation write = operations_on("write", kSecondSave).back();
  const ProgramResult failed = train_with(two_saves(folder), kStopAt, "error:" + write.fault());
  expect_refusal(failed, 4, {"No space left on device"});
}

// The message has the reason and the path, and what was saved before is kept.
TEST(Cases, AwsomeDistributedAi_1225) {
  const fs::path folder = new_folder();
  const Operation write = operations_on("write", kSecondSave).front();
  const ProgramResult failed = train_with(two_saves(folder), kStopAt, "error:" + write.fault());
  expect_refusal(failed, 4, {"No space left on device", folder.string(), "rank 0"});
  EXPECT_EQ(saved_iterations(folder), (std::vector<int>{1}));
  expect_whole(folder, 1);
  const TinyRun rest = train(two_saves(folder));
  EXPECT_EQ(rest.series("train", "iteration"), (std::vector<double>{2}));
}

// A vocabulary of 67 that two ranks do not divide: padded for the run, true in files.
TEST(Cases, MegatronBridge_1331) {
  const Options model = base().with("--vocab-size", 66);
  const fs::path folder = new_folder();
  (void)train(saving(model, folder / "checkpoint"));
  ASSERT_TRUE(convert_export(folder / "checkpoint", folder / "hf").ok());
  expect_same_from_folder(model, folder / "hf");
  const ProgramResult imported = convert_import(folder / "hf", folder / "back");
  ASSERT_TRUE(imported.ok()) << imported.describe();
  std::size_t tables = 0;
  for (const auto& [name, shape] : saved_shapes(folder / "back", 0)) {
    if (!holds(name, "word_embeddings")) continue;
    ++tables;
    EXPECT_EQ(shape.at(0), 67) << name;
  }
  EXPECT_GT(tables, 0U);
}

// GPT-2 and Llama, converted: the losses and the likeliest tokens of the checkpoint, to the bit.
// (tools/reference/hugging_face_reference.py compares logits with another implementation's.)
TEST(Cases, Transformers_12004) {
  for (const Options& model : {base().with("--max-position-embeddings", 64), llama()}) {
    const fs::path folder = new_folder();
    (void)train(saving(model, folder / "checkpoint"));
    ASSERT_TRUE(convert_export(folder / "checkpoint", folder / "hf").ok());
    EXPECT_EQ(generated(folder / "hf"), generated(folder / "checkpoint"));
    const Options tune = model.with("--finetune");
    EXPECT_EQ(train(tune.with("--load", (folder / "hf").string())).losses(),
              train(tune.with("--load", (folder / "checkpoint").string())).losses());
  }
}

// Linear scaling of rotary positions goes both ways; a kind that is unknown is refused.
TEST(Cases, MegatronBridge_5097) {
  const Options scaled = llama().with("--rotary-seq-len-interpolation-factor", 4);
  const fs::path folder = new_folder();
  (void)train(saving(scaled, folder / "checkpoint"));
  ASSERT_TRUE(convert_export(folder / "checkpoint", folder / "hf").ok());
  nlohmann::json config = nlohmann::json::parse(read_file(folder / "hf/config.json"));
  EXPECT_EQ(config.at("rope_scaling").at("factor"), 4.0);
  ASSERT_TRUE(convert_import(folder / "hf", folder / "back").ok());
  EXPECT_EQ(generated(folder / "back"), generated(folder / "checkpoint"));
  ASSERT_TRUE(convert_export(folder / "back", folder / "again").ok());
  EXPECT_EQ(read_file(folder / "again/config.json"), read_file(folder / "hf/config.json"));
  config["rope_scaling"] = {{"rope_type", "sideways"}, {"factor", 4.0}};
  write_file(folder / "hf/config.json", config.dump());
  expect_refusal(convert_import(folder / "hf", folder / "never"), 8, {"sideways"});
}

// Imported and exported: the same tensors, names, dtypes and config.json.
TEST(Cases, MsSwift_6056) {
  const fs::path folder = new_folder();
  (void)train(saving(llama(), folder / "checkpoint"));
  ASSERT_TRUE(convert_export(folder / "checkpoint", folder / "hf").ok());
  ASSERT_TRUE(convert_import(folder / "hf", folder / "back").ok());
  ASSERT_TRUE(convert_export(folder / "back", folder / "again").ok());
  for (const char* file : {"model.safetensors", "config.json"}) {
    EXPECT_EQ(read_file(folder / "again" / file), read_file(folder / "hf" / file)) << file;
  }
}

// Layers of the second stage have the numbers that they have in the whole model.
TEST(Cases, Transformers_24381) {
  const Options model = base().with("--num-layers", 4);
  const fs::path folder = new_folder();
  (void)train(
      saving(on_ranks(model, 2).with("--pipeline-model-parallel-size", 2), folder / "stages"));
  ASSERT_TRUE(convert_export(folder / "stages", folder / "hf").ok());
  const Options tune = model.with("--finetune");
  EXPECT_EQ(train(tune.with("--load", (folder / "hf").string())).losses(),
            train(tune.with("--load", (folder / "stages").string())).losses());
  const SafetensorsFile file(folder / "hf" / "model.safetensors");
  std::map<std::string, int> layers;
  for (const auto& [name, place] : file.header().entries) {
    for (int layer = 0; layer < 4; ++layer) {
      if (holds(name, "h." + std::to_string(layer) + ".")) ++layers[std::to_string(layer)];
    }
  }
  EXPECT_EQ(layers.size(), 4U);
  for (const auto& [layer, tensors] : layers) EXPECT_EQ(tensors, layers["0"]) << layer;
}

// Norms that two ranks hold (equal to the bit: MegatronLM_1446) stand once in a checkpoint, whole,
// so that nothing has to choose between copies. (A manifest with two is refused: checkpoint_test.)
TEST(Cases, MegatronLM_383) {
  const fs::path folder = new_folder();
  const Options all = base().with("--lr-decay-iters", 5);
  const Options two =
      on_ranks(all, 2).with("--tensor-model-parallel-size", 2).with("--sequence-parallel");
  (void)train(saving(two, folder));
  const nlohmann::json saved = manifest(folder, 3);
  std::size_t norms = 0;
  for (const nlohmann::json& tensor : saved.at("tensors")) {
    const auto name = tensor.at("name").get<std::string>();
    if (!holds(name, "norm")) continue;
    ++norms;
    EXPECT_EQ(tensor.at("slices").size(), 1U) << name;
  }
  EXPECT_GT(norms, 0U);
  // One rank and two go on from it alike.
  const Options more = all.with("--train-iters", 5).with("--load", folder.string());
  const TinyRun one = train(more);
  EXPECT_EQ(one.losses().size(), 2U);
  expect_same_losses(train(two.with("--train-iters", 5).with("--load", folder.string())), one,
                     1e-5);
}

// Fused projections are split by their parts, not by plain chunks: q, k and v one after another
// (GPT-2), and taking turns by heads (GPT-NeoX).
TEST(Cases, MegatronLM_1989) {
  const Options gpt2 = base().with("--num-attention-heads", 4);
  const Options neox = gpt2.with("--position-embedding-type", "rope")
                           .with("--rotary-percent", "0.5")
                           .with("--parallel-attention", "own-norms")
                           .with("--untie-embeddings-and-output-weights");
  for (const auto& [model, family] : {std::pair{gpt2, "gpt2"}, {neox, "gpt_neox"}}) {
    const fs::path folder = new_folder();
    (void)train(saving(model, folder / "checkpoint"));
    const ProgramResult exported = convert_export(folder / "checkpoint", folder / "hf");
    ASSERT_TRUE(exported.ok()) << exported.describe();
    EXPECT_TRUE(holds(exported.out, std::string("family ") + family)) << exported.out;
    expect_same_from_folder(model, folder / "hf");
  }
}

}  // namespace pentatron::functional
