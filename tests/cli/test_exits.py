from gpuqueue.wire.errors import ErrorCode, GpuqueueError
from gq.exits import BY_CODE, NoDaemon, exit_status


def test_every_error_code_has_an_exit_status() -> None:
    assert set(BY_CODE) == set(ErrorCode)
    assert set(BY_CODE.values()) <= {1, 2}


def test_a_usage_error_exits_with_2_and_a_refusal_with_1() -> None:
    assert exit_status(GpuqueueError(ErrorCode.INVALID, "no")) == 2
    assert exit_status(GpuqueueError(ErrorCode.REFUSED, "no")) == 1


def test_no_daemon_exits_with_3() -> None:
    assert exit_status(NoDaemon(ErrorCode.UNAVAILABLE, "no")) == 3
