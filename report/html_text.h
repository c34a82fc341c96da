// Text inside a page.
#pragma once

#include <string>
#include <string_view>

namespace spiritlevel {

// For element content and quoted attributes. What is not UTF-8, and control characters other than
// tab and line break, become U+FFFD.
std::string EscapeHtml(std::string_view text);

// JSON for the inside of a <script>: no '<' is left in it, so that no string can end the element
// or open a comment. Still the same JSON, since '<' stands only in strings.
std::string EscapeJsonForScript(std::string_view json);

std::string Base64(std::string_view bytes);
std::string BytesOfHex(std::string_view hex);

}  // namespace spiritlevel
