"""Host memory, shared memory and disks that are full."""

from gpuqueue.diagnose.clue import Strength, wording
from gpuqueue.diagnose.finding import Cause, Phase

_HOST, _SHM, _DISK = Cause.host_out_of_memory, Cause.shm_full, Cause.disk_full
_USUAL = Strength.usual
LESS = (
    "The host's memory ran out, not the card's: fewer or leaner data-loader workers, no second copy of the "
    "model on the CPU, or a larger --mem."
)
KILLED = "SIGKILL that gpuqueue did not send is nearly always the kernel out of memory. " + LESS
CLEAN_SHM = (
    "/dev/shm is full: remove what crashed jobs left there (nccl-*, torch_*), enlarge it (--shm-size in a "
    "container), or use fewer data-loader workers."
)
_SPACE = (
    "Free space, keep fewer checkpoints (save_total_limit), or write elsewhere; the last file written is incomplete."
)

TABLE = (
    # The kernel's own reports.
    wording(_HOST, r"(?:out of memory: kill(?:ed)?|^killed) process (?P<pid>\d+)", LESS),
    wording(_HOST, r"\boom-kill:constraint=(?:.*\bpid=(?P<pid>\d+))?", LESS),
    wording(_HOST, r"\boom_reaper: reaped process (?P<pid>\d+)", LESS),
    wording(_HOST, r"invoked oom-killer|systemd-oomd.*killed|\bOOMKilled\b|earlyoom.*sending SIG", LESS),
    wording(
        _HOST,
        r"detected \d+ oom[-_ ]kill event|oom-kill event\(s\)|task \d+: out of memory"
        r"|exceeded (?:job |step )?memory limit",
        LESS,
    ),
    wording(_HOST, r"DataLoader worker \(pid\(?s?\)? ?[\d, ]+\) (?:is|was) killed by signal: Killed", LESS),
    wording(
        _HOST,
        r"DefaultCPUAllocator: (?:can't allocate"
        r"|not enough) memory: you tried to allocate (?P<asked>\d+) bytes",
        LESS + " It asked for {asked} bytes at once.",
    ),
    wording(
        _HOST,
        r"Unable to allocate (?P<asked>[\d.]+ [KMGTP]i?B) for an array",
        LESS + " One array alone was to have {asked}.",
    ),
    wording(_HOST, r"^\W*(?:\w+\.)*(?:_Array)?MemoryError\b(?!.*(?:CUDA|GPU|out_of_memory))", LESS),
    wording(_HOST, r"\[Errno 12\] Cannot allocate memory|fork: (?:retry: )?Cannot allocate memory", LESS),
    wording(
        _HOST,
        r"terminate called after throwing an instance of 'std::bad_alloc'|what\(\):\s+std::bad_alloc\s*$",
        LESS,
    ),
    wording(_HOST, r"ray\.exceptions\.OutOfMemoryError|node running low on memory", LESS),
    wording(_HOST, r"java\.lang\.OutOfMemoryError|JavaScript heap out of memory", LESS),
    wording(_HOST, r"DataLoader worker \(pid\(?s?\)? ?[\d, ]+\) exited unexpectedly", LESS, strength=_USUAL),
    wording(
        _HOST,
        r"Signal 9 \(SIGKILL\)|died with <Signals\.SIGKILL|(?:exit|return) ?code\s*[:=]?\s*-9\b|SignalKilled"
        r"|signal SIGKILL|on signal 9\b|task \d+: Killed|signal: killed",
        KILLED,
        strength=_USUAL,
    ),
    wording(
        _HOST,
        r"(?:^|: line \d+: +\d+ |^\S+: )Killed(?:\s{2,}\S.*)?\s*$|exited with code 137\b"
        r"|exit (?:code|status) 137\b",
        KILLED,
        strength=_USUAL,
    ),
    wording(_HOST, r"\bCannot allocate memory\b", LESS, strength=_USUAL),
    wording(_HOST, r"process in the process pool was terminated abruptly", LESS, strength=_USUAL),
    wording(
        _HOST,
        r"pin_memory.*CUDA error: out of memory|cudaHostAlloc.*(?:fail|out of memory)",
        LESS,
        strength=_USUAL,
    ),
    # Shared memory
    wording(
        _SHM,
        r"Unexpected bus error encountered in worker|insufficient shared memory|out of shared memory",
        CLEAN_SHM,
    ),
    wording(_SHM, r"DataLoader worker \(pid\(?s?\)? ?[\d, ]+\) (?:is|was) killed by signal: Bus error", CLEAN_SHM),
    wording(
        _SHM,
        r"unable to (?:open shared memory object|write to file|resize file"
        r"|mmap \d+ bytes from file) </?torch_",
        CLEAN_SHM,
    ),
    wording(_SHM, r"Error while creating shared memory segment|posix_fallocate failed", CLEAN_SHM),
    wording(_SHM, r"/dev/shm\b.*(?:No space left|full)|(?:No space left|not enough space).*/dev/shm\b", CLEAN_SHM),
    wording(
        _SHM,
        r"object_store_memory.*/dev/shm has only|shm_open.*(?:failed|No space)",
        CLEAN_SHM,
        strength=_USUAL,
    ),
    wording(
        _SHM,
        r"Bus error(?: +\(core dumped\))?|(?:exit|return) ?code\s*[:=]?\s*-7\b|signal SIGBUS|on signal 7\b"
        r"|Signal 7 \(SIGBUS\)",
        CLEAN_SHM,
        strength=_USUAL,
    ),
    # Disks
    wording(_DISK, r"No space left on device|\[Errno 28\]", "The disk is full. " + _SPACE),
    wording(_DISK, r"Disk quota exceeded|\[Errno 122\]", "The disk quota of this user is used up. " + _SPACE),
    wording(_DISK, r"code: (?:28|122), kind: (?:StorageFull|QuotaExceeded|FilesystemQuotaExceeded)", _SPACE),
    wording(_DISK, r"database or disk is full|not enough space on the disk|There is not enough disk space", _SPACE),
    wording(
        _DISK,
        r"PytorchStreamWriter failed writing file|inline_container\.cc:\d+\] ?\. unexpected pos",
        "torch.save could not write: the disk or quota is most likely full. " + _SPACE,
        strength=_USUAL,
        phase=Phase.saving,
    ),
    wording(_DISK, r"Not enough free disk space to download the file", _SPACE, strength=Strength.hint),
)
