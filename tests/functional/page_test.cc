// SPDX-License-Identifier: Apache-2.0
#include <cairo/cairo.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <memory>
#include <regex>
#include <thread>

#include "pentatron/monitor/server.h"
#include "tests/functional/tiny_run.h"

// The page of `pentatron watch` in a real browser (headless Chromium), at the widths of a phone and
// of a desk. Pictures go to $PENTATRON_PAGE_PICTURES where that is set.
namespace pentatron::functional {
namespace {

namespace fs = std::filesystem;

std::string output_of(const std::string& command) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(::popen(command.c_str(), "r"),
                                                             &::pclose);
  std::string text;
  std::array<char, 1 << 16> block{};
  while (pipe != nullptr) {
    const std::size_t got = std::fread(block.data(), 1, block.size(), pipe.get());
    if (got == 0) break;
    text.append(block.data(), got);
  }
  return text;
}

// Time of the page passes as fast as the browser can fetch.
std::string browser(const fs::path& profile, const std::string& more) {
  return output_of(
      "timeout 120 chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage "
      "--hide-scrollbars --no-first-run --user-data-dir='" +
      profile.string() + "' " + more + " 2>/dev/null");
}

// A run with evaluations and samples; its metrics file alone in a folder.
fs::path folder_of_run() {
  const fs::path folder = new_folder();
  (void)train(base()
                  .with("--train-iters", 40)
                  .with("--eval-iters", 1)
                  .with("--eval-interval", 10)
                  .with("--sample-prompt", "1 2 3")
                  .with("--sample-length", 8)
                  .with("--metrics-file", (folder / "tiny.jsonl").string()));
  return folder;
}

// The value of an attribute of the card, or of the body.
std::string attribute(const std::string& dom, const std::string& element, const std::string& name) {
  std::smatch match;
  const std::regex tag("<[^>]*" + element + "[^>]*>");
  if (!std::regex_search(dom, match, tag)) return "no " + element;
  const std::string text = match[0];
  const std::regex value(name + "=\"([^\"]*)\"");
  return std::regex_search(text, match, value) ? match[1].str() : "no " + name;
}

// Curves' numbers of points, in the order of the page.
std::vector<std::size_t> curves_of(const std::string& dom) {
  std::vector<std::size_t> points;
  const std::regex curve("<path class=\"curve[^>]* d=\"([^\"]*)\"");
  for (std::sregex_iterator it(dom.begin(), dom.end(), curve), end; it != end; ++it) {
    const std::string path = (*it)[1];
    points.push_back(static_cast<std::size_t>(
        std::count_if(path.begin(), path.end(), [](char c) { return c == 'M' || c == 'L'; })));
  }
  return points;
}

// Serves a folder while it lives; `on_request` as the server's.
class Serving {
 public:
  Serving(const fs::path& folder, std::function<void(std::string_view)> on_request = {})
      : server_(folder, {.on_request = std::move(on_request)}),
        thread_([this] { server_.run(); }) {}
  ~Serving() {
    server_.stop();
    thread_.join();
  }
  [[nodiscard]] std::string url() const { return server_.url(); }

 private:
  monitor::MonitorServer server_;
  std::thread thread_;
};

TEST(Page, DrawsARunAndFollowsIt) {
  const fs::path folder = folder_of_run();
  // After some rounds of asking, ten more steps and a sample are appended.
  std::atomic<int> rounds{0};
  const Serving serving(folder, [&](std::string_view path) {
    constexpr int kRound = 6;
    if (path != "/api/runs" || ++rounds != kRound) return;
    std::ofstream out(folder / "tiny.jsonl", std::ios::app);
    for (int i = 41; i <= 50; ++i) {
      out << R"({"kind":"train","iteration":)" << i
          << R"(,"lm_loss":0.125,"grad_norm":2,"learning_rate":0.5})"
          << "\n";
    }
    out << R"({"kind":"sample","iteration":50,"prompt":"<i>x</i>","text":" & <script>alert(1)</script>"})"
        << "\n";
  });
  const std::string dom =
      browser(new_folder(), "--virtual-time-budget=30000 --dump-dom " + serving.url());
  ASSERT_NE(dom.find("</html>"), std::string::npos) << "no page: is chromium installed? " << dom;
  EXPECT_GE(rounds, 7);
  // Drawn: loss with evaluations, learning rate, gradient norm, throughput, memory.
  const std::vector<std::size_t> curves = curves_of(dom);
  ASSERT_EQ(curves.size(), 6U) << dom;
  EXPECT_EQ(curves[0], 50U);
  EXPECT_EQ(curves[1], 4U);
  EXPECT_EQ(curves[3], 50U);
  EXPECT_EQ(curves[4], 40U);  // the new lines have no throughput
  // Followed: the same page had 40 steps first.
  EXPECT_EQ(attribute(dom, "id=\"chart-loss\"", "data-iteration"), "50");
  EXPECT_EQ(attribute(dom, "id=\"chart-loss\"", "data-value"), "0.125");
  EXPECT_EQ(attribute(dom, "id=\"chart-learning-rate\"", "data-value"), "0.5");
  EXPECT_EQ(attribute(dom, "body ", "data-updates"), "2");
  // What the model wrote is text.
  EXPECT_NE(dom.find("&lt;i&gt;x&lt;/i&gt;"), std::string::npos);
  EXPECT_NE(dom.find("&lt;script&gt;alert(1)&lt;/script&gt;"), std::string::npos);
  EXPECT_EQ(dom.find("<script>alert"), std::string::npos);
}

TEST(Page, DrawsEachValidationSet) {
  const fs::path folder = new_folder();
  (void)train(base()
                  .without("--data-path")
                  .without("--split")
                  .with("--train-iters", 30)
                  .with("--eval-iters", 1)
                  .with("--eval-interval", 10)
                  .with("--train-data-path", corpus(0))
                  .with("--valid-data-path", std::vector<std::string>{corpus(1), corpus(0)})
                  .with("--multiple-validation-sets")
                  .with("--validation-set-names", std::vector<std::string>{"web", "<b>code</b>"})
                  .with("--metrics-file", (folder / "tiny.jsonl").string()));
  const Serving serving(folder);
  const std::string dom =
      browser(new_folder(), "--virtual-time-budget=5000 --dump-dom " + serving.url());
  // Loss, both sets, then the four other charts.
  const std::vector<std::size_t> curves = curves_of(dom);
  ASSERT_EQ(curves.size(), 7U) << dom;
  EXPECT_EQ(curves[1], 3U);
  EXPECT_EQ(curves[2], 3U);
  for (const char* key : {"<span>training</span>", "<span>validation web</span>",
                          "<span>validation &lt;b&gt;code&lt;/b&gt;</span>"}) {
    EXPECT_NE(dom.find(key), std::string::npos) << key;
  }
  const char* keep = std::getenv("PENTATRON_PAGE_PICTURES");
  if (keep == nullptr) return;
  for (const char* size : {"390,1900", "1280,1250"}) {
    const std::string width = std::string(size).substr(0, std::string(size).find(','));
    (void)browser(new_folder(), "--virtual-time-budget=5000 --window-size=" + std::string(size) +
                                    " --screenshot='" +
                                    (fs::path(keep) / ("sets_" + width + ".png")).string() + "' " +
                                    serving.url());
  }
}

// Pixels of about this colour, and the height of the picture's last row that is not ground.
struct Picture {
  int width = 0;
  int height = 0;
  std::int64_t blue = 0;  // of a first run's curves
};
Picture read_picture(const fs::path& path) {
  const std::unique_ptr<cairo_surface_t, void (*)(cairo_surface_t*)> surface(
      cairo_image_surface_create_from_png(path.c_str()), &cairo_surface_destroy);
  EXPECT_EQ(cairo_surface_status(surface.get()), CAIRO_STATUS_SUCCESS) << path;
  Picture picture{.width = cairo_image_surface_get_width(surface.get()),
                  .height = cairo_image_surface_get_height(surface.get())};
  const unsigned char* data = cairo_image_surface_get_data(surface.get());
  for (int y = 0; y < picture.height; ++y) {
    for (int x = 0; x < picture.width; ++x) {
      const unsigned char* p = data + y * cairo_image_surface_get_stride(surface.get()) + 4 * x;
      if (std::abs(p[2] - 0x3b) + std::abs(p[1] - 0x7d) + std::abs(p[0] - 0xdd) < 24)
        ++picture.blue;
    }
  }
  return picture;
}

TEST(Page, FitsAPhoneAndADesk) {
  const fs::path folder = folder_of_run();
  const Serving serving(folder);
  const char* keep = std::getenv("PENTATRON_PAGE_PICTURES");
  const fs::path pictures = keep != nullptr ? fs::path(keep) : new_folder();
  for (const auto& [width, height] : {std::pair{390, 1900}, std::pair{1280, 1250}}) {
    const fs::path file = pictures / ("page_" + std::to_string(width) + ".png");
    (void)browser(new_folder(), "--virtual-time-budget=5000 --window-size=" +
                                    std::to_string(width) + "," + std::to_string(height) +
                                    " --screenshot='" + file.string() + "' " + serving.url());
    const Picture picture = read_picture(file);
    EXPECT_EQ(picture.width, width);
    EXPECT_EQ(picture.height, height);
    // Five curves across the card.
    EXPECT_GT(picture.blue, 5 * 250) << file;
  }
}

TEST(Page, AnEmptyFolderSaysSo) {
  const fs::path folder = new_folder();
  const Serving serving(folder);
  const std::string dom =
      browser(new_folder(), "--virtual-time-budget=3000 --dump-dom " + serving.url());
  EXPECT_NE(dom.find("no runs here yet"), std::string::npos) << dom;
  EXPECT_EQ(curves_of(dom).size(), 0U);
}

}  // namespace
}  // namespace pentatron::functional
