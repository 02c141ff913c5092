# SPDX-License-Identifier: Apache-2.0
# Doxygen's input filter: plain comments before or behind a declaration become documentation, and what stands in them is text: no
# commands, tags or markup. Comments inside code (a line that ends in a backslash, a licence line) stay.
function text(words) {
  gsub(/\\/, "\\\\", words)
  gsub(/@/, "\\@", words)
  gsub(/&/, "\\\\\\&", words)
  gsub(/</, "\\\\<", words)
  gsub(/>/, "\\\\>", words)
  gsub(/#/, "\\\\#", words)
  gsub(/%/, "\\\\%", words)
  gsub(/--/, "\\\\--", words)
  return words
}
/^[ \t]*\/\/ SPDX-License-Identifier/ || /^[ \t]*\/\/ NOLINT/ { print; next }
match($0, /^[ \t]*\/\/ ?/) {
  print substr($0, 1, RLENGTH - (substr($0, RLENGTH, 1) == " ")) "/ " text(substr($0, RLENGTH + 1))
  next
}
# Behind a declaration.
/^[ \t]*[^ \t"].*[;,{] +\/\/ / {
  at = index($0, " // ")
  while (index(substr($0, at + 4), " // ") > 0 && substr($0, 1, at) !~ /[;,{] *$/) at += 3 + index(substr($0, at + 4), " // ")
  print substr($0, 1, at) "///< " text(substr($0, at + 4))
  next
}
{ print }
