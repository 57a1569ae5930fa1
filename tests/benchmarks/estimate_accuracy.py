"""How far the estimates are from published measurements: python estimate_accuracy.py FILE.csv [--json].

Prints error by source, method and quantity, every row that is left out with the reason, and the same
for fitcheck-llm (`pip install fitcheck-llm`) on the rows that it can express.
"""

import argparse
import csv
import json
import sys
from collections import Counter, defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import fitcheck_rows
import measured_rows

from gpuqueue.estimate.estimate import estimate

BARS = {  # median and 95th percentile of the error in per cent, by what is scored
    ("torch_peak", "checkpointed"): (1.5, 8.0),
    ("torch_peak", "kept"): (3.0, 10.0),
    ("torch_peak", "inference 16-bit"): (0.5, 3.0),
    ("torch_peak", "inference quantised"): (1.5, 5.0),
    ("occupied", "all"): (5.0, 20.0),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rows", action="store_true", help="print every scored row as well")
    options = parser.parse_args()
    with options.file.open(newline="", encoding="utf-8") as table:
        report = score(list(csv.DictReader(table)))
    if options.json:
        print(json.dumps(report, indent=2))
    else:
        show(report, options.rows)
    return 0


def score(rows: list[dict[str, str]]) -> dict[str, object]:
    """Every row's errors, and the summaries over them."""
    scored, left_out = [], []
    for number, row in enumerate(rows, start=2):
        label = {"line": number, "source": row["source"], "model": row["model"], "method": row["method"]}
        try:
            found = measured_rows.read(row)
        except measured_rows.IncompleteError as reason:
            left_out.append(label | {"reason": str(reason)})
            continue
        left_out += [label | {"reason": f"{what}: {why}"} for what, why in found.left_out.items()]
        ours, theirs = estimate(found.run), fitcheck_rows.predict(found.run, row)
        for quantity, measured in found.measured.items():
            occupied = quantity == "occupied"
            predicted = ours.occupied_mib if occupied else ours.torch_peak_mib
            scored.append(
                label
                | {
                    "quantity": quantity,
                    "category": found.category,
                    "measured_mib": round(measured),
                    "predicted_mib": predicted,
                    "error": predicted / measured - 1,
                    "low_mib": ours.occupied_low_mib if occupied else None,
                    "high_mib": ours.occupied_high_mib if occupied else None,
                    "needed_mib": ours.needed_mib if occupied else None,
                    "fitcheck_mib": theirs.get(quantity),
                    "fitcheck_calibrated_on_it": row["source"].startswith("fitcheck"),
                }
            )
    return {
        "rows": len(rows),
        "answered": len({row["line"] for row in scored}),
        "summary": _summary(scored),
        "by_source": _by_source(scored),
        "intervals": _intervals(scored),
        "fitcheck": _fitcheck(scored),
        "fitcheck_version": fitcheck_rows.VERSION,
        "left_out": left_out,
        "scored": scored,
    }


def _errors(errors: list[float]) -> dict[str, float]:
    sizes = sorted(abs(error) * 100 for error in errors)
    return {
        "rows": len(sizes),
        "median": round(percentile(sizes, 50), 2),
        "p95": round(percentile(sizes, 95), 2),
        "worst": round(sizes[-1], 2),
        "bias": round(sum(errors) / len(errors) * 100, 2),
    }


def percentile(ordered: list[float], share: float) -> float:
    """Linear interpolation between the closest ranks, as numpy does it."""
    at = (len(ordered) - 1) * share / 100
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def _summary(scored: list[dict]) -> list[dict]:
    groups = defaultdict(list)
    for row in scored:
        key = "all" if row["quantity"] == "occupied" else row["category"]
        groups[row["quantity"], key].append(row["error"])
    found = []
    for key, errors in groups.items():
        line = {"quantity": key[0], "category": key[1]} | _errors(errors)
        if key in BARS:
            median, p95 = BARS[key]
            line |= {"bar": BARS[key], "met": line["median"] <= median and line["p95"] <= p95}
        found.append(line)
    return found


def _by_source(scored: list[dict]) -> list[dict]:
    groups = defaultdict(list)
    for row in scored:
        groups[row["source"], row["method"], row["quantity"], row["category"]].append(row["error"])
    names = ("source", "method", "quantity", "category")
    return [dict(zip(names, key, strict=True)) | _errors(errors) for key, errors in groups.items()]


def _intervals(scored: list[dict]) -> dict[str, float]:
    rows = [row for row in scored if row["quantity"] == "occupied"]
    if not rows:
        return {}
    held = sum(row["low_mib"] <= row["measured_mib"] <= row["high_mib"] for row in rows)
    widths = sorted(row["high_mib"] / row["low_mib"] for row in rows)
    above = sum(row["needed_mib"] > row["measured_mib"] for row in rows)
    return {
        "rows": len(rows),
        "held_percent": round(100 * held / len(rows), 1),
        "median_width": round(percentile(widths, 50), 3),
        "needed_above_measured_percent": round(100 * above / len(rows), 1),
    }


def _fitcheck(scored: list[dict]) -> list[dict]:
    """Both estimators on the rows that fitcheck-llm can express, its own calibration rows apart."""
    groups = defaultdict(list)
    for row in scored:
        if row["fitcheck_mib"] is not None:
            own = "its own T4 rows" if row["fitcheck_calibrated_on_it"] else "other rows"
            groups[row["quantity"], own].append(row)
    found = []
    for (quantity, own), rows in groups.items():
        theirs = _errors([row["fitcheck_mib"] / row["measured_mib"] - 1 for row in rows])
        found.append(
            {
                "quantity": quantity,
                "on": own,
                "fitcheck": theirs,
                "gq": _errors([row["error"] for row in rows]),
            }
        )
    return found


def show(report: dict, every_row: bool) -> None:
    """The report for people."""
    line = "{rows:5d} {median:7.2f} {p95:7.2f} {worst:7.2f} {bias:+7.2f}"
    head = " rows  median     p95   worst    bias"
    print(f"{report['answered']} of {report['rows']} rows answered. Errors in per cent of the measured value.\n")
    print(f"{'quantity':12} {'of':22}{head}  bar (median/p95)")
    for row in report["summary"]:
        bar = "{:g}/{:g} {}".format(*row["bar"], "met" if row["met"] else "MISSED") if "bar" in row else ""
        print(f"{row['quantity']:12} {row['category']:22}{line.format(**row)}  {bar}")
    if report["intervals"]:
        held = report["intervals"]
        print(
            f"\noccupied: the interval holds {held['held_percent']} % of {held['rows']} rows at a median "
            f"width of {held['median_width']}; needed is above the measured value in "
            f"{held['needed_above_measured_percent']} %"
        )
    print(f"\n{'source':38} {'method':10} {'quantity':11} {'of':20}{head}")
    for row in report["by_source"]:
        print(f"{row['source']:38.38} {row['method']:10} {row['quantity']:11} {row['category']:20}{line.format(**row)}")
    print(f"\nfitcheck-llm {report['fitcheck_version'] or 'is not installed here (pip install fitcheck-llm)'}")
    for row in report["fitcheck"]:
        for name in ("fitcheck", "gq"):
            print(f"{row['quantity']:12} {row['on']:18} {name:9}{line.format(**row[name])}")
    print("\nleft out:")
    reasons = defaultdict(list)
    for row in report["left_out"]:
        reasons[row["reason"]].append(row)
    for reason, rows in sorted(reasons.items(), key=lambda item: -len(item[1])):
        print(f"{len(rows):4d}  {reason}")
        for source, count in Counter(row["source"] for row in rows).items():
            lines = ", ".join(str(row["line"]) for row in rows if row["source"] == source)
            print(f"        {source} ({count}): lines {lines}")
    if every_row:
        print()
        for row in report["scored"]:
            print(
                "{line:4d} {source:24.24} {model:34.34} {method:9} {quantity:10} "
                "{measured_mib:7d} {predicted_mib:7d} {error:+7.1%}".format(**row)
            )


if __name__ == "__main__":
    raise SystemExit(main())
