"""The CUDA driver through ctypes: enough to see which cards a job sees, and to take VRAM on them."""

import ctypes
import os

OUT_OF_MEMORY, NO_DEVICE = 2, 100


class CudaError(Exception):
    def __init__(self, function: str, code: int) -> None:
        words = {OUT_OF_MEMORY: "out of memory", NO_DEVICE: "no CUDA-capable device is detected"}
        super().__init__(f"CUDA error: {words.get(code, code)} ({function})")
        self.code = code


class Driver:
    """CUDA as this process sees it. `pci_bus_ids` is by device number; empty where no device is visible."""

    def __init__(self) -> None:
        self._cuda = ctypes.CDLL("libcuda.so.1")
        count = ctypes.c_int(0)
        try:
            self._call("cuInit", 0)
            self._call("cuDeviceGetCount", ctypes.byref(count))
        except CudaError as error:
            if error.code != NO_DEVICE:
                raise
        self.pci_bus_ids = [self._pci_bus_id(number) for number in range(count.value)]

    def _call(self, function: str, *arguments: object) -> None:
        code = getattr(self._cuda, function)(*arguments)
        if code:
            raise CudaError(function, code)

    def _pci_bus_id(self, number: int) -> str:
        text = ctypes.create_string_buffer(64)
        self._call("cuDeviceGetPCIBusId", text, ctypes.c_int(64), ctypes.c_int(number))
        return text.value.decode()

    def use(self, number: int = 0) -> None:
        """Makes the context that all later calls work in."""
        context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), ctypes.c_int(number))
        self._call("cuCtxSetCurrent", context)

    def total_mib(self) -> int:
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return total.value // (1024 * 1024)

    def allocate(self, mib: int) -> tuple[ctypes.c_uint64, ctypes.c_size_t]:
        """Takes VRAM, written to once; raises CudaError with OUT_OF_MEMORY where it is not to be had."""
        pointer, size = ctypes.c_uint64(), ctypes.c_size_t(mib * 1024 * 1024)
        self._call("cuMemAlloc_v2", ctypes.byref(pointer), size)
        self.work((pointer, size))
        return pointer, size

    def work(self, block: tuple[ctypes.c_uint64, ctypes.c_size_t]) -> None:
        """Keeps the card busy for a moment: fills the block and waits for it."""
        pointer, size = block
        self._call("cuMemsetD8_v2", pointer, ctypes.c_ubyte(1), size)
        self._call("cuCtxSynchronize")


def torch_with_cuda() -> object | None:
    """The torch module, or None where it is missing or built without CUDA. GQ_REAL_GPU_TORCH=0: never."""
    if os.environ.get("GQ_REAL_GPU_TORCH") == "0":
        return None
    try:
        import torch
    except ImportError:
        return None
    return torch if torch.version.cuda else None
