"""Modules that are missing and other faults of the program itself that have a name."""

from gpuqueue.diagnose.clue import Strength, wording
from gpuqueue.diagnose.finding import Cause, Retry

_MODULE, _PROGRAM = Cause.missing_module, Cause.program_error
_USUAL = Strength.usual
_INSTALL = "Install `{module}` into the environment that the job uses, or submit from the environment that has it."
_PATH = "`{module}` is not on the job's PATH: activate the right environment before you submit."
_SCRIPT = "The script is not where the command says."

NOT_ON_PATH = wording(_MODULE, r"^\S+: (?:line )?\d+: (?P<module>[\w./+-]+): not found$", _PATH, strength=_USUAL)
# Without patterns: they take a shell's status, too (outside.py).
NO_SUCH_FILE = wording(_PROGRAM, "", "`{file}` is not there, or the interpreter in its first line is not.", Retry.no)
MAY_NOT_RUN = wording(
    _PROGRAM, "", "`{file}` may not be executed: chmod +x, or name its interpreter: bash FILE, python FILE.", Retry.no
)
NO_PROGRAM = wording(
    _PROGRAM, "", "`{file}` is no program for this machine: a first line such as #!/bin/sh may be missing.", Retry.no
)
TABLE = (
    wording(_MODULE, r"(?:ModuleNotFoundError|ImportError): No module named '?(?P<module>[\w.-]+)", _INSTALL),
    wording(_MODULE, r"python[\d.]*: No module named '?(?P<module>[\w.-]+)", _INSTALL),
    wording(_MODULE, r"because of the following error.*No module named '?(?P<module>[\w.-]+)", _INSTALL),
    wording(_MODULE, r"^No module named '?(?P<module>[\w.-]+)", _INSTALL, strength=_USUAL),
    wording(_MODULE, r"PackageNotFoundError: .*?(?P<module>[\w.-]+)$", _INSTALL),
    wording(
        _MODULE,
        r"ImportError: .*(?:pip install|conda install) (?:-\S+ )*[`'\"]?(?P<module>[\w.-]+)",
        _INSTALL,
    ),
    wording(_MODULE, r"ImportError: .*the package (?P<module>\S+) seems to be not installed", _INSTALL),
    wording(
        _MODULE,
        r"ImportError: cannot import name '?(?P<module>\w+)",
        "`{module}` is not in the installed version of the package: install the version that the program wants.",
        strength=_USUAL,
    ),
    wording(
        _MODULE,
        r"(?:ImportError|OSError): (?P<module>lib\S+): cannot open shared object file",
        "The system library {module} is missing on this node.",
        strength=_USUAL,
    ),
    NOT_ON_PATH,
    wording(_MODULE, r"(?:^|: )(?P<module>[\w./+-]+): command not found", _PATH, strength=_USUAL),
    wording(_MODULE, r"env: [‘'\"](?P<module>[^’'\"]+)[’'\"]: No such file", _PATH, strength=_USUAL),
    wording(
        _MODULE,
        r"bad interpreter: No such file or directory",
        "The script's first line names an interpreter that is not there.",
        strength=_USUAL,
    ),
    wording(
        _PROGRAM,
        r"pthread_create failed.*Resource temporarily unavailable|libgomp: Thread creation failed"
        r"|RuntimeError: can't start new thread|unable to create native thread"
        r"|fork: (?:retry: )?(?:Resource temporarily unavailable|retry: No child processes)"
        r"|BlockingIOError: \[Errno 11\] Resource temporarily unavailable"
        r"|OMP: Error #34: System unable to allocate necessary resources for OMP thread",
        "The limit of processes and threads is reached (`ulimit -u`), which is no matter of GPU or memory: set "
        "OPENBLAS_NUM_THREADS and OMP_NUM_THREADS to the job's --cpus, use fewer workers, or end what runs besides.",
        Retry.yes,  # what else the user runs counts, too
    ),
    wording(
        _PROGRAM,
        r"^=+ .*\b\d+ (?:failed|errors?)\b.* in \d[\d.]*s\b",
        "Tests failed: pytest's report above says which.",
        Retry.no,
        _USUAL,
    ),
    # Deterministic faults: the same command ends the same way.
    wording(
        _PROGRAM,
        r"Cannot re-initialize CUDA in forked subprocess",
        "Start data-loader or worker processes with the spawn method.",
        Retry.no,
    ),
    wording(
        _PROGRAM,
        r"CUDA error: invalid device ordinal|invalid device ordinal",
        "The program asks for a card that the job was not given: use device 0 or what CUDA_VISIBLE_DEVICES holds.",
        Retry.no,
    ),
    wording(
        _PROGRAM,
        r"out of resources?: shared memory, Required: (?P<need>\d+), Hardware limit: (?P<have>\d+)",
        "A kernel wants {need} bytes of on-chip shared memory, the card has {have}: smaller blocks or fewer stages.",
        Retry.no,
    ),
    wording(
        _PROGRAM,
        r"too many resources requested for launch",
        "A kernel needs more registers or threads than the card has.",
        Retry.no,
    ),
    wording(
        _PROGRAM,
        r"\[Errno 24\] Too many open files|received 0 items of ancdata",
        "Raise `ulimit -n`, or set the sharing strategy of torch.multiprocessing to file_system.",
        Retry.once,  # a run that loses files slowly gets further from its checkpoint
    ),
    wording(
        _PROGRAM,
        r"^\S+(?:\.py)?: error: (?:unrecognized arguments|the following arguments are required|argument "
        r"|ambiguous)",
        "The command line is wrong.",
        Retry.no,
    ),
    wording(_PROGRAM, r"python[\d.]*: can't open file", _SCRIPT, Retry.no),
    # dash, busybox and zsh; what bash says of it, it says of every other file as well.
    wording(
        _PROGRAM,
        r"^\S*sh: (?:\d+: )?(?:cannot|can't) open (?:input file: |')?[^\s:']+'?(?:: No such file.*)?$",
        _SCRIPT,
        Retry.no,
    ),
    wording(_PROGRAM, r"^(?:SyntaxError|IndentationError|TabError): ", "The program does not parse.", Retry.no),
    wording(
        _PROGRAM,
        r"PytorchStreamReader failed|invalid header or archive is corrupted|Error while deserializing header"
        r"|MetadataIncompleteBuffer|HeaderTooLarge",
        "A checkpoint or model file is cut short or broken: resume from the one before it.",
        Retry.yes,  # gpuqueue passes a checkpoint over that nobody got past (R4)
    ),
)
