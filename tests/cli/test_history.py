"""`gq history`, and what `gq show` draws of VRAM. The far end is a canned daemon."""

import csv
import io
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gpuqueue.wire.jobs import (
    AttemptView,
    CalibrationView,
    Estimated,
    QuotaView,
    RunView,
    TensorParts,
    TorchPeak,
    to_json,
)
from gpuqueue.wire.states import RunState
from gq import curves, show
from gq.history import history_lines
from gq.terminal import Screen, columns_of
from tests.cli import views
from tests.cli.canned import Answer, Asked, CannedDaemon, Respond, ok, problem
from tests.cli.running import Gq

Serve = Callable[[Respond], CannedDaemon]


def run(id: int = 1, **changes: Any) -> RunView:
    fields: dict[str, Any] = {
        "id": id,
        "job_id": id,
        "attempt": 1,
        "user": "ann",
        "account": "ann",
        "job_class": "train",
        "name": "train.sh",
        "command": "train.sh --epochs 3",
        "model": "Qwen2.5-7B",
        "work": "a" * 32,
        "cards": 1,
        "claim_mib": 22528,
        "estimate_mib": 20866,
        "peak_mib": 12083,
        "ran_s": 3700,
        "state": RunState.SUCCEEDED,
        "cause": None,
        "ended_at": views.NOW,
    }
    return RunView(**(fields | changes))


def pages_of(runs: list[RunView]) -> Respond:
    """As the daemon pages: newest first, ids below `before`."""

    def respond(asked: Asked) -> Answer:
        before = int(asked.query.get("before", 2**62))
        newest = sorted((one for one in runs if one.id < before), key=lambda one: -one.id)
        return ok(newest[: int(asked.query["limit"])])

    return respond


RUNS = [run(id) for id in range(1, 1203)]


def test_csv_and_json_hold_every_run_over_all_pages(serve: Serve, gq: Gq) -> None:
    daemon = serve(pages_of(RUNS))
    rows = list(csv.DictReader(io.StringIO(gq("history", "--csv").out)))
    assert [int(row["id"]) for row in rows] == list(range(1202, 0, -1))
    assert len(daemon.asked) == 2
    assert json.loads(gq("history", "--json").out) == to_json(RUNS[::-1])


def test_the_table_asks_for_a_few_of_ones_own_unless_told_otherwise(serve: Serve, gq: Gq) -> None:
    daemon = serve(pages_of(RUNS))
    assert len(gq("history").out.splitlines()) == 31
    assert len(gq("history", "--all", "--limit", "2").out.splitlines()) == 3
    assert [(one.query["all"], one.query["limit"]) for one in daemon.asked] == [("0", "30"), ("1", "2")]


def test_no_run_yet_says_so(serve: Serve, gq: Gq) -> None:
    serve(pages_of([]))
    assert "no run of yours" in gq("history").out
    assert gq("history", "--csv").out.startswith("id,job_id,attempt,user,account,class,")
    assert gq("history", "--csv", "--json").status == 2


def test_csv_gives_a_spreadsheet_no_formulas_and_a_terminal_no_escapes(serve: Serve, gq: Gq) -> None:
    serve(pages_of([run(name="=HYPERLINK(1)", command='a,"b"\n\x1b[31m', model=None)]))
    [row] = csv.DictReader(io.StringIO(gq("history", "--csv").out))
    assert row["name"] == "'=HYPERLINK(1)"
    assert row["command"].startswith('a,"b"')
    assert "\x1b" not in row["command"]
    assert row["model"] == ""


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_fits_and_tells_claim_peak_and_end(width: int) -> None:
    rows = [
        run(1234567, name="n" * 90, account="a" * 60, state=RunState.FAILED, cause="out_of_memory"),
        run(peak_mib=None),
    ]
    lines = history_lines(rows, Screen(width=width), everybody=True)
    assert max(columns_of(line) for line in lines) <= width
    text = "\n".join(history_lines([run(state=RunState.FAILED, cause="out_of_memory")], Screen(width=120)))
    for said in ("1.1", "22.0", "11.8", "1h01m", "failed, out of memory"):
        assert said in text


# gq show


def attempt(**changes: Any) -> AttemptView:
    fields: dict[str, Any] = {
        "number": 1,
        "cards": [0],
        "started_at": views.NOW - 3900,
        "ended_at": None,
        "exit_code": None,
        "outcome": "running",
        "resumed_from": None,
        "peak_vram_mib": 12288,
        "peak_at_s": 100,
        "growth_mib_per_hour": 60,
        "curve": [(0, 0), (50, 6144), (100, 12288), (3800, 12000)],
    }
    return AttemptView(**(fields | changes))


@pytest.mark.parametrize("width", [80, 200])
@pytest.mark.parametrize("blocks", [True, False])
def test_the_curve_fits_and_says_peak_time_and_growth(width: int, blocks: bool) -> None:
    lines = curves.curve_lines(attempt(), Screen(width=width, blocks=blocks))
    assert max(columns_of(line) for line in lines) <= width
    assert blocks or "\n".join(lines).isascii()
    assert lines[0].lstrip().startswith("12.0 GiB")
    assert lines[-2].split() == ["0s", "1h03m"]
    assert lines[-1].strip() == "peak 12.0 GiB after 1m40s, +1.0 MiB a minute"


def test_the_curve_rises_where_the_vram_does_and_goes_on_where_nothing_new_was_seen() -> None:
    top, *_, bottom, _, _, _ = curves.curve_lines(
        attempt(curve=[(0, 1), (500, 12288), (1000, 12288)]), Screen(width=112)
    )
    bars = top.partition("│")[2]
    assert bars[:50].strip() == ""
    assert bars[50:] == "█" * 50
    assert bottom.endswith("█" * 50)


@pytest.mark.parametrize("changes", [{"curve": []}, {"curve": [(0, 5)]}, {"peak_vram_mib": None}])
def test_an_attempt_that_was_hardly_seen_has_no_curve(changes: dict[str, Any]) -> None:
    assert curves.curve_lines(attempt(**changes), Screen()) == []


def test_estimate_torch_and_card_stand_side_by_side() -> None:
    estimate = Estimated(occupied_mib=12800, torch_peak_mib=10240, context_mib=512)
    torch = TorchPeak(allocated_mib=10000, reserved_mib=11000)
    page = show.page(views.detail(attempts=[attempt(torch=torch)], estimate=estimate), Screen())
    table = {line[:18].strip(): line[18:].split() for line in page[-8:] if not line.startswith("2")}
    assert table["tensors"] == ["10.0", "GiB", "9.8", "GiB"]
    assert table["allocator's cache"] == ["2.0", "GiB", "1000", "MiB"]
    assert table["context, libraries"] == ["512", "MiB", "1.3", "GiB"]
    assert table["in all"] == ["12.5", "GiB", "12.0", "GiB"]
    assert curves.estimate_lines(None, attempt(), Screen()) == []
    assert curves.estimate_lines(estimate, attempt(peak_vram_mib=None), Screen()) != []


PARTS = TensorParts(frozen_mib=8192, trained_mib=80, gradients_mib=80, optimizer_mib=160, rest_mib=1728)
COUNTED = TensorParts(frozen_mib=8192, trained_mib=82, gradients_mib=82, optimizer_mib=161, rest_mib=699)
ESTIMATE = Estimated(occupied_mib=12800, torch_peak_mib=10240, context_mib=512, parts=PARTS)
TORCH = TorchPeak(allocated_mib=9216, reserved_mib=11000, parts=COUNTED)


@pytest.mark.parametrize("width", [80, 120])
def test_tensors_are_told_apart_where_the_job_counted_them(width: int) -> None:
    lines = curves.estimate_lines(ESTIMATE, attempt(torch=TORCH), Screen(width=width))
    assert max(columns_of(line) for line in lines) <= width
    told = {line[:20].strip(): line[20:].split() for line in lines}
    kinds = ["frozen weights", "trained weights", "gradients", "optimizer", "activations, rest"]
    assert list(told)[1:7] == [*kinds, "tensors"]
    assert told["frozen weights"] == ["8.0", "GiB", "8.0", "GiB"]
    assert told["trained weights"] == ["80", "MiB", "82", "MiB"]
    assert told["activations, rest"] == ["1.7", "GiB", "699", "MiB"]
    assert told["tensors"] == ["10.0", "GiB", "9.0", "GiB"]
    uncounted = curves.estimate_lines(ESTIMATE, attempt(torch=replace(TORCH, parts=None)), Screen())
    assert "gradients" not in "\n".join(uncounted)


def test_csv_and_json_hold_what_was_estimated_and_counted_part_by_part(serve: Serve, gq: Gq) -> None:
    serve(pages_of([run(2, estimate_parts=PARTS, torch=TORCH), run(1)]))
    full, bare = csv.DictReader(io.StringIO(gq("history", "--csv").out))
    assert [full[f"{side}_{kind}_mib"] for side in ("estimate", "torch") for kind in ("trained", "rest")] == [
        "80",
        "1728",
        "82",
        "699",
    ]
    assert (full["torch_allocated_mib"], full["torch_context_mib"]) == ("9216", "")
    assert {value for name, value in bare.items() if name.startswith("torch_")} == {""}
    assert json.loads(gq("history", "--json").out)[0]["torch"]["parts"]["gradients_mib"] == 82


# gq estimate

QUOTA = QuotaView(account="ann", train_mib=20480, light_mib=0, train_used_mib=0, light_used_mib=0, source="default")


def node(asked: Asked) -> Answer:
    answers = {
        "/v1/node": views.node(),
        "/v1/quotas": [QUOTA],
        "/v1/calibration": CalibrationView(family="qwen2.5", runs=14, permille=930),
    }
    return ok(answers[asked.path]) if asked.path in answers else problem(404, "not_found", "no")


def test_an_estimate_knows_this_nodes_cards_quota_and_calibration(serve: Serve, gq: Gq) -> None:
    daemon = serve(node)
    out = gq("estimate", "Qwen2.5-7B").out
    assert "card of 31.8 GiB" in out
    assert "quota of 20.0 GiB" in out
    assert "calibrated on 14 runs: x 0.93" in out
    assert daemon.asked[-1].query == {"model": "Qwen2.5-7B"}
    assert json.loads(gq("estimate", "Qwen2.5-7B", "--json").out)["calibration"]["runs"] == 14


def test_without_a_daemon_an_estimate_says_nothing_of_a_node(gq: Gq) -> None:
    ran = gq("estimate", "Qwen2.5-7B")
    assert (ran.status, ran.err) == (0, "")
    assert "card of" not in ran.out
    assert "calibrated" not in ran.out
