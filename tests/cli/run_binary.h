// Runs the program as a user does and keeps what it said.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace spiritlevel {

struct Outcome {
  int status = -1;  // exit status; 128 + signal if it was killed
  std::string out;
  std::string err;
};

// With no shell in between. Standard input is empty.
Outcome RunSpiritlevel(const std::vector<std::string>& arguments);

// A folder of the test's own, gone with it.
class Folder {
 public:
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string Path(std::string_view name) const { return (path_ / name).string(); }
  std::string Write(std::string_view name, std::string_view contents) const;
  std::vector<std::string> Names() const;  // what stands in it, sorted

 private:
  std::filesystem::path path_;
};

}  // namespace spiritlevel
