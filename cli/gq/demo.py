"""`gq demo`: hands over to the daemon's demonstration, with the same Python."""

import os
import sys

import click


@click.command("demo")
def command() -> None:
    """The whole product in under 90 seconds: an own daemon, a simulated card, five stories."""
    os.execv(sys.executable, [sys.executable, "-m", "gpuqueue.daemon.demo"])
