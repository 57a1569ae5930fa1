"""The verbs of `gq`: one table of them, each one's module imported when it is used."""

import importlib
from typing import NamedTuple

import click

from gq.exits import DONE, INTERRUPTED, USAGE
from gq.terminal import complain


class Verb(NamedTuple):
    """A verb `x` is the click command named `command` in the module `gq.x`, imported when it is used."""

    name: str
    help: str


SECTIONS: dict[str, tuple[Verb, ...]] = {
    "Jobs": (
        Verb("submit", "Put a script or a command in the queue."),
        Verb("probe", "Run the first steps, and say what to claim."),
        Verb("status", "The cards and the queue (also plain `gq`)."),
        Verb("why", "Why a job waits, or how it ended, in one line."),
        Verb("show", "All about one job."),
        Verb("logs", "What a job printed; -f follows it."),
        Verb("wait", "Wait for jobs, and exit as they did."),
        Verb("cancel", "Cancel jobs."),
        Verb("requeue", "Stop a job and put it back in the queue."),
        Verb("keep", "Give a job more time."),
        Verb("history", "What past runs claimed and took; --csv exports it."),
    ),
    "The node": (
        Verb("gpus", "Each card: who holds what, and who is a stranger."),
        Verb("quota", "What each account may hold; admins change it."),
        Verb("events", "What happened; -f follows."),
        Verb("doctor", "Whether all is well, and what to do if not."),
    ),
    "Without a daemon": (
        Verb("estimate", "How much VRAM a training run will need."),
        Verb("diagnose", "Why a run failed, from its log."),
        Verb("checkpoints", "Which checkpoint a job would resume from."),
        Verb("demo", "The whole product in under 90 seconds, on a simulated card."),
        Verb("version", "Which release this is, and which one the daemon is."),
    ),
}
VERBS: dict[str, Verb] = {verb.name: verb for verbs in SECTIONS.values() for verb in verbs}


class LazyGroup(click.Group):
    """Lists its verbs from the table above; imports the module of the one that is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command: click.Command = importlib.import_module(f"gq.{cmd_name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in VERBS:
            from difflib import get_close_matches

            close = get_close_matches(args[0], VERBS, n=1)
            meant = f": did you mean `gq {close[0]}`?" if close else ""
            raise click.UsageError(f"no such verb: {args[0]}{meant}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, verbs in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(verb.name, verb.help) for verb in verbs], col_max=12)


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from gpuqueue.version import __version__

        print(f"gq {__version__}")
        ctx.exit()


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="GQ_SOCKET names the daemon's socket. Exit status: 0 done, 1 refused or failed, 2 usage, 3 no daemon.",
)
@click.option(
    "--version", is_flag=True, expose_value=False, is_eager=True, callback=_print_version, help="Print the release."
)
def cli() -> None:
    """A queue for shared GPUs. Jobs say how much VRAM they need; gpuqueue packs them onto the cards."""


def dispatch(arguments: list[str]) -> int:
    """Runs one command line and returns its exit status. A mistake in it is one line on the standard error."""
    try:
        status = cli.main(arguments, prog_name="gq", standalone_mode=False)
        return status if isinstance(status, int) else DONE
    except click.UsageError as error:
        where = error.ctx.command_path if error.ctx else "gq"
        complain(_one_line(error), f"see `{where} --help`")
        return USAGE
    except click.ClickException as error:
        complain(_one_line(error))
        return error.exit_code
    except click.Abort:
        return INTERRUPTED


def _one_line(error: click.ClickException) -> str:
    message = " ".join(error.format_message().split()).rstrip(".")
    return message[:1].lower() + message[1:] if message[1:2].islower() else message
