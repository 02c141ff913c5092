// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace pentatron::monitor {

struct Spot {
  double x = 0;
  double y = 0;
};

struct Stroke {
  std::string colour = "#000000";  // "#rrggbb"
  double width = 1;
  double opacity = 1;
  bool dashed = false;
};

enum class Anchor { kStart, kMiddle, kEnd };

struct TextStyle {
  std::string colour = "#222222";
  double size = 13;
  Anchor anchor = Anchor::kStart;
  bool upwards = false;  // turned by a quarter, read from below
};

// What a chart is drawn on; points of the size given, y downwards. Texts are UTF-8 and stand on
// their base line.
class Canvas {
 public:
  virtual ~Canvas() = default;
  virtual void fill(const std::string& colour) = 0;
  // Pieces of one curve.
  virtual void curve(const std::vector<std::vector<Spot>>& pieces, const Stroke& stroke) = 0;
  virtual void dot(Spot centre, double radius, const std::string& colour) = 0;
  virtual void text(Spot place, const std::string& text, const TextStyle& style) = 0;
  // The picture file's bytes; the last call.
  [[nodiscard]] virtual std::string finish() = 0;
};

// A self-contained SVG whose texts stay texts.
[[nodiscard]] std::unique_ptr<Canvas> make_svg_canvas(int width, int height);
// A PNG of width x height pixels, drawn by cairo.
[[nodiscard]] std::unique_ptr<Canvas> make_png_canvas(int width, int height);

}  // namespace pentatron::monitor
