#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"
#include "tests/base/input_error_of.h"
#include "tests/base/temporary_folder.h"
#include "tests/base/unprivileged.h"

namespace spiritlevel {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

std::string ErrorOfWriting(const fs::path& path, const std::string& contents = "contents") {
  return InputErrorOf([&] { WriteFile(path, contents); });
}

mode_t ModeOf(const fs::path& path) {
  struct stat info {};
  EXPECT_EQ(::stat(path.c_str(), &info), 0) << path;
  return info.st_mode & 07777;
}

// Sets the umask for one test.
class Umask {
 public:
  explicit Umask(mode_t mask) : before_(::umask(mask)) {}
  ~Umask() { ::umask(before_); }
  Umask(const Umask&) = delete;
  Umask& operator=(const Umask&) = delete;

 private:
  mode_t before_;
};

// While it lives no file may grow beyond `bytes`, as on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const struct rlimit limit = {bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  void (*handler_)(int);
  struct rlimit before_ {};
};

TEST(WriteFile, WritesEveryByteAndNothingBesideIt) {
  const TemporaryFolder folder;
  const std::string contents("a\0b\n\xff\r\n", 7);
  WriteFile(folder / "file", contents);
  EXPECT_EQ(ReadFile(folder / "file"), contents);
  EXPECT_THAT(folder.Names(), ElementsAre("file"));
}

TEST(WriteFile, WritesAnEmptyFile) {
  const TemporaryFolder folder;
  WriteFile(folder / "empty", "");
  EXPECT_EQ(ReadFile(folder / "empty"), "");
}

TEST(WriteFile, WritesToANameWithoutAFolder) {
  const TemporaryFolder folder;
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  WriteFile("file", "contents");
  fs::current_path(before);
  EXPECT_EQ(ReadFile(folder / "file"), "contents");
}

TEST(WriteFile, ReplacesALongerFileWhole) {
  const TemporaryFolder folder;
  WriteFile(folder / "file", "a long line of contents");
  WriteFile(folder / "file", "short");
  EXPECT_EQ(ReadFile(folder / "file"), "short");
  EXPECT_THAT(folder.Names(), ElementsAre("file"));
}

TEST(WriteFile, TakesTheLongestNameThatAFileMayHave) {
  const TemporaryFolder folder;
  const std::string name(255, 'n');
  WriteFile(folder.path() / name, "contents");
  EXPECT_EQ(ReadFile(folder.path() / name), "contents");
}

TEST(WriteFile, WritesAsideWhereAKilledRunLeftItsFile) {
  const TemporaryFolder folder;
  const fs::path left = folder.path() / (".spiritlevel-" + std::to_string(::getpid()) + "-0");
  WriteFile(left, "half-writ");
  WriteFile(folder / "file", "contents");
  EXPECT_EQ(ReadFile(folder / "file"), "contents");
  EXPECT_EQ(ReadFile(left), "half-writ");
}

// One thread writes one of two files in turn, the other reads: it must see the one or the other.
TEST(WriteFile, ReadersSeeTheOldFileOrTheNewOneNeverAMixture) {
  const TemporaryFolder folder;
  const fs::path path = folder / "file";
  const std::string a(300'000, 'a');
  const std::string b(200'000, 'b');
  WriteFile(path, a);
  std::atomic<bool> done = false;
  std::thread writer([&] {
    for (int i = 0; i < 50; ++i) WriteFile(path, i % 2 == 0 ? b : a);
    done = true;
  });
  int mixtures = 0;
  while (!done) {
    const std::string seen = ReadFile(path);
    if (seen != a && seen != b) ++mixtures;
  }
  writer.join();
  EXPECT_EQ(mixtures, 0);
}

TEST(WriteFile, ManyThreadsWriteManyFilesAtOnce) {
  const TemporaryFolder folder;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&folder, i] {
      for (int k = 0; k < 10; ++k)
        WriteFile(folder.path() / std::to_string(i), std::string(i, 'x'));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(ReadFile(folder.path() / std::to_string(i)), std::string(i, 'x'));
  }
  EXPECT_EQ(folder.Names().size(), 8u);
}

TEST(WriteFile, ANewFileGetsWhatTheUmaskLeaves) {
  const TemporaryFolder folder;
  for (const mode_t mask : {022, 027, 077, 0}) {
    const Umask umask(mask);
    const fs::path path = folder.path() / fs::path(std::to_string(mask));
    WriteFile(path, "contents");
    EXPECT_EQ(ModeOf(path), 0666 & ~mask) << "umask " << std::oct << mask;
  }
}

TEST(WriteFile, AReplacedFileStaysAsPrivateAsItWas) {
  const TemporaryFolder folder;
  const Umask umask(022);
  WriteFile(folder / "file", "old");
  ASSERT_EQ(::chmod((folder / "file").c_str(), 0600), 0);
  WriteFile(folder / "file", "new");
  EXPECT_EQ(ReadFile(folder / "file"), "new");
  EXPECT_EQ(ModeOf(folder / "file"), 0600u);
}

TEST(WriteFile, ALinkStaysALinkAndWhatItPointsAtIsReplaced) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "elsewhere");
  WriteFile(folder / "elsewhere" / "file", "old");
  fs::create_symlink("elsewhere/file", folder / "link");
  WriteFile(folder / "link", "new");
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(ReadFile(folder / "elsewhere" / "file"), "new");
}

TEST(WriteFile, ADanglingLinkStaysALinkAndItsTargetIsMade) {
  const TemporaryFolder folder;
  fs::create_symlink("later", folder / "link");
  WriteFile(folder / "link", "contents");
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(ReadFile(folder / "later"), "contents");
}

TEST(WriteFile, RefusesLinksThatLeadToEachOther) {
  const TemporaryFolder folder;
  fs::create_symlink("b", folder / "a");
  fs::create_symlink("a", folder / "b");
  EXPECT_THAT(ErrorOfWriting(folder / "a"), HasSubstr("too many links"));
}

TEST(WriteFile, AKilledWriterLeavesTheTargetWholeOrAbsent) {
  const TemporaryFolder folder;
  const std::string contents(size_t{4} << 20, 'x');
  const pid_t child = ::fork();
  if (child == 0) {
    for (;;) WriteFile(folder / "out", contents);
  }
  ASSERT_GT(child, 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  if (!fs::exists(folder / "out")) return;
  EXPECT_EQ(fs::file_size(folder / "out"), contents.size());
}

TEST(WriteFile, RefusesADirectoryAndLeavesNothingBehind) {
  const TemporaryFolder folder;
  const fs::path path = folder / "directory";
  fs::create_directory(path);
  EXPECT_THAT(ErrorOfWriting(path), AllOf(StartsWith(path.string()), HasSubstr("is a directory")));
  EXPECT_THAT(folder.Names(), ElementsAre("directory"));
  EXPECT_TRUE(fs::is_empty(path));
}

TEST(WriteFile, RefusesAMissingFolderNamingTheFile) {
  const TemporaryFolder folder;
  const fs::path path = folder / "missing" / "file";
  EXPECT_THAT(ErrorOfWriting(path), AllOf(StartsWith(path.string()), HasSubstr("No such file")));
  EXPECT_THAT(folder.Names(), IsEmpty());
}

TEST(WriteFile, RefusesAnEmptyName) { EXPECT_THAT(ErrorOfWriting(""), StartsWith("\"\"")); }

TEST(WriteFile, RefusesAFolderThatMayNotBeWrittenTo) {
  const Unprivileged user;
  if (!user.holds()) GTEST_SKIP() << "root may not become an ordinary user here";
  const TemporaryFolder folder;
  ASSERT_EQ(::chmod(folder.path().c_str(), 0500), 0);
  EXPECT_THAT(ErrorOfWriting(folder / "file"), HasSubstr("Permission denied"));
  EXPECT_THAT(folder.Names(), IsEmpty());
}

TEST(WriteFile, RefusesToReplaceAReadOnlyFile) {
  const Unprivileged user;
  if (!user.holds()) GTEST_SKIP() << "root may not become an ordinary user here";
  const TemporaryFolder folder;
  WriteFile(folder / "file", "old");
  ASSERT_EQ(::chmod((folder / "file").c_str(), 0400), 0);
  EXPECT_THAT(ErrorOfWriting(folder / "file"), HasSubstr("Permission denied"));
  EXPECT_EQ(ReadFile(folder / "file"), "old");
}

// Here root is no different from others.
TEST(WriteFile, RefusesWhereTheKernelAllowsNoFiles) {
  if (!fs::exists("/proc/self")) GTEST_SKIP() << "no /proc here";
  EXPECT_THAT(ErrorOfWriting("/proc/self/spiritlevel"), HasSubstr("cannot write"));
}

TEST(WriteFile, WhereTheDiskRefusesTheOldFileStandsAndNothingElse) {
  const TemporaryFolder folder;
  WriteFile(folder / "file", "old");
  std::string error;
  std::string error_of_new;
  {
    const FileSizeLimit limit(4096);
    error = ErrorOfWriting(folder / "file", std::string(100'000, 'x'));
    error_of_new = ErrorOfWriting(folder / "new", std::string(100'000, 'x'));
  }
  EXPECT_THAT(error, HasSubstr("cannot write: File too large"));
  EXPECT_THAT(error_of_new, HasSubstr("cannot write: File too large"));
  EXPECT_EQ(ReadFile(folder / "file"), "old");
  EXPECT_THAT(folder.Names(), ElementsAre("file"));
}

TEST(WriteFile, WritesToADeviceAndLeavesItOne) {
  WriteFile("/dev/null", "contents");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST(WriteFile, SaysThatTheDeviceIsFull) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  EXPECT_THAT(ErrorOfWriting("/dev/full"),
              AllOf(StartsWith("/dev/full: "), HasSubstr("No space left")));
  EXPECT_TRUE(fs::is_character_file("/dev/full"));
}

TEST(WriteFile, RefusesAFifoThatNobodyReadsWithoutWaiting) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  EXPECT_THAT(ErrorOfWriting(folder / "fifo"), HasSubstr("nobody reads it"));
}

// More than a pipe holds, so the writer has to wait for its reader.
TEST(WriteFile, WritesAllToAFifoHoweverSlowItsReader) {
  const TemporaryFolder folder;
  const fs::path path = folder / "fifo";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const int fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(::fcntl(fd, F_SETFL, 0), 0);
  const std::string contents(300'000, 'x');
  std::thread writer([&] { WriteFile(path, contents); });
  std::string seen;
  std::vector<char> buffer(4096);
  while (seen.size() < contents.size()) {
    const ssize_t got = ::read(fd, buffer.data(), buffer.size());
    if (got <= 0) continue;  // the writer has not opened it yet
    seen.append(buffer.data(), static_cast<size_t>(got));
  }
  writer.join();
  ::close(fd);
  EXPECT_EQ(seen, contents);
}

// `spiritlevel ... -o /dev/stdout > file`: the name leads to `file` then. It is neither replaced
// nor written over from its start.
TEST(WriteFile, StandardOutputThatIsAFileKeepsItsOrder) {
  const TemporaryFolder folder;
  WriteFile(folder / "out", "");
  std::fflush(stdout);
  const int before = ::dup(STDOUT_FILENO);
  const int fd = ::open((folder / "out").c_str(), O_WRONLY);
  ASSERT_GE(fd, 0);
  ::dup2(fd, STDOUT_FILENO);
  std::printf("one ");
  WriteFile("/dev/stdout", "two ");
  std::printf("three ");
  std::fflush(stdout);
  WriteFile("/dev/fd/1", "four");
  ::dup2(before, STDOUT_FILENO);
  ::close(before);
  ::close(fd);
  EXPECT_EQ(ReadFile(folder / "out"), "one two three four");
  EXPECT_THAT(folder.Names(), ElementsAre("out"));
}

TEST(WriteFile, SaysThatADescriptorIsNotOpen) {
  EXPECT_THAT(ErrorOfWriting("/dev/fd/987"), HasSubstr("Bad file descriptor"));
}

// Each as WriteFile() would say it, and nothing is left behind.
TEST(CheckWritable, SaysBeforehandWhatWritingWouldSay) {
  const TemporaryFolder folder;
  const fs::path directory = folder.path() / "directory";
  fs::create_directory(directory);
  const fs::path fifo = folder.path() / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const fs::path dangling = folder.path() / "dangling";
  fs::create_symlink("nowhere/file", dangling);
  for (const fs::path& path :
       {directory, folder.path() / "nowhere" / "file", dangling, fs::path(""),
        fs::path("/proc/nobody"), folder.path() / std::string(300, 'n')}) {
    const std::string error = InputErrorOf([&] { CheckWritable(path); });
    EXPECT_NE(error, "") << path;
    EXPECT_EQ(error, ErrorOfWriting(path));
  }
  EXPECT_EQ(InputErrorOf([&] { CheckWritable(fifo); }), "") << "its reader may still come";
  EXPECT_EQ(InputErrorOf([] { CheckWritable("/dev/null"); }), "");
  EXPECT_EQ(InputErrorOf([&] { CheckWritable(folder.path() / "new"); }), "");
  EXPECT_FALSE(fs::exists(folder.path() / "new"));
}

TEST(CheckWritable, LeavesAFileAsItIs) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "file";
  WriteFile(path, "contents");
  CheckWritable(path);
  EXPECT_EQ(ReadFile(path), "contents");
}

TEST(AreOneOutput, KnowsAFileByAllItsNames) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "file";
  const fs::path link = folder.path() / "link";
  fs::create_symlink("file", link);
  for (const bool exists : {false, true}) {
    if (exists) WriteFile(path, "contents");
    EXPECT_TRUE(AreOneOutput(path, path));
    EXPECT_TRUE(AreOneOutput(path, folder.path() / "." / "file"));
    EXPECT_TRUE(AreOneOutput(path, link)) << "there: " << exists;
    EXPECT_FALSE(AreOneOutput(path, folder.path() / "other"));
  }
  EXPECT_TRUE(AreOneOutput("not-there", "./not-there"));
  EXPECT_TRUE(AreOneOutput("/dev/stdout", "/dev/stdout"));
  EXPECT_FALSE(AreOneOutput("/dev/null", "/dev/null")) << "which keeps nothing";
}

}  // namespace
}  // namespace spiritlevel
