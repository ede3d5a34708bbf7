#!/usr/bin/env python3
"""Compare CQE timestamps with the device clock the parameters describe.

usage: check-clock.py DIR STAMPS
DIR is the device's (its truth.csv and state), STAMPS the output of
build/tests/stamps.  The truth log has the moment of each completion in
CLOCK_MONOTONIC; the timestamp must be what the clock read then, to the tick.
Exit status: 0, 1 when it was not, 3 when the clock was to step and the
requests were not on both sides of that.
"""
import csv
import sys

SEC = 10**9


def read_state(path):
    with open(path) as f:
        return dict(line.rstrip("\n").split("=", 1) for line in f)


class Clock:
    """The clock of README.md, written down a second time, in exact integers."""

    def __init__(self, s):
        self.start = int(s["START_NS"])
        self.offset, self.drift = int(s["CLOCK_OFFSET_NS"]), int(s["CLOCK_DRIFT_PPB"])
        self.step_at, self.step = int(s["CLOCK_STEP_AT_NS"]), int(s["CLOCK_STEP_NS"])
        self.hz, self.real = int(s["CLOCK_HZ"]), s["CLOCK_FORMAT"] == "real"

    def stamp(self, t):
        up = t - self.start
        ns = t + self.offset + up * self.drift // SEC + (self.step if up >= self.step_at else 0)
        if self.real:
            return (ns // SEC) % 2**32 << 32 | ns % SEC
        return ns * self.hz // SEC % 2**64


def main():
    d, stamps = sys.argv[1:3]
    clock = Clock(read_state(f"{d}/state"))
    with open(f"{d}/truth.csv", newline="") as f:
        rows = [r for r in csv.DictReader(f) if r["kind"] == "S" and r["opcode"] == "WRITE"]
    with open(stamps) as f:
        seen = [[int(v) for v in line.split(",")] for line in f]
    errors = []
    if not seen or len(rows) != len(seen):
        errors.append(f"{len(seen)} stamps, {len(rows)} requests in the log")
    walls = 0
    for row, (i, raw, page, wall, real, mono) in zip(rows, seen):
        t = int(row["t_cqe"])
        if raw != clock.stamp(t):
            errors.append(f"request {i}: timestamp {raw}, expected {clock.stamp(t)}")
        # The page is behind the present, by the daemon's rest at most; the
        # order of readings holds where the clock neither steps nor wraps.
        if not clock.step and clock.offset >= 0 and page > clock.stamp(mono):
            errors.append(f"request {i}: the clock page is ahead, {page}")
        if wall:
            walls += 1
            # libmlx5 converts linearly from a page renewed each second.
            if not clock.step and abs((real - wall) - (mono - t)) > SEC // 10:
                errors.append(f"request {i}: wall clock {wall} at {real - (mono - t)}")
    if clock.real == bool(walls):
        errors.append(f"wall-clock time is offered: {bool(walls)}, in CLOCK_FORMAT=real: {clock.real}")
    before = sum(int(r["t_cqe"]) - clock.start < clock.step_at for r in rows)
    if clock.step and not errors and not 0 < before < len(rows):
        print(f"{before} of {len(rows)} requests before the step: nothing shown")
        sys.exit(3)
    print("\n".join(errors[:10]) or f"{len(seen)} timestamps exact, {walls} as wall-clock time, "
          f"{before} before the step")
    sys.exit(bool(errors))


main()
