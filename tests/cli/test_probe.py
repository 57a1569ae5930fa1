"""How `gq probe` counts steps, what it claims for a peak, and what it asks of the daemon."""

from collections.abc import Callable

import pytest

from gpuqueue.wire.jobs import QuotaView
from gq.probe import claim_for
from gq.steps import StepCount
from tests.cli import views
from tests.cli.canned import Answer, Asked, CannedDaemon, Respond, ok, problem
from tests.cli.running import Gq

Serve = Callable[[Respond], CannedDaemon]


def steps(*pieces: str, resumes: bool = False) -> int:
    count = StepCount(resumes)
    for piece in pieces:
        count.feed(piece.encode())
    return count.steps


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        ("step 1\nstep 2\nstep 3\n", 3),
        ("Step: 10/500 loss 2.1\nStep: 20/500 loss 2.0\n", 20),
        ("{'global_step': 5}\n{'global_step': 6}\n", 6),
        ("step 1\nstep 2", 0),  # the line may go on
        ("step 500\n", 0),  # a number that stands alone may be a setting
        ("max_step 3\nmax_step 9\nTotal steps = 100\nTotal steps = 200\nwarmup_steps: 3\nwarmup_steps: 4\n", 0),
        ("  0%|   | 0/100 [00:00<?]\r  1%|▏  | 1/100 [00:01<01:39]\r  2%|▏  | 2/100 [00:02<01:38]\r", 2),
        ("Epoch 1:  10%|█  | 3/30 [00:01<]\rEpoch 1:  20%|██  | 6/30 [00:01<]\r", 6),
        ("Map:  50%|████  | 2500/5000 [00:01<]\rMap: 100%|████████| 5000/5000 [00:02<]\r", 0),
        ("Loading checkpoint shards:  50%|██ | 1/2 [0<]\rLoading checkpoint shards: 100%|████ | 2/2 [0<]\r", 0),
        ("{'loss': 1.2, 'epoch': 0.1}\n{'loss': 1.1, 'epoch': 0.2}\n", 2),
    ],
)
def test_steps_are_counted_where_a_counter_rises(log: str, expected: int) -> None:
    assert steps(log) == expected


def test_a_log_in_pieces_counts_as_a_whole_one() -> None:
    assert steps("ste", "p 1\nst", "ep 2", "5\n") == 25


def test_a_resumed_run_counts_from_where_it_starts() -> None:
    assert steps("step 1000\nstep 1004\n", resumes=True) == 4


@pytest.mark.parametrize(
    ("peak_mib", "claim_mib"), [(1, 768), (256, 768), (257, 1024), (5120, 5632), (12083, 13312), (20480, 22528)]
)
def test_the_claim_is_the_peak_and_a_margin_rounded_up(peak_mib: int, claim_mib: int) -> None:
    assert claim_for(peak_mib) == claim_mib


def refuse(asked: Asked) -> Answer:
    """Cards and quotas as they are, and no to every job: enough to see what is asked for."""
    quota = QuotaView(
        account="ann", train_mib=20480, light_mib=9216, train_used_mib=4096, light_used_mib=0, source="default"
    )
    answers = {"/v1/node": {"account": "ann"}, "/v1/cards": [views.card()], "/v1/quotas": [quota]}
    return ok(answers[asked.path]) if asked.path in answers else problem(422, "refused", "not today")


def test_without_vram_the_probe_asks_for_the_most_that_can_start_now(serve: Serve, gq: Gq) -> None:
    daemon = serve(refuse)
    ran = gq("probe", "--name", "big", "--", "true")
    assert (ran.status, ran.err) == (1, "gq: not today\n")
    asked = daemon.asked[-1].body
    free_mib = min(views.card().free_for_train_mib, 20480 - 4096)
    assert (asked["vram_mib"], asked["vram_auto"], asked["name"]) == (free_mib, False, "probe: big")
    assert (asked["restart"], asked["grow"], asked["time_s"]) == ("never", False, 300)


def test_what_the_script_says_holds_for_the_probe(serve: Serve, gq: Gq) -> None:
    daemon = serve(refuse)
    (gq.directory / "train.sh").write_text("#!/bin/sh\n#GQ --vram 2G --light --time 8h\n:\n")
    gq("probe", "--minutes", "0.5", "train.sh")
    asked = daemon.asked[-1].body
    assert (asked["vram_mib"], asked["class"], asked["time_s"]) == (2048, "light", 150)
    assert asked["name"] == "probe: train.sh"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "nothing to probe"),
        (["--vram", "0", "--", "true"], "nothing to measure"),
        (["--steps", "0", "--", "true"], "--steps"),
        (["--minutes", "0", "--", "true"], "--minutes"),
        (["--attach", "--", "true"], "--attach"),
    ],
)
def test_mistakes_are_seen_before_anything_is_asked(serve: Serve, gq: Gq, words: list[str], said: str) -> None:
    daemon = serve(refuse)
    ran = gq("probe", *words)
    assert (ran.status, daemon.asked) == (2, [])
    assert said in ran.err


def test_options_of_the_probe_are_not_for_scripts(serve: Serve, gq: Gq) -> None:
    serve(refuse)
    (gq.directory / "train.sh").write_text("#!/bin/sh\n#GQ --steps 3\n:\n")
    ran = gq("probe", "train.sh")
    assert ran.status == 2
    assert "line 2: this option is for the command line only" in ran.err
