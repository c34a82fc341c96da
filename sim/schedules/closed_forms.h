// The closed forms of the named schedules. Each is exact for equal stages and micro-batches, no
// launch delay and no link occupancy, where its conditions hold, and says nothing elsewhere.
// docs/schedules.md derives or cites them; tests hold them against the engine.
#pragma once

#include "sim/schedules/catalog.h"

namespace spiritlevel {

ClosedForm GPipeForm(const Shape& shape, const StageCost& cost, TimeNs transfer);
ClosedForm OneFOneBForm(const Shape& shape, const StageCost& cost, TimeNs transfer);
ClosedForm InterleavedForm(const Shape& shape, const StageCost& cost, TimeNs transfer);
ClosedForm InterleavedZbForm(const Shape& shape, const StageCost& cost, TimeNs transfer);
ClosedForm ZbH1Form(const Shape& shape, const StageCost& cost, TimeNs transfer);
ClosedForm ZbH2Form(const Shape& shape, const StageCost& cost, TimeNs transfer);
ClosedForm ZbVForm(const Shape& shape, const StageCost& cost, TimeNs transfer);
ClosedForm VHalfForm(const Shape& shape, const StageCost& cost, TimeNs transfer);
ClosedForm VMinForm(const Shape& shape, const StageCost& cost, TimeNs transfer);
ClosedForm DualPipeForm(const Shape& shape, const StageCost& cost, TimeNs transfer);
ClosedForm DualPipeVForm(const Shape& shape, const StageCost& cost, TimeNs transfer);

}  // namespace spiritlevel
