// How text of others is shown to people. Sessions and programs choose their own names, and a program chooses the words
// of many errors: shown as they are, a newline would forge a row of a table or a log, and ESC would steer the terminal.
//
// Characters that a terminal or an editor does not simply print are escaped: control characters as \n, \r, \t or \x1b,
// others (C1 controls, line separators, marks that change the direction of text, invisible ones) as \u202e or
// \U000e0041, and bytes that are not UTF-8 as \x9b. The rest is kept. An escaped text is unchanged by a second pass.
//
// Pure, so thread-safe. Failure: none.
#ifndef GANGWAY_BASE_SHOWN_NAME_H_
#define GANGWAY_BASE_SHOWN_NAME_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace gangway {

inline constexpr size_t kShownNameBytesMax = 256;

// On one line. A name that would need more than `bytes_max` (8 or more) is cut between characters, and ends with "...".
std::string ShownName(std::string_view text, size_t bytes_max = kShownNameBytesMax);

// Of any length. Tabs are kept; further lines are indented, so that none of them looks like the start of an entry.
std::string ShownLines(std::string_view text);

}  // namespace gangway

#endif  // GANGWAY_BASE_SHOWN_NAME_H_
