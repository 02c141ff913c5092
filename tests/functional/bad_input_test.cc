// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>

#include "pentatron/datasets/indexed_dataset_writer.h"
#include "tests/functional/tiny_run.h"

// What a user can get wrong or meet: one clear message, an exit code by kind, nothing partial under
// a final name, no hang.
namespace pentatron::functional {
namespace {

namespace fs = std::filesystem;

// A complaint is one logged error; usage or stack traces beside it would bury it.
void expect_one_message(const ProgramResult& result) {
  const std::size_t last = count("\n" + result.err, "\nerror: ");
  EXPECT_EQ(count(result.err, "[error]") + last, 1U) << result.describe();
  EXPECT_EQ(count(result.err, "bug of pentatron"), 0U) << result.describe();
}

void expect_complaint(const ProgramResult& result, int exit_code,
                      const std::vector<std::string>& parts) {
  expect_refusal(result, exit_code, parts);
  expect_one_message(result);
}

// Nothing that looks finished, or is left over from trying.
void expect_nothing_saved(const fs::path& folder) {
  if (!fs::exists(folder)) return;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    EXPECT_FALSE(name.starts_with("iter_")) << entry.path();
    EXPECT_NE(name, "latest_checkpointed_iteration.txt") << entry.path();
  }
}

// A TCP port that somebody else listens on.
class TakenPort final {
 public:
  TakenPort() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    socklen_t length = sizeof(address);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    good_ = ::bind(fd_, generic, length) == 0 && ::listen(fd_, 1) == 0 &&
            ::getsockname(fd_, generic, &length) == 0;
    number_ = ntohs(address.sin_port);
  }
  ~TakenPort() { ::close(fd_); }
  TakenPort(const TakenPort&) = delete;
  TakenPort& operator=(const TakenPort&) = delete;
  [[nodiscard]] bool good() const { return good_; }
  [[nodiscard]] std::string number() const { return std::to_string(number_); }

 private:
  int fd_;
  bool good_ = false;
  int number_ = 0;
};

// A real device of 64 kB, where the system lets this process mount one.
class TinyDevice final {
 public:
  explicit TinyDevice(const fs::path& folder) : folder_(folder) {
    mounted_ = ::mount("tmpfs", folder_.c_str(), "tmpfs", 0, "size=64k") == 0;
  }
  ~TinyDevice() {
    if (mounted_) ::umount(folder_.c_str());
  }
  TinyDevice(const TinyDevice&) = delete;
  TinyDevice& operator=(const TinyDevice&) = delete;
  [[nodiscard]] bool mounted() const { return mounted_; }

 private:
  fs::path folder_;
  bool mounted_ = false;
};

std::string copy_corpus() {
  const std::string prefix = (new_folder() / "copy").string();
  for (const char* extension : {".bin", ".idx"}) {
    fs::copy_file(corpus(0) + extension, prefix + extension);
  }
  return prefix;
}

fs::path trained() {
  static const fs::path kFolder = [] {
    const fs::path made = new_folder();
    const TinyRun run = train(saving(base(), made));
    return made;
  }();
  return kFolder;
}

fs::path copy_of_trained() {
  const fs::path folder = new_folder() / "copy";
  fs::copy(trained(), folder, fs::copy_options::recursive);
  return folder;
}

}  // namespace

TEST(BadInput, MissingFile) {
  const std::string prefix = (new_folder() / "nothing").string();
  const TinyRun run = try_train(base().with("--data-path", prefix));
  expect_complaint(run.program, kExitIo, {prefix});
  const std::string text = (new_folder() / "no.jsonl").string();
  expect_complaint(call({"preprocess_data", "--input", text, "--output-prefix", prefix,
                         "--tokenizer-type", "NullTokenizer", "--vocab-size", "63"}),
                   kExitIo, {text});
  EXPECT_FALSE(fs::exists(prefix + "_text_document.bin"));
  expect_complaint(call({"inspect_dataset", prefix}), kExitIo, {prefix});
  expect_complaint(call({"plot", text, "--output", prefix + ".svg"}), kExitIo, {text});
  EXPECT_FALSE(fs::exists(prefix + ".svg"));
  expect_complaint(call({"checkpoint", "verify", prefix}), kExitCheckpoint, {prefix});
  expect_complaint(call({"generate", "--load", prefix, "--prompt", "1 2"}), kExitCheckpoint,
                   {prefix});
}

TEST(BadInput, UnreadableFolder) {
  // A folder below a file can be neither made nor read by anyone.
  const fs::path file = new_folder() / "file";
  write_file(file, "no folder");
  const fs::path below = file / "checkpoints";
  const TinyRun saved = try_train(saving(base(), below));
  expect_complaint(saved.program, kExitIo, {below.string()});
  EXPECT_EQ(read_file(file), "no folder");
  expect_complaint(try_train(base().with("--data-path", (file / "corpus").string())).program,
                   kExitIo, {(file / "corpus").string()});

  // A folder without rights, for a user who is not root.
  const fs::path locked = new_folder() / "locked";
  fs::create_directories(locked);
  fs::permissions(locked, fs::perms::none);
  const bool root = ::geteuid() == 0;
  const ProgramResult denied = run_program(
      {.words = {"checkpoint", "verify", (locked / "run").string()}, .as_nobody = root});
  fs::permissions(locked, fs::perms::owner_all);
  EXPECT_TRUE(denied.exit_code == kExitIo || denied.exit_code == kExitCheckpoint)
      << denied.describe();
  EXPECT_NE(denied.err.find(locked.string()), std::string::npos) << denied.describe();
}

TEST(BadInput, DiskFull) {
  // The device reports its end at the n-th write; the older checkpoint stays the good one.
  for (const int n : {1, 2, 3, 4}) {
    const fs::path folder = copy_of_trained();
    const Options more = resuming(base().with("--train-iters", 5), folder)
                             .with("--override-opt_param-scheduler")
                             .without("--metrics-file");
    ProgramRequest request;
    request.environment = {{"PENTATRON_FAULT_STOP_AT", "error:write:" + std::to_string(n)}};
    request.words = more.words("pretrain_gpt");
    const ProgramResult full = run_program(request);
    if (full.ok()) break;  // fewer writes than n in the whole run
    expect_complaint(full, kExitIo, {"No space left on device"});
    EXPECT_EQ(saved_iterations(folder), (std::vector<int>{3})) << "write " << n;
    EXPECT_EQ(state_hash(folder), state_hash(trained()));
    const TinyRun again = train(more);
    EXPECT_EQ(saved_iterations(folder), (std::vector<int>{3, 5}));
  }
  const fs::path device = new_folder();
  const TinyDevice tiny(device);
  if (!tiny.mounted()) {
    std::cout << "note: no right to mount a tiny file system, the simulated device alone\n";
    return;
  }
  const TinyRun run = try_train(saving(base(), device / "checkpoints"));
  // Known before the first step.
  expect_complaint(run.program, kExitIo, {"its file system has room for", device.string()});
  EXPECT_TRUE(run.iteration_lines().empty());
  expect_nothing_saved(device / "checkpoints");
}

TEST(BadInput, CorpusOfZeroDocuments) {
  const std::string prefix = (new_folder() / "empty").string();
  datasets::IndexedDatasetWriter writer(prefix, datasets::TokenDtype::kUint16);
  writer.finish();
  expect_complaint(try_train(base().with("--data-path", prefix)).program, kExitData, {prefix});

  const fs::path folder = new_folder();
  write_file(folder / "empty.jsonl", "\n\n");
  const std::string out = (folder / "out").string();
  expect_complaint(
      call({"preprocess_data", "--input", (folder / "empty.jsonl").string(), "--output-prefix", out,
            "--tokenizer-type", "NullTokenizer", "--vocab-size", "63"}),
      kExitData, {"no document"});
  EXPECT_FALSE(fs::exists(out + "_text_document.bin"));
  EXPECT_FALSE(fs::exists(out + "_text_document.idx"));
}

TEST(BadInput, SequenceLongerThanPositions) {
  const fs::path folder = new_folder() / "checkpoints";
  const TinyRun run = try_train(saving(base().with("--seq-length", 24), folder));
  expect_complaint(run.program, kExitConfig, {"--seq-length 24", "--max-position-embeddings 16"});
  EXPECT_FALSE(fs::exists(folder));
}

TEST(BadInput, HeadsThatDoNotDivide) {
  expect_complaint(try_train(base().with("--num-attention-heads", 3)).program, kExitConfig,
                   {"--hidden-size 16", "--num-attention-heads 3", "--kv-channels"});
  const Options two = base().with("--distributed-backend", "threads").with("--world-size", 2);
  expect_complaint(
      try_train(two.with("--num-attention-heads", 1).with("--tensor-model-parallel-size", 2))
          .program,
      kExitConfig, {"--num-attention-heads 1", "--tensor-model-parallel-size 2"});
  // All problems at once, in one message.
  expect_complaint(
      try_train(base().with("--num-attention-heads", 3).with("--seq-length", 99).without("--lr"))
          .program,
      kExitConfig, {"--num-attention-heads 3", "--seq-length 99", "--lr is missing"});
}

TEST(BadInput, CheckpointOfAnotherModel) {
  const Options load = base().with("--load", trained().string());
  expect_complaint(try_train(load.with("--hidden-size", 32)).program, kExitCheckpoint,
                   {trained().string(), "hidden_size 16 in the checkpoint, 32 asked"});
  expect_complaint(try_train(load.with("--hidden-size", 32).with("--finetune")).program,
                   kExitCheckpoint, {"hidden_size 16 in the checkpoint, 32 asked"});
}

TEST(BadInput, TruncatedBin) {
  const std::string prefix = copy_corpus();
  fs::resize_file(prefix + ".bin", fs::file_size(prefix + ".bin") - 10);
  expect_complaint(try_train(base().with("--data-path", prefix)).program, kExitData,
                   {prefix, ".bin"});
  expect_complaint(call({"inspect_dataset", prefix}), kExitData, {prefix});
  fs::resize_file(prefix + ".idx", 20);
  expect_complaint(call({"inspect_dataset", prefix}), kExitData, {prefix + ".idx"});
}

TEST(BadInput, DamagedManifest) {
  const fs::path folder = copy_of_trained();
  const fs::path manifest = folder / iteration_name(3) / "manifest.json";
  const std::string good = read_file(manifest);
  std::string wrong = good;
  wrong.replace(wrong.find("\"iteration\":3"), 13, "\"iteration\":4");
  const std::string deep(100000, '[');
  for (const std::string& text : {wrong, good.substr(0, good.size() / 2), std::string(), deep}) {
    write_file(manifest, text);
    const TinyRun run = try_train(base().with("--load", folder.string()));
    expect_complaint(run.program, kExitCheckpoint, {folder.string()});
    EXPECT_TRUE(run.losses().empty());
    const ProgramResult verified = call({"checkpoint", "verify", manifest.parent_path().string()});
    EXPECT_EQ(verified.exit_code, kExitCheckpoint) << verified.describe();
    const ProgramResult spoken =
        call({"generate", "--load", manifest.parent_path().string(), "--prompt", "1 2"});
    EXPECT_EQ(spoken.exit_code, kExitCheckpoint) << spoken.describe();
  }
}

TEST(BadInput, VocabularyThatDoesNotMatch) {
  // The corpus holds tokens up to 63.
  const TinyRun small = try_train(base().with("--vocab-size", 31));
  expect_complaint(small.program, kExitData, {corpus(0), "--vocab-size"});
  const Options load = base().with("--load", trained().string());
  expect_complaint(try_train(load.with("--vocab-size", 99)).program, kExitCheckpoint,
                   {"vocab_size 64 in the checkpoint, 100 asked"});
}

TEST(BadInput, TakenPort) {
  const TakenPort port;
  ASSERT_TRUE(port.good());
  ProgramRequest alone;
  alone.environment = {{"RANK", "0"},
                       {"WORLD_SIZE", "2"},
                       {"LOCAL_RANK", "0"},
                       {"LOCAL_WORLD_SIZE", "2"},
                       {"MASTER_ADDR", "127.0.0.1"},
                       {"MASTER_PORT", port.number()}};
  alone.timeout = std::chrono::seconds(30);
  expect_complaint(try_train(base(), alone).program, kExitComm,
                   {port.number(), "--master-port", "MASTER_PORT"});

  std::vector<std::string> words{"launch",      "--nproc-per-node", "2", "--master-port",
                                 port.number(), "--grace-seconds",  "2"};
  const std::vector<std::string> run = base().words("pretrain_gpt");
  words.insert(words.end(), run.begin(), run.end());
  const ProgramResult launched = run_program({.words = words, .timeout = std::chrono::seconds(30)});
  expect_refusal(launched, kExitComm, {port.number()});
}

TEST(BadInput, RankThatDies) {
  std::vector<std::string> words{"launch", "--nproc-per-node", "2", "--grace-seconds", "5"};
  const fs::path folder = new_folder();
  const std::vector<std::string> run =
      saving(base().with("--train-iters", 1000000), folder).words("pretrain_gpt");
  words.insert(words.end(), run.begin(), run.end());
  std::vector<pid_t> ranks;
  std::chrono::steady_clock::time_point killed;
  const ProgramResult launched = run_program(
      {.words = words,
       .timeout = std::chrono::seconds(60),
       .observe = [&](const RunningProgram& program) {
         if (!ranks.empty() || program.out.find("] iteration        3/") == std::string::npos)
           return;
         ranks = children_of(program.pid);
         if (ranks.size() == 2) ::kill(ranks[0], SIGKILL);
         killed = std::chrono::steady_clock::now();
       }});
  ASSERT_EQ(ranks.size(), 2U);
  EXPECT_LT(std::chrono::steady_clock::now() - killed, std::chrono::seconds(20));
  expect_refusal(launched, 128 + SIGKILL, {"rank 0", "signal 9"});
  for (const pid_t rank : ranks) EXPECT_NE(::kill(rank, 0), 0) << "process " << rank << " lives on";
  expect_nothing_saved(folder);
}

}  // namespace pentatron::functional
