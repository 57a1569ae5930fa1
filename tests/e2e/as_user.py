"""`python -m tests.e2e.as_user USER WORD...` is `gq WORD...` run by a real Unix account, from a test that is root.

Everything is imported before root is given up, so that it does not matter whether USER may read this checkout or
this interpreter: what the daemon meets is the account's own process all the same."""

import importlib
import os
import pkgutil
import pwd
import sys

import gpuqueue.estimate
import gpuqueue.wire
import gq

IMPORTED_LATE = ("csv", "difflib", "json", "textwrap", "unicodedata")  # by click and gq


def main() -> None:
    user, *words = sys.argv[1:]
    for name in IMPORTED_LATE:
        importlib.import_module(name)
    for package in (gpuqueue.wire, gpuqueue.estimate, gq):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    account = pwd.getpwnam(user)
    os.initgroups(user, account.pw_gid)
    os.setresgid(account.pw_gid, account.pw_gid, account.pw_gid)
    os.setresuid(account.pw_uid, account.pw_uid, account.pw_uid)
    sys.argv = ["gq", *words]
    from gq.main import main as run

    run()


if __name__ == "__main__":
    main()
