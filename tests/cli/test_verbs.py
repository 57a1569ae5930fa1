"""Each verb as a process: what it asks, what it prints, how it exits."""

import json
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuqueue.wire.jobs import CheckView, EventView, QuotaView, to_json
from gpuqueue.wire.states import JobState
from gq.verbs import VERBS
from tests.cli import views
from tests.cli.canned import Answer, Asked, CannedDaemon, Respond, ok, problem
from tests.cli.running import Gq

Serve = Callable[[Respond], CannedDaemon]
HEAVY = {"fastapi", "pydantic", "sqlmodel", "psutil", "httpx", "http.client", "ssl", "email", "asyncio", "click"}
QUOTA = QuotaView(
    account="ann", train_mib=20480, light_mib=10240, train_used_mib=0, light_used_mib=0, source="set for the user"
)
EVENT = EventView(id=3, at=views.NOW, kind="ended", job_id=12, actor="gpuqueue", text="job 12 failed")


def respond(asked: Asked) -> Answer:
    answers = {
        "/v1/jobs": [views.job(), views.waiting()],
        "/v1/node": views.node(),
        "/v1/cards": [views.card()],
        "/v1/quotas": [QUOTA],
        "/v1/quotas/ann": QUOTA,
        "/v1/jobs/12": views.detail(),
        "/v1/jobs/12/why": views.job(),
        "/v1/jobs/12/cancel": views.job(state=JobState.STOPPING, reason="cancelled by ann"),
        "/v1/jobs/13/cancel": views.waiting(state=JobState.CANCELLED, reason="cancelled by bob"),
        "/v1/jobs/cancel-all": [],
        "/v1/jobs/12/requeue": views.job(state=JobState.STOPPING, reason="requeued by ann"),
        "/v1/jobs/12/keep": views.job(limit_s=93600),
        "/v1/events": [EVENT],
        "/v1/doctor": [CheckView(name="cards", level="ok", text="1 card")],
    }
    if asked.path in answers:
        return ok(answers[asked.path])
    return problem(404, "not_found", f"there is no {asked.path}", "look at `gq status`")


@pytest.fixture
def daemon(serve: Serve) -> CannedDaemon:
    return serve(respond)


LISTINGS = {
    "status": [views.job(), views.waiting()],
    "show 12": views.detail(),
    "why 12": views.job(),
    "gpus": [views.card()],
    "quota": [QUOTA],
    "events": [EVENT],
    "doctor": [CheckView(name="cards", level="ok", text="1 card")],
}


@pytest.mark.parametrize("words", LISTINGS)
def test_json_is_what_the_daemon_answered(daemon: CannedDaemon, gq: Gq, words: str) -> None:
    ran = gq(*words.split(), "--json")
    assert (ran.status, json.loads(ran.out), ran.err) == (0, to_json(LISTINGS[words]), "")


@pytest.mark.parametrize("words", ["", *LISTINGS])
def test_a_pipe_gets_no_colours_and_80_columns(daemon: CannedDaemon, gq: Gq, words: str) -> None:
    ran = gq(*words.split())
    assert ran.status == 0, ran.err
    assert ran.out
    assert "\x1b" not in ran.out
    assert max(len(line) for line in ran.out.splitlines()) <= 80 or words.startswith("why")


@pytest.mark.parametrize(("environ", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)])
def test_a_terminal_gets_colours_unless_it_asks_not_to(
    daemon: CannedDaemon, gq: Gq, environ: dict[str, str], coloured: bool
) -> None:
    ours, theirs = pty.openpty()
    with open(ours, "rb", buffering=0) as screen:  # noqa: PTH123 - a descriptor
        env = gq.env(**({"TERM": "xterm"} | environ))
        with open(theirs, "wb") as terminal:  # noqa: PTH123
            done = subprocess.run(gq.command("status"), env=env, stdout=terminal, timeout=60, check=False)
            shown = screen.read(65536)
    assert done.returncode == 0
    assert (b"\x1b[" in shown) == coloured
    assert b"train.sh" in shown


def test_plain_gq_is_gq_status(daemon: CannedDaemon, gq: Gq) -> None:
    assert gq() == gq("status")


def test_cancel_says_what_became_of_each_and_exits_with_the_first_no(daemon: CannedDaemon, gq: Gq) -> None:
    ran = gq("cancel", "12", "99", "13")
    assert ran.status == 1
    assert [line.split(":")[0] for line in ran.out.splitlines()] == [
        "job 12 stopping on card 0 for 1h05m",
        "job 13 cancelled 12m34s ago",
    ]
    assert ran.err.startswith("gq: there is no /v1/jobs/99/cancel\n")


@pytest.mark.parametrize("words", ["cancel", "cancel --all 12"])
def test_cancel_wants_ids_or_all(daemon: CannedDaemon, gq: Gq, words: str) -> None:
    assert gq(*words.split()).status == 2
    assert daemon.asked == []


def test_cancel_all_asks_for_ones_own(daemon: CannedDaemon, gq: Gq) -> None:
    assert gq("cancel", "--all").out == "you have no open jobs\n"
    assert daemon.asked[0].path == "/v1/jobs/cancel-all"


def test_keep_sends_seconds_and_says_the_new_limit(daemon: CannedDaemon, gq: Gq) -> None:
    ran = gq("keep", "12", "2h")
    assert daemon.asked[0].body == {"extend_s": 7200}
    assert ran.out == "job 12 has 2h00m more: it may run 1d02h in all\n"


def test_quota_set_sends_what_was_named_and_leaves_the_rest(daemon: CannedDaemon, gq: Gq) -> None:
    assert gq("quota", "set", "ann", "--train", "20G").status == 0
    assert gq("quota", "unset", "ann").status == 0
    change, unset = daemon.asked
    assert (change.method, change.body) == ("PUT", {"train_mib": 20480, "light_mib": None})
    assert (unset.method, unset.path) == ("DELETE", "/v1/quotas/ann")
    assert gq("quota", "set", "ann").status == 2


def test_requeue_says_what_became_of_it(daemon: CannedDaemon, gq: Gq) -> None:
    assert "requeued by ann" in gq("requeue", "12").out


def test_doctor_exits_with_1_where_a_check_fails(serve: Serve, gq: Gq) -> None:
    serve(lambda _: ok([CheckView(name="cards", level="fail", text="NVML: driver mismatch", hint="reboot")]))
    ran = gq("doctor")
    assert ran.status == 1
    assert "reboot" in ran.out


def test_events_f_prints_the_past_and_what_comes(serve: Serve, gq: Gq) -> None:
    def stream(asked: Asked) -> Answer:
        if asked.path == "/v1/events":
            return ok([EVENT])
        frame = f"id: 4\nevent: ended\ndata: {json.dumps(to_json(EVENT) | {'id': 4, 'text': 'job 12 again'})}\n\n"
        return Answer(200, content_type="text/event-stream", chunks=[b": ready\n\n", frame.encode()])

    daemon = serve(stream)
    process = gq.start("events", "-f", "--json")
    try:
        assert process.stdout is not None
        assert [json.loads(process.stdout.readline())["id"] for _ in range(2)] == [3, 4]
    finally:
        process.kill()
        process.communicate()
    assert daemon.asked[1].query == {"after": "3"}


def test_version_works_without_a_daemon(gq: Gq) -> None:
    ran = gq("version")
    assert ran.status == 0
    assert ran.out.startswith("gq ")
    assert "no gpuqueued here" in ran.out
    assert gq("--version").out == ran.out.splitlines()[0] + "\n"


def test_no_daemon_exits_with_3_and_says_how_to_start_it(gq: Gq) -> None:
    for words in ("", "status", "gpus", "cancel 12", "logs 12", "submit --vram 1G -- true"):
        ran = gq(*words.split())
        assert ran.status == 3, words
        assert ran.out == ""
        assert "gpuqueued serve" in ran.err.splitlines()[1]


@pytest.mark.parametrize(
    "words", ["show x", "show 0", "show -1", "why 99999999999999999999", "keep 12 soon", "statsu", "--x"]
)
def test_a_usage_error_is_one_line_with_the_way_out(gq: Gq, words: str) -> None:
    ran = gq(*words.split())
    assert (ran.status, ran.out) == (2, "")
    message, hint = ran.err.splitlines()
    assert message.startswith("gq: ")
    assert hint.startswith("  see `gq")


def test_a_mistyped_verb_is_recognised(gq: Gq) -> None:
    assert "did you mean `gq submit`?" in gq("sumbit").err


def test_help_lists_every_verb_without_importing_one(gq: Gq) -> None:
    code = (
        "import sys; from gq.main import run; run(['--help']); print(sorted(m for m in sys.modules if m[:3] == 'gq.'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=gq.env(), capture_output=True, text=True, check=True, timeout=60
    )
    *_, loaded = done.stdout.splitlines()
    assert loaded == "['gq.exits', 'gq.main', 'gq.terminal', 'gq.verbs']"
    for verb in VERBS:
        assert f"  {verb} " in done.stdout


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_its_help(gq: Gq, verb: str) -> None:
    ran = gq(verb, "--help")
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.startswith(f"Usage: gq {verb}")
    assert max(len(line) for line in ran.out.splitlines()) <= 80


def test_the_shell_can_complete_verbs_and_options(gq: Gq) -> None:
    verbs = gq(_GQ_COMPLETE="bash_complete", COMP_WORDS="gq sub", COMP_CWORD="1")
    assert verbs.out == "plain,submit\n"
    options = gq(_GQ_COMPLETE="bash_complete", COMP_WORDS="gq submit --checkpoint-", COMP_CWORD="2")
    assert options.out == "plain,--checkpoint-dir\nplain,--checkpoint-command\n"


def test_a_full_disk_is_said_and_exits_with_1(daemon: CannedDaemon, gq: Gq) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            gq.command("status"), env=gq.env(), stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=60
        )
    assert (done.returncode, done.stderr) == (1, "gq: cannot write: No space left on device\n")


def test_a_reader_that_goes_away_ends_gq_quietly(daemon: CannedDaemon, gq: Gq) -> None:
    process = gq.start("events", "-f", "--json")
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait(timeout=30) != 0


def test_output_that_is_not_utf8_gets_a_stand_in_for_every_mark(daemon: CannedDaemon, gq: Gq) -> None:
    ran = gq("status", PYTHONIOENCODING="ascii")
    assert ran.status == 0
    assert "#" in ran.out and "=" in ran.out
    assert ran.out.isascii()


def test_status_loads_nothing_heavy(daemon: CannedDaemon, gq: Gq) -> None:
    code = "import sys; from gq.main import run; run(['status']); print(*sys.modules, sep='\\n')"
    done = subprocess.run(
        [sys.executable, "-c", code], env=gq.env(), capture_output=True, text=True, check=True, timeout=60
    )
    assert HEAVY & set(done.stdout.splitlines()) == set()
