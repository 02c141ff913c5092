// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "pentatron/monitor/canvas.h"

namespace pentatron::monitor {
namespace {

// Text and attribute values; what XML forbids becomes a question mark.
std::string escape(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
    }
  }
  return out;
}

class SvgCanvas final : public Canvas {
 public:
  SvgCanvas(int width, int height) : width_(width), height_(height) {
    text_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
        "height=\"{1}\" font-family=\"system-ui, sans-serif\">\n",
        width, height);
  }

  void fill(const std::string& colour) override {
    text_ += fmt::format("<rect width=\"{}\" height=\"{}\" fill=\"{}\"/>\n", width_, height_,
                         escape(colour));
  }

  void curve(const std::vector<std::vector<Spot>>& pieces, const Stroke& stroke) override {
    std::string path;
    for (const std::vector<Spot>& piece : pieces) {
      for (std::size_t i = 0; i < piece.size(); ++i) {
        path += fmt::format("{}{:.1f} {:.1f} ", i == 0 ? "M" : "L", piece[i].x, piece[i].y);
      }
    }
    if (path.empty()) return;
    text_ += fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{}\"", path,
                         escape(stroke.colour), stroke.width);
    if (stroke.opacity < 1) text_ += fmt::format(" stroke-opacity=\"{}\"", stroke.opacity);
    if (stroke.dashed) text_ += " stroke-dasharray=\"5 4\"";
    text_ += " stroke-linejoin=\"round\" stroke-linecap=\"round\"/>\n";
  }

  void dot(Spot centre, double radius, const std::string& colour) override {
    text_ += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\" fill=\"{}\"/>\n", centre.x,
                         centre.y, radius, escape(colour));
  }

  void text(Spot place, const std::string& text, const TextStyle& style) override {
    const char* anchor = style.anchor == Anchor::kStart    ? "start"
                         : style.anchor == Anchor::kMiddle ? "middle"
                                                           : "end";
    text_ += style.upwards ? fmt::format("<text transform=\"translate({:.1f},{:.1f}) rotate(-90)\"",
                                         place.x, place.y)
                           : fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\"", place.x, place.y);
    text_ += fmt::format(" font-size=\"{}\" text-anchor=\"{}\" fill=\"{}\">{}</text>\n", style.size,
                         anchor, escape(style.colour), escape(text));
  }

  std::string finish() override { return text_ + "</svg>\n"; }

 private:
  int width_;
  int height_;
  std::string text_;
};

}  // namespace

std::unique_ptr<Canvas> make_svg_canvas(int width, int height) {
  return std::make_unique<SvgCanvas>(width, height);
}

}  // namespace pentatron::monitor
