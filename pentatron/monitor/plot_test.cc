// SPDX-License-Identifier: Apache-2.0
#include "pentatron/monitor/plot.h"

#include <cairo/cairo.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <sstream>

#include "pentatron/base/file.h"
#include "pentatron/base/temp_folder.h"
#include "pentatron/base/test_support.h"
#include "pentatron/monitor/chart.h"

namespace pentatron::monitor {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Element {
  std::string name;
  std::map<std::string, std::string> attributes;
  std::string text;
};

// A strict reader of the XML that a chart may use: elements, quoted attributes, text with the five
// entities. Anything else is an error.
class XmlReader {
 public:
  explicit XmlReader(std::string text) : text_(std::move(text)) {}
  std::vector<Element> read() {
    element();
    space();
    expect(at_ == text_.size(), "text after the root");
    return std::move(elements_);
  }

 private:
  void expect(bool good, const std::string& what) const {
    if (!good) throw std::runtime_error(what + " at byte " + std::to_string(at_));
  }
  [[nodiscard]] char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void take(const std::string& word) {
    expect(text_.compare(at_, word.size(), word) == 0, "expected " + word);
    at_ += word.size();
  }
  void space() {
    while (peek() == ' ' || peek() == '\n') ++at_;
  }
  std::string name() {
    const std::size_t begin = at_;
    while (std::isalnum(static_cast<unsigned char>(peek())) != 0 || peek() == '-') ++at_;
    expect(at_ > begin, "expected a name");
    return text_.substr(begin, at_ - begin);
  }
  std::string characters(char end) {
    std::string out;
    while (peek() != end) {
      expect(at_ < text_.size() && peek() != '<', "unexpected end or <");
      if (peek() == '&') {
        const std::size_t stop = text_.find(';', at_);
        expect(stop != std::string::npos, "entity without end");
        const std::string entity = text_.substr(at_, stop - at_ + 1);
        static const std::map<std::string, char> kKnown{
            {"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}};
        expect(kKnown.contains(entity), "unknown entity " + entity);
        out += kKnown.at(entity);
        at_ = stop + 1;
      } else {
        out += text_[at_++];
      }
    }
    return out;
  }
  void element() {
    take("<");
    const std::size_t place = elements_.size();
    elements_.push_back({.name = name(), .attributes = {}, .text = {}});
    for (space(); peek() != '>' && peek() != '/'; space()) {
      const std::string key = name();
      take("=\"");
      expect(!elements_[place].attributes.contains(key), "attribute twice");
      elements_[place].attributes[key] = characters('"');
      take("\"");
    }
    if (peek() == '/') return take("/>");
    take(">");
    while (true) {
      elements_[place].text += characters('<');
      if (text_.compare(at_, 2, "</") == 0) break;
      element();
    }
    take("</" + elements_[place].name + ">");
  }

  std::string text_;
  std::size_t at_ = 0;
  std::vector<Element> elements_;
};

std::vector<Element> named(const std::vector<Element>& all, const std::string& name) {
  std::vector<Element> found;
  std::copy_if(all.begin(), all.end(), std::back_inserter(found),
               [&](const Element& e) { return e.name == name; });
  return found;
}

// (letter, x, y) of a path of moves and lines.
struct PathPoint {
  char letter;
  double x;
  double y;
};
std::vector<PathPoint> path_points(const Element& path) {
  std::vector<PathPoint> points;
  std::istringstream in(path.attributes.at("d"));
  PathPoint point{};
  while (in >> point.letter >> point.x >> point.y) points.push_back(point);
  EXPECT_TRUE(in.eof());
  return points;
}

std::string letters(const Element& path) {
  std::string text;
  for (const PathPoint& point : path_points(path)) text += point.letter;
  return text;
}

std::string svg_chart(const std::vector<ChartSeries>& series, const ChartOptions& options) {
  const std::unique_ptr<Canvas> canvas = make_svg_canvas(options.width, options.height);
  draw_chart(*canvas, series, options);
  return canvas->finish();
}

// The paths of series: the widest. Keys are those of two points on one height.
std::vector<Element> curves(const std::string& svg) {
  std::vector<Element> found;
  for (const Element& path : named(XmlReader(svg).read(), "path")) {
    if (path.attributes.at("stroke-width") == "1.8") found.push_back(path);
  }
  return found;
}

TEST(Plot, SvgIsWellFormedWithALineForEachSeries) {
  const std::string svg = svg_chart(
      {{.label = "a < b & \"c\"", .points = {{1, 3.0}, {2, 2.0}, {3, 1.0}}},
       {.label = "dots", .points = {{1, 2.5}, {3, 1.5}}, .colour = "#d9542b", .markers = true}},
      {.title = "Loss <&>", .width = 800, .height = 400});
  const std::vector<Element> all = XmlReader(svg).read();
  EXPECT_EQ(all.at(0).name, "svg");
  EXPECT_EQ(all.at(0).attributes.at("xmlns"), "http://www.w3.org/2000/svg");
  EXPECT_EQ(all.at(0).attributes.at("viewBox"), "0 0 800 400");
  const std::vector<Element> paths = curves(svg);
  ASSERT_EQ(paths.size(), 2U);
  EXPECT_EQ(letters(paths[0]), "MLL");
  EXPECT_EQ(letters(paths[1]), "ML");
  EXPECT_EQ(paths[1].attributes.at("stroke"), "#d9542b");
  EXPECT_NE(paths[0].attributes.at("stroke"), paths[1].attributes.at("stroke"));
  EXPECT_EQ(named(all, "circle").size(), 3U);  // and one of the key
  std::vector<std::string> texts;
  for (const Element& e : named(all, "text")) texts.push_back(e.text);
  for (const char* text : {"Loss <&>", "a < b & \"c\"", "dots", "iteration", "loss"}) {
    EXPECT_NE(std::find(texts.begin(), texts.end(), text), texts.end()) << text;
  }
}

// Where the text stands; a failure when it is missing.
Spot place_of(const std::string& svg, const std::string& text) {
  for (const Element& e : named(XmlReader(svg).read(), "text")) {
    if (e.text == text) return {std::stod(e.attributes.at("x")), std::stod(e.attributes.at("y"))};
  }
  ADD_FAILURE() << "no text " << text;
  return {};
}

TEST(Plot, PointsStandWhereTheyBelong) {
  const std::string svg =
      svg_chart({{.label = "l", .points = {{10, 4.0}, {20, 2.0}, {30, 1.0}}}}, {.title = "t"});
  const std::vector<PathPoint> points = path_points(curves(svg).at(0));
  ASSERT_EQ(points.size(), 3U);
  // Even steps to the right; the loss falls, so y grows downwards, twice as far for 2 as for 1.
  EXPECT_NEAR(points[1].x - points[0].x, points[2].x - points[1].x, 0.11);
  EXPECT_GT(points[1].x, points[0].x + 100);
  EXPECT_NEAR(points[1].y - points[0].y, 2 * (points[2].y - points[1].y), 0.31);
  EXPECT_GT(points[2].y, points[1].y + 50);
  // An axis label at 20 stands under the middle point, one at 2 beside it.
  EXPECT_NEAR(place_of(svg, "20").x, points[1].x, 0.11);
  EXPECT_NEAR(place_of(svg, "2").y - 4, points[1].y, 0.11);
}

TEST(Plot, LogScaleMakesEqualFactorsEqualSteps) {
  const std::string svg =
      svg_chart({{.label = "l", .points = {{1, 100.0}, {2, 10.0}, {3, -1.0}, {4, 1.0}, {5, 0.0}}}},
                {.title = "t", .log_scale = true});
  const Element path = curves(svg).at(0);
  EXPECT_EQ(letters(path), "MLM");  // what has no logarithm breaks the line
  const std::vector<PathPoint> points = path_points(path);
  EXPECT_NEAR(points[1].y - points[0].y, points[2].y - points[1].y, 0.21);
  EXPECT_NEAR(place_of(svg, "10").y - 4, points[1].y, 0.11);
  expect_error(ErrorKind::kData, "1 finite points above zero", [] {
    (void)svg_chart({{.label = "l", .points = {{1, 1.0}, {2, -1.0}}}},
                    {.title = "t", .log_scale = true});
  });
}

TEST(Plot, SmoothingIsABiasFreeExponentialMean) {
  const std::vector<ChartPoint> mean = smoothed({{1, 4.0}, {2, kNan}, {3, 2.0}, {4, 2.0}}, 0.5);
  EXPECT_EQ(mean[0].value, 4.0);
  EXPECT_TRUE(std::isnan(mean[1].value));
  EXPECT_DOUBLE_EQ(mean[2].value, (0.5 * 4 + 2) / 1.5);
  EXPECT_DOUBLE_EQ(mean[3].value, (0.25 * 4 + 0.5 * 2 + 2) / 1.75);
  for (const ChartPoint& point : smoothed({{1, 3.0}, {2, 3.0}, {3, 3.0}}, 0.99)) {
    EXPECT_DOUBLE_EQ(point.value, 3.0);
  }
}

TEST(Plot, ValuesThatAreNotFiniteBreakTheLine) {
  const std::string svg = svg_chart(
      {{.label = "l",
        .points = {{1, 3.0}, {2, 2.0}, {3, kNan}, {4, 1.5}, {5, HUGE_VAL}, {6, 1.0}, {7, 1.0}}}},
      {.title = "t"});
  EXPECT_EQ(letters(curves(svg).at(0)), "MLMML");
}

TEST(Plot, TooFewPointsAreAnError) {
  for (const std::vector<ChartSeries>& series :
       {std::vector<ChartSeries>{}, std::vector<ChartSeries>{{.label = "l", .points = {{1, 1.0}}}},
        std::vector<ChartSeries>{{.label = "l", .points = {{1, 1.0}, {2, kNan}, {3, HUGE_VAL}}}}}) {
    expect_error(ErrorKind::kData, "at least 2 are needed",
                 [&] { (void)svg_chart(series, {.title = "t"}); });
  }
}

TEST(Plot, ExtremeRangesEndAndStayInside) {
  const double huge = 1e17;  // steps of 0.1 vanish beside it
  for (const std::vector<ChartPoint>& points :
       {std::vector<ChartPoint>{{1, huge}, {2, huge}},
        std::vector<ChartPoint>{{1, huge}, {2, std::nextafter(huge, 2 * huge)}},
        std::vector<ChartPoint>{{1, 0.0}, {2, 0.0}},
        std::vector<ChartPoint>{{1, 1e-300}, {2, 1e300}},
        std::vector<ChartPoint>{{1, -1e-12}, {1'000'000'000'000, 1e-12}},
        std::vector<ChartPoint>{{5, 1.0}, {5, 2.0}}}) {
    for (const bool log_scale : {false, true}) {
      if (log_scale && points[0].value <= 0) continue;
      const std::string svg =
          svg_chart({{.label = "l", .points = points}}, {.title = "t", .log_scale = log_scale});
      EXPECT_LT(svg.size(), 20'000U);
      EXPECT_EQ(svg.find("nan"), std::string::npos);
      for (const PathPoint& point : path_points(curves(svg).at(0))) {
        EXPECT_GE(point.x, 0);
        EXPECT_LE(point.x, 960);
        EXPECT_GE(point.y, 0);
        EXPECT_LE(point.y, 540);
      }
    }
  }
}

// A metrics file of six losses, the third not finite, and two evaluations.
std::filesystem::path write_metrics(const std::filesystem::path& path, double first) {
  std::ofstream out(path);
  for (int i = 1; i <= 6; ++i) {
    out << R"({"kind":"train","iteration":)" << i << R"(,"grad_norm":1,"lm_loss":)";
    if (i == 3) {
      out << "\"nan\"}\n";
    } else {
      out << first / i << "}\n";
    }
    if (i % 3 == 0)
      out << R"({"kind":"validation","iteration":)" << i << R"(,"lm_loss":2})"
          << "\n";
  }
  return path;
}

TEST(Plot, FilesOfMetricsBecomeAPicture) {
  const TempFolder folder;
  const auto one = write_metrics(folder.path() / "one.jsonl", 5);
  std::filesystem::create_directory(folder.path() / "two");
  const auto two = write_metrics(folder.path() / "two" / "metrics.jsonl", 4);
  const auto svg = folder.path() / "loss.svg";
  plot({.metrics_files = {one}, .output = svg});
  std::vector<Element> paths = curves(read_text_file(svg));
  ASSERT_EQ(paths.size(), 2U);
  EXPECT_EQ(letters(paths[0]), "MLMLL");  // the third has no value
  EXPECT_EQ(letters(paths[1]), "ML");
  (void)place_of(read_text_file(svg), "training");
  plot({.metrics_files = {one, two}, .output = svg});
  paths = curves(read_text_file(svg));
  ASSERT_EQ(paths.size(), 4U);
  EXPECT_EQ(paths[0].attributes.at("stroke"), paths[1].attributes.at("stroke"));
  EXPECT_NE(paths[0].attributes.at("stroke"), paths[2].attributes.at("stroke"));
  for (const char* key : {"one training", "one validation", "two training", "two validation"}) {
    (void)place_of(read_text_file(svg), key);
  }
  plot({.metrics_files = {two}, .output = svg, .metric = "grad_norm", .title = "Norms"});
  EXPECT_EQ(curves(read_text_file(svg)).size(), 1U);
  (void)place_of(read_text_file(svg), "Norms");
}

TEST(Plot, ValidationSetsAreSeriesOfTheirOwn) {
  const TempFolder folder;
  const auto write = [&](const char* name, const std::vector<std::string>& sets) {
    const auto path = folder.path() / name;
    std::ofstream out(path);
    for (int i = 1; i <= 3; ++i) {
      out << R"({"kind":"train","iteration":)" << i << R"(,"lm_loss":3})"
          << "\n";
      for (const std::string& set : sets) {
        out << R"({"kind":"validation-)" << set << R"(","iteration":)" << i << R"(,"lm_loss":2})"
            << "\n";
      }
    }
    return path;
  };
  const auto colours_of = [](const std::string& svg) {
    std::vector<std::string> colours;
    for (const Element& curve : curves(svg)) colours.push_back(curve.attributes.at("stroke"));
    return colours;
  };
  const auto one = write("one.jsonl", {"web", "code"});
  const auto two = write("two.jsonl", {"web", "code"});
  const auto svg = folder.path() / "loss.svg";
  plot({.metrics_files = {one}, .output = svg});
  std::string text = read_text_file(svg);
  for (const char* key : {"training", "validation web", "validation code"}) {
    (void)place_of(text, key);
  }
  std::vector<std::string> colours = colours_of(text);
  EXPECT_EQ(colours.size(), 3U);
  EXPECT_EQ(std::set<std::string>(colours.begin(), colours.end()).size(), 3U);
  EXPECT_EQ(letters(curves(text)[1]), "MLL") << "of one set, not of all in turn";
  plot({.metrics_files = {one, two}, .output = svg});
  text = read_text_file(svg);
  (void)place_of(text, "two validation code");
  colours = colours_of(text);
  EXPECT_EQ(colours.size(), 6U);
  EXPECT_EQ(std::set<std::string>(colours.begin(), colours.end()).size(), 6U);
}

// The curves of twelve runs have most of the picture, whatever their names.
TEST(Plot, ManyKeysStandBesideTheCurves) {
  std::vector<ChartSeries> series;
  for (int i = 0; i < 12; ++i) {
    series.push_back({.label = "a run with a long name, number " + std::to_string(i),
                      .points = {{1, 1.0 + i}, {100, 2.0 + i}}});
  }
  for (const int copies : {1, 10}) {
    std::vector<ChartSeries> many;
    for (int i = 0; i < copies; ++i) many.insert(many.end(), series.begin(), series.end());
    const std::string svg = svg_chart(many, {.title = "t"});
    const std::vector<Element> paths = curves(svg);
    ASSERT_EQ(paths.size(), many.size());
    const std::vector<PathPoint> first = path_points(paths[0]);
    EXPECT_GT(first[1].x - first[0].x, 0.55 * 960);
    EXPECT_GT(first[0].y - path_points(paths[11])[1].y, 0.65 * 540);
    for (const Element& e : named(XmlReader(svg).read(), "text")) {
      if (!e.text.starts_with("a run")) continue;
      EXPECT_GT(std::stod(e.attributes.at("x")), first[1].x);
      EXPECT_LT(std::stod(e.attributes.at("y")), 540);
    }
  }
  (void)place_of(svg_chart(series, {.title = "t", .width = 1600}), series[11].label);
}

TEST(Plot, NumbersHaveUnitsAndTheirLabelsRoom) {
  const TempFolder folder;
  const auto metrics = folder.path() / "m.jsonl";
  std::ofstream(metrics)
      << R"({"kind":"train","iteration":1,"memory_reserved":3221225472,"tokens_per_second":20000})"
      << "\n"
      << R"({"kind":"train","iteration":20000,"memory_reserved":4294967296,"tokens_per_second":90000})"
      << "\n";
  const auto svg = folder.path() / "m.svg";
  plot({.metrics_files = {metrics}, .output = svg, .metric = "memory_reserved"});
  std::string text = read_text_file(svg);
  EXPECT_NE(text.find(">memory (GiB)<"), std::string::npos);
  (void)place_of(text, "3.4");
  (void)place_of(text, "20k");
  plot({.metrics_files = {metrics}, .output = svg, .metric = "tokens_per_second"});
  text = read_text_file(svg);
  (void)place_of(text, "80k");
  EXPECT_EQ(text.find("e+0"), std::string::npos);
  // The longest label ends right of the axis's turned title (19 pixels from the edge).
  const std::string labels =
      svg_chart({{.label = "l", .points = {{1, 0.12345}, {2, 0.12346}}}}, {});
  for (const Element& e : named(XmlReader(labels).read(), "text")) {
    if (e.attributes.at("text-anchor") != "end") continue;
    EXPECT_GT(std::stod(e.attributes.at("x")) - 7.2 * static_cast<double>(e.text.size()), 24)
        << e.text;
  }
}

using Surface = std::unique_ptr<cairo_surface_t, void (*)(cairo_surface_t*)>;

// Pixels of about this colour.
std::int64_t count_pixels(const Surface& picture, int red, int green, int blue) {
  const unsigned char* data = cairo_image_surface_get_data(picture.get());
  const int stride = cairo_image_surface_get_stride(picture.get());
  std::int64_t count = 0;
  for (int y = 0; y < cairo_image_surface_get_height(picture.get()); ++y) {
    for (int x = 0; x < cairo_image_surface_get_width(picture.get()); ++x) {
      const unsigned char* pixel = data + y * stride + 4 * x;  // blue, green, red
      const int distance =
          std::abs(pixel[0] - blue) + std::abs(pixel[1] - green) + std::abs(pixel[2] - red);
      if (distance < 24) ++count;
    }
  }
  return count;
}

TEST(Plot, PngShowsTheSameChart) {
  const TempFolder folder;
  const auto metrics = write_metrics(folder.path() / "m.jsonl", 5);
  const auto png = folder.path() / "loss.png";
  plot({.metrics_files = {metrics}, .output = png, .width = 640, .height = 400});
  const Surface picture(cairo_image_surface_create_from_png(png.c_str()), &cairo_surface_destroy);
  ASSERT_EQ(cairo_surface_status(picture.get()), CAIRO_STATUS_SUCCESS);
  EXPECT_EQ(cairo_image_surface_get_width(picture.get()), 640);
  EXPECT_EQ(cairo_image_surface_get_height(picture.get()), 400);
  // A ground, a line of some hundred pixels, dots of evaluations, letters.
  EXPECT_GT(count_pixels(picture, 255, 255, 255), 640 * 400 * 8 / 10);
  EXPECT_GT(count_pixels(picture, 0x3b, 0x7d, 0xdd), 200);
  EXPECT_GT(count_pixels(picture, 0xe0, 0x70, 0x2b), 100);
  EXPECT_GT(count_pixels(picture, 0x1d, 0x23, 0x30), 50);
  EXPECT_EQ(count_pixels(picture, 0x2b, 0xa3, 0x6b), 0);  // no third series
}

TEST(Plot, BadRequestsLeaveNoPicture) {
  const TempFolder folder;
  const auto svg = folder.path() / "loss.svg";
  const auto metrics = folder.path() / "metrics.jsonl";
  std::ofstream(metrics) << R"({"kind":"train","iteration":1,"grad_norm":1})"
                         << "\n";
  expect_error(ErrorKind::kData, "nothing to plot",
               [&] { plot({.metrics_files = {metrics}, .output = svg}); });
  expect_error(ErrorKind::kConfig, "ends in .svg or .png",
               [&] { plot({.metrics_files = {metrics}, .output = folder.path() / "loss.jpg"}); });
  expect_error(ErrorKind::kConfig, "--metric lm-loss",
               [&] { plot({.metrics_files = {metrics}, .output = svg, .metric = "lm-loss"}); });
  expect_error(ErrorKind::kIo, "no such file",
               [&] { plot({.metrics_files = {folder.path() / "none.jsonl"}, .output = svg}); });
  std::ofstream(metrics) << "hello\nworld\n";
  expect_error(ErrorKind::kData, "is this a metrics file?",
               [&] { plot({.metrics_files = {metrics}, .output = svg}); });
  EXPECT_FALSE(std::filesystem::exists(svg));
}

}  // namespace
}  // namespace pentatron::monitor
