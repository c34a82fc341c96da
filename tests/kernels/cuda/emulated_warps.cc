#include "tests/kernels/cuda/emulated_warps.h"

#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>

#include "base/check.h"

namespace spiritlevel::cuda {
namespace {

constexpr size_t kStackBytes = 256 << 10;
constexpr int kWarpLanes = 32;

enum class Meeting { kBlock, kWarp, kLoad, kLoadTransposed, kMultiply, kOther };

struct Copy {
  unsigned to;
  const BFloat16* from;
  bool valid;
};

struct Lane {
  ucontext_t context;
  std::vector<std::byte> stack;
  bool done = false;
  std::vector<Copy> open;                 // not committed
  std::vector<std::vector<Copy>> groups;  // committed and not awaited
};

// Those who wait for each other, and what they bring.
struct Group {
  Meeting meeting{};
  int arrived = 0;
  int64_t turn = 0;
  std::array<unsigned, kWarpLanes> at{};
  std::array<std::array<uint32_t, 4>, kWarpLanes> a{};
  std::array<std::array<uint32_t, 2>, kWarpLanes> b{};
  std::array<std::array<float, 4>, kWarpLanes> c{};
  std::array<float, kWarpLanes> value{};
};

BFloat16 HalfOf(uint32_t pair, int i) {
  return {static_cast<uint16_t>(i == 0 ? pair & 0xFFFFu : pair >> 16)};
}

}  // namespace

struct EmulatedBlock::State {
  int lanes;
  CopyTime copy_time;
  std::vector<std::max_align_t> shared_words;
  size_t shared_bytes;
  std::vector<Lane> of_lane;
  std::vector<Group> warps;
  Group block;
  ucontext_t scheduler;
  int current = 0;
  bool moved = false;  // a lane came to a meeting, or to its end
  int64_t conflicts = 0;
  std::exception_ptr error;
  const std::function<void(const EmulatedMachine&)>* kernel = nullptr;
  EmulatedBlock* self = nullptr;

  std::byte* Shared(unsigned at, size_t bytes) {
    SPIRITLEVEL_CHECK(at + bytes <= shared_bytes && at % std::min<size_t>(bytes, 16) == 0,
                      "an access of shared memory is within it, and aligned");
    return reinterpret_cast<std::byte*>(shared_words.data()) + at;
  }

  template <typename Act>
  void Meet(Group* group, int size, Meeting meeting, const Act& act) {
    SPIRITLEVEL_CHECK(group->arrived == 0 || group->meeting == meeting,
                      "lanes that meet do the same");
    group->meeting = meeting;
    moved = true;
    if (++group->arrived == size) {
      act();
      group->arrived = 0;
      ++group->turn;
      return;
    }
    const int64_t turn = group->turn;
    while (group->turn == turn) Yield();
  }

  // As far as it gets without the other warps: a barrier that is missing lets it get too far.
  // Whether it got anywhere.
  bool RunWarp(int first) {
    bool any_moved = false;
    do {
      moved = false;
      for (int i = first; i < first + kWarpLanes; ++i) {
        if (of_lane[static_cast<size_t>(i)].done) continue;
        current = i;
        swapcontext(&scheduler, &of_lane[static_cast<size_t>(i)].context);
        if (error) std::rethrow_exception(error);
      }
      any_moved = any_moved || moved;
    } while (moved);
    return any_moved;
  }

  void Yield() { swapcontext(&of_lane[static_cast<size_t>(current)].context, &scheduler); }

  void Do(const Copy& copy) {
    std::byte* const to = Shared(copy.to, kChunkBytes);
    if (copy.valid) {
      SPIRITLEVEL_CHECK(reinterpret_cast<uintptr_t>(copy.from) % kChunkBytes == 0,
                        "copies are of aligned memory");
      std::memcpy(to, copy.from, kChunkBytes);
    } else {
      std::memset(to, 0, kChunkBytes);
    }
  }

  static void Enter(unsigned high, unsigned low) {
    auto* const state = reinterpret_cast<State*>((static_cast<uintptr_t>(high) << 32) | low);
    const int lane = state->current;
    try {
      (*state->kernel)(EmulatedMachine(state->self, lane));
    } catch (...) {
      state->error = std::current_exception();
    }
    state->of_lane[static_cast<size_t>(lane)].done = true;
    state->moved = true;
    state->Yield();
  }

  void Prepare(Lane* lane) {
    lane->done = false;
    lane->open.clear();
    lane->groups.clear();
    lane->stack.resize(kStackBytes);
    getcontext(&lane->context);
    lane->context.uc_stack.ss_sp = lane->stack.data();
    lane->context.uc_stack.ss_size = lane->stack.size();
    lane->context.uc_link = nullptr;
    const auto address = reinterpret_cast<uintptr_t>(this);
    makecontext(&lane->context, reinterpret_cast<void (*)()>(&State::Enter), 2,
                static_cast<unsigned>(address >> 32), static_cast<unsigned>(address));
  }

  void CountConflicts(const Group& warp) {
    for (int matrix = 0; matrix < 4; ++matrix) {
      unsigned banks = 0;
      for (int i = 0; i < 8; ++i) {
        const unsigned bank = warp.at[static_cast<size_t>(8 * matrix + i)] / kChunkBytes % 8;
        conflicts += (banks >> bank) & 1u;
        banks |= 1u << bank;
      }
    }
  }

  // ldmatrix.x4: lanes 8 i ... 8 i + 7 say where the rows of matrix i lie.
  void LoadWarp(Group* warp, bool transposed) {
    CountConflicts(*warp);
    for (int lane = 0; lane < kWarpLanes; ++lane) {
      for (int matrix = 0; matrix < 4; ++matrix) {
        uint32_t pair = 0;
        for (int i = 0; i < 2; ++i) {
          const int row = transposed ? lane % 4 * 2 + i : lane / 4;
          const int col = transposed ? lane / 4 : lane % 4 * 2 + i;
          uint16_t bits = 0;
          std::memcpy(&bits, Shared(warp->at[static_cast<size_t>(8 * matrix + row)], 16) + 2 * col,
                      sizeof(bits));
          pair |= static_cast<uint32_t>(bits) << (16 * i);
        }
        warp->a[static_cast<size_t>(lane)][static_cast<size_t>(matrix)] = pair;
      }
    }
  }

  // As PTX's figures of the fragments of m16n8k16 say, written from them and not from
  // attention_matrices.h.
  static void MultiplyWarp(Group* warp) {
    float a[16][16];
    float b[16][8];
    for (int lane = 0; lane < kWarpLanes; ++lane) {
      const auto& left = warp->a[static_cast<size_t>(lane)];
      const auto& right = warp->b[static_cast<size_t>(lane)];
      for (int i = 0; i < 8; ++i) {
        const int row = lane / 4 + ((i / 2) % 2 == 1 ? 8 : 0);
        const int col = (lane % 4) * 2 + i % 2 + (i >= 4 ? 8 : 0);
        a[row][col] = ToFloat(HalfOf(left[static_cast<size_t>(i / 2)], i % 2));
      }
      for (int i = 0; i < 4; ++i) {
        const int row = (lane % 4) * 2 + i % 2 + (i >= 2 ? 8 : 0);
        b[row][lane / 4] = ToFloat(HalfOf(right[static_cast<size_t>(i / 2)], i % 2));
      }
    }
    for (int lane = 0; lane < kWarpLanes; ++lane) {
      for (int i = 0; i < 4; ++i) {
        const int row = lane / 4 + (i >= 2 ? 8 : 0);
        const int col = (lane % 4) * 2 + i % 2;
        float sum = warp->c[static_cast<size_t>(lane)][static_cast<size_t>(i)];
        for (int k = 0; k < 16; ++k) sum += a[row][k] * b[k][col];
        warp->c[static_cast<size_t>(lane)][static_cast<size_t>(i)] = sum;
      }
    }
  }

  Group& WarpOf(int lane) { return warps[static_cast<size_t>(lane / kWarpLanes)]; }
};

EmulatedBlock::EmulatedBlock(int lanes, size_t shared_bytes, CopyTime copy_time)
    : state_(std::make_unique<State>()) {
  state_->lanes = lanes;
  state_->copy_time = copy_time;
  state_->shared_bytes = shared_bytes;
  state_->shared_words.resize(shared_bytes / sizeof(std::max_align_t) + 1);
  state_->of_lane.resize(static_cast<size_t>(lanes));
  state_->warps.resize(static_cast<size_t>(lanes / kWarpLanes));
  state_->self = this;
}
EmulatedBlock::~EmulatedBlock() = default;

int64_t EmulatedBlock::bank_conflicts() const { return state_->conflicts; }

void EmulatedBlock::Run(const std::function<void(const EmulatedMachine&)>& kernel) {
  State& state = *state_;
  state.kernel = &kernel;
  state.error = nullptr;
  // NaN in bf16 and in fp32: what is read before it is written spoils the result.
  std::memset(state.shared_words.data(), 0xFF, state.shared_bytes);
  for (Lane& lane : state.of_lane) state.Prepare(&lane);
  for (;;) {
    bool any_moved = false;
    for (int first = 0; first < state.lanes; first += kWarpLanes) {
      any_moved = state.RunWarp(first) || any_moved;
    }
    const auto is_done = [](const Lane& lane) { return lane.done; };
    if (std::all_of(state.of_lane.begin(), state.of_lane.end(), is_done)) return;
    SPIRITLEVEL_CHECK(any_moved, "lanes do not wait for others that never come");
  }
}

void EmulatedMachine::SyncBlock() const {
  EmulatedBlock::State& state = *block_->state_;
  state.Meet(&state.block, state.lanes, Meeting::kBlock, [] {});
}
void EmulatedMachine::SyncWarp() const {
  EmulatedBlock::State& state = *block_->state_;
  state.Meet(&state.WarpOf(lane_), kWarpLanes, Meeting::kWarp, [] {});
}

void EmulatedMachine::CopyLater(unsigned to, const BFloat16* from, bool valid) const {
  EmulatedBlock::State& state = *block_->state_;
  const Copy copy{to, from, valid};
  if (state.copy_time == CopyTime::kAtOnce) {
    state.Do(copy);
  } else {
    state.of_lane[static_cast<size_t>(lane_)].open.push_back(copy);
  }
}
void EmulatedMachine::CommitCopies() const {
  Lane& lane = block_->state_->of_lane[static_cast<size_t>(lane_)];
  lane.groups.push_back(std::move(lane.open));
  lane.open.clear();
}
void EmulatedMachine::AwaitCopies(int left) const {
  EmulatedBlock::State& state = *block_->state_;
  auto& groups = state.of_lane[static_cast<size_t>(lane_)].groups;
  while (static_cast<int>(groups.size()) > left) {
    for (const Copy& copy : groups.front()) state.Do(copy);
    groups.erase(groups.begin());
  }
}

void EmulatedMachine::LoadMatrices(uint32_t (&r)[4], unsigned at) const {
  EmulatedBlock::State& state = *block_->state_;
  Group& warp = state.WarpOf(lane_);
  warp.at[static_cast<size_t>(lane())] = at;
  state.Meet(&warp, kWarpLanes, Meeting::kLoad, [&] { state.LoadWarp(&warp, false); });
  std::copy_n(warp.a[static_cast<size_t>(lane())].begin(), 4, r);
}
void EmulatedMachine::LoadTransposed(uint32_t (&r)[4], unsigned at) const {
  EmulatedBlock::State& state = *block_->state_;
  Group& warp = state.WarpOf(lane_);
  warp.at[static_cast<size_t>(lane())] = at;
  state.Meet(&warp, kWarpLanes, Meeting::kLoadTransposed, [&] { state.LoadWarp(&warp, true); });
  std::copy_n(warp.a[static_cast<size_t>(lane())].begin(), 4, r);
}
void EmulatedMachine::MultiplyAdd(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                  uint32_t b1) const {
  EmulatedBlock::State& state = *block_->state_;
  Group& warp = state.WarpOf(lane_);
  const auto at = static_cast<size_t>(lane());
  std::copy_n(a, 4, warp.a[at].begin());
  std::copy_n(c, 4, warp.c[at].begin());
  warp.b[at] = {b0, b1};
  state.Meet(&warp, kWarpLanes, Meeting::kMultiply,
             [&] { EmulatedBlock::State::MultiplyWarp(&warp); });
  std::copy_n(warp.c[at].begin(), 4, c);
}
uint32_t EmulatedMachine::Pair(float low, float high) const {
  return FromFloat<BFloat16>(low).bits | static_cast<uint32_t>(FromFloat<BFloat16>(high).bits)
                                             << 16;
}
float EmulatedMachine::Other(float value, int apart) const {
  EmulatedBlock::State& state = *block_->state_;
  Group& warp = state.WarpOf(lane_);
  warp.value[static_cast<size_t>(lane())] = value;
  std::array<float, kWarpLanes> exchanged{};
  state.Meet(&warp, kWarpLanes, Meeting::kOther, [] {});
  exchanged = warp.value;
  state.Meet(&warp, kWarpLanes, Meeting::kOther, [] {});  // all have read
  return exchanged[static_cast<size_t>(lane() ^ apart)];
}

void EmulatedMachine::Store(unsigned at, uint32_t pair) const {
  std::memcpy(block_->state_->Shared(at, sizeof(pair)), &pair, sizeof(pair));
}
Chunk EmulatedMachine::Load(unsigned at) const {
  Chunk chunk;
  std::memcpy(&chunk, block_->state_->Shared(at, sizeof(chunk)), sizeof(chunk));
  return chunk;
}
float* EmulatedMachine::Numbers(unsigned at) const {
  return reinterpret_cast<float*>(block_->state_->Shared(at, 2 * sizeof(float)));
}
void EmulatedMachine::StoreGlobal(BFloat16* to, const Chunk& chunk) const {
  SPIRITLEVEL_CHECK(reinterpret_cast<uintptr_t>(to) % kChunkBytes == 0,
                    "16 bytes are stored where they may");
  std::memcpy(to, &chunk, sizeof(chunk));
}

}  // namespace spiritlevel::cuda
