// The events that are still to come, earliest first.
//
// A slot (a rank's lane, a link) has at most one event pending, so an event is a time and a slot,
// packed into one integer: the earliest is the smallest, and simultaneous events come in slot
// order, whatever the order in which they were queued. 4-ary: half the levels of a binary heap,
// and the children of a node lie side by side.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <utility>
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

  // Behind the last event there are always four keys that are later than any.
  explicit EventQueue(int32_t slots)
      : slot_bits_(SlotBits(slots)), heap_(static_cast<size_t>(slots) + 5, kNever) {}

  static int SlotBits(int32_t slots) {
    return std::bit_width(static_cast<uint32_t>(std::max(slots - 1, 1)));
  }

  bool empty() const { return size_ == (top_is_gone_ ? 1 : 0); }

  void Push(TimeNs time, int32_t slot) {
    const Key key = (static_cast<Key>(time) << slot_bits_) | static_cast<Key>(slot);
    if (std::exchange(top_is_gone_, false)) {
      SiftDown(key);
    } else {
      SiftUp(key);
    }
  }

  Entry Pop() {
    if (std::exchange(top_is_gone_, false)) RemoveTop();
    // Left where it is: what a slot's event leads to is most often the next event of that slot,
    // and to replace the top is half the work of removing it and adding another.
    top_is_gone_ = true;
    const Key mask = (Key{1} << slot_bits_) - 1;
    return {static_cast<TimeNs>(heap_[0] >> slot_bits_), static_cast<int32_t>(heap_[0] & mask)};
  }

 private:
  static constexpr Key kNever = ~Key{0};

  void RemoveTop() {
    const Key last = std::exchange(heap_[--size_], kNever);
    if (size_ > 0) SiftDown(last);
  }

  void SiftUp(Key key) {
    size_t hole = size_++;
    while (hole > 0) {
      const size_t parent = (hole - 1) / 4;
      if (heap_[parent] <= key) break;
      heap_[hole] = heap_[parent];
      hole = parent;
    }
    heap_[hole] = key;
  }

  // Puts `key` in the place of the top.
  void SiftDown(Key key) {
    Key* const heap = heap_.data();
    size_t hole = 0;
    for (size_t child = 1; child < size_; child = 4 * hole + 1) {
      const size_t least = LeastOfFour(heap, child);
      if (key <= heap[least]) break;
      heap[hole] = heap[least];
      hole = least;
    }
    heap[hole] = key;
  }

  // Without branches: which of four is the least is as good as random, and a wrong guess costs more
  // than all the comparisons.
  static size_t LeastOfFour(const Key* heap, size_t first) {
    const size_t a = first + (heap[first + 1] < heap[first] ? 1 : 0);
    const size_t b = first + 2 + (heap[first + 3] < heap[first + 2] ? 1 : 0);
    return heap[b] < heap[a] ? b : a;
  }

  int slot_bits_;
  bool top_is_gone_ = false;
  size_t size_ = 0;
  std::vector<Key> heap_;
};

}  // namespace spiritlevel
