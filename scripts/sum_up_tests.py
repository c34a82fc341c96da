#!/usr/bin/env python3
"""Sums up what CTest reported of one or more runs of the tests.

    sum_up_tests.py PRESET CTEST_STATUS JUNIT_FILE [PRESET CTEST_STATUS JUNIT_FILE ...]

Prints failed tests, then skipped ones under their reasons, and as the last line
"N passed, N failed, N skipped", alone. The exit status is 0 only if tests ran and
none failed, by CTest's own word too: a run whose results cannot be read has failed.
"""

import collections
import sys
import xml.etree.ElementTree as ElementTree

Outcome = collections.namedtuple("Outcome", "kind name reason")  # kind: passed, failed, skipped


def skip_reason(output):
    """What GoogleTest prints below "FILE:LINE: Skipped"."""
    lines = output.splitlines()
    for number, line in enumerate(lines):
        if not line.endswith(": Skipped"):
            continue
        reason = []
        for text in lines[number + 1 :]:
            if not text.strip() or text.startswith("["):
                break
            reason.append(text.strip())
        return " ".join(reason) or "no reason given"
    return "no reason given"


def outcome_of(case):
    name = case.get("name")
    status = case.get("status")
    output = case.findtext("system-out") or ""
    if status == "run":
        return Outcome("passed", name, "")
    if status == "disabled":
        return Outcome("skipped", name, "disabled in the source")
    mark = case.find("skipped") if status == "notrun" else case.find("failure")
    message = (mark.get("message") if mark is not None else "") or ""
    if status == "notrun" and message.startswith("SKIP_"):
        return Outcome("skipped", name, skip_reason(output))
    # "notrun" without such a mark: its program was not built, or did not start.
    return Outcome("failed", name, message)


def read_run(ctest_status, path):
    try:
        outcomes = [outcome_of(case) for case in ElementTree.parse(path).iter("testcase")]
    except (OSError, ElementTree.ParseError) as error:
        return [Outcome("failed", "ctest", f"left no results that can be read: {error}")]
    if not any(outcome.kind == "passed" for outcome in outcomes):
        outcomes.append(Outcome("failed", "ctest", "no test ran"))
    if ctest_status != 0 and not any(outcome.kind == "failed" for outcome in outcomes):
        outcomes.append(Outcome("failed", "ctest", f"ended with status {ctest_status}"))
    return outcomes


def print_grouped(title, lines):
    """lines: (reason, preset, name). The presets of one test share a line."""
    presets_of = collections.defaultdict(lambda: collections.defaultdict(list))
    for reason, preset, name in lines:
        presets_of[reason][name].append(preset)
    for reason, names in presets_of.items():
        print(f"{title}: {reason}" if reason else f"{title}:")
        for name, presets in names.items():
            print(f"    {name} ({', '.join(presets)})")


def main(arguments):
    if not arguments or len(arguments) % 3 != 0:
        print(__doc__, file=sys.stderr)
        return 2
    by_kind = {"passed": [], "failed": [], "skipped": []}
    for preset, ctest_status, path in zip(*[iter(arguments)] * 3):
        for outcome in read_run(int(ctest_status), path):
            by_kind[outcome.kind].append((outcome.reason, preset, outcome.name))
    print()
    print_grouped("Skipped", by_kind["skipped"])
    print_grouped("Failed", by_kind["failed"])
    print(", ".join(f"{len(lines)} {kind}" for kind, lines in by_kind.items()))
    return 1 if by_kind["failed"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
