// SPDX-License-Identifier: Apache-2.0
#include "tests/functional/browser.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <fstream>
#include <stdexcept>
#include <thread>

#include "pentatron/base/timer.h"

namespace pentatron::functional {
namespace {

using Json = nlohmann::json;
constexpr double kPatience = 60;  // seconds

int base64_value(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

std::string from_base64(const std::string& text) {
  std::string bytes;
  unsigned int bits = 0;
  int count = 0;
  for (const char c : text) {
    const int value = base64_value(c);
    if (value < 0) break;
    bits = (bits << 6U) | static_cast<unsigned int>(value);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += static_cast<char>((bits >> static_cast<unsigned int>(count)) & 0xffU);
  }
  return bytes;
}

// Reads commands from descriptor 3, answers on 4.
void become_chromium(int commands, int answers, const std::string& profile) {
  const int null = ::open("/dev/null", O_RDWR);
  ::dup2(null, 0);
  ::dup2(null, 1);
  ::dup2(null, 2);
  // Above 4 first, so that neither overwrites the other.
  const int in = ::fcntl(commands, F_DUPFD, 10);
  const int out = ::fcntl(answers, F_DUPFD, 10);
  ::dup2(in, 3);
  ::dup2(out, 4);
  ::setpgid(0, 0);
  const std::string folder = "--user-data-dir=" + profile;
  ::execlp("chromium", "chromium", "--headless", "--no-sandbox", "--disable-gpu",
           "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run",
           "--remote-debugging-pipe", folder.c_str(), static_cast<char*>(nullptr));
  ::_exit(127);
}

}  // namespace

Browser::Browser(const std::filesystem::path& profile) {
  std::array<int, 2> commands{};
  std::array<int, 2> answers{};
  if (::pipe2(commands.data(), O_CLOEXEC) != 0 || ::pipe2(answers.data(), O_CLOEXEC) != 0) {
    throw std::runtime_error("no pipes for the browser");
  }
  std::signal(SIGPIPE, SIG_IGN);
  pid_ = ::fork();
  if (pid_ == 0) become_chromium(commands[0], answers[1], profile.string());
  ::close(commands[0]);
  ::close(answers[1]);
  to_ = commands[1];
  from_ = answers[0];
  const Json tab = call("Target.createTarget", {{"url", "about:blank"}});
  session_ = call("Target.attachToTarget", {{"targetId", tab.at("targetId")}, {"flatten", true}})
                 .at("sessionId");
  for (const char* domain : {"Page", "Runtime", "Log"}) {
    (void)call(std::string(domain) + ".enable");
  }
}

Browser::~Browser() {
  ::close(to_);
  ::close(from_);
  if (pid_ <= 0) return;
  ::kill(-pid_, SIGKILL);
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

Json Browser::next_message(double seconds) {
  const Timer timer;
  while (true) {
    const std::size_t end = buffer_.find('\0');
    if (end != std::string::npos) {
      Json message = Json::parse(buffer_.substr(0, end));
      buffer_.erase(0, end + 1);
      return message;
    }
    pollfd ready{from_, POLLIN, 0};
    const double left = seconds - timer.seconds();
    if (left <= 0 || ::poll(&ready, 1, static_cast<int>(left * 1000) + 1) <= 0) {
      throw std::runtime_error("the browser does not answer");
    }
    std::array<char, 1 << 16> block{};
    const ssize_t got = ::read(from_, block.data(), block.size());
    if (got <= 0) throw std::runtime_error("no browser: is chromium installed?");
    buffer_.append(block.data(), static_cast<std::size_t>(got));
  }
}

void Browser::note(const Json& event) {
  const std::string method = event.value("method", "");
  const Json& params = event.contains("params") ? event["params"] : event;
  const bool exception = method == "Runtime.exceptionThrown";
  const bool logged = method == "Log.entryAdded" && params["entry"].value("level", "") == "error";
  // Refused, or reset while it waited to be accepted, which the browser calls not connected.
  const std::string text = params.dump();
  const bool gone =
      !server_expected_ && (text.find("ERR_CONNECTION_") != std::string::npos ||
                            text.find("ERR_SOCKET_NOT_CONNECTED") != std::string::npos);
  if ((exception || logged) && !gone) complaints_ += params.dump() + "\n";
}

Json Browser::call(const std::string& method, Json params) {
  const std::int64_t number = ++number_;
  Json command{{"id", number}, {"method", method}, {"params", std::move(params)}};
  if (!session_.empty()) command["sessionId"] = session_;
  const std::string text = command.dump() + '\0';
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t wrote = ::write(to_, text.data() + done, text.size() - done);
    if (wrote <= 0) throw std::runtime_error("no browser: is chromium installed?");
    done += static_cast<std::size_t>(wrote);
  }
  while (true) {
    Json message = next_message(kPatience);
    if (message.value("id", std::int64_t{0}) != number) {
      note(message);
      continue;
    }
    if (message.contains("error")) throw std::runtime_error(method + ": " + message.dump());
    return message["result"];
  }
}

void Browser::set_view(const View& view) {
  (void)call("Emulation.setDeviceMetricsOverride", {{"width", view.width},
                                                    {"height", view.height},
                                                    {"deviceScaleFactor", 1},
                                                    {"mobile", false}});
  (void)call(
      "Emulation.setEmulatedMedia",
      {{"features",
        Json::array({{{"name", "prefers-color-scheme"}, {"value", view.dark ? "dark" : "light"}},
                     {{"name", "prefers-reduced-motion"},
                      {"value", view.reduced_motion ? "reduce" : ""}}})}});
}

void Browser::open(const std::string& url) {
  (void)call("Page.navigate", {{"url", url}});
  EXPECT_TRUE(wait_for("document.readyState === 'complete'"));
}

void Browser::reload() {
  (void)evaluate("window.before = true");
  (void)call("Page.reload");
  EXPECT_TRUE(wait_for("window.before === undefined && document.readyState === 'complete'"));
}

Json Browser::evaluate(const std::string& expression) {
  const Json answer =
      call("Runtime.evaluate",
           {{"expression", expression}, {"returnByValue", true}, {"awaitPromise", true}});
  EXPECT_FALSE(answer.contains("exceptionDetails")) << expression << answer.dump();
  return answer["result"].value("value", Json());
}

bool Browser::wait_for(const std::string& expression, double seconds) {
  const Timer timer;
  while (timer.seconds() < seconds) {
    if (evaluate("!!(" + expression + ")") == true) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return false;
}

void Browser::press(const std::string& key, int modifiers) {
  Json params{{"key", key}, {"modifiers", modifiers}, {"type", "keyDown"}};
  const auto code = [&](const char* name, int number) {
    if (key != name) return;
    params["windowsVirtualKeyCode"] = number;
    params["code"] = name;
  };
  code("Tab", 9);
  code("Enter", 13);
  code("Escape", 27);
  code("ArrowLeft", 37);
  code("ArrowRight", 39);
  code("Home", 36);
  code("End", 35);
  if (key == "Enter") params["text"] = "\r";
  if (key.size() == 1) params["text"] = key;
  if (key == " ") params["windowsVirtualKeyCode"] = 32;
  (void)call("Input.dispatchKeyEvent", params);
  params["type"] = "keyUp";
  params.erase("text");
  (void)call("Input.dispatchKeyEvent", params);
}

void Browser::drag(double from_x, double from_y, double to_x, double to_y) {
  const auto mouse = [&](const char* type, double x, double y) {
    (void)call("Input.dispatchMouseEvent",
               {{"type", type}, {"x", x}, {"y", y}, {"button", "left"}, {"clickCount", 1}});
  };
  mouse("mousePressed", from_x, from_y);
  mouse("mouseMoved", (from_x + to_x) / 2, (from_y + to_y) / 2);
  mouse("mouseMoved", to_x, to_y);
  mouse("mouseReleased", to_x, to_y);
}

void Browser::picture(const std::filesystem::path& path) {
  const Json answer = call("Page.captureScreenshot", {{"captureBeyondViewport", true}});
  std::ofstream(path, std::ios::binary) << from_base64(answer.at("data"));
}

}  // namespace pentatron::functional
