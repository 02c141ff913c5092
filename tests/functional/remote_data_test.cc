// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>

#include "pentatron/base/file.h"
#include "pentatron/http/range_server_test_support.h"
#include "tests/functional/tiny_run.h"

// A corpus on a real HTTP server trains as its files do.
namespace pentatron::functional {
namespace {

using http::testing::RangeServer;

void put_corpus(RangeServer& server, const std::string& version) {
  for (const std::string ending : {".bin", ".idx"}) {
    server.put("/data/text" + ending, read_text_file(corpus() + ending), version);
  }
}

Options on_server(const RangeServer& server, const std::filesystem::path& cache) {
  return base()
      .with("--data-path", server.url("/data/text"))
      .with("--data-cache-path", cache.string())
      .with("--log-interval", 1);
}

TEST(RemoteData, TrainsAsTheFilesDo) {
  RangeServer server;
  put_corpus(server, "\"one\"");
  const TinyRun local = train(base().with("--log-interval", 1));
  // One answer is an error, and the first of tokens ends early: both are asked for again.
  std::atomic<int> cut = 0;
  server.disturb([&](const httplib::Request& request, httplib::Response& response, int number) {
    if (number == 1) response.status = 503;
    const bool tokens =
        request.path.ends_with(".bin") && request.get_header_value("Range") != "bytes=0-0";
    if (number == 1 || !tokens || cut++ > 0) return number == 1;
    response.set_content_provider(1'000'000, "application/octet-stream",
                                  [](std::size_t, std::size_t, httplib::DataSink& sink) {
                                    sink.write("x", 1);
                                    return false;
                                  });
    return true;
  });
  const TinyRun remote = train(on_server(server, new_folder() / "cache"));
  ASSERT_EQ(local.losses().size(), 3U);
  EXPECT_EQ(remote.losses(), local.losses());
  EXPECT_GT(cut, 1);
}

TEST(RemoteData, SaysWhatIsMissing) {
  RangeServer server;
  put_corpus(server, "\"one\"");
  const TinyRun no_cache =
      try_train(base().with("--data-path", server.url("/data/text")).without("--data-cache-path"));
  EXPECT_NE(no_cache.program.exit_code, 0);
  EXPECT_NE(no_cache.program.err.find("--data-cache-path"), std::string::npos)
      << no_cache.program.err;
  const TinyRun nothing = try_train(base()
                                        .with("--data-path", server.url("/data/other"))
                                        .with("--data-cache-path", (new_folder() / "c").string()));
  EXPECT_NE(nothing.program.exit_code, 0);
  EXPECT_NE(nothing.program.err.find(server.url("/data/other.idx")), std::string::npos)
      << nothing.program.err;
  EXPECT_NE(nothing.program.err.find("404"), std::string::npos);
}

// --check-options asks the server.
TEST(RemoteData, CheckOptionsLooksForIt) {
  RangeServer server;
  put_corpus(server, "\"one\"");
  const auto checked = [&](const std::string& path) {
    return call(on_server(server, new_folder() / "cache")
                    .with("--data-path", server.url(path))
                    .with("--check-options")
                    .words("pretrain_gpt"));
  };
  const ProgramResult there = checked("/data/text");
  EXPECT_TRUE(there.ok()) << there.describe();
  EXPECT_EQ(count(there.out, "files       2 checked, 0 missing\n"), 1U) << there.out;
  const ProgramResult nothing = checked("/data/other");
  EXPECT_EQ(nothing.exit_code, 4) << nothing.describe();
  EXPECT_EQ(count(nothing.out, "missing: --data-path " + server.url("/data/other.bin")), 1U)
      << nothing.out;
}

// The object changes after the corpus was opened: the step that reads it ends the run and names it.
TEST(RemoteData, AChangedCorpusEndsTheRun) {
  RangeServer server;
  put_corpus(server, "\"one\"");
  server.disturb([&](const httplib::Request& request, httplib::Response& response, int) {
    const bool bin = request.path.ends_with(".bin");
    // The first byte of the tokens is the opening; what follows comes from another object.
    const bool opening = request.get_header_value("Range") == "bytes=0-0";
    if (!bin || opening) return false;
    response.set_header("ETag", "\"two\"");
    response.set_content(read_text_file(corpus() + ".bin"), "application/octet-stream");
    return true;
  });
  const TinyRun run = try_train(on_server(server, new_folder() / "cache"));
  EXPECT_NE(run.program.exit_code, 0);
  EXPECT_NE(run.program.err.find(server.url("/data/text.bin") + " has changed while in use"),
            std::string::npos)
      << run.program.err;
}

}  // namespace
}  // namespace pentatron::functional
