#include "calibrate/operand_memory.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <thread>
#include <vector>

namespace spiritlevel {
namespace {

TEST(OperandMemory, LendsTheSamePieceAgain) {
  OperandMemory memory(1'000);
  const float* const first = memory.Borrow(900).get();
  EXPECT_EQ(memory.Borrow(300).get(), first);
  EXPECT_EQ(memory.Borrow(1'000).get(), first);
}

TEST(OperandMemory, LendsAPieceToOneBorrowerOnly) {
  OperandMemory memory(1'000);
  const OperandMemory::Loan a = memory.Borrow(10);
  const OperandMemory::Loan b = memory.Borrow(10);
  EXPECT_NE(a.get(), b.get());
}

TEST(OperandMemory, LendsMoreThanUsualWhereItMust) {
  OperandMemory memory(10);
  memory.Borrow(10);  // given back, and too small for the next
  const OperandMemory::Loan loan = memory.Borrow(100'000);
  loan.get()[99'999] = 1;
  EXPECT_EQ(loan.get()[99'999], 1);
}

// Whatever the last borrower left: denormals would be slow on some processors, and zeros fast.
TEST(OperandMemory, HoldsTheSameOrdinaryNumbersEachTime) {
  OperandMemory memory(600'000);
  const auto read = [&] {
    const OperandMemory::Loan loan = memory.Borrow(600'000);
    std::vector<float> numbers(loan.get(), loan.get() + 600'000);
    for (int64_t i = 0; i < 600'000; ++i) loan.get()[i] = 1e-40f;
    return numbers;
  };
  const std::vector<float> first = read();
  EXPECT_EQ(read(), first);
  for (const float number : first) {
    ASSERT_LE(std::abs(number), 1);
    ASSERT_TRUE(number == 0 || std::isnormal(number));
  }
}

TEST(OperandMemory, BeginsAtACacheLine) {
  OperandMemory memory(77);
  for (int i = 0; i < 5; ++i) {
    const OperandMemory::Loan loan = memory.Borrow(77 + 1'000 * i);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(loan.get()) % 64, 0u);
  }
}

TEST(OperandMemory, SeveralThreadsMayBorrow) {
  OperandMemory memory(5'000);
  std::vector<std::jthread> threads;
  for (int id = 0; id < 4; ++id) {
    threads.emplace_back([&memory, id] {
      for (int i = 0; i < 200; ++i) {
        const OperandMemory::Loan loan = memory.Borrow(1'000 + 500 * (i % 10));
        loan.get()[7] = static_cast<float>(id);
        std::this_thread::yield();
        ASSERT_EQ(loan.get()[7], static_cast<float>(id));
      }
    });
  }
}

}  // namespace
}  // namespace spiritlevel
