#include "verify/isolated_parts.h"

#include <map>

namespace spiritlevel {

Payload SmallNumbers::Fill(Bytes bytes) {
  if (bytes == 0) return {};
  while (numbers_.size() < static_cast<size_t>(bytes)) Add();
  return Payload::CopyOf({numbers_.data(), static_cast<size_t>(bytes)});
}

// They lie between 0.0078 and 0.031 as bf16, and two together as fp32, too.
void SmallNumbers::Add() {
  random_ = random_ * 6364136223846793005ULL + 1442695040888963407ULL;
  const auto bits = static_cast<uint16_t>(0x3C00 | (random_ >> 63 << 15) | (random_ >> 40 & 0xFF));
  numbers_.push_back(static_cast<std::byte>(bits & 0xFF));
  numbers_.push_back(static_cast<std::byte>(bits >> 8));
}

std::vector<std::vector<int>> TurnsOf(int ranks, const std::vector<int>& cores) {
  std::vector<std::vector<int>> turns;
  std::map<int, size_t> used;
  for (int rank = 0; rank < ranks; ++rank) {
    const int core = cores.empty() ? rank : cores[static_cast<size_t>(rank)];
    const size_t turn = used[core]++;
    if (turn >= turns.size()) turns.emplace_back();
    turns[turn].push_back(rank);
  }
  return turns;
}

}  // namespace spiritlevel
