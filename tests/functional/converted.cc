// SPDX-License-Identifier: Apache-2.0
#include "tests/functional/converted.h"

#include <gtest/gtest.h>

namespace pentatron::functional {

ProgramResult convert_import(const std::filesystem::path& hf, const std::filesystem::path& save,
                             const std::vector<std::string>& more) {
  std::vector<std::string> words{"convert", "import", "--hf", hf.string(), "--save", save.string()};
  words.insert(words.end(), more.begin(), more.end());
  return call(words);
}

std::string generated(const std::filesystem::path& load) {
  const ProgramResult result =
      call({"generate", "--load", load.string(), "--prompt", "3 1 4", "--tokens",
            "--max-new-tokens", "20", "--temperature", "0", "--threads", "1"});
  EXPECT_TRUE(result.ok()) << result.describe();
  return result.out;
}

}  // namespace pentatron::functional
