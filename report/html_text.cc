#include "report/html_text.h"

#include <cstddef>
#include <cstdint>

namespace spiritlevel {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// Bytes of the well-formed UTF-8 character that `text` begins with, or 0.
size_t Utf8Length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  // Too long for what they say, surrogates, and beyond Unicode.
  const unsigned char second = byte(1);
  if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) ||
      (first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F)) {
    return 0;
  }
  return length;
}

bool IsControl(std::string_view character) {
  const unsigned char first = static_cast<unsigned char>(character[0]);
  if (first < 0x20) return first != '\t' && first != '\n';
  if (first == 0x7F) return true;
  return first == 0xC2 && static_cast<unsigned char>(character[1]) < 0xA0;
}

std::string_view EscapeOf(char c) {
  switch (c) {
    case '&':
      return "&amp;";
    case '<':
      return "&lt;";
    case '>':
      return "&gt;";
    case '"':
      return "&quot;";
    case '\'':
      return "&#39;";
    default:
      return "";
  }
}

int DigitOfHex(char c) { return c <= '9' ? c - '0' : c - 'a' + 10; }

}  // namespace

std::string EscapeHtml(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t length = Utf8Length(text);
    const std::string_view character = text.substr(0, length == 0 ? 1 : length);
    text.remove_prefix(character.size());
    if (character == "\r") {  // of a file from Windows; alone it is a line break too
      if (!text.starts_with('\n')) out += '\n';
    } else if (length == 0 || IsControl(character)) {
      out += kReplacement;
    } else if (const std::string_view escape = EscapeOf(character[0]); !escape.empty()) {
      out += escape;
    } else {
      out += character;
    }
  }
  return out;
}

std::string EscapeJsonForScript(std::string_view json) {
  std::string out;
  out.reserve(json.size());
  for (const char c : json) {
    if (c == '<') {
      out += "\\u003c";
    } else {
      out += c;
    }
  }
  return out;
}

std::string Base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t bits = 0;
    for (size_t k = 0; k < 3; ++k) {
      const unsigned char byte =
          i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0;
      bits = bits << 8 | byte;
    }
    for (size_t k = 0; k < 4; ++k) {
      const bool padding = i + k > bytes.size();
      out += padding ? '=' : kDigits[bits >> (18 - 6 * k) & 63];
    }
  }
  return out;
}

std::string BytesOfHex(std::string_view hex) {
  std::string out;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    out += static_cast<char>(DigitOfHex(hex[i]) * 16 + DigitOfHex(hex[i + 1]));
  }
  return out;
}

}  // namespace spiritlevel
