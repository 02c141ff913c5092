// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

namespace pentatron::functional {

// A headless Chromium with one tab, steered over its debugging pipe (Chrome DevTools Protocol).
// What it does not answer within a minute is a std::runtime_error.
class Browser final {
 public:
  explicit Browser(const std::filesystem::path& profile);
  ~Browser();
  Browser(const Browser&) = delete;
  Browser& operator=(const Browser&) = delete;

  struct View {
    int width = 1280;
    int height = 900;
    bool dark = false;
    bool reduced_motion = false;
  };
  void set_view(const View& view);
  void open(const std::string& url);
  void reload();
  // The value of a JavaScript expression (awaited where it is a promise); an exception in it is a
  // failure of the test.
  nlohmann::json evaluate(const std::string& expression);
  // Until the expression is true; false after `seconds`.
  bool wait_for(const std::string& expression, double seconds = 20);
  // A key's press and release: "Tab", "Enter", "ArrowLeft", "+", ... Modifiers: 8 is Shift.
  void press(const std::string& key, int modifiers = 0);
  // A drag of the left button between two points of the view.
  void drag(double from_x, double from_y, double to_x, double to_y);
  // PNG of the whole page.
  void picture(const std::filesystem::path& path);
  // False: from here on the page may say that its server is gone.
  void expect_server(bool there) { server_expected_ = there; }
  // What the page has logged as errors, exceptions and violations of its content policy since the
  // last call.
  [[nodiscard]] std::string complaints() { return std::exchange(complaints_, ""); }

 private:
  nlohmann::json call(const std::string& method, nlohmann::json params = nlohmann::json::object());
  nlohmann::json next_message(double seconds);
  void note(const nlohmann::json& event);

  pid_t pid_ = -1;
  int to_ = -1;
  int from_ = -1;
  std::string buffer_;
  std::string session_;
  std::int64_t number_ = 0;
  std::string complaints_;
  bool server_expected_ = true;
};

}  // namespace pentatron::functional
