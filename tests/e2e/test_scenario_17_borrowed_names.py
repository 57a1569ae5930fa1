"""Scenario 17, borrowed names (A1, J1): whoever A says to be in USER, the kernel says who asks. A cancels no job of
B's, and A's own job runs with A's uid, gid and groups, never with root's."""

import pwd

import pytest

from tests.e2e.accounts import Account
from tests.e2e.node import Node

pytestmark = [pytest.mark.e2e, pytest.mark.root]


def test_a_borrowed_name_cancels_nothing(node: Node, people: list[Account]) -> None:
    a, b = people
    job = node.submit("--vram", "1G", "--", "sleep", "3600", user=b.name)
    node.until_state(job, "running")
    for borrowed in (b.shell_environment(), pwd_environment("root")):
        refused = node.gq("cancel", str(job), user=a.name, env=borrowed, check=False)
        assert refused.returncode == 1
        assert f"job {job} belongs to {b.name}: you ({a.name}) may not cancel it" in refused.stderr
    assert "no open jobs" in node.gq("cancel", "--all", user=a.name, env=b.shell_environment()).stdout
    assert node.job(job)["state"] == "running"

    node.gq("cancel", str(job), user=b.name, env=a.shell_environment())
    assert node.until_state(job, "cancelled")["reason"] == f"cancelled by {b.name}"


def test_a_job_has_its_submitters_ids_whatever_user_says(node: Node, people: list[Account]) -> None:
    a, b = people
    words = "id -u; id -g; id -G; id -ru; cat /proc/self/status"
    for borrowed in (a.shell_environment(), b.shell_environment(), pwd_environment("root")):
        job = node.submit("--vram", "1G", "--", "sh", "-c", words, user=a.name, env=borrowed)
        assert node.job(job)["user"] == a.name
        assert node.wait(job) == 0
        uid, gid, groups, real_uid, *status = node.logs(job).splitlines()
        assert (int(uid), int(gid), int(real_uid)) == (a.uid, a.gid, a.uid)
        assert {int(group) for group in groups.split()} == set(a.groups)
        ids = {
            line.split(":")[0]: line.split()[1:] for line in status if line.startswith(("Uid", "Gid", "Groups", "Cap"))
        }
        assert set(ids["Uid"]) == {str(a.uid)}
        assert set(ids["Gid"]) == {str(a.gid)}
        assert "0" not in ids["Groups"]
        assert int(ids["CapEff"][0], 16) == int(ids["CapPrm"][0], 16) == 0


def test_an_account_or_a_user_that_is_not_ones_own_is_refused(node: Node, people: list[Account]) -> None:
    a, b = people
    for option, message in (("--account", f"your account is your login, {a.name}"), ("--as", "only an admin may")):
        refused = node.gq("submit", "--vram", "1G", option, b.name, "--", "true", user=a.name, check=False)
        assert refused.returncode == 1
        assert message in refused.stderr
    assert node.jobs() == []


def pwd_environment(name: str) -> dict[str, str]:
    entry = pwd.getpwnam(name)
    return {"USER": name, "LOGNAME": name, "HOME": entry.pw_dir}
