"""`gq quota`: what each account may hold and holds; an admin sets and unsets it (rule Q1)."""

from typing import TYPE_CHECKING

import click

from gq import client
from gq.arguments import Size, json_option
from gq.exits import usage
from gq.terminal import Cell, Column, Screen, plain, print_json, screen, table
from gq.words import gib

if TYPE_CHECKING:
    from gpuqueue.wire.jobs import QuotaView


@click.group("quota", invoke_without_command=True)
@json_option
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """What each account may hold, and holds now."""
    if ctx.invoked_subcommand is None:
        _show(client.get("/v1/quotas"), as_json)


@command.command("set")
@click.argument("account")
@click.option("--train", type=Size(), metavar="SIZE", help="For train jobs, for example 20G.")
@click.option("--light", type=Size(), metavar="SIZE", help="For light jobs, for example 10G.")
@json_option
def set_quota(account: str, train: int | None, light: int | None, as_json: bool) -> None:
    """Set what ACCOUNT may hold over the node. It counts from the next start (rule Q8)."""
    _check(account)
    if train is None and light is None:
        raise usage("nothing to set", f"gq quota set {account} --train 20G --light 10G")
    change = {"train_mib": train, "light_mib": light}
    _show([client.ask("PUT", f"/v1/quotas/{client.quote(account)}", body=change)], as_json)


@command.command("unset")
@click.argument("account")
@json_option
def unset_quota(account: str, as_json: bool) -> None:
    """Give ACCOUNT what its groups or the default say again."""
    _check(account)
    _show([client.ask("DELETE", f"/v1/quotas/{client.quote(account)}")], as_json)


def _check(account: str) -> None:
    if not account or "/" in account:  # it would be another path of the daemon's
        raise usage(f"{account!r} is not an account", "name a user, as in `gq quota`")


def _show(quotas: "list[QuotaView]", as_json: bool) -> None:
    if as_json:
        print_json(quotas)
    elif not quotas:
        print("no account has jobs or a quota of its own yet: the default counts for all")
    else:
        print("\n".join(quota_lines(quotas, screen())))
        for quota in quotas:
            if quota.note:
                print(f"note: {plain(quota.note)}")


def quota_lines(quotas: "list[QuotaView]", on: Screen) -> list[str]:
    """The accounts as a table: held of nominal, in GiB."""
    columns = [
        Column("ACCOUNT", least=8),
        Column("TRAIN GiB", right=True),
        Column("LIGHT GiB", right=True),
        Column("FROM", least=12),
    ]
    rows: list[list[Cell | str]] = [
        [
            quota.account,
            _held(quota.train_used_mib, quota.train_mib),
            _held(quota.light_used_mib, quota.light_mib),
            quota.source,
        ]
        for quota in quotas
    ]
    return table(columns, rows, on)


def _held(used_mib: int, nominal_mib: int) -> Cell:
    return Cell(f"{gib(used_mib)} of {gib(nominal_mib)}", "yellow" if used_mib > nominal_mib else "")
