"""What `gq submit` sends, and what it refuses before it asks. The far end is a canned daemon."""

import dataclasses
import json
import os
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuqueue.wire.jobs import SubmitRequest, Submitted
from tests.cli import views
from tests.cli.canned import Answer, Asked, CannedDaemon, Respond, ok, problem
from tests.cli.running import Gq, Ran

Serve = Callable[[Respond], CannedDaemon]
SCRIPT = "#!/bin/sh\n#GQ --vram 22G --light\n#GQ --name 'from the script'\necho hi\n"


def accept(_: Asked) -> Answer:
    return ok(Submitted(job=views.waiting(16), notes=["borrows 3.2 GiB"]), 201)


@pytest.fixture
def daemon(serve: Serve) -> CannedDaemon:
    return serve(accept)


@pytest.fixture
def sent(daemon: CannedDaemon, gq: Gq) -> Callable[..., dict[str, Any]]:
    """Submits with these words; what reached the daemon."""

    def submit(*words: str, **environ: str) -> dict[str, Any]:
        ran = gq("submit", *words, **environ)
        assert ran.status == 0, ran.err
        request: dict[str, Any] = daemon.asked[-1].body
        return request

    return submit


def script(gq: Gq, text: str = SCRIPT, name: str = "train.sh") -> Path:
    path = gq.directory / name
    path.write_text(text)
    return path


def refused(ran: Ran, daemon: CannedDaemon) -> str:
    """The message of a usage error: one line, a hint at most, no traceback, nothing asked of the daemon."""
    assert ran.status == 2, ran
    assert daemon.asked == []
    message, *hint = ran.err.splitlines()
    assert message.startswith("gq: ")
    assert len(hint) <= 1
    return ran.err


def test_a_command_is_sent_with_its_surroundings(gq: Gq, sent: Callable[..., dict[str, Any]]) -> None:
    request = sent("--vram", "22G", "--", "sh", "-c", "true", "--vram", "1G", LANG="de_DE.UTF-8")
    assert request["vram_mib"] == 22528
    assert request["command"] == ["sh", "-c", "true", "--vram", "1G"]
    assert request["script"] is None
    assert request["cwd"] == str(gq.directory)
    assert request["env"]["LANG"] == "de_DE.UTF-8"
    assert request["umask"] == current_umask()
    assert request["class"] == "train"
    assert len(request["idempotency_key"]) == 32


def current_umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_each_submit_has_its_own_key(sent: Callable[..., dict[str, Any]]) -> None:
    keys = {sent("--vram", "1G", "--", "true")["idempotency_key"] for _ in range(2)}
    assert len(keys) == 2


def test_the_request_has_exactly_the_fields_of_the_wire(sent: Callable[..., dict[str, Any]]) -> None:
    fields = {"class" if name == "job_class" else name for name in (f.name for f in dataclasses.fields(SubmitRequest))}
    assert set(sent("--vram", "1G", "--", "true")) == fields


def test_a_script_is_sent_as_text_with_the_options_of_its_header(gq: Gq, sent: Callable[..., dict[str, Any]]) -> None:
    script(gq)
    request = sent("train.sh", "--vram", "x", "--", "y")
    assert request["script"] == SCRIPT
    assert request["script_name"] == "train.sh"
    assert request["command"] == ["--vram", "x", "--", "y"]
    assert (request["vram_mib"], request["class"], request["name"]) == (22528, "light", "from the script")


def test_the_command_line_wins_over_the_header(gq: Gq, sent: Callable[..., dict[str, Any]]) -> None:
    script(gq)
    request = sent("--vram", "8G", "--class", "train", "--name", "mine", "train.sh")
    assert (request["vram_mib"], request["class"], request["name"]) == (8192, "train", "mine")


def test_later_header_lines_win_over_earlier_ones(gq: Gq, sent: Callable[..., dict[str, Any]]) -> None:
    script(gq, "#!/bin/sh\n#GQ --vram 1G --gpu 0\n#GQ --vram 2G --gpu 1\n:\n")
    request = sent("train.sh")
    assert (request["vram_mib"], request["gpu_indexes"]) == (2048, [1])


def test_every_option_reaches_its_field(gq: Gq, sent: Callable[..., dict[str, Any]]) -> None:
    words = """--vram 1.5G --light --name n --gpus 2 --gpu-type A100 --gpu 1,0 --exclusive --time 8h --signal usr1
        --grace 0 --mem 32G --cpus 4 --interactive --no-borrow --restart always --checkpoint-dir out
        --checkpoint-command ls --resume latest --resume-arg --from={checkpoint} --grow --cap --account lab
        --as bob -- true"""
    request = sent(*words.split())
    expected = {
        "vram_mib": 1536,
        "class": "light",
        "name": "n",
        "gpus": 2,
        "gpu_type": "A100",
        "gpu_indexes": [0, 1],
        "exclusive": True,
        "time_s": 28800,
        "signal": "SIGUSR1",
        "grace_s": 0,
        "mem_mib": 32768,
        "cpus": 4,
        "interactive": True,
        "borrow": False,
        "restart": "always",
        "checkpoint_dir": str(gq.directory / "out"),
        "checkpoint_command": "ls",
        "resume": "latest",
        "resume_arg": "--from={checkpoint}",
        "grow": True,
        "cap": True,
        "account": "lab",
        "as_user": "bob",
    }
    assert {name: request[name] for name in expected} == expected


def test_the_account_comes_from_the_environment_where_nothing_names_one(sent: Callable[..., dict[str, Any]]) -> None:
    assert sent("--vram", "1G", "--", "true", GQ_ACCOUNT="lab")["account"] == "lab"
    assert sent("--vram", "1G", "--account", "me", "--", "true", GQ_ACCOUNT="lab")["account"] == "me"


def test_an_outer_jobs_marker_is_not_passed_on(sent: Callable[..., dict[str, Any]]) -> None:
    env = sent("--vram", "1G", "--", "true", GQ_ATTEMPT_MARKER="secret", GQ_JOB_ID="3", GQ_SOMETHING="mine")["env"]
    assert "GQ_ATTEMPT_MARKER" not in env
    assert "GQ_JOB_ID" not in env
    assert env["GQ_SOMETHING"] == "mine"


def test_bytes_that_are_not_utf8_survive_in_the_environment(daemon: CannedDaemon, gq: Gq) -> None:
    environ = {os.fsencode(name): os.fsencode(value) for name, value in gq.env().items()}
    subprocess.run(
        gq.command("submit", "--vram", "1G", "--", "true"),
        env=environ | {b"LATIN": b"caf\xe9"},
        cwd=gq.directory,
        check=True,
        timeout=60,
    )
    assert os.fsencode(daemon.asked[0].body["env"]["LATIN"]) == b"caf\xe9"


def test_dash_q_prints_the_id_alone(daemon: CannedDaemon, gq: Gq) -> None:
    assert gq("submit", "-q", "--vram", "1G", "--", "true") == Ran(0, "16\n", "")


def test_what_is_printed_names_job_and_notes(daemon: CannedDaemon, gq: Gq) -> None:
    out = gq("submit", "--vram", "22G", "--", "true").out
    assert out.startswith("job 16 submitted: train.sh, 22.0 GiB, train\n")
    assert "borrows 3.2 GiB" in out


def test_json_is_what_the_daemon_answered(daemon: CannedDaemon, gq: Gq) -> None:
    answer = json.loads(gq("submit", "--json", "--vram", "22G", "--", "true").out)
    assert (answer["job"]["id"], answer["notes"]) == (16, ["borrows 3.2 GiB"])


def test_auto_asks_the_daemon_to_decide(gq: Gq, sent: Callable[..., dict[str, Any]]) -> None:
    request = sent("--vram", "auto", "--", "true")
    assert (request["vram_auto"], request["vram_mib"]) == (True, 0)
    assert (request["model"], request["estimate"]) == (None, None)
    script(gq, "#!/bin/sh\n#GQ --vram auto\n:\n")
    assert sent("train.sh")["vram_auto"] is True
    assert sent("--vram", "2G", "train.sh")["vram_auto"] is False


def test_what_can_be_foreseen_goes_along(gq: Gq, sent: Callable[..., dict[str, Any]]) -> None:
    trains = ["--model_name_or_path", "Qwen/Qwen2.5-7B", "--per_device_train_batch_size", "1"]
    request = sent("--vram", "22G", "--", "env", *trains)
    assert request["model"] == "Qwen2.5-7B"
    assert request["estimate"]["occupied_mib"] > request["estimate"]["torch_peak_mib"] > 10_000
    script(gq, f'#!/bin/sh\nenv {" ".join(trains[:2])} "$@"\n')
    assert sent("--vram", "22G", "train.sh", *trains[2:])["estimate"] == request["estimate"]
    (gq.directory / "job.py").write_text("SFTTrainer('Qwen/Qwen2.5-7B', args=SFTConfig(max_length=512))\n")
    assert sent("--vram", "22G", "job.py", "--model", "Qwen2.5-7B")["estimate"] is not None


@pytest.mark.parametrize("words", ["--model no-such-model", "--model Qwen2.5-7B", "broken.py", "broken.yaml"])
def test_what_cannot_be_read_stops_no_job(gq: Gq, sent: Callable[..., dict[str, Any]], words: str) -> None:
    (gq.directory / "broken.py").write_text("SFTConfig(" + "(" * 500)
    (gq.directory / "broken.yaml").write_bytes(b"base_model: \xff")
    assert sent("--vram", "1G", "--", "true", *words.split())["estimate"] is None


def test_a_missing_vram_names_gq_estimate(daemon: CannedDaemon, gq: Gq) -> None:
    assert "gq estimate" in refused(gq("submit", "--", "true"), daemon)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--vram 22 -- true", "'22' has no unit"),
        ("--vram -1G -- true", "--vram"),
        ("--vram nan -- true", "not a size"),
        ("--vram 99999T -- true", "more than any machine has"),
        ("--vrm 1G -- true", "--vrm"),
        ("--vram 1G --time 1:30 -- true", "ambiguous"),
        ("--vram 1G --time 0 -- true", "no time at all"),
        ("--vram 1G --signal SIGFOO -- true", "not a signal"),
        ("--vram 1G --class huge -- true", "huge"),
        ("--vram 1G --gpus 0 -- true", "--gpus"),
        ("--vram 1G --gpu a -- true", "not a card"),
        ("--vram 1G --light --class train -- true", "--light and --class train"),
        ("--vram 0 --gpus 2 -- true", "--vram 0 means no card"),
        ("--vram 1G --resume latest -- true", "--checkpoint-dir"),
        ("--vram 1G --resume nowhere -- true", "nowhere"),
        ("--vram 1G --resume-arg --resume -- true", "{checkpoint}"),
        ("--vram 1G", "nothing to run"),
        ("--vram 1G --", "nothing to run"),
        ("--vram 1G -- no-such-program", "no such command: no-such-program"),
        ("--vram 1G -- ./missing", "./missing does not exist"),
        ("--vram 1G -- ./train.sh", "not executable"),
        ("--vram 1G missing.sh", "no such script: missing.sh"),
        ("--vram 1G python", "gq submit … -- python"),
        ("--vram 1G .", "is a directory"),
    ],
)
def test_a_mistake_is_one_clear_line_and_exit_status_2(daemon: CannedDaemon, gq: Gq, words: str, said: str) -> None:
    script(gq)
    assert said in refused(gq("submit", *words.split()), daemon)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\x7fELF\x02\x01\0\0", "-- ./job"),
        (b"#!/bin/sh\n# caf\xe9\n", "line 2: not UTF-8"),
        (b"#!/bin/sh\r\necho\r\n", "Windows line ends"),
        (b"\n\n", "is empty"),
        (b"#!/bin/sh\n" + b"x" * (4 << 20), "4 MiB"),
        (b"#!/bin/sh\n#GQ --vram 22\n", "job, line 2: "),
        (b"#!/bin/sh\n\n#GQ --vrma 22G\n", "job, line 3: "),
        (b"#!/bin/sh\n#GQ --name 'x\n", "job, line 2: "),
        (b"#!/bin/sh\n#GQ --vram 1G train\n", "job, line 2: only options belong here, not 'train'"),
        (b"#!/bin/sh\n#GQ --attach\n", "command line only"),
        (b"#!/bin/sh\n#GQ --help\n", "--help"),
    ],
)
def test_a_file_that_cannot_be_a_script_says_why(daemon: CannedDaemon, gq: Gq, content: bytes, said: str) -> None:
    (gq.directory / "job").write_bytes(content)
    assert said in refused(gq("submit", "--vram", "1G", "job"), daemon)


def test_a_deleted_directory_is_named(daemon: CannedDaemon, gq: Gq) -> None:
    words = shlex.join(gq.command("submit", "--vram", "1G", "--", "true"))
    shell = f"mkdir gone && cd gone && rmdir ../gone && exec {words}"
    done = subprocess.run(
        ["/bin/sh", "-c", shell],
        cwd=gq.directory,
        env=gq.env(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "the current directory was deleted" in done.stderr
    assert daemon.asked == []


def test_a_refusal_is_its_message_its_hint_and_exit_status_1(serve: Serve, gq: Gq) -> None:
    serve(lambda _: problem(409, "refused", "99.0 GiB is more than any card has", "the largest has 31.8 GiB"))
    ran = gq("submit", "--vram", "99G", "--", "true")
    assert ran == Ran(1, "", "gq: 99.0 GiB is more than any card has\n  the largest has 31.8 GiB\n")


def test_a_lost_connection_is_retried_with_the_same_key(serve: Serve, gq: Gq) -> None:
    answers = iter([None, None])
    daemon = serve(lambda asked: next(answers, accept(asked)))
    assert gq("submit", "-q", "--vram", "1G", "--", "true").out == "16\n"
    assert len(daemon.asked) == 3
    assert len({asked.body["idempotency_key"] for asked in daemon.asked}) == 1
