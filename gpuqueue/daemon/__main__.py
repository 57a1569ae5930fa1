"""`python -m gpuqueue.daemon` is `gpuqueued`."""

from gpuqueue.daemon.main import main

main(prog_name="gpuqueued")
