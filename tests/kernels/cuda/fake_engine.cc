#include "tests/kernels/cuda/fake_engine.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "kernels/cuda/host_kernels.h"
#include "tests/kernels/cuda/fake_operands.h"

namespace spiritlevel::cuda {

void FakeEngine::Post(uint64_t stream, FakeWork work) {
  if (const auto* group = std::get_if<std::shared_ptr<FakeGroup>>(&work.what)) {
    members.at((*group)->communicator).posted.push_back(*group);
  }
  streams.at(stream).work.push_back(std::move(work));
}

std::vector<FakeEngine::Action> FakeEngine::Actions() {
  std::vector<Action> actions;
  for (auto& [id, stream] : streams) {
    if (stream.work.empty() || stream.stalled || lost.contains(stream.device)) continue;
    const FakeWork& head = stream.work.front();
    if (const auto* wait = std::get_if<FakeWait>(&head.what)) {
      if (!wait->mark->done) continue;
    } else if (const auto* group = std::get_if<std::shared_ptr<FakeGroup>>(&head.what)) {
      if (!(*group)->ended) {
        if (Active((*group)->communicator) == group->get()) {
          AddExchanges((*group)->communicator, group->get(), &actions);
        }
        continue;
      }
    }
    actions.push_back([this, id = id] { DoHead(id); });
  }
  return actions;
}

bool FakeEngine::Step() {
  const std::vector<Action> actions = Actions();
  if (actions.empty()) return false;
  actions[Random(actions.size())]();
  return true;
}

bool FakeEngine::IsStuck() {
  const bool work_left = std::any_of(streams.begin(), streams.end(),
                                     [](const auto& one) { return !one.second.work.empty(); });
  return work_left && Actions().empty();
}

std::string FakeEngine::WhatWaits() {
  std::string text;
  for (const auto& [id, stream] : streams) {
    if (stream.work.empty()) continue;
    if (!text.empty()) text += "; ";
    text += stream.work.front().words;
    if (stream.stalled) text += " (stalled)";
    if (lost.contains(stream.device)) text += " (device lost)";
  }
  return text;
}

void FakeEngine::DoHead(uint64_t id) {
  FakeStream& stream = streams.at(id);
  const FakeWork work = std::move(stream.work.front());
  stream.work.pop_front();
  stream.now = std::max(stream.now, work.posted);
  if (const auto* call = std::get_if<FakeCall>(&work.what)) {
    Do(id, *call, work.words);
  } else if (const auto* copy = std::get_if<FakeCopy>(&work.what)) {
    Do(id, *copy, work.words);
  } else if (const auto* record = std::get_if<FakeRecord>(&work.what)) {
    record->mark->done = true;
    record->mark->at = stream.now;
  } else if (const auto* wait = std::get_if<FakeWait>(&work.what)) {
    stream.now = std::max(stream.now, wait->mark->at);
  }
  executed.push_back(work.words);
}

bool FakeEngine::HasAll(const void* data, Bytes bytes, bool plain_host_too) const {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  const uintptr_t end = begin + bytes;
  const auto behind = blocks.upper_bound(begin);
  if (behind != blocks.begin()) {
    const auto& [start, block] = *std::prev(behind);
    if (begin < start + block.bytes) return end <= start + block.bytes;
  }
  // Memory of the host that was not taken from the layer may be copied, though not used by kernels.
  return plain_host_too;
}

void FakeEngine::Spend(FakeStream* stream, TimeNs from, const FakeCost& cost) {
  stream->now = from + duration_(cost);
}

void FakeEngine::Do(uint64_t id, const FakeCall& call, const std::string& words) {
  FakeStream& stream = streams.at(id);
  if (launches_to_break_ > 0 && --launches_to_break_ == 0) {
    Lose(stream.device, words + " failed on the device");
    return;
  }
  for (const FakeOperand& operand : OperandsOf(call.call)) {
    if (HasAll(operand.data, operand.bytes, /*plain_host_too=*/false)) continue;
    misuses.push_back(words + " uses memory that is not there");
    Lose(stream.device, "an illegal memory access was made by " + words);
    return;
  }
  RunOnHost(call.call);
  const bool product = std::holds_alternative<Product>(call.call);
  Spend(&stream, stream.now,
        {.kind = product ? FakeCost::Kind::kProduct : FakeCost::Kind::kLaunch,
         .call = &call.call,
         .algorithm = call.algorithm});
}

void FakeEngine::Do(uint64_t id, const FakeCopy& copy, const std::string& words) {
  FakeStream& stream = streams.at(id);
  if (!HasAll(copy.from, copy.bytes, true) || !HasAll(copy.to, copy.bytes, true)) {
    misuses.push_back(words + " goes beyond the end of its memory");
    Lose(stream.device, "an illegal memory access was made by " + words);
    return;
  }
  std::memmove(copy.to, copy.from, static_cast<size_t>(copy.bytes));
  Spend(&stream, stream.now, {.kind = FakeCost::Kind::kCopy, .bytes = copy.bytes});
}

}  // namespace spiritlevel::cuda
