"""Runs in every Python of a job with --cap, before its first line: its folder is on that job's PYTHONPATH. Starts
gpuqueue_cap, leaves the module path as if it had not been there, and hands on to the user's own sitecustomize.

Kept to what every Python can read, since it is the job's Python that reads it, not gpuqueue's.
"""

import importlib
import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - no heavier import in every Python start
_ours = sys.modules[__name__]

if sys.version_info >= (3, 8):  # noqa: UP036 - the job's Python, not ours
    try:
        importlib.import_module("gpuqueue_cap").install()
    except Exception as error:  # noqa: BLE001 - whatever it is, the job must start
        sys.stderr.write("gq: --cap does not reach this Python: %r\n" % (error,))  # noqa: UP031
elif os.environ.get("GQ_CAP_MIB"):
    sys.stderr.write("gq: --cap does not reach this Python: it is older than 3.8\n")

sys.path[:] = [place for place in sys.path if os.path.abspath(place) != _here]  # noqa: PTH100
del sys.modules[__name__]
try:
    importlib.import_module(__name__)  # what the user would have got; its errors are the user's, and Python's to tell
except ImportError as error:
    if getattr(error, "name", __name__) != __name__:
        raise
finally:
    sys.modules.setdefault(__name__, _ours)
