// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/completion.h"

#include <gtest/gtest.h>

#include "pentatron/base/test_support.h"

namespace pentatron::config {
namespace {

constexpr CommandSummary kCommands[] = {{"pretrain_gpt", "train"}, {"plot", "it's a picture"}};

TEST(Completion, HoldsCommandsAcceptedOptionsAndValues) {
  for (const Shell shell : {Shell::kBash, Shell::kZsh, Shell::kFish}) {
    const std::string script = completion_script(shell, kCommands);
    for (const char* part : {"pretrain_gpt", "plot", "num-layers", "LayerNorm", "RMSNorm"}) {
      EXPECT_NE(script.find(part), std::string::npos) << part << "\n" << script.substr(0, 400);
    }
    // Planned ones would be refused.
    EXPECT_EQ(script.find("perform-rl-step"), std::string::npos);
  }
  EXPECT_NE(completion_script(Shell::kZsh, kCommands).find("it'\\''s a picture"),
            std::string::npos);
  EXPECT_NE(completion_script(Shell::kFish, kCommands).find("it\\'s a picture"), std::string::npos);
}

TEST(Completion, ShellsByName) {
  EXPECT_EQ(parse_shell("zsh"), Shell::kZsh);
  expect_error(ErrorKind::kConfig, "bash, zsh and fish", [] { (void)parse_shell("tcsh"); });
}

TEST(ManPage, ListsCommandsOptionsAndExitCodes) {
  const std::string page = man_page("1.2.3", kCommands);
  EXPECT_TRUE(page.starts_with(".TH PENTATRON 1 "));
  for (const char* part : {"pentatron 1.2.3", ".B plot", "\\fB\\-\\-num\\-layers\\fR \\fIvalue\\fR",
                           "{LayerNorm|RMSNorm}", "2 config", "70 internal", ".SS optimizer"}) {
    EXPECT_NE(page.find(part), std::string::npos) << part;
  }
  // No text begins a line as a request would.
  for (std::size_t at = page.find("\n."); at != std::string::npos; at = page.find("\n.", at + 1)) {
    const std::string request = page.substr(at + 2, 2);
    EXPECT_TRUE(request == "TP" || request == "ad" || request == "SH" || request == "SS" ||
                request == "B " || request == "BR" || request == "I " || request == "RI")
        << page.substr(at, 40);
  }
}

}  // namespace
}  // namespace pentatron::config
