"""The client's own contract, against a real server on a real socket."""

import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuqueue.wire.errors import ErrorCode, GpuqueueError
from gpuqueue.wire.states import FINAL_STATES
from gq import client
from gq.exits import NoDaemon
from tests.cli import views
from tests.cli.canned import Answer, CannedDaemon, Respond, ok, problem

Serve = Callable[[Respond], CannedDaemon]


@pytest.fixture(autouse=True)
def socket_of_the_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GQ_SOCKET", str(tmp_path / "gq.sock"))


def test_records_read_by_attribute_under_the_names_of_the_wire(serve: Serve) -> None:
    serve(lambda _: ok([views.job(), views.ended()]))
    running, ended = client.get("/v1/jobs")
    assert (running.id, running.job_class, running.vram_mib, running.cards) == (12, "train", 22528, [0])
    assert running.state not in FINAL_STATES
    assert ended.state in FINAL_STATES


def test_an_answer_without_a_field_says_that_the_releases_differ(serve: Serve) -> None:
    serve(lambda _: ok({"id": 12}))
    with pytest.raises(GpuqueueError, match="different releases"):
        _ = client.get("/v1/jobs/12").state


def test_query_values_are_quoted_and_absent_ones_left_out(serve: Serve) -> None:
    daemon = serve(lambda _: ok([]))
    client.get("/v1/jobs", user="a&b=ü", limit=None, all=1)
    assert daemon.asked[0].query == {"user": "a&b=ü", "all": "1"}


def test_chunked_answers_are_put_together(serve: Serve) -> None:
    serve(lambda _: Answer(chunks=[b'{"a', b'": ', b"1}"]))
    assert client.get("/v1/node") == {"a": 1}


def test_lines_arrive_one_by_one_however_they_were_cut(serve: Serve) -> None:
    serve(lambda _: Answer(chunks=[b"id: 1\nda", "ta: ü\r\n".encode(), b"\n"]))
    with client.send("GET", "/v1/events/stream") as answer:
        assert list(client.lines(answer)) == ["id: 1", "data: ü", ""]


@pytest.mark.parametrize(
    ("status", "code"), [(409, "refused"), (422, "invalid"), (404, "not_found"), (503, "unavailable")]
)
def test_a_problem_becomes_the_error_it_was(serve: Serve, status: int, code: str) -> None:
    serve(lambda _: problem(status, code, "no such thing", "look there"))
    with pytest.raises(GpuqueueError) as caught:
        client.get("/v1/jobs/7")
    assert (caught.value.code, caught.value.message, caught.value.hint) == (code, "no such thing", "look there")


def test_a_code_of_a_newer_daemon_is_still_an_error_with_its_message(serve: Serve) -> None:
    serve(lambda _: problem(418, "brand_new", "no coffee"))
    with pytest.raises(GpuqueueError, match="no coffee") as caught:
        client.get("/v1/node")
    assert caught.value.code is ErrorCode.INTERNAL


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n<p>",
        b"HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/html\r\n\r\n<html>",
        b"HTTP/1.1 200 OK\r\nContent-",
        b"",
    ],
)
def test_whatever_else_listens_there_is_a_clear_error(tmp_path: Path, answer: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "gq.sock"))
        listener.listen()

        def answer_once() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)

        thread = threading.Thread(target=answer_once)
        thread.start()
        with pytest.raises(GpuqueueError) as caught:
            client.get("/v1/node")
        thread.join()
    assert "\n" not in caught.value.message
    assert caught.value.code in (ErrorCode.UNAVAILABLE, ErrorCode.INTERNAL)


def test_a_daemon_that_does_not_answer_is_given_up(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "gq.sock"))
        listener.listen()
        with pytest.raises(GpuqueueError, match="did not answer within"):
            client.send("GET", "/v1/node", timeout_s=0.2)


def test_no_socket_and_a_dead_socket_are_no_daemon(tmp_path: Path) -> None:
    with pytest.raises(NoDaemon) as caught:
        client.get("/v1/node")
    assert "gpuqueued serve" in caught.value.hint
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "gq.sock"))
    with pytest.raises(NoDaemon, match="nothing answers"):
        client.get("/v1/node")


def test_a_path_too_long_for_a_socket_is_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GQ_SOCKET", "/tmp/" + "x" * 200)
    with pytest.raises(GpuqueueError) as caught:
        client.get("/v1/node")
    assert caught.value.code is ErrorCode.INVALID


@pytest.mark.skipif(os.geteuid() == 0, reason="root may open every socket")
def test_a_socket_that_one_may_not_open_is_not_called_absent(serve: Serve, tmp_path: Path) -> None:
    serve(lambda _: ok([]))
    (tmp_path / "gq.sock").chmod(0)
    with pytest.raises(GpuqueueError) as caught:
        client.get("/v1/node")
    assert caught.value.code is ErrorCode.NOT_PERMITTED


def test_ones_own_socket_is_found_without_gq_socket(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GQ_SOCKET")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "gpuqueue").mkdir()
    serve(lambda _: ok([]))
    (tmp_path / "gq.sock").rename(tmp_path / "gpuqueue/gpuqueued.sock")
    if Path(client.SYSTEM_SOCKET).exists():
        pytest.skip("a system's gpuqueued is on this machine, and comes first")
    assert client.get("/v1/jobs") == []


def test_a_request_with_a_key_is_asked_again_after_a_lost_connection(serve: Serve) -> None:
    answers = iter([None, ok({"done": True})])
    daemon = serve(lambda _: next(answers))
    assert client.ask_again("POST", "/v1/jobs", {"idempotency_key": "k"}) == {"done": True}
    assert [asked.body for asked in daemon.asked] == [{"idempotency_key": "k"}] * 2


def test_a_refusal_is_not_asked_again(serve: Serve) -> None:
    daemon = serve(lambda _: problem(409, "refused", "no"))
    with pytest.raises(GpuqueueError, match="no"):
        client.ask_again("POST", "/v1/jobs", {})
    assert len(daemon.asked) == 1
