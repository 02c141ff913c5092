// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/byte_source.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "pentatron/base/error.h"
#include "pentatron/datasets/decoding_source.h"
#include "pentatron/datasets/file_source.h"

namespace pentatron::datasets {
namespace {

using Maker = std::unique_ptr<ByteSource> (*)(std::unique_ptr<ByteSource>);

struct Packing {
  std::string_view ending;
  std::string_view name;
  std::string_view magic;
  Maker make;
};

constexpr std::array<Packing, 4> kPackings = {
    {{".gz", "gzip", "\x1f\x8b", make_gzip_source},
     {".zst", "Zstandard", "\x28\xb5\x2f\xfd", make_zstd_source},
     {".bz2", "bzip2", "BZh", make_bzip2_source},
     {".xz", "xz",
      "\xfd"
      "7zXZ",
      make_xz_source}}};

constexpr std::array<std::string_view, 4> kEndings = {kPackings[0].ending, kPackings[1].ending,
                                                      kPackings[2].ending, kPackings[3].ending};

// What people hand over by mistake: the place of the bytes, the bytes, what it is.
struct Foreign {
  std::size_t offset;
  std::string_view magic;
  std::string_view what;
};

constexpr std::string_view kUtf16 = "UTF-16 text: convert it first (iconv -f UTF-16 -t UTF-8 FILE)";

constexpr std::array<Foreign, 12> kForeign = {
    {{0, "\xff\xfe", kUtf16},
     {0, "\xfe\xff", kUtf16},
     {0, std::string_view("{\0", 2), kUtf16},
     {0, std::string_view("\0{", 2), kUtf16},
     {0, "PK\x03\x04", "a zip archive: unpack it first"},
     {0, "PAR1", "a Parquet file: export it as JSON lines first"},
     {0, "ARROW1", "an Arrow file: export it as JSON lines first"},
     {0, "7z\xbc\xaf\x27\x1c", "a 7z archive: unpack it first"},
     {0, "\x04\x22\x4d\x18", "an LZ4 file: unpack it first (lz4 -d)"},
     {0, "MMIDIDX", "an .idx file: it is the index of a corpus that is tokenised already"},
     {0, "\x89PNG", "a picture"},
     {257, "ustar", "a tar archive: unpack it first"}}};

constexpr std::size_t kPeekBytes = 264;

}  // namespace

void ByteSource::skip(std::uint64_t count) {
  std::vector<char> buffer(std::min<std::uint64_t>(count, 1 << 18));
  for (std::uint64_t left = count; left > 0;) {
    const std::size_t got =
        read(std::span(buffer).first(std::min<std::uint64_t>(left, buffer.size())));
    PENTATRON_CHECK(got > 0, kData, "{} holds {} bytes fewer than were read from it before", name(),
                    left);
    left -= got;
  }
}

std::span<const std::string_view> compressed_endings() { return kEndings; }

std::unique_ptr<ByteSource> open_byte_source(const std::string& path) {
  auto file = std::make_unique<FileSource>(path);
  const std::string_view start = file->peek(kPeekBytes);
  for (const Packing& packing : kPackings) {
    if (start.starts_with(packing.magic)) return packing.make(std::move(file));
    PENTATRON_CHECK(!path.ends_with(packing.ending), kData,
                    "{} is {}: its name says {}, its first bytes do not", path,
                    start.empty() ? "empty" : "damaged or misnamed", packing.name);
  }
  for (const Foreign& foreign : kForeign) {
    const bool same =
        start.size() > foreign.offset && start.substr(foreign.offset).starts_with(foreign.magic);
    PENTATRON_CHECK(!same, kData, "{} is {}", file->name(), foreign.what);
  }
  return file;
}

}  // namespace pentatron::datasets
