#include "base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/check.h"

namespace spiritlevel {
namespace {

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

[[noreturn]] void Fail(const std::filesystem::path& path, std::string_view what) {
  throw InputError(fmt::format("{}: {}", path.string(), what));
}

void WriteAll(int fd, std::string_view contents, const std::filesystem::path& path) {
  while (!contents.empty()) {
    const ssize_t written = ::write(fd, contents.data(), contents.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) Fail(path, fmt::format("cannot write: {}", std::strerror(errno)));
    contents.remove_prefix(static_cast<size_t>(written));
  }
}

// A file we are still writing; removed again unless Commit() is reached.
class FileAside {
 public:
  explicit FileAside(const std::filesystem::path& target)
      : target_(target), name_(target.string() + ".XXXXXX"), fd_(::mkstemp(name_.data())) {
    if (fd_.get() < 0) Fail(target_, fmt::format("cannot write: {}", std::strerror(errno)));
  }
  ~FileAside() {
    if (!committed_) ::unlink(name_.c_str());
  }

  void Write(std::string_view contents) { WriteAll(fd_.get(), contents, target_); }

  void Commit() {
    // mkstemp makes it private; a result file gets what the user's umask says.
    const mode_t mask = ::umask(0);
    ::umask(mask);
    if (::fchmod(fd_.get(), 0666 & ~mask) != 0 || ::fsync(fd_.get()) != 0 ||
        ::rename(name_.c_str(), target_.c_str()) != 0) {
      Fail(target_, fmt::format("cannot write: {}", std::strerror(errno)));
    }
    committed_ = true;
  }

 private:
  std::filesystem::path target_;
  std::string name_;
  FileDescriptor fd_;
  bool committed_ = false;
};

}  // namespace

std::string ReadFile(const std::filesystem::path& path, size_t max_bytes) {
  // O_NONBLOCK: opening a FIFO must not hang; such a file is refused below.
  const FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) Fail(path, fmt::format("cannot open: {}", std::strerror(errno)));
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) Fail(path, fmt::format("cannot read: {}", std::strerror(errno)));
  if (S_ISDIR(info.st_mode)) Fail(path, "is a directory, not a file");
  if (!S_ISREG(info.st_mode)) Fail(path, "is not a regular file");
  if (static_cast<size_t>(info.st_size) > max_bytes) {
    Fail(path, fmt::format("has {} bytes; more than {} is not a file of this kind", info.st_size,
                           max_bytes));
  }
  std::string contents(static_cast<size_t>(info.st_size), '\0');
  size_t filled = 0;
  while (filled < contents.size()) {
    const ssize_t got = ::read(fd.get(), contents.data() + filled, contents.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) Fail(path, fmt::format("cannot read: {}", std::strerror(errno)));
    if (got == 0) break;  // it shrank while we read
    filled += static_cast<size_t>(got);
  }
  contents.resize(filled);
  return contents;
}

void WriteFile(const std::filesystem::path& path, std::string_view contents) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) Fail(path, "is a directory, not a file");
  // A device or a pipe (/dev/stdout) cannot be replaced by rename; it is written directly.
  if (std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored)) {
    const FileDescriptor fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
    if (fd.get() < 0) Fail(path, fmt::format("cannot write: {}", std::strerror(errno)));
    WriteAll(fd.get(), contents, path);
    return;
  }
  FileAside aside(path);
  aside.Write(contents);
  aside.Commit();
}

}  // namespace spiritlevel
