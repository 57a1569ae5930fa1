"""Ends that came from outside: time limits and signals."""

from gpuqueue.diagnose.clue import Strength, wording
from gpuqueue.diagnose.finding import Cause, Retry

_TIME, _SIGNAL = Cause.timeout, Cause.signal
_USUAL, _HINT = Strength.usual, Strength.hint
_LIMIT = "The time limit ended it: a longer --time, or checkpoints from which the next attempt goes on."
_WAITED = "Something that the program waited for did not answer in time: {what}"
_SENT = "Somebody or something outside sent the signal; gpuqueue did not."
_CRASH = (
    "Native code crashed: run with PYTHONFAULTHANDLER=1, and suspect compiled extensions and mixed library versions."
)

TABLE = (
    wording(
        _TIME,
        r"CANCELLED AT \S+ DUE TO TIME LIMIT|DUE TO TIME LIMIT|walltime \S* ?exceeded|TERM_RUNLIMIT"
        r"|reached (?:\w+ )?run ?time limit|time limit (?:was )?(?:reached|exceeded)",
        _LIMIT,
    ),
    wording(_TIME, r"^timeout: sending signal \w+ to command", _LIMIT),
    wording(
        _TIME,
        r"subprocess\.TimeoutExpired|TimeoutExpired: Command",
        "A command that the program ran took too long.",
        Retry.once,
    ),
    wording(
        _TIME,
        r"(?P<what>(?:DistStoreError|TimeoutError|RendezvousTimeoutError|ReadTimeout(?:Error)?"
        r"|ConnectTimeout|GetTimeoutError|socket\.timeout)\b.*)",
        _WAITED,
        Retry.once,
        _USUAL,
    ),
    wording(
        _TIME,
        r"the launch timed out and was terminated|CUDA_ERROR_LAUNCH_TIMEOUT",
        "A kernel ran longer than the display's watchdog allows: use a card that drives no display.",
        Retry.once,
        _USUAL,
    ),
    wording(
        _SIGNAL,
        r"Segmentation fault|Signal 11 \(SIGSEGV\)|(?:exit|return) ?code\s*[:=]?\s*-11\b|signal SIGSEGV"
        r"|on signal 11\b|died with <Signals\.SIGSEGV|signal: segmentation fault"
        r"|Fatal Python error: (?:Segmentation|Illegal)",
        _CRASH,
        Retry.once,
    ),
    wording(
        _SIGNAL,
        r"(?:^|\s)Aborted(?:\s+\(core dumped\))?\s*$|Fatal Python error: Aborted|Signal 6 \(SIGABRT\)"
        r"|(?:exit|return) ?code\s*[:=]?\s*-6\b|signal SIGABRT|on signal 6\b|died with <Signals\.SIGABRT",
        _CRASH,
        Retry.once,
        _USUAL,
    ),
    wording(_SIGNAL, r"Illegal instruction|Floating point exception|exitcode\s*[:=]?\s*-4\b", _CRASH, Retry.no),
    wording(
        _SIGNAL,
        r"double free or corruption"
        r"|(?:malloc|free|munmap_chunk|corrupted)\S*: (?:invalid|corrupted|memory corruption|smallbin)"
        r"|corrupted (?:double-linked list|size vs)",
        _CRASH,
        Retry.once,
    ),
    wording(_SIGNAL, r"^\W*KeyboardInterrupt\b", "Somebody pressed Ctrl-C or sent SIGINT.", Retry.no),
    wording(_SIGNAL, r"CANCELLED AT (?!.*TIME LIMIT)|DUE TO (?:PREEMPTION|NODE FAILURE)", _SENT, Retry.yes),
    wording(
        _SIGNAL,
        r"SignalException: Process \d+ got signal: (?P<n>\d+)|Received (?:signal )?(?:15|SIGTERM)\b",
        _SENT,
        Retry.yes,
        _USUAL,
    ),
    wording(
        _SIGNAL,
        r"(?:^|: line \d+: +\d+ |^\S+: )Terminated(?:\s{2,}\S.*)?\s*$|exit (?:code|status) 143\b",
        _SENT,
        Retry.yes,
        _USUAL,
    ),
    wording(_SIGNAL, r"^\s*(?:Hangup|Quit)(?: \(core dumped\))?\s*$", _SENT, Retry.yes, _USUAL),
    wording(_SIGNAL, r"exitcode\s*[:=]?\s*-1[05]\b|closing signal SIGTERM", _SENT, Retry.yes, _HINT),
)
