"""`python -m gpuqueue.simjob`: a stand-in for a training, for machines without a GPU (see --help).

Exit status: 0 or `--exit-code`, 1 for whatever a Python training would die of (card full, no card, unreadable
checkpoint), 2 for a mistake in its use."""

import sys
import traceback

from gpuqueue.gpu.simdir import SimDirError
from gpuqueue.simjob.cuda import Cuda
from gpuqueue.simjob.options import Options, parse
from gpuqueue.simjob.training import SimulatedCrash, Training


def main(argv: list[str]) -> int:
    options = parse(argv)
    try:
        return Training(options, _cuda(options)).run()
    except SimDirError as error:
        sys.stderr.write(f"simjob: {error}\n")
        return 2
    except SimulatedCrash:
        traceback.print_exc()
        return 1 if options.exit_code is None else options.exit_code


def _cuda(options: Options) -> Cuda | None:
    """None for a training that takes no VRAM: it never asks CUDA for a card."""
    if options.vram_mib == 0 and options.grow is None and options.escape_mib is None:
        return None
    if options.sim_dir is None:
        raise SimDirError("where are the simulated cards? Run it in the queue, or give --sim-dir STATE/sim")
    return Cuda(options.sim_dir)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
