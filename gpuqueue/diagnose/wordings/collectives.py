"""Talk between the ranks of a distributed job that broke down: NCCL, RCCL, the stores behind them."""

from gpuqueue.diagnose.clue import Strength, wording
from gpuqueue.diagnose.finding import Cause, Retry

_NCCL = Cause.nccl
_RANK = (
    "A rank died or hung and the others waited for it: look for the first error of any rank; with none, "
    "check the network interface (NCCL_SOCKET_IFNAME) and run with NCCL_DEBUG=INFO."
)
_ONCE = Retry.once

TABLE = (
    wording(
        _NCCL,
        r"Watchdog caught collective operation timeout|some NCCL operations have failed or timed out",
        _RANK,
        _ONCE,
    ),
    wording(
        _NCCL,
        r"nccl(?:Unhandled(?:Cuda|System)|System|Internal|Remote|InvalidUsage|InvalidArgument)\w*: "
        r"|ncclRemoteError|NCCL error in:|NCCL Error \d+: |NCCL failure|RCCL error",
        _RANK,
        _ONCE,
    ),
    wording(
        _NCCL,
        r"NCCL communicator (?:was aborted|.*encountered error)|ProcessGroupNCCL.*(?:exception|timed out)",
        _RANK,
        _ONCE,
    ),
    wording(
        _NCCL,
        r"Duplicate GPU detected ?: rank (?P<a>\d+) and rank (?P<b>\d+)",
        "Ranks {a} and {b} use the same card: as many ranks as --gpus, one card each.",
        Retry.no,
    ),
    wording(
        _NCCL,
        r"DistBackendError|NCCL WARN .*(?:Connection closed by remote peer|Connect to .* failed"
        r"|Call to \w+ failed)",
        _RANK,
        _ONCE,
        Strength.usual,
    ),
    wording(
        _NCCL,
        r"NCCL WARN .*(?:Net|NET|ibv|IB|mlx).*(?:fail|error|Got completion)",
        _RANK,
        _ONCE,
        Strength.usual,
    ),
    wording(
        _NCCL,
        r"gloo.*(?:Connection closed by peer|timed out|Connect timeout)|Heartbeat monitor timed out",
        _RANK,
        _ONCE,
        Strength.usual,
    ),
    wording(
        _NCCL,
        r"(?:RuntimeError|DistNetworkError): .*(?:Connection (?:was )?(?:likely )?closed|Connection reset by peer"
        r"|Broken pipe)",
        _RANK,
        _ONCE,
        Strength.usual,
    ),
    wording(
        _NCCL,
        r"EADDRINUSE|address already in use.*(?:tcpstore|rendezvous|master)"
        r"|failed to listen on any local network address",
        "The rendezvous port is taken by another job: use `--rdzv-endpoint=localhost:0` or another MASTER_PORT.",
        _ONCE,
        Strength.usual,
    ),
)
