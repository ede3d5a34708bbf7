#!/usr/bin/env python3
"""Compare injected delays (truth.csv) with what perftest measured (-U output).

usage: check-truth.py TRUTH PERFTEST_OUTPUT SLOW_NS [OPCODE]
Each line of the -U report of a read or atomic latency run is one work request.
Every request the log calls slow must have been measured at SLOW_NS or more;
others may have been too, on a busy machine.
"""
import csv
import re
import sys


def rows_of_last_qp(path, opcode):
    with open(path, newline="") as f:
        rows = [r for r in csv.DictReader(f) if r["kind"] == "S" and r["opcode"] == opcode]
    return [r for r in rows if r["qpn"] == rows[-1]["qpn"]] if rows else []


def main():
    truth, out, slow_ns = sys.argv[1], sys.argv[2], int(sys.argv[3])
    rows = rows_of_last_qp(truth, sys.argv[4] if len(sys.argv) > 4 else "READ")
    with open(out) as f:
        lat = [float(m.group(2)) for m in re.finditer(r"^(\d+), ([0-9.]+)\s*$", f.read(), re.M)]
    n = min(len(lat), len(rows))
    if not n:
        sys.exit(f"nothing to compare: {len(rows)} requests, {len(lat)} measured")
    slow = {i for i in range(n) if "S" in rows[i]["flags"]}
    seen = {i for i in range(n) if lat[i] * 1000 >= slow_ns}
    print(f"{n} requests; injected slow: {len(slow)}; measured >= {slow_ns} ns: {len(seen)}; "
          f"both: {len(slow & seen)}; missed: {sorted(slow - seen)[:5]}; "
          f"extra (noise): {len(seen - slow)}")
    # What perftest measured against the emulator's own doorbell-seen -> CQE-written.
    d = sorted(lat[i] * 1000 - (int(rows[i]["t_cqe"]) - int(rows[i]["t_doorbell"]))
               for i in range(n))
    q = {p: d[min(n - 1, n * p // 100)] for p in (1, 50, 90, 99)}
    print("perftest latency minus (t_cqe - t_doorbell), ns: "
          + " ".join(f"p{p} {v:.0f}" for p, v in q.items()))
    sys.exit(0 if slow and slow <= seen else 1)


main()
