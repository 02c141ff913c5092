// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <random>

#include "pentatron/base/file.h"
#include "pentatron/base/temp_folder.h"
#include "pentatron/checkpoint/plan.h"
#include "pentatron/checkpoint/test_support.h"
#include "pentatron/checkpoint/verify.h"

namespace pentatron::checkpoint {
namespace {
namespace fs = std::filesystem;
using namespace testing_support;

TEST(RoundTrip, EveryLayoutLoadsIntoEveryLayout) {
  const TempFolder temp;
  std::string hash;
  for (const Layout& source : layouts()) {
    const fs::path root = temp.path() / source.name;
    save_layout(root, 10, source, 1);
    const Found found = find_checkpoint(root, 0);
    ASSERT_EQ(found.result, FindResult::kFound);
    EXPECT_EQ(found.iteration, 10);
    EXPECT_EQ(found.note, "");
    CheckpointReader reader(found.folder);
    for (const Layout& target : layouts()) {
      for (std::int64_t rank = 0; rank < target.world(); ++rank) {
        for (const StateTensor& t : state_tensors()) {
          const Held want = held_by(t, target, rank, 1);
          const Tensor got = tensor::full({want.values.numel()}, -1, t.dtype);
          reader.read(want.tensor, t.shape, want.part.box, want.begin, got);
          EXPECT_TRUE(same_bytes(got, want.values))
              << source.name << " to " << target.name << ", rank " << rank << ", " << want.tensor;
        }
      }
    }
    if (hash.empty()) hash = state_hash(reader);
    EXPECT_EQ(state_hash(reader), hash) << source.name;
    const VerifyReport report = verify_checkpoint(found.folder);
    EXPECT_TRUE(report.ok) << (report.problems.empty() ? "" : report.problems[0]);
    EXPECT_EQ(report.tensors, state_tensors().size());
  }
  // Another value, another hash.
  (void)save_single(temp.path() / "other", 10, 2);
  EXPECT_NE(hash_of(temp.path() / "other" / iteration_folder(10)), hash);
}

TEST(RoundTrip, SameStateGivesSameBytes) {
  const TempFolder temp;
  const Layout& layout = layouts()[6];
  for (const char* name : {"a", "b"}) save_layout(temp.path() / name, 3, layout, 1);
  std::size_t files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(temp.path() / "a")) {
    if (!entry.is_regular_file()) continue;
    const fs::path other = temp.path() / "b" / fs::relative(entry.path(), temp.path() / "a");
    EXPECT_EQ(read_text_file(entry.path()), read_text_file(other)) << other;
    ++files;
  }
  EXPECT_EQ(files, 4U + 2U);  // four shards, manifest, tracker
}

TEST(RoundTrip, RankWithoutSlicesWritesNoFile) {
  const TempFolder temp;
  save_layout(temp.path(), 3, layouts()[3], 1);
  const fs::path folder = temp.path() / iteration_folder(3);
  EXPECT_TRUE(fs::exists(folder / "rank_00000.safetensors"));
  EXPECT_FALSE(fs::exists(folder / "rank_00001.safetensors"));
}

TEST(RoundTrip, OnlyExactWideningIsDone) {
  const TempFolder temp;
  const SaveResult saved = save_single(temp.path(), 1, 1);
  std::uint64_t on_disk = 0;
  for (const auto& entry : fs::directory_iterator(saved.folder)) on_disk += entry.file_size();
  EXPECT_EQ(saved.bytes, on_disk);
  CheckpointReader reader(saved.folder);
  for (const StateTensor& t : state_tensors()) {
    const nn::Box whole{Shape(t.shape.size(), 0), t.shape};
    const Tensor expected = whole_values(t, 1).view({-1});
    for (const DType wanted : {DType::BFloat16, DType::Half, DType::Float, DType::Double}) {
      const Tensor got = tensor::zeros({expected.numel()}, wanted);
      const std::string name = t.kind + "/" + t.part;
      if (wanted == t.dtype ||
          (wanted != DType::Half && tensor::item_bytes(wanted) > tensor::item_bytes(t.dtype))) {
        reader.read(name, t.shape, whole, 0, got);
        EXPECT_TRUE(same_bytes(got, expected.to(wanted))) << name << tensor::describe(got);
      } else {
        expect_error(ErrorKind::kCheckpoint, "does not hold exactly",
                     [&] { reader.read(name, t.shape, whole, 0, got); });
      }
    }
  }
  const nn::Box box{{0, 0}, {10, 6}};
  expect_error(ErrorKind::kCheckpoint, "holds no tensor param/nothing", [&] {
    reader.read("param/nothing", {10, 6}, box, 0, tensor::zeros({60}, DType::Float));
  });
  expect_error(ErrorKind::kCheckpoint, "has the shape [10, 6], the model wants [10, 7]", [&] {
    reader.read("param/embedding.weight", {10, 7}, box, 0, tensor::zeros({60}, DType::Float));
  });
  EXPECT_TRUE(reader.has("exp_avg/embedding.weight"));
  EXPECT_FALSE(reader.has("exp_avg/bias"));
}

// Against an enumeration of every element of both ranges.
TEST(Plan, RunsEqualSlowEnumeration) {
  std::mt19937 random(7);
  const auto up_to = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n + 1));
  };
  for (int round = 0; round < 3000; ++round) {
    const auto dims = static_cast<std::size_t>(1 + up_to(3));
    nn::Box boxes[2];
    std::int64_t range[2][2];
    Shape shape;
    for (std::size_t d = 0; d < dims; ++d) shape.push_back(1 + up_to(4));
    for (int side = 0; side < 2; ++side) {
      for (std::size_t d = 0; d < dims; ++d) {
        const std::int64_t size = up_to(3) == 0 ? 1 + up_to(shape[d] - 1) : shape[d];
        boxes[side].size.push_back(size);
        boxes[side].offset.push_back(up_to(shape[d] - size));
      }
      const std::int64_t count = boxes[side].num_elements();
      range[side][0] = up_to(1) == 0 ? 0 : up_to(count);
      range[side][1] = range[side][0] + up_to(count - range[side][0]);
    }
    // Position in the whole tensor -> position in the side's range.
    std::map<std::int64_t, std::int64_t> positions[2];
    for (int side = 0; side < 2; ++side) {
      for (std::int64_t i = range[side][0]; i < range[side][1]; ++i) {
        std::int64_t rest = i;
        std::int64_t position = 0;
        std::int64_t stride = 1;
        for (std::size_t d = dims; d-- > 0;) {
          position += (boxes[side].offset[d] + rest % boxes[side].size[d]) * stride;
          rest /= boxes[side].size[d];
          stride *= shape[d];
        }
        positions[side][position] = i - range[side][0];
      }
    }
    std::map<std::int64_t, std::int64_t> expected;
    for (const auto& [position, source] : positions[0]) {
      const auto target = positions[1].find(position);
      if (target != positions[1].end()) expected[source] = target->second;
    }
    std::map<std::int64_t, std::int64_t> got;
    for_each_run({boxes[0], range[0][0], range[0][1]}, {boxes[1], range[1][0], range[1][1]},
                 [&](const checkpoint::Run& run) {
                   for (std::int64_t i = 0; i < run.count; ++i) {
                     EXPECT_TRUE(got.emplace(run.source + i, run.target + i).second);
                   }
                 });
    ASSERT_EQ(got, expected) << "round " << round;
  }
}

TEST(Plan, EqualBoxesAreOneRun) {
  const nn::Box box{{2, 1}, {5, 4}};
  int runs = 0;
  for_each_run({box, 3, 17}, {box, 1, 20}, [&](const checkpoint::Run& run) {
    ++runs;
    EXPECT_EQ(run.source, 0);
    EXPECT_EQ(run.target, 2);
    EXPECT_EQ(run.count, 14);
  });
  EXPECT_EQ(runs, 1);
}

TEST(Save, ARankThatFailsFailsAll) {
  const TempFolder temp;
  save_layout(temp.path(), 1, layouts()[1], 1);
  const std::string before = hash_of(temp.path() / iteration_folder(1));
  const auto save = [&](const std::function<void(std::int64_t, RankState&)>& spoil, ErrorKind kind,
                        std::string_view part) {
    std::vector<int> failed(2, 0);
    comm::run_threads({.world_size = 2}, [&](comm::Backend& backend) {
      const std::unique_ptr<comm::Group> world = backend.make_group({0, 1}, "world");
      RankState state = rank_state(temp.path(), 2, layouts()[1], backend.rank(), 2);
      spoil(backend.rank(), state);
      expect_error(kind, part, [&] { (void)save_checkpoint(state.request, *world); });
      failed[static_cast<std::size_t>(backend.rank())] = 1;
    });
    EXPECT_EQ(failed, std::vector<int>({1, 1}));
    EXPECT_EQ(std::distance(fs::directory_iterator(temp.path()), {}), 2);  // iter_1, tracker
    const Found found = find_checkpoint(temp.path(), 0);
    EXPECT_EQ(found.iteration, 1);
    EXPECT_EQ(hash_of(found.folder), before);
  };
  save(
      [](std::int64_t rank, RankState& state) {
        if (rank == 1) state.request.slices[0].box_begin = 5;
      },
      ErrorKind::kInternal, "iteration 2 was not saved: rank 1: slice of embedding.weight");
  save(
      [](std::int64_t rank, RankState& state) {
        if (rank == 1) state.request.slices.pop_back();
      },
      ErrorKind::kCheckpoint,
      "rank 0: " + (temp.path() / ".saving_iter_0000002").string() +
          ": tensor param/tiny: its 1 boxes do not cover");
  save(
      [](std::int64_t rank, RankState& state) {
        if (rank == 1) state.held[0].part.box.offset[0] = 4;
      },
      ErrorKind::kCheckpoint, "missing or stored twice");
  save(
      [](std::int64_t rank, RankState& state) {
        if (rank == 1) state.held[0].part.role = nn::ShardRole::kVector;
      },
      ErrorKind::kCheckpoint, "describes param/embedding.weight otherwise");
  save(
      [](std::int64_t rank, RankState& state) {
        if (rank == 0) state.request.train_state = "{";
      },
      ErrorKind::kData, "rank 0: train_state");
}

}  // namespace
}  // namespace pentatron::checkpoint
