"""`gq doctor`: whether all is well, as the daemon sees itself, and what to do where it is not."""

from typing import TYPE_CHECKING

import click

from gq import client
from gq.arguments import json_option
from gq.exits import DONE, FAILED
from gq.terminal import Screen, print_json, screen, wrapped

if TYPE_CHECKING:
    from gpuqueue.wire.jobs import CheckView

COLOURS = {"ok": "green", "note": "cyan", "warn": "yellow", "fail": "red"}


@click.command("doctor")
@json_option
def command(as_json: bool) -> int:
    """Whether all is well. Exits with 1 where a check fails."""
    checks = client.get("/v1/doctor")
    if as_json:
        print_json(checks)
    else:
        print("\n".join(check_lines(checks, screen())))
    return FAILED if any(check.level == "fail" for check in checks) else DONE


def check_lines(checks: "list[CheckView]", on: Screen) -> list[str]:
    """Each check: its level in words, what was found, and the way out."""
    width = max((len(check.name) for check in checks), default=0)
    indent = 4 + 2 + width + 2
    lines = []
    for check in checks:
        first, *rest = wrapped(check.text, on.width - indent)
        lines.append(f"{on.paint(f'{check.level:4}', COLOURS.get(check.level, ''))}  {check.name:{width}}  {first}")
        lines += [" " * indent + more for more in rest]
        if check.hint:
            lines += [" " * indent + on.paint(more, "dim") for more in wrapped(check.hint, on.width - indent)]
    return lines
