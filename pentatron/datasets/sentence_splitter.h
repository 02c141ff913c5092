// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

namespace pentatron::datasets {

// Cuts English text into sentences by fixed rules and a list of abbreviations, where Megatron asks
// NLTK's Punkt, a trained model: the cases are Punkt's, the list is our own, so the two differ at
// abbreviations that only one of them knows. A sentence ends
// - at a run of '.', '?' and '!', with closing quotes and brackets behind it, before white space;
// - not at the period of a title (Dr.), nor of an initial (J. Smith), nor of another abbreviation
//   (etc., e.g., U.S., Jan.), unless a word that often begins sentences (The, He, ...) follows, nor
//   of a small letter before a word without a capital;
// - not at two or more periods before a word that does not begin with a capital;
// - not at the period of a number before a lower-case word, nor between "No.", "p.", ... and one.
// Line ends are white space like any other. Linear; the text may be of any length.
//
// The pieces have no white space around them; `keep_newlines` true: each keeps what follows it (the
// first also what stands before), so that the pieces laid end to end are the text without the white
// space at its end. White space alone gives nothing.
[[nodiscard]] std::vector<std::string_view> split_sentences(std::string_view text,
                                                            bool keep_newlines);

}  // namespace pentatron::datasets
