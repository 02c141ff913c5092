// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace pentatron {

// Opens /dev/null on each of the descriptors 0 to 2 that the program was started without
// (`<&-`, `2>&-`): the next file to be opened would get the number, and log lines would be written
// into it. Before anything opens a file; system calls only, so it may run before the libraries are
// set up. Ends the process (exit code 4, as errors of kIo) where /dev/null cannot be opened.
void fill_standard_descriptors();

}  // namespace pentatron
