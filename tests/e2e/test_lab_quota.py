"""configs/lab-32g.toml on a 32 GB card, borrowing off (Q1, Q3, Q8): nobody trains with more than 20 GiB, nobody
trains in the last 10 GiB of the card, a light job starts there at once; an admin changes that without a restart."""

import secrets
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.accounts import Account, accounts
from tests.e2e.node import ROOT, Node

pytestmark = [pytest.mark.e2e, pytest.mark.root]

LAB = (ROOT / "configs" / "lab-32g.toml").read_text()
CARD_MIB = 32607
TRAIN_PART_MIB = CARD_MIB - 10 * 1024
HOLD = ("--", "sleep", "3600")


@pytest.fixture
def lab(make_node: Callable[..., Node]) -> Node:
    return make_node(cards=f"{CARD_MIB}M", config=LAB).start()


def test_train_claims_of_one_user_never_exceed_their_quota_together(lab: Node, people: list[Account]) -> None:
    a, _ = people
    jobs = [lab.submit("--vram", "7G", *HOLD, user=a.name) for _ in range(4)]
    running = [job for job in jobs if lab.until_state(job, "running", "queued")["state"] != "queued"]
    assert running == jobs[:2]  # a third would make 21 GiB
    assert f"{a.name} uses 14.0 GiB of its 20.0 GiB train quota; 7.0 GiB more does not fit" in lab.why(jobs[2])
    assert f"job {jobs[0]} of {a.name} 7.0 GiB" in lab.why(jobs[2])

    light = lab.submit("--vram", "9G", "--light", *HOLD, user=a.name)
    assert lab.job(light)["state"] in ("starting", "running")  # at once: the answer to the submit says so
    lab.gq("cancel", str(jobs[0]), user=a.name)
    lab.until_state(jobs[2], "running")
    assert lab.job(jobs[3])["state"] == "queued"
    refused = lab.gq("submit", "--vram", "21G", *HOLD, user=a.name, check=False)
    assert refused.returncode == 1
    assert f"21.0 GiB is more than {a.name} may ever hold with train jobs: the quota is 20.0 GiB" in refused.stderr


def test_train_claims_of_all_never_exceed_the_card_less_what_is_held_back(lab: Node, people: list[Account]) -> None:
    a, b = people
    first = lab.submit("--vram", "12G", *HOLD, user=a.name)
    lab.until_state(first, "running")
    second = lab.submit("--vram", "10G", *HOLD, user=b.name)  # 22 GiB: more than 32607 MiB less 10 GiB
    assert lab.job(second)["state"] == "queued"
    why = lab.why(second)
    assert "10.0 GiB of card 0 is held back for light jobs" in why
    assert f"{(TRAIN_PART_MIB - 12 * 1024) / 1024:.1f} GiB is free for train jobs" in why
    assert f"job {first} of {a.name} 12.0 GiB" in why

    light = lab.submit("--vram", "9G", "--light", *HOLD, user=b.name)
    assert lab.job(light)["state"] in ("starting", "running")
    fits = lab.submit("--vram", f"{TRAIN_PART_MIB - 12 * 1024}M", *HOLD, user=b.name)
    assert lab.job(fits)["state"] == "queued"  # S4: behind the one that VRAM blocks
    lab.gq("cancel", str(second), user=b.name)
    lab.until_state(fits, "running")
    card = lab.card()
    assert card["free_for_train_mib"] == 0
    assert card["free_to_claim_mib"] == 1024
    assert card["held_back_mib"] == 10 * 1024


def test_a_quota_set_by_an_admin_counts_without_a_restart_and_by_nobody_else(
    make_node: Callable[..., Node], open_path: Path
) -> None:
    group = f"gqt{secrets.token_hex(4)}"
    lab = make_node(cards=f"{CARD_MIB}M", config=f'{LAB}\n[daemon]\nadmin_group = "{group}"\n').start()
    with accounts(open_path) as (a, b), accounts(open_path, 1, groups=(group,)) as (admin,):
        runs = lab.submit("--vram", "12G", *HOLD, user=a.name)
        lab.until_state(runs, "running")
        waits = lab.submit("--vram", "9G", *HOLD, user=a.name)
        assert "of its 20.0 GiB train quota" in lab.why(waits)
        for who in (a, b):
            for words in (("set", a.name, "--train", "30G"), ("unset", a.name)):
                refused = lab.gq("quota", *words, user=who.name, env={"USER": admin.name}, check=False)
                assert refused.returncode == 1
                assert f"only an admin may change the quota of {a.name}; you are {who.name}" in refused.stderr
        assert "of its 20.0 GiB train quota" in lab.why(waits)

        lab.gq("quota", "set", a.name, "--train", "21G", user=admin.name)
        lab.until_state(waits, "running")
        events = lab.ask("/v1/events")
        assert any(e["actor"] == admin.name and f"quota of {a.name} set: train 21.0 GiB" in e["text"] for e in events)

        # Lowered, it stops nothing that runs (Q8), and counts from the next start on; unset, the default is back.
        lab.gq("quota", "set", a.name, "--train", "1G", user=admin.name)
        shown = {quota["account"]: quota for quota in lab.ask("/v1/quotas")}[a.name]
        assert (shown["train_mib"], shown["train_used_mib"], shown["source"]) == (
            1024,
            21 * 1024,
            "train set for the user, light default",
        )
        assert lab.gq("submit", "--vram", "2G", *HOLD, user=a.name, check=False).returncode == 1
        assert {lab.job(job)["state"] for job in (runs, waits)} == {"running"}
        lab.gq("quota", "unset", a.name, user=admin.name)
        lab.gq("cancel", str(runs), user=a.name)
        after = lab.submit("--vram", "2G", *HOLD, user=a.name)
        lab.until_state(after, "running")
