"""The numbers of PyTorch's message, in each release's words."""

import pytest

from gpuqueue.diagnose.torch_message import TorchMessage, mib, read

CASES = {
    "cached": (
        (
            "CUDA out of memory. Tried to allocate 318.00 MiB (GPU 0; 10.00 GiB total capacity; 9.00 GiB "
            "already "
            "allocated; 52.00 MiB free; 402.00 MiB cached)"
        ),
        TorchMessage(318, 10240, 52, 9216, 402),
    ),
    "reserved": (
        (
            "CUDA out of memory. Tried to allocate 1.50 GiB (GPU 0; 15.00 GiB total capacity; 13.00 GiB "
            "already "
            "allocated; 421.75 MiB free; 7.50 GiB allowed; 14.25 GiB reserved in total by PyTorch)"
        ),
        TorchMessage(1536, 15360, 422, 13312, 1280, 7680),
    ),
    "capacty": (
        (
            "CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacty of 31.00 GiB of which "
            "512.00 KiB "
            "is free. Process 12 has 1.00 GiB memory in use. Process 13 has 2.00 GiB memory in use. "
            "Including "
            "non-PyTorch memory, this process has 28.00 GiB memory in use. Of the allocated memory 26.00 GiB "
            "is allocated "
            "by PyTorch, with 8.00 MiB allocated in private pools (e.g., CUDA Graphs), and 1.00 GiB is "
            "reserved by PyTorch "
            "but unallocated."
        ),
        TorchMessage(
            1024, 31744, 0, 26624, 1024, None, 28672, ((12, 1024), (13, 2048)), knows_expandable_segments=True
        ),
    ),
    "nonsense": (
        (
            "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 31.00 GiB of "
            "which "
            "0 bytes is "
            "free. Including non-PyTorch memory, this process has 17179869184.00 GiB memory in use."
        ),
        TorchMessage(20, 31744, 0),
    ),
}


@pytest.mark.parametrize(("text", "expected"), CASES.values(), ids=CASES)
def test_every_number_is_read(text: str, expected: TorchMessage) -> None:
    assert read((text,), 0) == expected


def test_a_wrapped_message_is_read_whole() -> None:
    lines = (
        "CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total",
        "  capacity of 31.00",
        "GiB of which",
    )
    assert read(lines, 0) == TorchMessage(1024, 31744)


def test_a_line_without_a_request_is_no_message() -> None:
    assert read(("CUDA error: out of memory",), 0) is None


@pytest.mark.parametrize(
    ("number", "unit", "expected"),
    [
        ("1.5", "GiB", 1536),
        ("512", "KiB", 0),
        ("2097152", "bytes", 2),
        ("1,024", "MiB", 1024),
        ("2", "TiB", 2**21),
    ],
)
def test_sizes_become_whole_mib(number: str, unit: str, expected: int) -> None:
    assert mib(number, unit) == expected
