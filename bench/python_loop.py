#!/usr/bin/env python3
"""The engines' recurrence as a plain Python loop: what a short script costs.

Fixed orders, so no event queue: a rank runs until a message is missing, then the ranks it feeds.
Plain lists, local names, no numpy, no objects; no memory and no stall accounts. It shares nothing
with the C++ code, the orders included, so that an equal makespan means something.
"""

import sys
import time

F, B, W, BW = range(4)
PASS_NS = {F: 1_000_000, B: 1_000_000, W: 1_000_000, BW: 2_000_000}
LINK_BUSY_NS = 40_000
LATENCY_NS = 10_000


def one_f_one_b(ranks, micro_batches):
    """For each rank a list of (pass, micro-batch)."""
    orders = []
    for rank in range(ranks):
        warm_up = min(ranks - 1 - rank, micro_batches)
        order = [(F, i) for i in range(warm_up)]
        for i in range(micro_batches):
            if warm_up + i < micro_batches:
                order.append((F, warm_up + i))
            order.append((BW, i))
        orders.append(order)
    return orders


def zb_h1(ranks, micro_batches):
    """1F1B with the backward in two, W lagging behind B by as many slots as the rank's number."""
    orders = []
    for rank, fused in enumerate(one_f_one_b(ranks, micro_batches)):
        order = []
        for op, i in fused:
            order.append((F if op == F else B, i))
            if op == BW and i >= rank:
                order.append((W, i - rank))
        order += [(W, i) for i in range(max(0, micro_batches - rank), micro_batches)]
        orders.append(order)
    return orders


SCHEDULES = {"1f1b": one_f_one_b, "zb-h1": zb_h1}


def play(orders, micro_batches):
    """The makespan in nanoseconds."""
    ranks = len(orders)
    last = ranks - 1
    # When the input of each rank's F, B or BW of each micro-batch is there; None: not sent yet.
    forward = [[None] * micro_batches for _ in orders]
    backward = [[None] * micro_batches for _ in orders]
    forward[0] = [0] * micro_batches
    backward[last] = [0] * micro_batches
    down_free = [0] * ranks  # the link from rank to rank + 1
    up_free = [0] * ranks  # the link from rank to rank - 1
    reached = [0] * ranks
    lane_free = [0] * ranks
    pass_ns, link_busy, latency = PASS_NS, LINK_BUSY_NS, LATENCY_NS
    runnable = list(range(ranks - 1, -1, -1))
    while runnable:
        rank = runnable.pop()
        order = orders[rank]
        at = reached[rank]
        free = lane_free[rank]
        forward_here = forward[rank]
        backward_here = backward[rank]
        woken = set()
        while at < len(order):
            op, i = order[at]
            if op == W:
                free += pass_ns[op]
            else:
                ready = forward_here[i] if op == F else backward_here[i]
                if ready is None:
                    break
                free = (ready if ready > free else free) + pass_ns[op]
                if op == F:
                    if rank < last:
                        start = down_free[rank] if down_free[rank] > free else free
                        down_free[rank] = start + link_busy
                        forward[rank + 1][i] = start + link_busy + latency
                        woken.add(rank + 1)
                elif rank > 0:
                    start = up_free[rank] if up_free[rank] > free else free
                    up_free[rank] = start + link_busy
                    backward[rank - 1][i] = start + link_busy + latency
                    woken.add(rank - 1)
            at += 1
        reached[rank] = at
        lane_free[rank] = free
        runnable.extend(woken)
    assert all(at == len(order) for at, order in zip(reached, orders)), "some rank never finished"
    return max(lane_free)


def measure(schedule, ranks, micro_batches, repetitions=3):
    """The makespan, and each repetition's CPU time in nanoseconds an op; orders are not timed."""
    orders = SCHEDULES[schedule](ranks, micro_batches)
    ops = sum(map(len, orders))
    samples = []
    for _ in range(repetitions):
        begin = time.process_time_ns()
        makespan = play(orders, micro_batches)
        samples.append((time.process_time_ns() - begin) / ops)
    return makespan, samples


def main():
    for schedule in SCHEDULES:
        for ranks, micro_batches in ((8, 64), (64, 256), (64, 1024)):
            makespan, samples = measure(schedule, ranks, micro_batches)
            print(f"{schedule} {ranks}x{micro_batches}: makespan {makespan} ns, "
                  f"{sorted(samples)[len(samples) // 2]:.0f} ns an op")


if __name__ == "__main__":
    sys.exit(main())
