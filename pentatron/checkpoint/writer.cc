// SPDX-License-Identifier: Apache-2.0
#include "pentatron/checkpoint/writer.h"

#include <algorithm>
#include <charconv>
#include <exception>
#include <functional>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/base/log.h"
#include "pentatron/base/safetensors.h"
#include "pentatron/base/sha256.h"
#include "pentatron/base/stop_cleanup.h"
#include "pentatron/base/timer.h"
#include "pentatron/checkpoint/coverage.h"
#include "pentatron/checkpoint/folder_names.h"
#include "pentatron/checkpoint/manifest_rules.h"
#include "pentatron/checkpoint/retention.h"
#include "pentatron/checkpoint/shard_files.h"
#include "pentatron/checkpoint/store.h"
#include "pentatron/checkpoint/together.h"
#include "pentatron/checkpoint/tokenizer_folder.h"
#include "pentatron/tensor/host_bytes.h"

namespace pentatron::checkpoint {
namespace fs = std::filesystem;
namespace {

// Hash and write alternate in pieces of this size, so that each is read from memory once.
constexpr std::size_t kChunkBytes = std::size_t{4} << 20;

struct Folders {
  fs::path saving;   // being written
  fs::path final;    // where it goes
  fs::path old;      // where a version that is replaced waits for its removal
  fs::path tracker;  // names the newest
};

Folders folders_of(const SaveRequest& request) {
  const std::string name = iteration_folder(request.iteration);
  return {request.root / (".saving_" + name), request.root / name, request.root / (".old_" + name),
          request.root / kTrackerName};
}

// One slice of this rank with its values.
struct Item {
  ManifestSlice slice;
  Shape logical_shape;
  bool decay = true;
  Tensor values;
  std::function<Tensor(std::int64_t, std::int64_t)> make;  // null: `values` are there
  std::int64_t count = 0;
  std::int64_t piece = 0;  // of make(); all of them where nothing is made
  DType dtype = DType::Undefined;
};

void check_values(const std::string& name, const Tensor& values) {
  PENTATRON_CHECK(values.is_contiguous() && values.device().is_cpu(), kInternal,
                  "slice of {}: {} is not contiguous CPU memory", name, tensor::describe(values));
}

// A piece of what a slice promised, made now.
Tensor values_of(const Item& item, std::int64_t begin) {
  if (!item.make) return item.values;
  const std::int64_t number = std::min(item.piece, item.count - begin);
  Tensor made = item.make(begin, number);
  check_values(item.slice.tensor, made);
  PENTATRON_CHECK(made.numel() == number && made.scalar_type() == item.dtype, kInternal,
                  "slice of {}: {} is not {} elements of {}", item.slice.tensor,
                  tensor::describe(made), number, tensor::dtype_name(item.dtype));
  return made;
}

// The rank's slices in canonical order with file and key; empty ones left out.
std::vector<Item> make_items(const SaveRequest& request, const std::string& file) {
  std::vector<Item> items;
  for (const SourceSlice& source : request.slices) {
    PENTATRON_CHECK(source.part != nullptr && source.values.defined() != (source.make != nullptr),
                    kInternal, "a slice to save has no part, or not one source of its values");
    const nn::ShardPart& part = *source.part;
    const std::int64_t count = source.make ? source.count : source.values.numel();
    if (count == 0) continue;
    if (!source.make) check_values(part.name, source.values);
    PENTATRON_CHECK(source.box_begin >= 0 && source.box_begin + count <= part.box.num_elements(),
                    kInternal, "slice of {}: elements {} to {} are not in its box of {}", part.name,
                    source.box_begin, source.box_begin + count, part.box.num_elements());
    items.push_back({.slice = {.tensor = source.kind + "/" + part.name,
                               .box = part.box,
                               .range_begin = source.box_begin,
                               .range_end = source.box_begin + count,
                               .file = file,
                               .key = {}},
                     .logical_shape = part.logical_shape,
                     .decay = nn::decays(part.role),
                     .values = source.values,
                     .make = source.make,
                     .count = count,
                     .piece = source.make && source.piece > 0 ? source.piece : count,
                     .dtype = source.make ? source.dtype : source.values.scalar_type()});
  }
  std::sort(items.begin(), items.end(), [](const Item& a, const Item& b) {
    return std::tie(a.slice.tensor, a.slice.box.offset, a.slice.box.size, a.slice.range_begin) <
           std::tie(b.slice.tensor, b.slice.box.offset, b.slice.box.size, b.slice.range_begin);
  });
  std::int64_t number = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const bool same = i > 0 && items[i - 1].slice.tensor == items[i].slice.tensor;
    number = same ? number + 1 : 0;
    items[i].slice.key = fmt::format("{}#{}", items[i].slice.tensor, number);
  }
  return items;
}

ManifestFile write_shard(const fs::path& path, const std::vector<Item>& items) {
  std::vector<SafetensorsShape> tensors;
  tensors.reserve(items.size());
  for (const Item& item : items) {
    const ManifestSlice& slice = item.slice;
    // A whole box keeps its shape, for readers that know safetensors only.
    tensors.push_back(
        {.name = slice.key,
         .dtype = std::string(tensor::safetensors_dtype(item.dtype)),
         .shape = item.count == slice.box.num_elements() ? slice.box.size : Shape{item.count}});
  }
  OutputFile file(path);
  Sha256 hash;
  const auto write = [&](std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const auto chunk = bytes.first(std::min(bytes.size(), kChunkBytes));
      hash.update(chunk);
      file.write(chunk);
      bytes = bytes.subspan(chunk.size());
    }
  };
  write_safetensors_header(plan_safetensors_header(tensors, {}), write);
  for (const Item& item : items) {
    for (std::int64_t begin = 0; begin < item.count; begin += item.piece) {
      write(tensor::host_bytes(values_of(item, begin)));
    }
  }
  file.close();
  return {path.filename().string(), file.bytes_written(), hash.hex_digest()};
}

// Writes this rank's shard and returns its part of the manifest as text.
std::string write_piece(const SaveRequest& request, const Folders& folders, int rank) {
  const std::string file = fmt::format("rank_{:05}.safetensors", rank);
  const std::vector<Item> items = make_items(request, file);
  Manifest piece;
  piece.iteration = request.iteration;
  if (rank == 0) {
    piece.config = request.config;
    piece.layout = request.layout;
    piece.train_state = request.train_state;
  }
  for (const Item& item : items) {
    const std::string dtype(tensor::safetensors_dtype(item.dtype));
    if (piece.tensors.empty() || piece.tensors.back().name != item.slice.tensor) {
      piece.tensors.push_back({item.slice.tensor, dtype, item.logical_shape, item.decay});
    }
    const ManifestTensor& known = piece.tensors.back();
    PENTATRON_CHECK(known.dtype == dtype && known.logical_shape == item.logical_shape, kInternal,
                    "slices of {} differ in dtype or logical shape", known.name);
    piece.slices.push_back(item.slice);
  }
  if (!items.empty()) piece.files.push_back(write_shard(folders.saving / file, items));
  return manifest_to_text(piece);
}

Manifest merge(const std::vector<std::string>& pieces, const SaveRequest& request,
               const Folders& folders) {
  Manifest whole;
  std::map<std::string, ManifestTensor> tensors;
  for (std::size_t rank = 0; rank < pieces.size(); ++rank) {
    const std::string name = fmt::format("{} (rank {})", folders.saving.string(), rank);
    Manifest piece = parse_manifest_piece(pieces[rank], name);
    PENTATRON_CHECK(piece.iteration == request.iteration, kInternal,
                    "rank {} saves iteration {}, rank 0 iteration {}", rank, piece.iteration,
                    request.iteration);
    if (rank == 0) {
      whole.config = std::move(piece.config);
      whole.layout = std::move(piece.layout);
      whole.train_state = std::move(piece.train_state);
    }
    for (ManifestTensor& tensor : piece.tensors) {
      const auto [known, added] = tensors.emplace(tensor.name, tensor);
      PENTATRON_CHECK(added || (known->second.dtype == tensor.dtype &&
                                known->second.logical_shape == tensor.logical_shape &&
                                known->second.decay == tensor.decay),
                      kCheckpoint, "rank {} describes {} otherwise than a rank before it", rank,
                      tensor.name);
    }
    std::move(piece.slices.begin(), piece.slices.end(), std::back_inserter(whole.slices));
    std::move(piece.files.begin(), piece.files.end(), std::back_inserter(whole.files));
  }
  whole.iteration = request.iteration;
  for (auto& [name, tensor] : tensors) whole.tensors.push_back(std::move(tensor));
  sort_manifest(whole);
  check_coverage(whole, folders.saving.string());
  return whole;
}

// Removals after the new version is durable: their failure costs space, not the checkpoint.
template <typename Remove>
void warn_of_failure(const SaveRequest& request, const Remove& remove) {
  try {
    remove();
  } catch (const Error& error) {
    log::warn(
        "iteration {} is saved, but older checkpoints could not be removed (the next save tries "
        "again): {}",
        request.iteration, error.what());
  }
}

// What another program, or a person, has put under a name of ours goes on under another.
void keep_foreign(const fs::path& path) {
  if (!name_is_taken(path) || is_own_checkpoint(path)) return;
  const fs::path kept = set_aside(path);
  log::warn("{} was not written by Pentatron: it is kept as {}", path.string(), kept.string());
}

// The folder under its final name, then the tracker. A version of the same iteration is moved aside
// first; killed between the two renames, find_checkpoint still finds it there. Ctrl-C waits for
// all of it.
void publish(const SaveRequest& request, const Folders& folders, TemporaryName& saving) {
  AtomicFile tracker(folders.tracker);
  tracker.write(std::to_string(request.iteration));
  tracker.sync();
  const HoldStop together;
  keep_foreign(folders.final);
  const bool replaces = name_is_taken(folders.final);
  if (replaces) keep_foreign(folders.old);
  if (replaces) rename_durably(folders.final, folders.old);
  rename_durably(folders.saving, folders.final);
  saving.forget();
  try {
    tracker.commit();
  } catch (const Error& error) {
    throw Error(error.kind(),
                fmt::format("{} (the checkpoint {} is complete, but {} does not name it; load it "
                            "with --ckpt-step {})",
                            error.what(), folders.final.string(), kTrackerName, request.iteration),
                __FILE__, __LINE__);
  }
  // Remove the version moved aside within the hold, so that Ctrl-C cannot leave it behind.
  if (replaces) warn_of_failure(request, [&] { remove_unfinished(request.root); });
}

void tidy_up(const SaveRequest& request) {
  warn_of_failure(request, [&] {
    remove_unfinished(request.root);
    apply_retention(request.root, request.keep_checkpoints, request.save_retain_interval,
                    request.protect_iteration);
  });
}

// What the manifest says of the files.
std::vector<ManifestFile> write_tokenizer(const SaveRequest& request, const Folders& folders) {
  std::vector<ManifestFile> files;
  if (request.tokenizer_files.empty()) return files;
  const fs::path folder = folders.saving / kTokenizerFolder;
  create_folders(folder);
  for (const auto& [name, bytes] : request.tokenizer_files) {
    OutputFile file(folder / name);
    file.write(bytes);
    file.close();
    files.push_back({name, bytes.size(), sha256_hex(bytes)});
  }
  sync_folder(folder);
  return files;
}

// Rank 0's part after all shards are there. Returns the bytes of the checkpoint.
std::string finish(const std::vector<std::string>& pieces, const SaveRequest& request,
                   const Folders& folders, TemporaryName& saving) {
  Manifest manifest = merge(pieces, request, folders);
  manifest.tokenizer = write_tokenizer(request, folders);
  const std::string text = manifest_to_text(manifest);
  OutputFile file(folders.saving / kManifestName);
  file.write(text);
  file.close();
  sync_folder(folders.saving);
  // Read the checkpoint back as a resume would, before the new folder replaces the former one.
  check_tokenizer(folders.saving, read_manifest(folders.saving));
  std::uint64_t bytes = text.size();
  for (const ManifestFile& shard : manifest.files) bytes += shard.bytes;
  for (const ManifestFile& kept : manifest.tokenizer) bytes += kept.bytes;
  publish(request, folders, saving);
  tidy_up(request);
  return std::to_string(bytes);
}

}  // namespace

SaveResult save_checkpoint(const SaveRequest& request, comm::Group& world) {
  const Timer timer;
  const Folders folders = folders_of(request);
  const bool leads = world.rank() == 0;
  // Known to the leader: it removes the folder when a signal ends it, whoever has written there.
  TemporaryName saving;
  std::optional<FolderLock> own_lock;
  bool locked = false;
  const auto clean_up = [&] {
    // The folder there belongs to another process: leave it.
    if (!locked) return;
    try {
      remove_unfinished(request.root);
      saving.forget();
    } catch (const Error& error) {
      log::warn("could not remove what is left of the failed save: {}", error.what());
    }
  };
  const auto together = [&](const std::function<std::string()>& work) {
    try {
      return run_together(
          world, fmt::format("the checkpoint of iteration {} was not saved", request.iteration),
          work, clean_up);
    } catch (...) {
      // The group failed before the ranks agreed, so no other rank cleans up: do it here.
      if (saving.remembers()) clean_up();
      throw;
    }
  };
  (void)together([&] {
    PENTATRON_CHECK(request.iteration >= 0, kInternal, "cannot save iteration {}",
                    request.iteration);
    if (leads) {
      create_folders(request.root);
      if (request.lock != nullptr) {
        request.lock->check_held();
      } else {
        own_lock.emplace(request.root);
      }
      locked = true;
      remove_unfinished(request.root);
      const HoldStop hold;
      create_folders(folders.saving);
      saving.remember(folders.saving);
    }
    return std::string();
  });
  const std::vector<std::string> pieces =
      together([&] { return write_piece(request, folders, world.rank()); });
  // Nobody returns before rank 0 has made the checkpoint durable.
  const std::string bytes =
      together([&] { return leads ? finish(pieces, request, folders, saving) : std::string(); })[0];
  SaveResult result{.folder = folders.final, .seconds = timer.seconds()};
  std::from_chars(bytes.data(), bytes.data() + bytes.size(), result.bytes);
  return result;
}

}  // namespace pentatron::checkpoint
