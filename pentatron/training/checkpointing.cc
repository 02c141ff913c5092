// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/checkpointing.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "pentatron/base/error.h"
#include "pentatron/base/log.h"
#include "pentatron/base/screen.h"
#include "pentatron/base/sha256.h"
#include "pentatron/checkpoint/open.h"
#include "pentatron/checkpoint/save_folder.h"
#include "pentatron/checkpoint/together.h"
#include "pentatron/checkpoint/writer.h"
#include "pentatron/config/adapter_names.h"
#include "pentatron/config/adapters.h"
#include "pentatron/config/config_json.h"
#include "pentatron/inference/hugging_face_model.h"
#include "pentatron/nn/optional_state.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/training/adapter_loading.h"
#include "pentatron/training/model_parts.h"

namespace pentatron::training {
namespace {

std::string layout_text(Engine& engine, comm::ParallelContext& context) {
  nlohmann::json json;
  // Fastest axis first: the order in which the ranks of each grid are numbered.
  const auto add_grid = [&](const comm::RankGrid& grid, const char* name) {
    for (const comm::Axis& axis : grid.axes()) {
      json["axes"][axis.name] = axis.size;
      json["order"][name].push_back(axis.name);
    }
  };
  add_grid(context.grids().dense, "dense");
  if (context.grids().expert) add_grid(*context.grids().expert, "expert");
  json["sequence_parallel"] = engine.config().parallel.sequence_parallel;
  json["use_distributed_optimizer"] = engine.config().parallel.use_distributed_optimizer;
  json["data_parallel_sharding"] =
      std::string(distributed::name_of(engine.optimizer().store(0).options().sharding));
  json["backend"] = context.backend().name();
  json["cpu_threads_per_rank"] = engine.config().parallel.cpu_threads_per_rank;
  json["precision"] = engine.config().training.precision;
  return json.dump();
}

bool same_folder(const std::string& a, const std::string& b) {
  if (a.empty() || b.empty()) return false;
  return std::filesystem::weakly_canonical(a) == std::filesystem::weakly_canonical(b);
}

// What is wanted of a checkpoint.
struct Wanted {
  bool weights_alone = false;  // --finetune
  bool adapters = true;        // false: they are new, and the checkpoint is of the model beneath
};

// The model in a checkpoint, which may be older than some of its options.
std::string held_model(const TrainState& saved) {
  return with_later_options(saved.model, model_identity(config::RunConfig()));
}

void check_schedule(const TrainState& saved, const TrainState& asked,
                    const config::OptimizerConfig& optimizer, const std::string& folder) {
  if (optimizer.override_opt_param_scheduler) return;
  // What --use-checkpoint-opt_param-scheduler does not take from the checkpoint.
  const std::string beside = json_differences(without_schedule_keys(saved.schedule),
                                              without_schedule_keys(asked.schedule));
  const bool from_checkpoint = optimizer.use_checkpoint_opt_param_scheduler;
  const std::string all = json_differences(saved.schedule, asked.schedule);
  const std::string& differences = from_checkpoint ? beside : all;
  const bool helps = beside.empty() && !from_checkpoint;
  PENTATRON_CHECK(differences.empty(), kCheckpoint,
                  "{} was trained with another schedule: {}. Give the same options, or "
                  "--override-opt_param-scheduler to go on with the new ones{}.",
                  folder, differences,
                  helps ? ", or --use-checkpoint-opt_param-scheduler for the checkpoint's learning "
                          "rate"
                        : "");
}

void check_matches(const Engine& engine, const TrainState& saved, const TrainState& asked,
                   const Wanted& wanted, const std::string& folder) {
  const auto compared = [&](const std::string& identity) {
    const std::string model = without_numerics(identity);
    return wanted.adapters ? model : without_adapter_options(model);
  };
  const std::string model = json_differences(compared(held_model(saved)), compared(asked.model));
  PENTATRON_CHECK(model.empty(), kCheckpoint,
                  "{} holds another model: {}. Give the options it was trained with.", folder,
                  model);
  if (wanted.weights_alone) return;
  const std::string run =
      json_differences(with_later_options(saved.run, run_identity(config::RunConfig())), asked.run);
  PENTATRON_CHECK(run.empty(), kCheckpoint,
                  "{} was trained otherwise: {}. Give the same options, or start a new run from "
                  "these weights with --finetune.",
                  folder, run);
  // Only evaluated on: the order of the training data and the learning rate do not matter.
  if (engine.config().training.skip_train) return;
  const bool longer = saved.train_samples_asked > 0 &&
                      asked.train_samples_asked > saved.train_samples_asked &&
                      !engine.config().data.append_epochs;
  const std::string length =
      longer ? fmt::format(
                   " The order was drawn for {} training samples, this run needs {}: without "
                   "--append-epochs a run cannot be made longer than the epochs it was planned "
                   "for. Give --append-epochs, which appends epochs to that order, or lower "
                   "--train-iters or --global-batch-size.",
                   saved.train_samples_asked, asked.train_samples_asked)
             : "";
  PENTATRON_CHECK(saved.data_identity == asked.data_identity ||
                      saved.data_identity == asked.data_identity_before,
                  kCheckpoint,
                  "{} was trained on other data or another order of it (files, --split, "
                  "--seq-length, --seed, --reset-*, --eod-mask-loss or the number of epochs "
                  "differ).{} Resume with the same, or start a new run from these weights with "
                  "--finetune.",
                  folder, length);
  // Of the same shape, so only the tokens can differ. Older checkpoints do not know their hash.
  const auto differ = [](const std::string& a, const std::string& b) {
    return !a.empty() && !b.empty() && a != b;
  };
  PENTATRON_CHECK(
      !differ(saved.data_sampled, asked.data_sampled) &&
          !differ(saved.data_whole, asked.data_whole),
      kCheckpoint,
      "{} was trained on other tokens: the .bin file of the training data has the size "
      "it had then, but other contents (hash {} then, {} now). Resume with the same "
      "file, or start a new run from these weights with --finetune.",
      folder, differ(saved.data_whole, asked.data_whole) ? saved.data_whole : saved.data_sampled,
      differ(saved.data_whole, asked.data_whole) ? asked.data_whole : asked.data_sampled);
  check_schedule(saved, asked, engine.config().optimizer, folder);
}

// Moments and the like: what a run can go on without.
bool is_optimizer_state(const optimizer::StateSlice& slice) {
  return slice.kind != "main_param" && slice.kind != "buffer";
}

std::string stored_kind(const optimizer::StateSlice& slice) {
  return slice.kind == "main_param" ? "param" : slice.kind;
}

// Fills a slice through read(tensor on the host). Weights under adapters have no main copy: where
// they are kept in 16 bits, what is stored in fp32 is rounded to them.
template <typename Read>
void read_slice(const Engine& engine, const optimizer::StateSlice& slice, const Read& read) {
  const bool narrow = engine.config().model.lora_rank > 0 && slice.kind == "main_param" &&
                      !config::is_adapter_name(slice.part->name) &&
                      tensor::item_bytes(slice.values.scalar_type()) == 2;
  if (narrow) {
    const Tensor wide = tensor::empty({slice.values.numel()}, tensor::parse_dtype("fp32"));
    read(wide);
    Tensor(slice.values).copy_(wide);
    return;
  }
  // The host's view of it: the same memory, or a copy that goes back to the device.
  const Tensor host = slice.values.cpu();
  read(host);
  if (!host.is_same(slice.values)) Tensor(slice.values).copy_(host);
}

// State that may be missing is, or is of another size.
bool begins_anew(const optimizer::StateSlice& slice, const checkpoint::CheckpointReader& reader,
                 const std::string& name) {
  if (!nn::is_optional_state(name)) return false;
  const auto& stored = reader.manifest().tensors;
  return std::none_of(stored.begin(), stored.end(), [&](const checkpoint::ManifestTensor& tensor) {
    return tensor.name == name && tensor.logical_shape == slice.part->logical_shape;
  });
}

// Fills the live state (weights, buffers, optimizer state if asked) from the checkpoint. True when
// optimizer state was there.
bool read_state(Engine& engine, checkpoint::CheckpointReader& reader, bool with_optimizer,
                bool with_adapters) {
  const auto slices = engine.state_slices(/*owner_only=*/false);
  bool complete = true;
  for (const optimizer::StateSlice& slice : slices) {
    const bool of_optimizer = is_optimizer_state(slice);
    if (of_optimizer && !with_optimizer) continue;
    if (!with_adapters && config::is_adapter_name(slice.part->name)) continue;
    const std::string name = stored_kind(slice) + "/" + slice.part->name;
    if (of_optimizer && !reader.has(name)) {
      complete = false;
      continue;
    }
    if (begins_anew(slice, reader, name)) continue;
    read_slice(engine, slice, [&](const Tensor& target) {
      reader.read(name, slice.part->logical_shape, slice.part->box, slice.box_begin, target);
    });
  }
  engine.optimizer().refresh_parameters();
  return complete;
}

bool has_adapters(const checkpoint::Manifest& manifest) {
  return std::any_of(manifest.tensors.begin(), manifest.tensors.end(), [](const auto& tensor) {
    return tensor.name.starts_with("param/") && config::is_adapter_name(tensor.name);
  });
}

ModelParts wanted_parts(Engine& engine, const Wanted& wanted) {
  ModelParts parts = model_parts(engine);
  if (wanted.adapters) return parts;
  std::erase_if(parts, [](const auto& part) { return config::is_adapter_name(part.first); });
  return parts;
}

// New adapters on weights that have just come: as they start, or as --lora-load has them.
void start_adapters(Engine& engine) {
  if (engine.config().model.lora_dora) engine.reset_magnitudes();
  if (!engine.config().checkpoint.lora_load.empty()) load_adapter(engine);
}

// Weights out of a Hugging Face folder, which --finetune starts from.
LoadResult load_hugging_face(Engine& engine, const TrainState& asked) {
  const std::string& folder = engine.config().checkpoint.load;
  const inference::HuggingFaceModel there = inference::open_hugging_face(folder);
  const config::ModelConfig mine = config::without_adapters(engine.config().model);
  const std::string differences = families::model_differences(there.config.model, mine);
  PENTATRON_CHECK(differences.empty(), kCheckpoint,
                  "{} holds another model than the options ask for (there, and here): {}. Leave "
                  "these options out, or give the values that are there.",
                  folder, differences);
  for (const optimizer::StateSlice& slice : engine.state_slices(/*owner_only=*/false)) {
    if (slice.kind != "main_param" || config::is_adapter_name(slice.part->name)) continue;
    read_slice(engine, slice, [&](const Tensor& target) {
      there.reader->read(slice.part->name, slice.part->logical_shape, slice.part->box,
                         slice.box_begin, target);
    });
  }
  engine.optimizer().refresh_parameters();
  start_adapters(engine);
  LoadResult result{.loaded = true, .state = asked};
  result.state.finetune = true;
  if (engine.context().rank() == engine.context().grid().world_size() - 1) {
    log::print_line(fmt::format(" loading weights from the Hugging Face folder {} ({})", folder,
                                there.reader->folder().description().family->name));
  }
  return result;
}

// --load names no checkpoint: allowed where --save names the same folder.
void start_from_scratch(const config::CheckpointConfig& options, bool is_logging_rank) {
  PENTATRON_CHECK(
      same_folder(options.load, options.save), kCheckpoint,
      "--load {}: no checkpoint there. Name the folder given to --save of the run to load.",
      options.load);
  PENTATRON_CHECK(!options.exit_on_missing_checkpoint, kCheckpoint,
                  "--load {}: no checkpoint there, and --exit-on-missing-checkpoint is set.",
                  options.load);
  PENTATRON_CHECK(options.lora_load.empty(), kCheckpoint,
                  "--lora-load {}: --load {} holds no weights for the adapter to stand on",
                  options.lora_load, options.load);
  if (!is_logging_rank) return;
  log::info("--load and --save name {}, where no checkpoint is yet: starting from scratch",
            options.load);
}

// After the weights: adapters that start anew, come from --lora-load, or came with the weights.
void read_adapters(Engine& engine, const Wanted& wanted, const std::string& folder,
                   bool is_logging_rank) {
  const std::string& asked = engine.config().checkpoint.lora_load;
  if (!wanted.adapters) {
    start_adapters(engine);
  } else if (!asked.empty() && wanted.weights_alone) {
    load_adapter(engine);
  } else if (!asked.empty() && is_logging_rank) {
    log::info("--lora-load: the run goes on with the adapters in {}", folder);
  }
}

// The same model, computed otherwise from here on.
void tell_other_numerics(const TrainState& saved, const TrainState& asked,
                         const std::string& folder) {
  const std::string differences =
      json_differences(numerics_alone(held_model(saved)), numerics_alone(asked.model));
  if (differences.empty()) return;
  log::warn(
      "{} was computed otherwise: {}. The run goes on as asked; what the scales of fp8 "
      "remember begins anew where it does not fit.",
      folder, differences);
}

// What of a checkpoint's state becomes the run's: all where it goes on, counters of updates and
// the loss scale with the optimizer alone.
void resume_state(Engine& engine, const TrainState& saved, const TrainState& asked, bool goes_on,
                  bool with_optimizer, TrainState& state) {
  const bool own_schedule = !engine.config().optimizer.use_checkpoint_opt_param_scheduler;
  if (goes_on) {
    state = saved;
    if (own_schedule) state.schedule = asked.schedule;
  }
  if (with_optimizer) {
    engine.optimizer().set_num_updates(saved.num_updates);
    engine.loss_scaler().restore(saved.loss_scaler);
    return;
  }
  // As Megatron: the schedule starts again with the optimizer, unless the checkpoint's is wanted.
  state.num_updates = 0;
  if (own_schedule) state.scheduler_samples = 0;
}

}  // namespace

ResumePoint resume_point(const config::CheckpointConfig& options) {
  if (options.load.empty() || families::is_hugging_face_folder(options.load)) return {};
  const checkpoint::Found found = checkpoint::find_checkpoint(options.load, options.ckpt_step);
  if (found.result != checkpoint::FindResult::kFound) return {};
  const checkpoint::CheckpointReader reader(found.folder);
  const TrainState saved = parse_train_state(reader.manifest().train_state);
  // As load_engine: --finetune begins anew, unless the run in this folder is the fine-tuning one.
  const bool own_run = saved.finetune && same_folder(options.load, options.save);
  if (options.finetune && !own_run) return {};
  std::vector<std::int64_t> planned = saved.train_samples_before;
  if (saved.train_samples_asked > 0) planned.push_back(saved.train_samples_asked);
  return {.iteration = saved.iteration,
          .consumed_samples = saved.consumed_train_samples,
          .train_samples_planned = std::move(planned)};
}

void check_same_data(comm::ParallelContext& context, const std::vector<DataFile>& files) {
  nlohmann::json mine = nlohmann::json::array();
  for (const DataFile& file : files) {
    mine.push_back({file.name, file.identity, file.sampled, file.whole});
  }
  const std::vector<std::string> all = comm::all_gather_bytes(context.world(), mine.dump());
  const auto files_of = [&](std::size_t rank) {
    return nlohmann::json::parse(all[rank]).get<std::vector<std::vector<std::string>>>();
  };
  const auto first = files_of(0);
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    const auto other = files_of(rank);
    PENTATRON_CHECK(other.size() == first.size(), kConfig,
                    "rank {} reads {} corpora, rank 0 reads {}: give all ranks the same options",
                    rank, other.size(), first.size());
    for (std::size_t i = 0; i < first.size(); ++i) {
      // Identity, sampled hash, whole hash; the last may be unknown to a rank.
      for (const std::size_t what : {1U, 2U, 3U}) {
        const std::string& first_hash = first[i][what];
        const std::string& other_hash = other[i][what];
        const bool unknown = what == 3 && (first_hash.empty() || other_hash.empty());
        const char* extension = what == 1 ? ".idx" : ".bin";
        PENTATRON_CHECK(unknown || first_hash == other_hash, kConfig,
                        "rank {} reads other data than rank 0: its {}{} differs from rank 0's {}{} "
                        "({} against {}); copy the same corpus to every machine",
                        rank, other[i][0], extension, first[i][0], extension, other_hash,
                        first_hash);
      }
    }
  }
}

void check_agreement(comm::ParallelContext& context, const std::string& mine, const char* what) {
  const std::vector<std::string> all = comm::all_gather_bytes(context.world(), mine);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    PENTATRON_CHECK(all[rank] == all[0], kConfig, "rank {} and rank 0 differ in {}: {} and {}",
                    rank, what, all[rank], all[0]);
  }
}

void check_room_for_save(Engine& engine) {
  const config::CheckpointConfig& options = engine.config().checkpoint;
  comm::Group& world = engine.context().world();
  double mine = 0;
  for (const optimizer::StateSlice& slice : engine.state_slices(/*owner_only=*/true)) {
    if (is_optimizer_state(slice) && options.no_save_optim) continue;
    mine +=
        static_cast<double>(slice.values.numel() * tensor::item_bytes(slice.values.scalar_type()));
  }
  const double bytes = comm::all_reduce_value(world, mine, comm::ReduceOp::kSum);
  (void)checkpoint::run_together(world, "", [&] {
    if (world.rank() == 0) {
      checkpoint::check_room(options.save, static_cast<std::uint64_t>(bytes));
    }
    return std::string();
  });
}

void save_engine(Engine& engine, const TrainState& state_without_scale,
                 std::int64_t protect_iteration, checkpoint::FolderLock* lock,
                 const std::vector<std::pair<std::string, std::string>>& tokenizer_files) {
  TrainState state = state_without_scale;
  state.loss_scaler = engine.loss_scaler().state();
  comm::ParallelContext& context = engine.context();
  const config::CheckpointConfig& options = engine.config().checkpoint;
  const bool is_logging_rank = context.rank() == context.grid().world_size() - 1;
  if (is_logging_rank) {
    log::print_line(fmt::format("saving checkpoint at iteration {:7d} to {} in safetensors format",
                                state.iteration, options.save));
  }
  // --save-retain-interval alone keeps its multiples and the newest.
  const bool only_multiples = options.keep_checkpoints == 0 && options.save_retain_interval > 0;
  const std::int64_t keep = only_multiples ? 1 : options.keep_checkpoints;
  checkpoint::SaveRequest request{.root = options.save,
                                  .iteration = state.iteration,
                                  .slices = {},
                                  .config = config::to_json(engine.config()),
                                  .layout = layout_text(engine, context),
                                  .train_state = to_json_text(state),
                                  .tokenizer_files = tokenizer_files,
                                  .keep_checkpoints = keep,
                                  .save_retain_interval = options.save_retain_interval,
                                  .protect_iteration = protect_iteration,
                                  .lock = lock};
  for (const optimizer::StateSlice& slice : engine.state_slices(/*owner_only=*/true)) {
    if (is_optimizer_state(slice) && options.no_save_optim) continue;
    request.slices.push_back({.kind = stored_kind(slice),
                              .part = slice.part,
                              .box_begin = slice.box_begin,
                              .values = slice.values.cpu()});
  }
  const checkpoint::SaveResult result = checkpoint::save_checkpoint(request, context.world());
  if (is_logging_rank) {
    log::print_line(
        fmt::format("  successfully saved checkpoint from iteration {:7d} to {} [ t {}/{}, "
                    "gtp_remat 1/1, p {}/{} ]",
                    state.iteration, options.save, context.coordinate("tp") + 1, context.size("tp"),
                    context.coordinate("pp") + 1, context.size("pp")));
    if (!screen::is_terse()) {
      log::info("saved {:.1f} MB in {:.2f} s", static_cast<double>(result.bytes) / 1e6,
                result.seconds);
    }
  }
}

LoadResult load_engine(Engine& engine, const TrainState& asked) {
  LoadResult result;
  result.state = asked;
  const config::CheckpointConfig& options = engine.config().checkpoint;
  if (options.load.empty()) return result;
  if (families::is_hugging_face_folder(options.load)) return load_hugging_face(engine, asked);
  const bool is_logging_rank = engine.context().rank() == engine.context().grid().world_size() - 1;
  // Scratch or not, what is saved from here on belongs to a fine-tuning run.
  result.state.finetune = options.finetune;
  const checkpoint::OpenedCheckpoint opened =
      checkpoint::open_checkpoint(options.load, options.ckpt_step, engine.context().world());
  const checkpoint::Found& found = opened.found;
  const bool there = found.result == checkpoint::FindResult::kFound;
  if (!there) {
    start_from_scratch(options, is_logging_rank);
    return result;
  }
  if (!found.note.empty() && is_logging_rank) log::warn("{}", found.note);
  if (is_logging_rank) {
    log::print_line(fmt::format(" loading distributed checkpoint from {} at iteration {}",
                                options.load, found.iteration));
  }
  checkpoint::CheckpointReader& reader = *opened.reader;
  const TrainState saved = parse_train_state(reader.manifest().train_state);
  PENTATRON_CHECK(saved.iteration == reader.manifest().iteration, kCheckpoint,
                  "{}: the manifest is of iteration {}, its training state of {}",
                  found.folder.string(), reader.manifest().iteration, saved.iteration);
  check_agreement(engine.context(), sha256_hex(reader.manifest().train_state),
                  "the training state in the checkpoint (is --load the same folder everywhere?)");
  // Restarted, --finetune with one folder for both finds its own half-tuned weights there.
  const bool own_run = saved.finetune && same_folder(options.load, options.save);
  const bool finetune = options.finetune && !own_run;
  if (options.finetune && own_run && is_logging_rank) {
    log::info(
        "--finetune: {} is of a fine-tuning run in this --save folder, which goes on. To tune its "
        "weights anew, give another --save.",
        found.folder.string());
  }
  const bool adapts = engine.config().model.lora_rank > 0;
  const Wanted wanted{.weights_alone = finetune,
                      .adapters = !(finetune && adapts && !has_adapters(reader.manifest()))};
  check_matches(engine, saved, asked, wanted, found.folder.string());
  check_part_names(wanted_parts(engine, wanted), reader.manifest(), found.folder.string());
  if (is_logging_rank) tell_other_numerics(saved, asked, found.folder.string());
  const bool with_optimizer = !options.no_load_optim && !finetune;
  const bool complete = read_state(engine, reader, with_optimizer, wanted.adapters);
  read_adapters(engine, wanted, found.folder.string(), is_logging_rank);
  PENTATRON_CHECK(
      complete, kCheckpoint,
      "{} holds no state of --optimizer {}: it was saved with --no-save-optim, or trained with "
      "another optimizer. Load the weights alone with --no-load-optim or --finetune.",
      found.folder.string(), engine.config().optimizer.optimizer);
  result.loaded = true;
  result.iteration = found.iteration;
  resume_state(engine, saved, asked, !finetune, with_optimizer, result.state);
  if (is_logging_rank) {
    log::print_line(fmt::format(
        "  successfully loaded checkpoint from {} [ t {}/{}, gtp_remat 1/1, p {}/{} ] at iteration "
        "{}",
        options.load, engine.context().coordinate("tp") + 1, engine.context().size("tp"),
        engine.context().coordinate("pp") + 1, engine.context().size("pp"), found.iteration));
  }
  return result;
}

}  // namespace pentatron::training
