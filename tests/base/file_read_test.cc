#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "base/file.h"
#include "tests/base/input_error_of.h"
#include "tests/base/temporary_folder.h"
#include "tests/base/unprivileged.h"

namespace spiritlevel {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

void Put(const std::filesystem::path& path, const std::string& contents) {
  std::ofstream(path, std::ios::binary) << contents;
}

std::string ErrorOfReading(const std::filesystem::path& path, size_t max_bytes = 1 << 20) {
  return InputErrorOf([&] { ReadFile(path, max_bytes); });
}

TEST(ReadFile, ReturnsEveryByte) {
  const TemporaryFolder folder;
  const std::string contents("a\0b\n\xff\r\n", 7);
  Put(folder / "file", contents);
  EXPECT_EQ(ReadFile(folder / "file"), contents);
}

TEST(ReadFile, AnEmptyFileIsEmpty) {
  const TemporaryFolder folder;
  Put(folder / "empty", "");
  EXPECT_EQ(ReadFile(folder / "empty"), "");
}

TEST(ReadFile, FollowsLinks) {
  const TemporaryFolder folder;
  Put(folder / "file", "contents");
  std::filesystem::create_symlink("file", folder / "link");
  EXPECT_EQ(ReadFile(folder / "link"), "contents");
}

// Files of /proc say that they have 0 bytes.
TEST(ReadFile, ReadsToTheEndAndNotToTheSizeTheFileClaims) {
  if (!std::filesystem::exists("/proc/self/status")) GTEST_SKIP() << "no /proc here";
  EXPECT_THAT(ReadFile("/proc/self/status"), HasSubstr("\nPid:"));
  EXPECT_THAT(ErrorOfReading("/proc/self/status", 10), HasSubstr("more than 10 bytes"));
}

TEST(ReadFile, NamesAMissingFileAndTheReason) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder / "missing";
  EXPECT_THAT(ErrorOfReading(path),
              AllOf(StartsWith(path.string() + ": "), HasSubstr("No such file")));
}

TEST(ReadFile, ShowsThatAnEmptyNameIsEmpty) { EXPECT_THAT(ErrorOfReading(""), StartsWith("\"\"")); }

TEST(ReadFile, RefusesADirectory) {
  const TemporaryFolder folder;
  EXPECT_THAT(ErrorOfReading(folder.path()), HasSubstr("is a directory"));
}

TEST(ReadFile, RefusesAFileWhoseFolderIsAFile) {
  const TemporaryFolder folder;
  Put(folder / "file", "");
  EXPECT_THAT(ErrorOfReading(folder / "file" / "inside"), HasSubstr("Not a directory"));
}

// Nobody writes to it: a plain open() would wait for ever.
TEST(ReadFile, RefusesAFifoWithoutWaiting) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  EXPECT_THAT(ErrorOfReading(folder / "fifo"), HasSubstr("not a regular file"));
}

TEST(ReadFile, RefusesAnEndlessDevice) {
  EXPECT_THAT(ErrorOfReading("/dev/zero"), HasSubstr("not a regular file"));
}

TEST(ReadFile, TakesExactlyTheMostBytesAllowedAndNotOneMore) {
  const TemporaryFolder folder;
  Put(folder / "file", "12345678");
  EXPECT_EQ(ReadFile(folder / "file", 8), "12345678");
  EXPECT_THAT(ErrorOfReading(folder / "file", 7),
              AllOf(HasSubstr("has 8 bytes"), HasSubstr("more than 7")));
}

// Sparse, so that it takes no space. Were it read before it is refused, this would not end.
TEST(ReadFile, RefusesATerabyteUnread) {
  const TemporaryFolder folder;
  Put(folder / "huge", "");
  if (::truncate((folder / "huge").c_str(), off_t{1} << 40) != 0) {
    GTEST_SKIP() << "the file system of " << folder.path() << " has no file of 1 TiB";
  }
  EXPECT_THAT(InputErrorOf([&] { ReadFile(folder / "huge"); }), HasSubstr("1099511627776 bytes"));
}

TEST(ReadFile, RefusesAnUnreadableFile) {
  const Unprivileged user;
  if (!user.holds()) GTEST_SKIP() << "root may not become an ordinary user here";
  const TemporaryFolder folder;
  Put(folder / "secret", "contents");
  ASSERT_EQ(::chmod((folder / "secret").c_str(), 0), 0);
  EXPECT_THAT(ErrorOfReading(folder / "secret"), HasSubstr("Permission denied"));
}

}  // namespace
}  // namespace spiritlevel
