// SPDX-License-Identifier: Apache-2.0
// clang-format off
// sources: pentatron/families/folder.cc pentatron/families/config_file.cc pentatron/families/family.cc pentatron/families/key_rules.cc pentatron/families/name_map.cc pentatron/families/near_names.cc pentatron/families/part_rows.cc pentatron/families/registry.cc
// sources: pentatron/families/rope_keys.cc pentatron/families/window_keys.cc pentatron/families/*/*.cc
// sources: pentatron/config/layer_pattern.cc pentatron/config/rotary_forms.cc pentatron/config/attention_window.cc pentatron/config/choices.cc
// sources: pentatron/base/json.cc pentatron/base/format.cc pentatron/base/error.cc pentatron/base/safetensors.cc
// sources: pentatron/base/file.cc pentatron/base/stop_cleanup.cc pentatron/base/fault.cc pentatron/base/env.cc
// sources: pentatron/base/screen.cc pentatron/base/terminal.cc pentatron/base/mapping_faults.cc pentatron/base/mapped_pages.cc
// unlinked: what this target never calls
// libs: fmt
// max_len: 2048
// clang-format on
//
// Any bytes as model.safetensors.index.json beside two real shards: refused as data, or every
// tensor that the folder then names lies in one of its own files.
#include <unistd.h>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "pentatron/base/error.h"
#include "pentatron/families/folder.h"
#include "tests/fuzz/require.h"

using pentatron::fuzz::require;

namespace {

namespace fs = std::filesystem;

constexpr const char* kConfig =
    R"({"model_type":"gpt2","architectures":["GPT2LMHeadModel"],"n_layer":1,"n_embd":8,"n_head":2,)"
    R"("n_positions":4,"vocab_size":5})";

void write(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

// One tensor of two values.
std::string shard(const std::string& tensor) {
  const std::string header =
      R"({")" + tensor + R"(":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  const std::uint64_t length = header.size();
  std::string bytes(sizeof(length), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  return bytes + header + std::string(8, '\0');
}

// Of this process; a stranger's file lies beside it, which no name may reach.
const fs::path& folder() {
  static const fs::path kFolder = [] {
    const fs::path parent =
        fs::temp_directory_path() / ("safetensors_index_fuzz_" + std::to_string(::getpid()));
    const fs::path made = parent / "model";
    fs::create_directories(made);
    write(made / "config.json", kConfig);
    write(made / "a.safetensors", shard("wte.weight"));
    write(made / "b.safetensors", shard("wpe.weight"));
    write(parent / "outside.safetensors", shard("outside"));
    return made;
  }();
  return kFolder;
}

}  // namespace

// Presets are embedded when the library is built; no input reaches them.
std::span<const pentatron::families::Preset> pentatron::families::presets_of(std::string_view) {
  return {};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace pentatron;
  write(folder() / "model.safetensors.index.json", {reinterpret_cast<const char*>(data), size});
  try {
    const families::Folder read(folder());
    require(read.num_tensors() <= 2);
    for (const char* name : {"wte.weight", "wpe.weight"}) {
      try {
        require(read.bytes(name).size() == 8);
      } catch (const Error&) {
        // The index names the other shard alone.
      }
    }
  } catch (const Error& error) {
    require(error.kind() == ErrorKind::kData || error.kind() == ErrorKind::kIo);
  }
  return 0;
}
