#include "base/utf8.h"

#include <cstdint>
#include <string>

namespace spiritlevel {
namespace {

// How many bytes follow the first one of a character, and the least that so many may encode.
struct Form {
  int following = -1;
  uint32_t first_bits = 0;
  uint32_t least = 0;
};

Form FormOf(unsigned char first) {
  if (first < 0x80) return {0, first, 0};
  if ((first & 0xE0) == 0xC0) return {1, first & 0x1Fu, 0x80};
  if ((first & 0xF0) == 0xE0) return {2, first & 0x0Fu, 0x800};
  if ((first & 0xF8) == 0xF0) return {3, first & 0x07u, 0x10000};
  return {};
}

// How many bytes at `at` make one control character; 0 for any other.
size_t ControlLength(std::string_view text, size_t at) {
  const auto byte = static_cast<unsigned char>(text[at]);
  if (byte < 0x20 || byte == 0x7F) return 1;
  const bool c1 =
      byte == 0xC2 && at + 1 < text.size() && static_cast<unsigned char>(text[at + 1]) < 0xA0;
  return c1 ? 2 : 0;
}

}  // namespace

bool IsUtf8(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const Form form = FormOf(static_cast<unsigned char>(text[at++]));
    if (form.following < 0) return false;
    uint32_t character = form.first_bits;
    for (int i = 0; i < form.following; ++i, ++at) {
      if (at == text.size() || (text[at] & 0xC0) != 0x80) return false;
      character = (character << 6) | (static_cast<unsigned char>(text[at]) & 0x3Fu);
    }
    const bool surrogate = character >= 0xD800 && character <= 0xDFFF;
    if (character < form.least || character > 0x10FFFF || surrogate) return false;
  }
  return true;
}

bool HasControlCharacter(std::string_view text) {
  for (size_t at = 0; at < text.size(); ++at) {
    if (ControlLength(text, at) > 0) return true;
  }
  return false;
}

std::string Shown(std::string_view text, size_t most) {
  size_t end = text.size();
  if (end > most) {
    end = most;
    while (end > 0 && (text[end] & 0xC0) == 0x80) --end;
  }
  std::string out;
  for (size_t at = 0; at < end;) {
    const size_t control = ControlLength(text, at);
    out += control > 0 ? '?' : text[at];
    at += control > 0 ? control : 1;
  }
  return end < text.size() ? out + "..." : out;
}

namespace {

// The length of the well-formed character at `at`; 0 if there is none.
size_t CharacterLength(std::string_view text, size_t at) {
  const Form form = FormOf(static_cast<unsigned char>(text[at]));
  const size_t length = static_cast<size_t>(form.following + 1);
  return IsUtf8(text.substr(at, length)) ? length : 0;
}

}  // namespace

std::string Printable(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t length = CharacterLength(text, at);
    const bool shows = length > 0 && (text[at] == '\n' || ControlLength(text, at) == 0);
    out += shows ? text.substr(at, length) : "?";
    at += length > 0 ? length : 1;
  }
  return out;
}

}  // namespace spiritlevel
