// Text of the user's in our messages: checked, and made fit to be shown.
#pragma once

#include <string>
#include <string_view>

namespace spiritlevel {

// True for well-formed UTF-8: no stray or missing bytes, no overlong forms, no surrogates, nothing
// above U+10FFFF.
bool IsUtf8(std::string_view text);

// True where a character would command a terminal rather than show (C0, delete, C1). `text` is
// well-formed UTF-8.
bool HasControlCharacter(std::string_view text);

// Text of the user's, fit to stand in one line of a message: control characters become '?', and
// what is longer than `most` bytes is cut between characters and ends in "...".
std::string Shown(std::string_view text, size_t most = 100);

// Text of several lines, fit for a terminal: control characters but '\n', and bytes that are not
// UTF-8, become '?'. Nothing is cut.
std::string Printable(std::string_view text);

}  // namespace spiritlevel
