"""Unpacks small zstd frames with the system's libzstd: the standard library cannot before Python 3.14."""

from __future__ import annotations

import ctypes
import functools

MAX_OUTPUT = 64 << 20


class ZstdError(ValueError):
    """The frame is cut off, damaged or too large."""


def decompress(data: bytes) -> bytes | None:
    """The contents of one frame; None on a machine that has no zstd at all. ZstdError if it is damaged."""
    library = _library()
    if library is None:
        return None
    size = library.ZSTD_getFrameContentSize(data, len(data))
    # The last two values of the range mean "not told" and "no frame".
    if size == 2**64 - 2:
        raise ZstdError("no zstd frame")
    capacity = size if size <= MAX_OUTPUT else MAX_OUTPUT
    output = ctypes.create_string_buffer(max(capacity, 1))
    written = library.ZSTD_decompress(output, capacity, data, len(data))
    if library.ZSTD_isError(written):
        raise ZstdError("damaged zstd frame")
    return output.raw[:written]


@functools.cache
def _library() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL("libzstd.so.1")
        library.ZSTD_getFrameContentSize.restype = ctypes.c_uint64
        library.ZSTD_getFrameContentSize.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
        library.ZSTD_decompress.restype = ctypes.c_size_t
        library.ZSTD_decompress.argtypes = [
            ctypes.c_char_p,
            ctypes.c_size_t,
            ctypes.c_char_p,
            ctypes.c_size_t,
        ]
        library.ZSTD_isError.restype = ctypes.c_uint
        library.ZSTD_isError.argtypes = [ctypes.c_size_t]
    except (OSError, AttributeError):
        return None
    return library


def frame_fault(data: bytes) -> str | None:
    """Whether `data` is whole zstd frames, by walking their blocks without unpacking them."""
    at = 0
    try:
        while at < len(data):
            at = _frame_end(data, at)
    except IndexError:
        return "is cut off"
    return "is cut off" if at != len(data) or not data else None


def _frame_end(data: bytes, at: int) -> int:
    if data[at : at + 4] != b"\x28\xb5\x2f\xfd":
        raise IndexError("no frame here")
    descriptor = data[at + 4]
    single_segment = descriptor >> 5 & 1
    content_size = (single_segment, 2, 4, 8)[descriptor >> 6]
    at += 5 + (1 - single_segment) + (0, 1, 2, 4)[descriptor & 3] + content_size
    last = False
    while not last:
        block = data[at] | data[at + 1] << 8 | data[at + 2] << 16
        last, kind, size = bool(block & 1), block >> 1 & 3, block >> 3
        at += 3 + (1 if kind == 1 else size)
    at += 4 * (descriptor >> 2 & 1)
    return at
