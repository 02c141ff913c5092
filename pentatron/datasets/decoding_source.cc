// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/decoding_source.h"

#include <bzlib.h>
#include <lzma.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "pentatron/base/error.h"

namespace pentatron::datasets {
namespace {

constexpr std::size_t kPackedBytes = 1 << 17;
constexpr std::uint64_t kXzMemoryBytes = 256ULL << 20;

unsigned clamped(std::size_t size) {
  return static_cast<unsigned>(std::min<std::size_t>(size, std::numeric_limits<unsigned>::max()));
}

// The libraries' C interfaces do not write through their input pointers.
char* unconst(const char* bytes) { return const_cast<char*>(bytes); }

class GzipSource final : public DecodingSource {
 public:
  explicit GzipSource(std::unique_ptr<ByteSource> packed)
      : DecodingSource(std::move(packed), "gzip") {
    constexpr int kGzipWindow = 16 + MAX_WBITS;
    if (::inflateInit2(&stream_, kGzipWindow) != Z_OK) fail("no memory for the decoder");
  }
  ~GzipSource() override { ::inflateEnd(&stream_); }

 protected:
  Step decode(std::span<const char> in, std::span<char> out) override {
    if (ended_) {
      // gzip writes no padding, but tape tools fill the last block with zeros.
      if (in[0] == '\0') return {.used = 1, .stream_ended = true};
      ::inflateReset(&stream_);
      ended_ = false;
    }
    stream_.next_in = reinterpret_cast<Bytef*>(unconst(in.data()));
    stream_.avail_in = clamped(in.size());
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    stream_.avail_out = clamped(out.size());
    const unsigned given = stream_.avail_in;
    const unsigned room = stream_.avail_out;
    const int code = ::inflate(&stream_, Z_NO_FLUSH);
    if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR) {
      fail(stream_.msg == nullptr ? "the data are damaged" : stream_.msg);
    }
    ended_ = code == Z_STREAM_END;
    return {given - stream_.avail_in, room - stream_.avail_out, ended_};
  }

 private:
  z_stream stream_{};
  bool ended_ = false;
};

class ZstdSource final : public DecodingSource {
 public:
  explicit ZstdSource(std::unique_ptr<ByteSource> packed)
      : DecodingSource(std::move(packed), "Zstandard"), stream_(::ZSTD_createDStream()) {
    if (stream_ == nullptr) fail("no memory for the decoder");
  }
  ~ZstdSource() override { ::ZSTD_freeDStream(stream_); }

 protected:
  Step decode(std::span<const char> in, std::span<char> out) override {
    ZSTD_inBuffer input{in.data(), in.size(), 0};
    ZSTD_outBuffer output{out.data(), out.size(), 0};
    const std::size_t code = ::ZSTD_decompressStream(stream_, &output, &input);
    if (::ZSTD_isError(code) != 0U) fail(::ZSTD_getErrorName(code));
    return {input.pos, output.pos, code == 0};
  }

 private:
  ZSTD_DStream* stream_;
};

class Bzip2Source final : public DecodingSource {
 public:
  explicit Bzip2Source(std::unique_ptr<ByteSource> packed)
      : DecodingSource(std::move(packed), "bzip2") {
    start();
  }
  ~Bzip2Source() override { ::BZ2_bzDecompressEnd(&stream_); }

 protected:
  Step decode(std::span<const char> in, std::span<char> out) override {
    if (ended_) {
      ::BZ2_bzDecompressEnd(&stream_);
      start();
    }
    stream_.next_in = unconst(in.data());
    stream_.avail_in = clamped(in.size());
    stream_.next_out = out.data();
    stream_.avail_out = clamped(out.size());
    const unsigned given = stream_.avail_in;
    const unsigned room = stream_.avail_out;
    const int code = ::BZ2_bzDecompress(&stream_);
    if (code != BZ_OK && code != BZ_STREAM_END) fail("the data are damaged");
    ended_ = code == BZ_STREAM_END;
    return {given - stream_.avail_in, room - stream_.avail_out, ended_};
  }

 private:
  void start() {
    stream_ = {};
    ended_ = false;
    if (::BZ2_bzDecompressInit(&stream_, 0, 0) != BZ_OK) fail("no memory for the decoder");
  }
  bz_stream stream_{};
  bool ended_ = false;
};

class XzSource final : public DecodingSource {
 public:
  explicit XzSource(std::unique_ptr<ByteSource> packed) : DecodingSource(std::move(packed), "xz") {
    start();
  }
  ~XzSource() override { ::lzma_end(&stream_); }

 protected:
  Step decode(std::span<const char> in, std::span<char> out) override {
    if (ended_) {
      // Streams may be followed by zeros.
      if (in[0] == '\0') return {.used = 1, .stream_ended = true};
      ::lzma_end(&stream_);
      stream_ = LZMA_STREAM_INIT;
      start();
    }
    stream_.next_in = reinterpret_cast<const std::uint8_t*>(in.data());
    stream_.avail_in = in.size();
    stream_.next_out = reinterpret_cast<std::uint8_t*>(out.data());
    stream_.avail_out = out.size();
    const lzma_ret code = ::lzma_code(&stream_, LZMA_RUN);
    if (code == LZMA_MEMLIMIT_ERROR) fail("decoding needs more than 256 MiB of memory");
    if (code != LZMA_OK && code != LZMA_STREAM_END && code != LZMA_BUF_ERROR) {
      fail("the data are damaged");
    }
    ended_ = code == LZMA_STREAM_END;
    return {in.size() - stream_.avail_in, out.size() - stream_.avail_out, ended_};
  }

 private:
  void start() {
    ended_ = false;
    if (::lzma_stream_decoder(&stream_, kXzMemoryBytes, 0) != LZMA_OK) {
      fail("no memory for the decoder");
    }
  }
  lzma_stream stream_ = LZMA_STREAM_INIT;
  bool ended_ = false;
};

}  // namespace

DecodingSource::DecodingSource(std::unique_ptr<ByteSource> packed, std::string_view format)
    : packed_(std::move(packed)), format_(format), buffer_(kPackedBytes) {}

void DecodingSource::fail(std::string_view why) const {
  PENTATRON_THROW(kData, "{}: no whole {} file: {} (near byte {} of the file)", name(), format_,
                  why, file_bytes() - in_.size());
}

std::size_t DecodingSource::read(std::span<char> into) {
  while (true) {
    if (in_.empty() && !at_end_) {
      const std::size_t count = packed_->read(buffer_);
      at_end_ = count == 0;
      in_ = std::span<const char>(buffer_).first(count);
    }
    const bool all_given = in_.empty() && at_end_;
    if (all_given && between_streams_) return 0;
    const Step step = decode(in_, into);
    in_ = in_.subspan(step.used);
    between_streams_ = step.stream_ended;
    if (step.made > 0) return step.made;
    if (all_given && !step.stream_ended) fail("it ends early");
  }
}

std::unique_ptr<ByteSource> make_gzip_source(std::unique_ptr<ByteSource> packed) {
  return std::make_unique<GzipSource>(std::move(packed));
}
std::unique_ptr<ByteSource> make_zstd_source(std::unique_ptr<ByteSource> packed) {
  return std::make_unique<ZstdSource>(std::move(packed));
}
std::unique_ptr<ByteSource> make_bzip2_source(std::unique_ptr<ByteSource> packed) {
  return std::make_unique<Bzip2Source>(std::move(packed));
}
std::unique_ptr<ByteSource> make_xz_source(std::unique_ptr<ByteSource> packed) {
  return std::make_unique<XzSource>(std::move(packed));
}

}  // namespace pentatron::datasets
