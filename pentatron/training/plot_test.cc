// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/plot.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <sstream>

#include "pentatron/base/file.h"
#include "pentatron/base/temp_folder.h"
#include "pentatron/base/test_support.h"

namespace pentatron::training {
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

TEST(Plot, SvgIsWellFormedWithALineForEachSeries) {
  const std::string svg =
      svg_plot({{.label = "a < b & \"c\"", .points = {{1, 3.0}, {2, 2.0}, {3, 1.0}}},
                {.label = "dots", .points = {{1, 2.5}, {3, 1.5}}, .markers = true}},
               {.title = "Loss <&>", .width = 800, .height = 400});
  const std::vector<Element> all = XmlReader(svg).read();
  EXPECT_EQ(all.at(0).name, "svg");
  EXPECT_EQ(all.at(0).attributes.at("xmlns"), "http://www.w3.org/2000/svg");
  EXPECT_EQ(all.at(0).attributes.at("viewBox"), "0 0 800 400");
  const std::vector<Element> paths = named(all, "path");
  ASSERT_EQ(paths.size(), 2U);
  EXPECT_EQ(letters(paths[0]), "MLL");
  EXPECT_EQ(letters(paths[1]), "ML");
  EXPECT_NE(paths[0].attributes.at("stroke"), paths[1].attributes.at("stroke"));
  EXPECT_EQ(named(all, "circle").size(), 2U);
  std::vector<std::string> texts;
  for (const Element& e : named(all, "text")) texts.push_back(e.text);
  for (const char* text : {"Loss <&>", "a < b & \"c\"", "dots", "iteration", "loss"}) {
    EXPECT_NE(std::find(texts.begin(), texts.end(), text), texts.end()) << text;
  }
}

TEST(Plot, PointsStandWhereTheyBelong) {
  const std::vector<Element> all =
      XmlReader(
          svg_plot({{.label = "l", .points = {{10, 4.0}, {20, 2.0}, {30, 1.0}}}}, {.title = "t"}))
          .read();
  const std::vector<PathPoint> points = path_points(named(all, "path").at(0));
  ASSERT_EQ(points.size(), 3U);
  // Even steps to the right; the loss falls, so y grows downwards, twice as far for 2 as for 1.
  EXPECT_NEAR(points[1].x - points[0].x, points[2].x - points[1].x, 0.11);
  EXPECT_GT(points[1].x, points[0].x + 100);
  EXPECT_NEAR(points[1].y - points[0].y, 2 * (points[2].y - points[1].y), 0.31);
  EXPECT_GT(points[2].y, points[1].y + 50);
  // An axis label at 20 stands under the middle point.
  bool found = false;
  for (const Element& e : named(all, "text")) {
    if (e.text != "20") continue;
    found = true;
    EXPECT_NEAR(std::stod(e.attributes.at("x")), points[1].x, 0.11);
  }
  EXPECT_TRUE(found);
}

TEST(Plot, ValuesThatAreNotFiniteBreakTheLine) {
  const std::vector<Element> all =
      XmlReader(
          svg_plot(
              {{.label = "l",
                .points =
                    {{1, 3.0}, {2, 2.0}, {3, kNan}, {4, 1.5}, {5, HUGE_VAL}, {6, 1.0}, {7, 1.0}}}},
              {.title = "t"}))
          .read();
  EXPECT_EQ(letters(named(all, "path").at(0)), "MLMML");
}

TEST(Plot, TooFewPointsAreAnError) {
  for (const std::vector<PlotSeries>& series :
       {std::vector<PlotSeries>{}, std::vector<PlotSeries>{{.label = "l", .points = {{1, 1.0}}}},
        std::vector<PlotSeries>{{.label = "l", .points = {{1, 1.0}, {2, kNan}, {3, HUGE_VAL}}}}}) {
    expect_error(ErrorKind::kData, "at least 2 are needed",
                 [&] { (void)svg_plot(series, {.title = "t"}); });
  }
}

TEST(Plot, ExtremeRangesEndAndStayInside) {
  const double huge = 1e17;  // steps of 0.1 vanish beside it
  for (const std::vector<MetricsPoint>& points :
       {std::vector<MetricsPoint>{{1, huge}, {2, huge}},
        std::vector<MetricsPoint>{{1, huge}, {2, std::nextafter(huge, 2 * huge)}},
        std::vector<MetricsPoint>{{1, 0.0}, {2, 0.0}},
        std::vector<MetricsPoint>{{1, -1e-12}, {1'000'000'000'000, 1e-12}},
        std::vector<MetricsPoint>{{5, 1.0}, {5, 2.0}}}) {
    const std::string svg = svg_plot({{.label = "l", .points = points}}, {.title = "t"});
    EXPECT_LT(svg.size(), 20'000U);
    EXPECT_EQ(svg.find("nan"), std::string::npos);
    for (const PathPoint& point : path_points(named(XmlReader(svg).read(), "path").at(0))) {
      EXPECT_GE(point.x, 0);
      EXPECT_LE(point.x, 960);
      EXPECT_GE(point.y, 0);
      EXPECT_LE(point.y, 540);
    }
  }
}

TEST(Plot, FileOfMetricsBecomesAFile) {
  const TempFolder folder;
  const auto metrics = folder.path() / "metrics.jsonl";
  {
    MetricsFile file(metrics, 0);
    for (std::int64_t i = 1; i <= 6; ++i) {
      file.write("train", i, {{"lm_loss", i == 3 ? kNan : 5.0 / static_cast<double>(i)}});
      if (i % 3 == 0) file.write("validation", i, {{"lm_loss", 2.0}});
    }
  }
  const auto svg = folder.path() / "loss.svg";
  plot_metrics_file(metrics, svg);
  const std::vector<Element> all = XmlReader(read_text_file(svg)).read();
  const std::vector<Element> paths = named(all, "path");
  ASSERT_EQ(paths.size(), 2U);
  EXPECT_EQ(letters(paths[0]), "MLMLL");  // the third has no value
  EXPECT_EQ(letters(paths[1]), "ML");
  EXPECT_EQ(named(all, "circle").size(), 2U);
}

TEST(Plot, AFileWithoutLossesLeavesNoPicture) {
  const TempFolder folder;
  const auto metrics = folder.path() / "metrics.jsonl";
  { MetricsFile(metrics, 0).write("train", 1, {{"grad_norm", 1.0}}); }
  const auto svg = folder.path() / "loss.svg";
  expect_error(ErrorKind::kData, "nothing to plot", [&] { plot_metrics_file(metrics, svg); });
  EXPECT_FALSE(std::filesystem::exists(svg));
}

}  // namespace
}  // namespace pentatron::training
