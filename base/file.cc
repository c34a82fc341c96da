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

namespace spiritlevel {
namespace {

namespace fs = std::filesystem;

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

[[noreturn]] void Fail(const fs::path& path, std::string_view what) {
  throw InputError(fmt::format("{}: {}", path.empty() ? "\"\"" : path.string(), what));
}

[[noreturn]] void FailWithErrno(const fs::path& path, std::string_view what) {
  Fail(path, fmt::format("{}: {}", what, std::strerror(errno)));
}

void WriteAll(int fd, std::string_view contents, const fs::path& path) {
  while (!contents.empty()) {
    const ssize_t written = ::write(fd, contents.data(), contents.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) FailWithErrno(path, "cannot write");
    contents.remove_prefix(static_cast<size_t>(written));
  }
}

// A new file beside `target`, under a name that nobody has yet. Not mkstemp(), which makes private
// files: the kernel applies the umask here, and reading the umask would mean changing it for a
// moment, for every thread.
FileDescriptor CreateBeside(const fs::path& target, fs::path* name) {
  constexpr int kTries = 1000;  // other threads, and what a killed run left behind
  for (int i = 0; i < kTries; ++i) {
    *name = target.parent_path() / fmt::format(".spiritlevel-{}-{}", ::getpid(), i);
    const int fd = ::open(name->c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0 || errno != EEXIST) return FileDescriptor(fd);
  }
  return FileDescriptor(-1);
}

// A file we are still writing; removed again unless Commit() is reached.
class FileAside {
 public:
  explicit FileAside(const fs::path& target) : target_(target), fd_(CreateBeside(target, &name_)) {
    if (fd_.get() < 0) FailWithErrno(target_, "cannot write");
  }
  ~FileAside() {
    if (!committed_) ::unlink(name_.c_str());
  }
  FileAside(const FileAside&) = delete;
  FileAside& operator=(const FileAside&) = delete;

  void Write(std::string_view contents) { WriteAll(fd_.get(), contents, target_); }

  void Commit() {
    KeepMode();
    if (::fsync(fd_.get()) != 0 || ::rename(name_.c_str(), target_.c_str()) != 0) {
      FailWithErrno(target_, "cannot write");
    }
    committed_ = true;
  }

 private:
  // Who may read a file is its owner's choice; replacing the contents does not change it.
  void KeepMode() {
    struct stat info {};
    if (::stat(target_.c_str(), &info) != 0) return;
    if (::fchmod(fd_.get(), info.st_mode & 07777) != 0) FailWithErrno(target_, "cannot write");
  }

  fs::path target_;
  fs::path name_;
  FileDescriptor fd_;
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
  if (fd.get() < 0 || ::fcntl(fd.get(), F_SETFL, 0) != 0) FailWithErrno(path, "cannot write");
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
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) Fail(path, "is a directory, not a file");
  const bool exists = fs::exists(path, ignored);
  if (exists && !fs::is_regular_file(path, ignored)) {
    WriteToSpecialFile(path, contents);
    return;
  }
  // rename() would replace a file its owner has made read-only.
  if (exists && ::faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) != 0)
    FailWithErrno(path, "cannot write");
  // A link stays a link: what it points at is replaced.
  const bool follow = exists && fs::is_symlink(path, ignored);
  FileAside aside(follow ? fs::canonical(path) : path);
  aside.Write(contents);
  aside.Commit();
}

}  // namespace spiritlevel
