// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "pentatron/monitor/plot.h"

namespace pentatron::monitor {

// What the program calls of this module, whose library is loaded only when a command wants it.
struct Library {
  void (*plot)(const PlotRequest& request);
  // Serves `folder`'s page until stop() is true; ready(url) once it listens.
  void (*serve)(const std::filesystem::path& folder, const std::string& host, int port,
                const std::function<void(const std::string& url)>& ready,
                const std::function<bool()>& stop);
};

}  // namespace pentatron::monitor

// Of libpentatron_monitor.so.
extern "C" const pentatron::monitor::Library* pentatron_monitor_library();
