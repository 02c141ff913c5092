// SPDX-License-Identifier: Apache-2.0
// One rank of gloo_parity_test: parity_worker FOLDER, started by comm::launch with the launcher's
// variables. Trains every case of this world size and writes FOLDER/CASE.rankN.safetensors; with
// --table instead of a folder it runs and compares the table of two ranks in fp32.
#include <cstdio>
#include <exception>
#include <filesystem>

#include "pentatron/base/env.h"
#include "pentatron/base/error.h"
#include "pentatron/comm/backend.h"
#include "pentatron/tensor/ops.h"
#include "tests/parallel/gloo_cases.h"
#include "tests/parallel/layout_table.h"

namespace pentatron::parity {
namespace {

void run_worker(const std::filesystem::path& folder) {
  tensor::set_up_process(true);
  tensor::set_up_rank_thread(1);
  const auto backend = comm::make_gloo_backend({.rank = env_int("RANK").value(),
                                                .world_size = env_int("WORLD_SIZE").value(),
                                                .master_addr = env_string("MASTER_ADDR").value(),
                                                .master_port = env_int("MASTER_PORT").value(),
                                                .timeout = std::chrono::milliseconds(60'000)});
  try {
    if (folder == "--table") {
      // What goes through gloo is the same in both precisions; threads run both.
      std::vector<TableCase> table = table_of_two_ranks(Device("cpu"));
      std::erase_if(table, [](const TableCase& c) { return c.options.precision != "fp32"; });
      const auto problems = table_problems(table, *backend);
      for (const std::string& problem : problems) std::fprintf(stderr, "%s\n", problem.c_str());
      PENTATRON_CHECK(problems.empty(), kInternal, "{} cases differ from one rank",
                      problems.size());
      backend->shutdown();
      return;
    }
    for (const GlooCase& gloo_case : gloo_cases(backend->world_size())) {
      const Outcome outcome =
          run_rank(gloo_case.options, gloo_case.layout, *backend, gloo_case.name);
      const std::string file = gloo_case.name + ".rank" + std::to_string(backend->rank());
      write_outcome(folder / (file + ".safetensors"), outcome);
    }
    backend->shutdown();
  } catch (const std::exception& error) {
    backend->poison(error.what());
    throw;
  }
}

}  // namespace
}  // namespace pentatron::parity

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: parity_worker FOLDER|--table (started by gloo_parity_test)\n");
    return 2;
  }
  try {
    pentatron::parity::run_worker(argv[1]);
    return 0;
  } catch (const pentatron::Error& error) {
    std::fprintf(stderr, "parity_worker: %s\n", error.what());
    return pentatron::exit_code(error.kind());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "parity_worker: %s\n", error.what());
    return 1;
  }
}
