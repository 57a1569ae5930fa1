"""`gq demo`: hands over to the daemon's demonstration, with the same Python."""

import os
import sys

import click


@click.command(
    "demo",
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(arguments: tuple[str, ...]) -> None:
    """The whole product in under 90 seconds: an own daemon, a simulated card, five stories."""
    os.execv(sys.executable, [sys.executable, "-m", "gpuqueue.daemon.demo", *arguments])
