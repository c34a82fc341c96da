#!/usr/bin/env python3
"""Runs the benchmarks and the plain Python loop, and prints one table. See bench/run."""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

import python_loop

# Step, and the bar that it is held against, in nanoseconds an op.
STEPS = [
    ("generate", None),
    ("schedule", None),
    ("evaluate", 8),
    ("evaluate_4_iterations", None),
    ("lower", None),
    ("lower_4_iterations", None),
    ("in_order", None),
    ("in_order_and_stalls", 20),
    ("by_queue", None),
    ("by_queue_and_stalls", 60),
    ("stalls", None),
    ("summarize", None),
    ("check_schedule", None),
    ("events", None),
    ("check_timeline", None),
]
CASES = [(schedule, ranks, micro_batches)
         for schedule in ("1f1b", "zb-h1")
         for ranks, micro_batches in ((8, 64), (64, 256), (64, 1024))]
SEARCH_CASES = ("zb-h1/8x24", "zb-h1/8x64", "zb-h1/32x256", "zb-v/8x64")
FIRST_ANSWER_BAR_MS = 20
RUNTIME_BAR_NS = 20_000
COMPARED = ("evaluate", "in_order_and_stalls", "by_queue_and_stalls")


def name_of(case):
    return f"{case[0]}/{case[1]}x{case[2]}"


def run_binary(binary, repetitions, min_time, only=".*"):
    """Its samples, as Google Benchmark tells them."""
    # Random interleaving spreads what else the machine does over all of them alike.
    command = [binary, "--benchmark_format=json", f"--benchmark_repetitions={repetitions}",
               f"--benchmark_min_time={min_time}", f"--benchmark_filter={only}",
               "--benchmark_enable_random_interleaving=true"]
    ran = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if ran.returncode != 0:
        sys.exit(f"{binary} failed:\n{ran.stderr}")
    runs = [run for run in json.loads(ran.stdout)["benchmarks"] if run["run_type"] == "iteration"]
    for run in runs:
        if run.get("error_occurred"):
            sys.exit(f"{run['name']}: {run['error_message']}")
    return runs


def run_benchmarks(binary, repetitions, min_time):
    """{(step, case name): samples in ns an op}, {case name: makespan}"""
    samples, makespans = {}, {}
    for run in run_binary(binary, repetitions, min_time):
        step, case = run["run_name"].split("/", 1)
        samples.setdefault((step, case), []).append(1e9 / run["items_per_second"])
        makespans[case] = round(run["makespan_ns"])
    return samples, makespans


def run_search(binary, repetitions, min_time):
    """{(step, case name): samples in orders a second of processor time}, {case name: ops}"""
    samples, ops = {}, {}
    for run in run_binary(binary, repetitions, min_time):
        step, case = run["run_name"].split("/", 1)
        samples.setdefault((step, case), []).append(run["items_per_second"])
        if "ops" in run:
            ops[case] = round(run["ops"])
    return samples, ops


def run_runtime(binary, repetitions, min_time):
    """{transport/schedule/posting: samples in ns an op}, of ranks whose ops do nothing"""
    samples = {}
    for run in run_binary(binary, repetitions, min_time, only="EmptyOps"):
        case = run["run_name"].removeprefix("EmptyOps/").removesuffix("/real_time")
        samples.setdefault(case, []).append(run["ns_per_op"])
    return samples


def run_python(makespans, repetitions):
    """{case name: samples in ns an op}; its makespans must be those of the benchmarks."""
    samples = {}
    for case in CASES:
        makespan, samples[name_of(case)] = python_loop.measure(*case, repetitions)
        if makespan != makespans[name_of(case)]:
            sys.exit(f"{name_of(case)}: python finds {makespan} ns, the engines "
                     f"{makespans[name_of(case)]} ns")
    return samples


SCENARIO = """name: "{ranks} x {micro_batches}"
ranks: {ranks}
micro_batches: {micro_batches}
costs {{
  uniform {{
    forward_us: 1000  input_grad_us: 1000  weight_grad_us: 1000
    link_busy_us: 40  transfer_us: 10
    activation_bytes: 1000  weight_state_bytes: 366
  }}
}}
"""


def run_command(command, repetitions):
    """Samples of a whole process: (wall, processor) seconds."""
    samples = []
    for _ in range(repetitions):
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        begin = time.perf_counter()
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        wall = time.perf_counter() - begin
        now = resource.getrusage(resource.RUSAGE_CHILDREN)
        samples.append((wall, now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime))
    return samples


def run_commands(program, repetitions):
    """[(what, bar in seconds, samples)]"""
    results = []
    with tempfile.TemporaryDirectory() as folder:
        def scenario(ranks, micro_batches):
            file = os.path.join(folder, f"{ranks}x{micro_batches}.textproto")
            with open(file, "w") as out:
                out.write(SCENARIO.format(ranks=ranks, micro_batches=micro_batches))
            return file
        for what, bar, arguments in (
                ("compare, all schedules, 8x64", 0.3, ["compare", scenario(8, 64)]),
                ("simulate zb-h1, 64x1024", 0.15,
                 ["simulate", scenario(64, 1024), "--schedule", "zb-h1"]),
                ("search --evaluations 1, 8x64", None,
                 ["search", scenario(8, 64), "--evaluations", "1", "--threads", "1"])):
            results.append((what, bar, run_command([program] + arguments, repetitions)))
    return results


def number(value):
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def row(label, cells):
    print("| " + " | ".join([label] + cells) + " |")


def print_ops(samples, python):
    names = [name_of(case) for case in CASES]
    print("Nanoseconds of processor time an op, median (least):\n")
    row("step", ["bar"] + [name.replace("/", " ") for name in names])
    row("---", ["--:"] * (1 + len(names)))

    def cells(of):
        return [f"{number(statistics.median(of[name]))} ({number(min(of[name]))})"
                for name in names]

    for step, bar in STEPS:
        row(step, [str(bar) if bar else ""] + cells({n: samples[step, n] for n in names}))
    row("plain Python loop", [""] + cells(python))
    for step in COMPARED:
        ratios = [statistics.median(python[name]) / statistics.median(samples[step, name])
                  for name in names]
        row(f"Python / {step}", [""] + [f"{number(ratio)} x" for ratio in ratios])


def print_search(samples, ops):
    def thousands(rates):
        return f"{number(statistics.median(rates) / 1e3)} ({number(max(rates) / 1e3)})"

    print("\nSearch, thousands of orders a second of processor time, median (most):\n")
    row("one core", [f"{case.replace('/', ' ')}, {ops[case]} ops" for case in SEARCH_CASES])
    row("---", ["--:"] * len(SEARCH_CASES))
    for step in ("flat_evaluator", "decoder"):
        row(step, [thousands(samples[step, case]) for case in SEARCH_CASES])

    print("\nFirst answer of a search, 8x64, one core, ms of processor time, median (least):\n")
    limits = sorted((case for step, case in samples if step == "first_answer"),
                    key=lambda case: int(case.split("/")[-1]))
    row("limit, activations", ["bar"] + [f"{int(case.split('/')[-1]) // 1000}" for case in limits])
    row("---", ["--:"] * (1 + len(limits)))
    times = [[1e3 / rate for rate in samples["first_answer", case]] for case in limits]
    row("first answer", [str(FIRST_ANSWER_BAR_MS)] +
        [f"{number(statistics.median(t))} ({number(min(t))})" for t in times])


def print_runtime(samples):
    print("\nThe runtime: two ranks whose ops do nothing, wall nanoseconds an op, median (least):\n")
    row("transport, schedule, posting", ["bar", "ns"])
    row("---", ["--:"] * 2)
    for case, times in samples.items():
        row(case.replace("/", ", "), [str(RUNTIME_BAR_NS),
                                      f"{number(statistics.median(times))} ({number(min(times))})"])


def print_commands(commands):
    print("\nWhole processes, seconds, median (least):\n")
    row("command", ["bar", "wall", "processor"])
    row("---", ["--:"] * 3)
    for what, bar, samples in commands:
        cells = [f"{statistics.median(times):.3f} ({min(times):.3f})" for times in zip(*samples)]
        row(what, [str(bar) if bar else ""] + cells)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engine_bench")
    parser.add_argument("search_bench")
    parser.add_argument("verify_bench")
    parser.add_argument("spiritlevel")
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--min-time", type=float, default=0.05, help="seconds a sample")
    parser.add_argument("--json", metavar="FILE", help="write every sample")
    options = parser.parse_args()

    samples, makespans = run_benchmarks(options.engine_bench, options.repetitions,
                                        options.min_time)
    python = run_python(makespans, min(3, options.repetitions))
    search, ops = run_search(options.search_bench, options.repetitions, options.min_time)
    runtime = run_runtime(options.verify_bench, options.repetitions, options.min_time)
    commands = run_commands(options.spiritlevel, options.repetitions)
    if options.json:
        with open(options.json, "w") as out:
            json.dump({"ns_per_op": {"/".join(key): value for key, value in samples.items()},
                       "python_ns_per_op": python,
                       "orders_per_second": {"/".join(key): value
                                             for key, value in search.items()},
                       "makespan_ns": makespans,
                       "runtime_ns_per_op": runtime,
                       "command_seconds": {what: times for what, _, times in commands}}, out,
                      indent=1)
    print_ops(samples, python)
    print_search(search, ops)
    print_runtime(runtime)
    print_commands(commands)


if __name__ == "__main__":
    main()
