// Verifications made up for tests: figures that are typed in, and a page with drawings.
#pragma once

#include <string>
#include <vector>

#include "report/verification.h"

namespace spiritlevel {

// Three runs without noise, whose gradients are the reference's.
VerifiedSchedule RanForTest(std::string name, TimeNs predicted, TimeNs measured,
                            double spread = 0.001);
// 1f1b, zb-h1 and zb-v, all right and within the bar.
Verification ThreeForTest();

// `verification`'s schedules, none of them drawn.
std::string PageWithoutDrawings(const Verification& verification);

// Schedules of 4 ranks that were simulated with two sets of costs, the second of which is called
// measured; one that was refused, and one of which a run failed.
struct VerifiedForTest {
  Verification verification;
  std::vector<VerificationDrawing> drawings;
};
VerifiedForTest DrawnForTest();

}  // namespace spiritlevel
