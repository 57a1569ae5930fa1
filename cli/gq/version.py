"""`gq version`: the release of gq, and of the daemon where one answers."""

import click

from gpuqueue.version import __version__
from gpuqueue.wire.errors import GpuqueueError
from gq import client
from gq.arguments import json_option
from gq.terminal import plain, print_json


@click.command("version")
@json_option
def command(as_json: bool) -> None:
    """Which release this is, and which one the daemon is."""
    try:
        node = client.get("/v1/node")
        daemon, words = {"version": node.version, "api": node.api, "host": node.host}, ""
    except GpuqueueError as error:
        daemon, words = None, error.message
    if as_json:
        print_json({"gq": __version__, "gpuqueued": daemon})
        return
    print(f"gq {__version__}")
    print(f"gpuqueued {daemon['version']} on {plain(daemon['host'])}, API {daemon['api']}" if daemon else plain(words))
