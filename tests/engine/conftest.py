"""An engine without a loop: the test says when a tick is."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gpuqueue.config.settings import Settings
from gpuqueue.core.policy import Policy, RestartPolicy
from gpuqueue.daemon.serve import build_engine, make_state_dir
from gpuqueue.engine.engine import Engine
from gpuqueue.gpu.simulated import SimulatedCards
from gpuqueue.store.open import open_store


@pytest.fixture
def engine(open_path: Path) -> Iterator[Engine]:
    """Real store, shims and simulated cards; short pauses, and a second failure in a row is the last."""
    policy = replace(Policy(), restart=RestartPolicy(backoff_base_s=1, backoff_max_s=1, crash_limit=2))
    settings = replace(Settings(), state_dir=open_path / "state", simulate_mib=(32607,), policy=policy)
    make_state_dir(settings.state_dir)
    store = open_store(settings.state_dir / "gpuqueue.db")
    cards = SimulatedCards(settings.state_dir / "sim", settings.simulate_mib)
    yield build_engine(settings, store, cards)
    cards.close()
    store.close()
