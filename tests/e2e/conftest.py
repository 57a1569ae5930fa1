"""Fixtures of the end-to-end tests."""

import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import nvml_standin
from tests.e2e.accounts import Account, accounts
from tests.e2e.node import Node


@pytest.fixture
def make_node(open_path: Path) -> Iterator[Callable[..., Node]]:
    """Makes nodes that are taken down after the test; `make_node(cards=..., config=...)` is not started yet."""
    nodes: list[Node] = []

    def make(**options: Any) -> Node:
        directory = open_path / f"node{len(nodes)}"
        directory.mkdir()
        nodes.append(Node(directory, **options))
        return nodes[-1]

    yield make
    for node in nodes:
        node.close()


@pytest.fixture
def node(make_node: Callable[..., Node]) -> Node:
    """A started node under the default policy, on one simulated 32 GB card that reads 32607 MiB."""
    return make_node(config='[daemon]\nsample = "1s"\n').start()


@pytest.fixture
def make_nvml_node(make_node: Callable[..., Node], open_path: Path) -> Iterator[Callable[..., Node]]:
    """Makes nodes on the cards of the NVML stand-in, which are in the file `open_path / "cards"`. A daemon with cards
    that are not simulated holds the machine's one lock: of all tests running here, one at a time has its turn."""
    with Path(tempfile.gettempdir(), f"gpuqueue-nvml-turn-{os.getuid()}").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        standin = nvml_standin.environment(open_path / "cards")
        nodes: list[Node] = []

        def make(**options: Any) -> Node:
            nodes.append(make_node(cards="", env=standin, **options))
            return nodes[-1]

        yield make
        for node in nodes:  # before the turn is over: the next daemon needs the lock that this one holds
            node.close()


@pytest.fixture
def people(open_path: Path) -> Iterator[list[Account]]:
    """Two new Unix accounts, A and B; the test must be root."""
    with accounts(open_path) as found:
        yield found
