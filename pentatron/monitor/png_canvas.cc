// SPDX-License-Identifier: Apache-2.0
#include <cairo/cairo.h>

#include <charconv>
#include <numbers>

#include "pentatron/base/error.h"
#include "pentatron/monitor/canvas.h"

namespace pentatron::monitor {
namespace {

struct Colour {
  double red = 0;
  double green = 0;
  double blue = 0;
};

Colour parse_colour(const std::string& text) {
  unsigned value = 0;
  const char* begin = text.data() + 1;
  const char* end = text.data() + text.size();
  constexpr std::size_t kLength = 7;
  PENTATRON_CHECK(
      text.size() == kLength && text[0] == '#' && std::from_chars(begin, end, value, 16).ptr == end,
      kInternal, "'{}' is no colour of the form #rrggbb", text);
  constexpr double kMaxChannel = 255;
  return {((value >> 16) & 0xFFU) / kMaxChannel, ((value >> 8) & 0xFFU) / kMaxChannel,
          (value & 0xFFU) / kMaxChannel};
}

class PngCanvas final : public Canvas {
 public:
  PngCanvas(int width, int height)
      : surface_(cairo_image_surface_create(CAIRO_FORMAT_RGB24, width, height),
                 &cairo_surface_destroy),
        cairo_(cairo_create(surface_.get()), &cairo_destroy) {
    PENTATRON_CHECK(cairo_status(cairo_.get()) == CAIRO_STATUS_SUCCESS, kUnsupported,
                    "no picture of {} x {} pixels: {}", width, height,
                    cairo_status_to_string(cairo_status(cairo_.get())));
    cairo_select_font_face(cairo_.get(), "sans-serif", CAIRO_FONT_SLANT_NORMAL,
                           CAIRO_FONT_WEIGHT_NORMAL);
    cairo_set_line_join(cairo_.get(), CAIRO_LINE_JOIN_ROUND);
    cairo_set_line_cap(cairo_.get(), CAIRO_LINE_CAP_ROUND);
  }

  void fill(const std::string& colour) override {
    set_colour(colour, 1);
    cairo_paint(cairo_.get());
  }

  void curve(const std::vector<std::vector<Spot>>& pieces, const Stroke& stroke) override {
    for (const std::vector<Spot>& piece : pieces) {
      for (std::size_t i = 0; i < piece.size(); ++i) {
        if (i == 0) {
          cairo_move_to(cairo_.get(), piece[i].x, piece[i].y);
        } else {
          cairo_line_to(cairo_.get(), piece[i].x, piece[i].y);
        }
      }
    }
    set_colour(stroke.colour, stroke.opacity);
    cairo_set_line_width(cairo_.get(), stroke.width);
    constexpr double kDashes[] = {5, 4};
    cairo_set_dash(cairo_.get(), kDashes, stroke.dashed ? 2 : 0, 0);
    cairo_stroke(cairo_.get());
  }

  void dot(Spot centre, double radius, const std::string& colour) override {
    set_colour(colour, 1);
    cairo_new_path(cairo_.get());
    cairo_arc(cairo_.get(), centre.x, centre.y, radius, 0, 2 * std::numbers::pi);
    cairo_fill(cairo_.get());
  }

  void text(Spot place, const std::string& text, const TextStyle& style) override {
    cairo_save(cairo_.get());
    cairo_set_font_size(cairo_.get(), style.size);
    cairo_text_extents_t extents;
    cairo_text_extents(cairo_.get(), text.c_str(), &extents);
    const double shift = style.anchor == Anchor::kStart    ? 0
                         : style.anchor == Anchor::kMiddle ? -extents.x_advance / 2
                                                           : -extents.x_advance;
    cairo_translate(cairo_.get(), place.x, place.y);
    if (style.upwards) cairo_rotate(cairo_.get(), -std::numbers::pi / 2);
    set_colour(style.colour, 1);
    cairo_move_to(cairo_.get(), shift, 0);
    cairo_show_text(cairo_.get(), text.c_str());
    cairo_restore(cairo_.get());
    cairo_new_path(cairo_.get());
  }

  std::string finish() override {
    std::string bytes;
    const auto append = [](void* closure, const unsigned char* data, unsigned int length) {
      static_cast<std::string*>(closure)->append(reinterpret_cast<const char*>(data), length);
      return CAIRO_STATUS_SUCCESS;
    };
    cairo_surface_flush(surface_.get());
    cairo_status_t status = cairo_status(cairo_.get());
    if (status == CAIRO_STATUS_SUCCESS) {
      status = cairo_surface_write_to_png_stream(surface_.get(), append, &bytes);
    }
    PENTATRON_CHECK(status == CAIRO_STATUS_SUCCESS, kInternal, "the picture was not drawn: {}",
                    cairo_status_to_string(status));
    return bytes;
  }

 private:
  void set_colour(const std::string& text, double opacity) {
    const Colour colour = parse_colour(text);
    cairo_set_source_rgba(cairo_.get(), colour.red, colour.green, colour.blue, opacity);
  }

  std::unique_ptr<cairo_surface_t, void (*)(cairo_surface_t*)> surface_;
  std::unique_ptr<cairo_t, void (*)(cairo_t*)> cairo_;
};

}  // namespace

std::unique_ptr<Canvas> make_png_canvas(int width, int height) {
  return std::make_unique<PngCanvas>(width, height);
}

}  // namespace pentatron::monitor
