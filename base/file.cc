#include "base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <optional>

#include "base/check.h"
#include "base/utf8.h"

namespace spiritlevel {
namespace {

namespace fs = std::filesystem;

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

// A path may have thousands of bytes; what tells it from others stands at either end.
std::string NameOf(const fs::path& path) {
  constexpr size_t kMost = 400;
  constexpr size_t kEnd = 40;
  if (path.empty()) return "\"\"";
  const std::string name = Printable(path.string());
  if (name.size() <= kMost) return name;
  return Shown(name, kMost - kEnd) + Printable(name.substr(name.size() - kEnd));
}

[[noreturn]] void Fail(const fs::path& path, std::string_view what, std::string_view way_out = "") {
  throw InputError(fmt::format("{}: {}", NameOf(path), what), std::string(way_out));
}

[[noreturn]] void FailWithErrno(const fs::path& path, std::string_view what) {
  Fail(path, fmt::format("{}: {}", what, std::strerror(errno)));
}

[[noreturn]] void FailToWrite(const fs::path& path) {
  Fail(path, fmt::format("cannot write: {}", std::strerror(errno)),
       "name a file in a folder that exists, may be written to and has room");
}

void WriteAll(int fd, std::string_view contents, const fs::path& path) {
  while (!contents.empty()) {
    const ssize_t written = ::write(fd, contents.data(), contents.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) FailToWrite(path);
    contents.remove_prefix(static_cast<size_t>(written));
  }
}

constexpr int kNamesTried = 1000;  // other threads, and what a killed run left behind

fs::path NameBeside(const fs::path& target, int i) {
  return target.parent_path() / fmt::format(".spiritlevel-{}-{}", ::getpid(), i);
}

// A new file beside `target`, under a name that nobody has yet. Not mkstemp(), which makes private
// files: the kernel applies the umask here, and reading the umask would mean changing it for a
// moment, for every thread.
FileDescriptor CreateBeside(const fs::path& target, fs::path* name) {
  for (int i = 0; i < kNamesTried; ++i) {
    *name = NameBeside(target, i);
    const int fd = ::open(name->c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0 || errno != EEXIST) return FileDescriptor(fd);
  }
  return FileDescriptor(-1);
}

// A file in the folder of `target` that has no name, so that nothing is left of it however we end.
// Not every file system has such.
FileDescriptor CreateNameless(const fs::path& target) {
  const fs::path folder = target.has_parent_path() ? target.parent_path() : fs::path(".");
  return FileDescriptor(::open(folder.c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666));
}

// A file we are still writing; gone again unless Commit() is reached.
class FileAside {
 public:
  explicit FileAside(const fs::path& target)
      : target_(target), nameless_(CreateNameless(target)), named_(CreateNamed()) {
    if (fd() < 0) FailToWrite(target_);
  }
  ~FileAside() {
    if (!committed_ && !name_.empty()) ::unlink(name_.c_str());
  }
  FileAside(const FileAside&) = delete;
  FileAside& operator=(const FileAside&) = delete;

  void Write(std::string_view contents) { WriteAll(fd(), contents, target_); }

  void Commit() {
    KeepMode();
    if (::fsync(fd()) != 0) FailToWrite(target_);
    if (name_.empty()) GiveName();
    if (::rename(name_.c_str(), target_.c_str()) != 0) FailToWrite(target_);
    committed_ = true;
  }

 private:
  int fd() const { return nameless_.get() >= 0 ? nameless_.get() : named_.get(); }

  FileDescriptor CreateNamed() {
    return nameless_.get() >= 0 ? FileDescriptor(-1) : CreateBeside(target_, &name_);
  }

  // rename() needs a name; the file has it for this moment only.
  void GiveName() {
    const std::string from = fmt::format("/proc/self/fd/{}", fd());
    for (int i = 0; i < kNamesTried; ++i) {
      const fs::path name = NameBeside(target_, i);
      if (::linkat(AT_FDCWD, from.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0) {
        name_ = name;
        return;
      }
      if (errno != EEXIST) break;
    }
    FailToWrite(target_);
  }

  // Who may read a file is its owner's choice; replacing the contents does not change it.
  void KeepMode() {
    struct stat info {};
    if (::stat(target_.c_str(), &info) != 0) return;
    if (::fchmod(fd(), info.st_mode & 07777) != 0) FailToWrite(target_);
  }

  fs::path target_;
  fs::path name_;
  FileDescriptor nameless_;
  FileDescriptor named_;
  bool committed_ = false;
};

// The descriptor of this process that `path` stands for, e.g. 1 for /dev/stdout. Such a path must
// never be opened anew or renamed over: with output redirected to a file it leads to that file.
std::optional<int> OwnDescriptor(const fs::path& path) {
  const std::string name = path.string();
  if (name == "/dev/stdout") return STDOUT_FILENO;
  if (name == "/dev/stderr") return STDERR_FILENO;
  for (const std::string_view folder : {"/dev/fd/", "/proc/self/fd/"}) {
    if (!name.starts_with(folder)) continue;
    int fd = -1;
    const char* const end = name.data() + name.size();
    const auto [rest, error] = std::from_chars(name.data() + folder.size(), end, fd);
    if (error == std::errc() && rest == end && fd >= 0) return fd;
  }
  return std::nullopt;
}

void WriteToOwnDescriptor(int fd, std::string_view contents, const fs::path& path) {
  std::cout.flush();  // what we printed before comes before
  std::fflush(nullptr);
  WriteAll(fd, contents, path);
}

// A device or a pipe cannot be replaced by rename; it is written directly.
void WriteToSpecialFile(const fs::path& path, std::string_view contents) {
  // O_NONBLOCK: a FIFO that nobody reads must not hang us. It is for open() alone: a slow reader
  // is waited for.
  const FileDescriptor fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (fd.get() < 0 && errno == ENXIO) Fail(path, "cannot write: nobody reads it");
  if (fd.get() < 0 || ::fcntl(fd.get(), F_SETFL, 0) != 0) FailToWrite(path);
  WriteAll(fd.get(), contents, path);
}

// Reads to the end of the file, not to the size it had: some files (in /proc) say 0, some grow.
std::string ReadAll(int fd, size_t size, size_t max_bytes, const fs::path& path) {
  std::string contents;
  size_t filled = 0;
  for (;;) {
    if (filled == contents.size()) contents.resize(filled == 0 ? size + 1 : 2 * filled);
    const ssize_t got = ::read(fd, contents.data() + filled, contents.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) FailWithErrno(path, "cannot read");
    if (got == 0) break;
    filled += static_cast<size_t>(got);
    if (filled > max_bytes) Fail(path, fmt::format("grew to more than {} bytes", max_bytes));
  }
  contents.resize(filled);
  return contents;
}

// A link stays a link: what it leads to is written, whether that exists yet or not.
fs::path AtTheEndOfLinks(fs::path path) {
  constexpr int kMostLinks = 40;  // as the kernel's own limit
  std::error_code error;
  for (int i = 0; i < kMostLinks; ++i) {
    if (!fs::is_symlink(fs::symlink_status(path, error))) return path;
    const fs::path to = fs::read_symlink(path, error);
    if (error) Fail(path, "cannot write: " + error.message());
    path = to.is_absolute() ? to : path.parent_path() / to;
  }
  Fail(path, "cannot write: too many links lead from one to the next");
}

constexpr const char* kNameAFile = "name a file";

// There, and neither a file nor a directory.
bool IsSpecial(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored) && !fs::is_directory(path, ignored) &&
         !fs::is_regular_file(path, ignored);
}

void RefuseToReplace(const fs::path& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    // For example a name that is too long. Links that lead to each other are told apart later.
    if (path.empty() || (errno != ENOENT && errno != ELOOP)) FailToWrite(path);
    return;
  }
  if (S_ISDIR(info.st_mode)) Fail(path, "is a directory, not a file", kNameAFile);
  // rename() would replace a file its owner has made read-only.
  if (::faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) != 0) FailToWrite(path);
}

// Where a path leads that may not be there yet; empty where that cannot be told.
fs::path EndOf(const fs::path& path) {
  std::error_code error;
  try {
    // Made absolute first: "x" and "./x" are the same, and a path of which nothing is there yet
    // would stay as it is.
    fs::path end = fs::weakly_canonical(fs::absolute(AtTheEndOfLinks(path)), error);
    return error ? fs::path() : end;
  } catch (const std::exception&) {  // too many links: whoever writes there says so
    return {};
  }
}

}  // namespace

std::string ReadFile(const fs::path& path, size_t max_bytes) {
  // O_NONBLOCK: opening a FIFO must not hang; such a file is refused below.
  const FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (fd.get() < 0) FailWithErrno(path, "cannot open");
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) FailWithErrno(path, "cannot read");
  if (S_ISDIR(info.st_mode)) Fail(path, "is a directory, not a file");
  if (!S_ISREG(info.st_mode)) Fail(path, "is not a regular file");
  const auto size = static_cast<size_t>(info.st_size);
  if (size > max_bytes) {
    Fail(path,
         fmt::format("has {} bytes; more than {} is not a file of this kind", size, max_bytes));
  }
  return ReadAll(fd.get(), size, max_bytes, path);
}

void WriteFile(const fs::path& path, std::string_view contents) {
  if (const std::optional<int> fd = OwnDescriptor(path)) {
    WriteToOwnDescriptor(*fd, contents, path);
    return;
  }
  if (IsSpecial(path)) {
    WriteToSpecialFile(path, contents);
    return;
  }
  RefuseToReplace(path);
  FileAside aside(AtTheEndOfLinks(path));
  aside.Write(contents);
  aside.Commit();
}

void CheckWritable(const fs::path& path) {
  if (const std::optional<int> fd = OwnDescriptor(path)) {
    const int flags = ::fcntl(*fd, F_GETFL);
    if (flags >= 0 && (flags & O_ACCMODE) == O_RDONLY) errno = EBADF;
    if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY) FailToWrite(path);
    return;
  }
  if (IsSpecial(path)) {
    // Not opened: whoever reads a pipe would see it end.
    std::error_code ignored;
    if (fs::is_socket(path, ignored)) Fail(path, "is a socket, not a file", kNameAFile);
    if (::faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) != 0) FailToWrite(path);
    return;
  }
  RefuseToReplace(path);
  const FileAside trial(AtTheEndOfLinks(path));  // and gone again
}

bool AreOneOutput(const fs::path& a, const fs::path& b) {
  std::error_code error;
  if (a != b && !fs::equivalent(a, b, error)) {
    const fs::path end_a = EndOf(a);
    return !end_a.empty() && end_a == EndOf(b);
  }
  return !fs::is_character_file(a, error) || OwnDescriptor(a);
}

}  // namespace spiritlevel
