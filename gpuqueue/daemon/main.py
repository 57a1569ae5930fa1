"""`gpuqueued`: serve, init, check-config."""

import logging
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from gpuqueue.config.load import load
from gpuqueue.config.settings import Settings
from gpuqueue.daemon import journal
from gpuqueue.version import __version__
from gpuqueue.wire.errors import ErrorCode, GpuqueueError
from gpuqueue.wire.units import format_mib, parse_mib

if TYPE_CHECKING:
    from gpuqueue.gpu.nvml import NvmlCards

SYSTEM_CONFIG = Path("/etc/gpuqueue/config.toml")


class _Group(click.Group):
    """Says what is wrong in one line, and the way out in another, and exits as `gq` does."""

    def main(self, *args: Any, **options: Any) -> NoReturn:
        try:
            status = super().main(*args, **options, standalone_mode=False)
            sys.exit(status if isinstance(status, int) else 0)
        except GpuqueueError as error:
            _complain(error.message, error.hint)
            sys.exit(2 if error.code is ErrorCode.INVALID else 1)
        except click.UsageError as error:
            where = error.ctx.command_path if error.ctx else "gpuqueued"
            _complain(" ".join(error.format_message().split()), f"see `{where} --help`")
            sys.exit(2)


def _complain(message: str, hint: str) -> None:
    text = f"gpuqueued: {message}" + (f"\n  hint: {hint}" if hint else "")
    click.echo(journal.marked(text, logging.ERROR) if journal.goes_to_the_journal() else text, err=True)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="gpuqueued")
def main() -> None:
    """The gpuqueue daemon: one per node."""


@main.command("serve")
@click.option("--config", "config", type=click.Path(path_type=Path), help="TOML file [/etc/gpuqueue/config.toml]")
@click.option("--state-dir", type=click.Path(path_type=Path), help="where the queue is kept")
@click.option("--socket", "socket_path", type=click.Path(path_type=Path), help="where `gq` connects")
@click.option("--simulate", metavar="SIZE[,SIZE…]", help="simulated cards instead of real ones, e.g. 32607M")
@click.option("--verbose", is_flag=True, help="log more")
def serve_command(
    config: Path | None, state_dir: Path | None, socket_path: Path | None, simulate: str | None, verbose: bool
) -> None:
    """Serve until stopped. Running jobs go on without the daemon, and are found again."""
    settings = with_options(load(chosen(config)), state_dir, socket_path, simulate)

    from gpuqueue.daemon.serve import serve  # takes a second, which a mistake need not wait for

    journal.set_up(verbose)
    serve(settings)


@main.command("check-config")
@click.argument("file", type=click.Path(path_type=Path))
def check_config(file: Path) -> None:
    """Say whether FILE is a configuration, and what it means."""
    settings = load(file)
    quota = settings.policy.quota
    held = format_mib(quota.held_back_mib) if quota.held_back_mib is not None else f"{quota.held_back_percent} %"
    click.echo(f"{file}: ok")
    click.echo(f"  held back for light jobs on each card: {held}")
    click.echo(f"  state in {settings.state_dir}, socket {settings.socket}")


@main.command("init")
@click.option("--config", "config", type=click.Path(path_type=Path), help="TOML file [/etc/gpuqueue/config.toml]")
@click.option("--state-dir", type=click.Path(path_type=Path), help="where the queue is kept")
@click.option(
    "--wait",
    "wait_s",
    type=click.IntRange(1, 3600),
    default=30,
    metavar="SECONDS",
    help="how long the CUDA driver may take to make a context on a card [30]",
)
def init(config: Path | None, state_dir: Path | None, wait_s: int) -> None:
    """Make the state directory and its database, say what the node has, and measure what a CUDA context takes."""
    settings = with_options(load(chosen(config)), state_dir, None, None)

    from gpuqueue.daemon.serve import make_state_dir
    from gpuqueue.gpu.nvml import NvmlCards
    from gpuqueue.store.open import open_store

    directory = Path(settings.state_dir)
    make_state_dir(directory)
    open_store(directory / "gpuqueue.db").close()
    click.echo(f"state: {directory}")
    cards = NvmlCards()
    reading = cards.read()
    for card in reading.cards:
        click.echo(f"card {card.index}: {card.name}, {format_mib(card.total_mib - card.reserved_mib)}")
        _measure_context(cards, card.uuid, directory, wait_s)
    cards.close()
    if reading.fault:
        click.echo(f"no card can be read: {reading.fault}")
    if reading.fault or not reading.cards:
        click.echo("no CUDA context is measured without a card: estimates go by the published figure")
    service = ", or `systemctl enable --now gpuqueued` for the service" if os.geteuid() == 0 else ""
    click.echo(f"next: gpuqueued serve{f' --config {config}' if config else ''}{service}")


def _measure_context(cards: "NvmlCards", uuid: str, state_dir: Path, wait_s: int) -> None:
    """One line on it. A card that cannot be measured is not fatal: an estimate has a published figure to go by."""
    from gpuqueue.daemon.serve import using
    from gpuqueue.gpu import context

    found = context.measure(cards.read, uuid, wait_s)
    if found.mib is not None:
        with using(state_dir):
            context.keep(state_dir, {uuid: found.mib})
        click.echo(f"  a bare CUDA context takes {found.mib} MiB, measured ({found.how})")
        return
    before_mib = context.kept(state_dir).get(uuid)
    instead = "the published figure" if before_mib is None else f"the {before_mib} MiB that were measured before"
    click.echo(f"  no CUDA context could be measured, estimates go by {instead}: {found.how}")


def chosen(config: Path | None) -> Path | None:
    """The file that counts: the one that was named, else the system's where there is one, else the defaults."""
    if config is not None:
        return config
    return SYSTEM_CONFIG if SYSTEM_CONFIG.exists() else None


def with_options(
    settings: Settings, state_dir: Path | None, socket_path: Path | None, simulate: str | None
) -> Settings:
    """The command line wins over the file. Without root the defaults lie in the user's own directories."""
    changes: dict[str, Any] = {}
    if state_dir is not None:
        changes["state_dir"] = state_dir.absolute()
    if socket_path is not None:
        changes["socket"] = socket_path.absolute()
    elif state_dir is not None and os.geteuid() != 0:
        changes["socket"] = state_dir.absolute() / "gpuqueued.sock"
    if simulate is not None:
        changes["simulate_mib"] = tuple(_size(part) for part in simulate.split(","))
    return replace(settings, **changes)


def _size(text: str) -> int:
    try:
        mib = parse_mib(text)
    except ValueError as error:
        raise GpuqueueError(ErrorCode.INVALID, f"--simulate: {error}", "for example --simulate 32607M,24G") from None
    if mib == 0:
        raise GpuqueueError(ErrorCode.INVALID, "--simulate: a card of 0 is no card", "for example --simulate 32607M")
    return mib
