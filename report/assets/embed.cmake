# cmake -DASSETS=folder -DOUT=file.cc -P embed.cmake
#
# Writes a C++ file with the page's style and script as arrays, and the SHA-256 of each. The script
# is all *.js in the order of their names, in one function, so that they share their names with each
# other and with nobody else.
cmake_minimum_required(VERSION 3.25)

file(GLOB scripts "${ASSETS}/*.js")
list(SORT scripts)
set(script "(() => {\n'use strict';\n")
foreach(path IN LISTS scripts)
  file(READ "${path}" text)
  string(APPEND script "${text}")
endforeach()
string(APPEND script "})();\n")
# Through a file, since CMake reads as hexadecimal only what is in one.
file(WRITE "${OUT}.js" "${script}")

function(add_array name path)
  file(READ "${path}" hex HEX)
  file(SHA256 "${path}" sha256)
  string(REGEX REPLACE "(................................)" "\\1\n" hex "${hex}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," hex "${hex}")
  string(APPEND code "constexpr unsigned char k${name}[] = {\n${hex}};\n"
                     "constexpr char k${name}Sha256[] = \"${sha256}\";\n\n")
  set(code "${code}" PARENT_SCOPE)
endfunction()

set(code "")
string(APPEND code "// Written by embed.cmake from report/assets/.\n"
                   "#include \"report/html_assets.h\"\n\n"
                   "namespace spiritlevel {\nnamespace {\n\n")
add_array(Style "${ASSETS}/page.css")
add_array(Script "${OUT}.js")
string(APPEND code "}  // namespace\n\n")
foreach(name IN ITEMS Style Script)
  string(APPEND code
         "std::string_view Page${name}() {\n"
         "  return {reinterpret_cast<const char*>(k${name}), sizeof(k${name})};\n}\n"
         "std::string_view Page${name}Sha256() { return k${name}Sha256; }\n\n")
endforeach()
string(APPEND code "}  // namespace spiritlevel\n")
file(WRITE "${OUT}" "${code}")
