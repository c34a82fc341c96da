// The page's own style and script, as report/assets/ has them; put into the program when it is
// built.
#pragma once

#include <string_view>

namespace spiritlevel {

std::string_view PageStyle();
std::string_view PageScript();

// SHA-256 of exactly these bytes, in hexadecimal: what the page's policy lets pass.
std::string_view PageStyleSha256();
std::string_view PageScriptSha256();

}  // namespace spiritlevel
