// The events that are still to come, earliest first.
//
// A slot (a rank's lane, a link) has at most one event pending, so an event is a time and a slot,
// packed into one integer: the earliest is the smallest, and simultaneous events come in slot
// order, whatever the order in which they were queued. 4-ary: half the levels of a binary heap,
// and the children of a node share a cache line.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "base/units.h"

namespace spiritlevel {

// Key is uint64_t where 64 bits hold the latest time and the slot number, else UInt128.
template <class Key>
class EventQueue {
 public:
  struct Entry {
    TimeNs time;
    int32_t slot;
  };

  explicit EventQueue(int32_t slots) : slot_bits_(SlotBits(slots)) {
    heap_.reserve(static_cast<size_t>(slots));
  }

  static int SlotBits(int32_t slots) {
    return std::bit_width(static_cast<uint32_t>(std::max(slots - 1, 1)));
  }

  bool empty() const { return heap_.empty(); }

  void Push(TimeNs time, int32_t slot) {
    const Key key = (static_cast<Key>(time) << slot_bits_) | static_cast<Key>(slot);
    size_t hole = heap_.size();
    heap_.push_back(key);
    while (hole > 0) {
      const size_t parent = (hole - 1) / 4;
      if (heap_[parent] <= key) break;
      heap_[hole] = heap_[parent];
      hole = parent;
    }
    heap_[hole] = key;
  }

  Entry Pop() {
    const Key top = heap_.front();
    const Key last = heap_.back();
    heap_.pop_back();
    if (!heap_.empty()) SiftDown(last);
    const Key mask = (Key{1} << slot_bits_) - 1;
    return {static_cast<TimeNs>(top >> slot_bits_), static_cast<int32_t>(top & mask)};
  }

 private:
  void SiftDown(Key key) {
    const size_t size = heap_.size();
    size_t hole = 0;
    for (size_t child = 1; child < size; child = 4 * hole + 1) {
      const size_t end = std::min(child + 4, size);
      size_t least = child;
      for (size_t c = child + 1; c < end; ++c) {
        if (heap_[c] < heap_[least]) least = c;
      }
      if (key <= heap_[least]) break;
      heap_[hole] = heap_[least];
      hole = least;
    }
    heap_[hole] = key;
  }

  int slot_bits_;
  std::vector<Key> heap_;
};

}  // namespace spiritlevel
