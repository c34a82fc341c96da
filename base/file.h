// Reading what users give us, and writing so that nothing half-written is ever left behind.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace spiritlevel {

// The whole file. Throws InputError, naming the path, for a missing or unreadable file, a
// directory, a device, and a file larger than `max_bytes`.
std::string ReadFile(const std::filesystem::path& path, size_t max_bytes = size_t{64} << 20);

// Writes aside, then renames: at `path` stands either what stood there before or all of
// `contents`. Throws InputError, naming the path, when that cannot be done. A new file gets the
// permissions the umask leaves, a replaced one keeps its own; a link stays a link. What cannot be
// replaced (a device, a pipe, /dev/stdout) is written to directly.
void WriteFile(const std::filesystem::path& path, std::string_view contents);

// Throws the InputError that WriteFile() would end in, as far as that can be told without writing:
// for a directory, a folder that is missing or closed to us, a file that is read-only or whose name
// is too long, a link that leads nowhere. Leaves nothing behind, and no pipe notices it.
void CheckWritable(const std::filesystem::path& path);

// Whether both are written to the same place, be it there yet or not. Not so for what keeps
// nothing, as /dev/null.
bool AreOneOutput(const std::filesystem::path& a, const std::filesystem::path& b);

}  // namespace spiritlevel
