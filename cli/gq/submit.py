"""`gq submit`: a script or a command into the queue, with what the submitting shell has around it."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from gpuqueue.wire.errors import GpuqueueError
from gpuqueue.wire.jobs import SubmitRequest, to_json
from gpuqueue.wire.states import JobClass, RestartMode
from gq import client, surroundings
from gq.arguments import AUTO, Claim, Duration, Indexes, Signal, Size, json_option
from gq.exits import DONE, INTERRUPTED, TROUBLE, usage
from gq.foresee import Foreseen, foresee
from gq.headers import header_lines
from gq.terminal import complain, plain, print_json
from gq.words import claim_words

NOT_IN_SCRIPTS = frozenset({"attach", "quiet", "as_json", "as_user", "help", "steps", "minutes", "go_on"})
DASHED = "gq.dashed"  # in the context: whether the words came after --


class Submit(click.Command):
    """Tells `script args` from `-- command args`, which click's parser alone does not."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = list(args)
        rest = super().parse_args(ctx, args)
        before = len(given) - len(ctx.params.get("words") or ())
        ctx.meta[DASHED] = before > 0 and given[before - 1] == "--"
        return rest


def job_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """What a job may ask for, on the command line and in `#GQ` lines."""
    for option in reversed(
        [
            click.option(
                "--vram",
                type=Claim(),
                metavar="SIZE|auto",
                help="VRAM on each card, for example 22G. 0: no card. auto: what earlier runs of it took.",
            ),
            click.option(
                "--class", "job_class", type=click.Choice([c.value for c in JobClass]), help="train (default) or light."
            ),
            click.option("--light", is_flag=True, help="The same as --class light: inference, small experiments."),
            click.option("--name", metavar="NAME", help="What listings call it; otherwise the script or program."),
            click.option("--gpus", type=click.IntRange(1, 1024), metavar="N", help="That many cards, all or none."),
            click.option("--gpu-type", metavar="NAME", help="Only cards whose name contains this."),
            click.option("--gpu", type=Indexes(), metavar="N[,N]", help="Only these cards, as `gq gpus` numbers them."),
            click.option("--exclusive", is_flag=True, help="A card for itself alone."),
            click.option("--time", type=Duration(), metavar="TIME", help="Stop after so much running time, e.g. 8h."),
            click.option("--signal", type=Signal(), metavar="NAME", help="What it is told to stop with [SIGTERM]."),
            click.option("--grace", type=Duration(zero=True), metavar="TIME", help="How long it may take to stop."),
            click.option("--mem", type=Size(), metavar="SIZE", help="At most so much host memory."),
            click.option("--cpus", type=click.IntRange(1, 65536), metavar="N", help="At most so many cores."),
            click.option("--interactive", is_flag=True, help="Somebody works in it: its own idle window."),
            click.option("--no-borrow", is_flag=True, help="Wait for its right instead of using what is idle."),
            click.option(
                "--restart", type=click.Choice([m.value for m in RestartMode]), help="When to try again [on-failure]."
            ),
            click.option("--checkpoint-dir", metavar="DIR", help="Where it saves checkpoints: it resumes from them."),
            click.option("--checkpoint-command", metavar="CMD", help="Prints the newest checkpoint's path instead."),
            click.option(
                "--resume", metavar="PATH|latest", help="Start from this checkpoint, or the newest one there."
            ),
            click.option("--resume-arg", metavar="ARG", help="Appended to resume, e.g. '--resume={checkpoint}'."),
            click.option("--grow", is_flag=True, help="Out of VRAM: once more, with what it turned out to need."),
            click.option(
                "--cap", is_flag=True, help="Its own framework is told the claim, and fails instead of others."
            ),
            click.option("--account", metavar="NAME", help="Whose quota, where a login is shared (or GQ_ACCOUNT)."),
        ]
    ):
        function = option(function)
    return function


@click.command(
    "submit",
    cls=Submit,
    context_settings={"allow_interspersed_args": False},
    options_metavar="[OPTIONS]",
)
@job_options
@click.option("--as", "as_user", metavar="USER", help="For this user (admins; it is recorded).")
@click.option("--attach", "-a", is_flag=True, help="Follow its log, and exit as the job does.")
@click.option("--quiet", "-q", is_flag=True, help="Print the job's id, nothing else.")
@json_option
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="SCRIPT [ARGS]... | -- COMMAND [ARGS]...")
@click.pass_context
def command(
    ctx: click.Context, /, words: tuple[str, ...], attach: bool, quiet: bool, as_json: bool, **asked: Any
) -> int:
    """Put a script or a command in the queue.

    A script's text is kept as it is now. Its first lines may hold options: #GQ --vram 22G --time 8h
    """
    if not words:
        raise usage("nothing to run", "gq submit --vram 22G train.sh, or: gq submit --vram 22G -- python train.py")
    if attach and as_json:
        raise usage("--attach prints the job's log: --json does not go with it")
    request = request_of(ctx, list(words), asked)
    try:
        submitted = client.ask_again("POST", "/v1/jobs", to_json(request))
    except GpuqueueError as error:
        if not attach or error.code == "invalid":
            raise
        complain(error.message, error.hint)
        return TROUBLE
    if request.as_user is None:
        submitted.notes.extend(_unwritable(request.checkpoint_dir))
    _say(submitted, quiet, as_json, sys.stderr if attach else sys.stdout)
    return _attached(submitted.job.id) if attach else DONE


def request_of(ctx: click.Context, words: list[str], asked: dict[str, Any]) -> SubmitRequest:
    """The job as asked for. Raises a usage error for everything that can be seen to be wrong from here."""
    script = script_name = None
    if ctx.meta[DASHED]:
        words = surroundings.checked_command(words)
    else:
        script = surroundings.script_text(words[0])
        script_name = surroundings.utf8(Path(words[0]).name, "the script's name")
        asked = _with_header(ctx, asked, script, words.pop(0))
        for number, word in enumerate(words, start=1):
            surroundings.utf8(word, f"argument {number} of the script")
    _check(asked)
    foreseen = foresee(script, script_name, words) if asked["vram"] else Foreseen()
    return SubmitRequest(
        idempotency_key=os.urandom(16).hex(),
        vram_mib=0 if asked["vram"] == AUTO else asked["vram"],
        vram_auto=asked["vram"] == AUTO,
        model=foreseen.model,
        estimate=foreseen.estimate,
        command=words,
        cwd=surroundings.directory(),
        env=surroundings.environment(),
        script=script,
        script_name=script_name,
        umask=surroundings.umask(),
        name=asked["name"],
        job_class=JobClass.LIGHT if asked["light"] else JobClass(asked["job_class"] or JobClass.TRAIN),
        gpus=asked["gpus"] or 1,
        gpu_type=asked["gpu_type"],
        gpu_indexes=asked["gpu"] or [],
        exclusive=asked["exclusive"],
        time_s=asked["time"],
        signal=asked["signal"] or "SIGTERM",
        grace_s=asked["grace"],
        mem_mib=asked["mem"],
        cpus=asked["cpus"],
        interactive=asked["interactive"],
        borrow=not asked["no_borrow"],
        restart=RestartMode(asked["restart"] or RestartMode.ON_FAILURE),
        checkpoint_dir=_real_path(asked["checkpoint_dir"]),
        checkpoint_command=asked["checkpoint_command"],
        resume=_resume(asked),
        resume_arg=asked["resume_arg"],
        grow=asked["grow"],
        cap=asked["cap"],
        account=asked["account"] or os.environ.get("GQ_ACCOUNT") or None,
        as_user=asked["as_user"],
    )


def _with_header(ctx: click.Context, asked: dict[str, Any], script: str, file: str) -> dict[str, Any]:
    """The options with the script's own added where the command line says nothing (J4)."""
    header: dict[str, Any] = {}
    for line in header_lines(script, file):
        try:
            with Submit(None, params=ctx.command.params, add_help_option=False).make_context(
                file, line.words
            ) as context:
                for name in context.params:
                    if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
                        header[name] = _allowed(name, context)
        except click.UsageError as error:
            raise usage(f"{file}, line {line.number}: {' '.join(error.format_message().split())}") from error
    typed = {name for name in asked if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    if typed & {"job_class", "light"}:  # two spellings of one thing
        typed |= {"job_class", "light"}
    return asked | {name: value for name, value in header.items() if name not in typed}


def _allowed(name: str, context: click.Context) -> Any:
    if name == "words":
        raise click.UsageError(f"only options belong here, not {context.params[name][0]!r}")
    if name in NOT_IN_SCRIPTS:
        raise click.UsageError("this option is for the command line only")
    return context.params[name]


def _check(asked: dict[str, Any]) -> None:
    """What options say about each other."""
    if asked["vram"] is None:
        raise usage(
            "how much VRAM does it need? --vram is missing",
            "`gq estimate` works it out; then --vram 22G, or --vram auto",
        )
    if asked["light"] and asked["job_class"] == JobClass.TRAIN:
        raise usage("--light and --class train exclude each other")
    if asked["vram"] == 0 and (asked["gpus"] or asked["gpu"] or asked["gpu_type"] or asked["exclusive"]):
        raise usage("--vram 0 means no card: --gpus, --gpu, --gpu-type and --exclusive do not go with it")
    if asked["resume_arg"] is not None and "{checkpoint}" not in asked["resume_arg"]:
        raise usage(
            f"--resume-arg {asked['resume_arg']!r} does not say where the checkpoint goes",
            "write for example --resume-arg '--resume_from_checkpoint={checkpoint}'",
        )
    if asked["resume"] == "latest" and not (asked["checkpoint_dir"] or asked["checkpoint_command"]):
        raise usage("--resume latest: of which directory?", "add --checkpoint-dir DIR")
    for name in ("name", "gpu_type", "checkpoint_dir", "checkpoint_command", "resume", "resume_arg", "account"):
        if asked[name] is not None:
            surroundings.utf8(asked[name], f"--{name.replace('_', '-')}")


def _unwritable(directory: str | None) -> list[str]:
    """A remark where the job could not save there. Only gq can tell: the daemon may have no access to a home."""
    if directory is None:
        return []
    path = Path(directory)
    nearest = next(parent for parent in (path, *path.parents) if os.path.lexists(parent))
    if not nearest.is_dir():
        return [f"{nearest} is not a directory: the job cannot save into {directory}"]
    return [] if os.access(nearest, os.W_OK) else [f"{nearest} is not writable for you: the job cannot save there"]


def _absolute(path: str | None) -> str | None:
    return None if path is None else os.path.abspath(Path(path).expanduser())  # noqa: PTH100 - keeps symbolic links


def _real_path(directory: str | None) -> str | None:
    """Without symbolic links: the name by which two jobs that save into one directory are known (R2)."""
    return None if directory is None else os.path.realpath(Path(directory).expanduser())


def _resume(asked: dict[str, Any]) -> str | None:
    if asked["resume"] in (None, "latest"):
        return asked["resume"]  # type: ignore[no-any-return]
    path = _absolute(asked["resume"])
    if path is not None and not Path(path).exists():
        raise usage(f"--resume: there is no {path}", "`gq checkpoints DIR` lists those of a directory")
    return path


def _say(submitted: Any, quiet: bool, as_json: bool, to: Any) -> None:
    job = submitted.job
    if as_json:
        print_json(submitted)
    elif quiet:
        print(job.id, file=to)
    else:
        print(plain(f"job {job.id} submitted: {job.name}, {claim_words(job)}, {job.job_class}"), file=to)
        for note in submitted.notes:
            print(plain(f"  {note}"), file=to)
    to.flush()


def _attached(job: int) -> int:
    """Follows the job to its end; returns its own exit status, or 125 for trouble of gq's own."""
    from gq.follow import ended_line, follow, goes_on, own_status

    try:
        view = follow(job)
    except KeyboardInterrupt:
        print(f"\n{goes_on(job)}", file=sys.stderr)
        return INTERRUPTED
    except GpuqueueError as error:
        complain(error.message, f"{error.hint}; {goes_on(job)}" if error.hint else goes_on(job))
        return TROUBLE
    print(ended_line(view), file=sys.stderr)
    return own_status(view)
