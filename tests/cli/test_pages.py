"""What listings look like: within the width, with the words that matter."""

import itertools
from dataclasses import replace

import pytest

from gpuqueue.wire.jobs import CardView, CheckView, JobView, QuotaView
from gpuqueue.wire.states import JobClass, JobState
from gq import bars, gpus, overview, show
from gq.doctor import check_lines
from gq.events import event_lines
from gq.quota import quota_lines
from gq.terminal import Screen, columns_of, wrapped
from gq.words import doing, standing
from tests.cli import views

LONG = "needs 22.0 GiB on one card, 1.3 GiB is free: " + ", ".join(f"job {n} of ann holds 2.0 GiB" for n in range(9))

JOBS: list[JobView] = [
    views.job(8, user="dora", name="chat", job_class=JobClass.LIGHT, vram_mib=6144, used_vram_mib=5120),
    views.job(12, reason="idle for 15m00s; stopped in 15m00s unless it works"),
    views.waiting(1234567, user="a-very-long-user-name-indeed", name="n" * 90, reason=LONG),
    views.waiting(14, state=JobState.BACKOFF, name="訓練" * 30),
    views.waiting(15, vram_mib=0, reason="behind job 13"),
    views.job(16, gpus=8, cards=list(range(8)), vram_mib=81920, used_vram_mib=81000, account="lab"),
    *(views.ended(20 + n, state=state) for n, state in enumerate(state for state in JobState if state.ended)),
]
CARDS: list[CardView] = [
    views.card(0),
    views.card(1, foreign_mib=3072, charged_mib=0, used_mib=3072, tenants=[], strangers=[views.stranger()]),
    views.card(2, drained="Xid 79: " + "the card fell off the bus " * 5, notes=["per-process memory is hidden"]),
    views.card(10, charged_mib=40000, used_mib=31000, held_back_mib=0),
]


@pytest.mark.parametrize("width", [80, 100, 120, 200])
@pytest.mark.parametrize("blocks", [True, False])
def test_every_listing_fits_its_width(width: int, blocks: bool) -> None:
    on = Screen(width=width, blocks=blocks)
    quota = QuotaView(account="a" * 60, train_mib=1, light_mib=1, train_used_mib=2, light_used_mib=0, source="s" * 70)
    pages = [
        overview.page(views.node(cards=CARDS, simulated=True), JOBS, on),
        gpus.page(CARDS, on),
        show.page(views.detail(views.waiting(reason=LONG)), on),
        quota_lines([quota], on),
        check_lines([CheckView(name="cards", level="warn", text="word " * 60, hint="hint " * 60)], on),
        event_lines(views.detail().events, on),
    ]
    for line in itertools.chain.from_iterable(page for page in pages):
        assert columns_of(line) <= width, line


def test_status_says_who_runs_what_and_why_the_others_wait() -> None:
    text = "\n".join(overview.page(views.node(), [views.job(), views.waiting()], Screen(width=160)))
    assert "1 running" in text
    assert "18.3/22.0" in text
    assert views.waiting().reason in text


def test_a_reason_has_two_lines_and_ends_in_an_ellipsis_where_it_needs_more() -> None:
    lines = overview.job_lines([views.waiting(reason=LONG)], Screen(width=80))
    assert len(lines) == 2 + overview.MOST_REASON_LINES
    assert lines[-1].endswith("…")


def test_an_empty_queue_says_what_to_do_next() -> None:
    *_, submit, ended = overview.page(views.node(), [], Screen())
    assert submit == "No open jobs. Submit one:  gq submit --vram 8G train.sh"
    assert "gq status --all" in ended
    of_ann = overview.page(views.node(), [], Screen(), whose="ann", ended=True)
    assert of_ann[-1].startswith("No jobs of ann. Submit one:")


def test_a_daemon_that_cannot_supervise_says_so_first() -> None:
    """The numbers below are of the last tick that worked."""
    head, *lines = overview.page(views.node(fault="the disk that holds /var/lib/gpuqueue is full"), [], Screen())
    assert "node1" in head
    assert " ".join(lines).startswith("NOT SUPERVISED: the disk that holds /var/lib/gpuqueue is full. Jobs run on,")


def test_simulated_cards_are_called_simulated() -> None:
    simulated = views.card(simulated=True)
    assert "simulated" in overview.page(views.node(simulated=True, cards=[simulated]), [], Screen())[0]
    assert "simulated" in gpus.page([simulated], Screen())[0]
    assert "simulated" not in "\n".join(overview.page(views.node(), [], Screen()))


def test_wide_screens_show_more() -> None:
    narrow = "\n".join(overview.job_lines([views.job()], Screen(width=80)))
    wide = "\n".join(overview.job_lines([views.job()], Screen(width=140)))
    assert "--epochs 3" not in narrow
    assert "--epochs 3" in wide


@pytest.mark.parametrize("card", CARDS, ids=lambda card: f"card{card.index}")
@pytest.mark.parametrize("cells", [8, 24, 80])
def test_a_bar_has_exactly_its_cells_and_hides_no_part(card: CardView, cells: int) -> None:
    bar = bars.bar(card, cells, Screen())
    assert len(bar) == cells
    for part, mib in bars.parts_of(card).items():
        assert (bars.PARTS[part][0] in bar) == (mib > 0)


def test_the_parts_of_a_card_are_its_capacity() -> None:
    parts = bars.parts_of(views.card())
    assert parts == {"used": 18739, "unused": 3789, "outside": 0, "free": 1375, "held back": 8704}
    assert sum(parts.values()) == 32607


def test_light_jobs_take_from_what_is_held_back() -> None:
    light = views.tenant(8, job_class=JobClass.LIGHT, claim_mib=6144, charge_mib=6144, used_mib=6144)
    parts = bars.parts_of(views.card(charged_mib=28672, used_mib=28672, tenants=[views.tenant(), light]))
    assert parts["held back"] == 8704 - 6144


def test_why_is_one_sentence_with_state_time_and_reason() -> None:
    assert standing(views.waiting()) == f"job 13 queued for 12m34s: {views.waiting().reason}"
    assert doing(views.job()) == "running on card 0 for 1h05m"
    assert standing(views.ended()) == "job 11 failed 10s ago: exited with status 7"
    assert doing(views.job(cards=[0, 1])) == "running on cards 0,1 for 1h05m"


def test_show_tells_attempts_settings_log_and_events() -> None:
    text = "\n".join(show.page(views.detail(), Screen(width=120)))
    for said in (
        "running on card 0",
        "time limit",
        "24h00m",
        "output.log",
        "submitted by ann",
        "TRY",
        "22.0 GiB claimed",
    ):
        assert said in text


def test_show_tells_why_attempts_failed_and_those_of_one_cause_once() -> None:
    shown = views.detail(attempts=[views.failed_attempt(1), views.failed_attempt(2), views.failed_attempt(3, "signal")])
    text = "\n".join(show.page(shown, Screen(width=100)))
    assert text.count("claim 13.0 GiB or more") == 2
    assert "why try 1, 2 failed" in text
    assert "cause         out of memory (confidence high)" in text
    assert "evidence      torch.OutOfMemoryError: CUDA out of memory." in text
    assert "why try 3 failed" in text


def test_escape_sequences_in_names_are_not_printed() -> None:
    evil = views.waiting(name="\x1b]0;owned\x07", reason="\x1b[2J", user="\x1b[31mbob")
    text = "\n".join(
        [*overview.page(views.node(host="\x1b[1m"), [evil], Screen()), *show.page(views.detail(evil), Screen())]
    )
    assert "\x1b" not in text
    assert "\x07" not in text


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", [""]),
        ("one two", ["one two"]),
        ("a" * 20 + " b", ["a" * 20, "b"]),
        ("a" * 45, ["a" * 20, "a" * 20, "a" * 5]),
        ("x " + "訓" * 15, ["x", "訓" * 10, "訓" * 5]),
        ("word " * 9, ["word word word word", "word word word word", "word"]),
    ],
)
def test_a_text_is_folded_at_its_words_by_the_columns_of_a_terminal(text: str, lines: list[str]) -> None:
    assert wrapped(text, 20) == lines
    assert len(wrapped(text, 20, most=2)) == min(len(lines), 2)


def test_what_ran_unseen_is_told_apart_from_what_counts_towards_the_time_limit() -> None:
    """Z4: the limit counts what the daemon watched; the table of tries goes by the clock."""
    tries = [replace(views.detail().attempts[0], ended_at=views.NOW - 3000)]
    seen = show.page(views.detail(views.ended(ran_s=899), attempts=tries), Screen(width=120))
    assert "ran           14m59s of 1d00h" in seen
    unseen = show.page(views.detail(views.ended(ran_s=300), attempts=tries), Screen(width=120))
    assert "ran           5m00s of 1d00h, and 10m00s unseen while the daemon was down" in unseen
