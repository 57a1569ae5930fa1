#!/bin/sh
# All that needs a real GPU, in one go and under five minutes: tests/gpu/run.sh [card ...]
#
# Starts a daemon of its own in a temporary directory (whatever runs on the machine is left alone), and checks on
# every card, or on those given: NVML's readings, a CUDA context as `gpuqueued init` measures it, pinning as CUDA sees
# it from inside a job; and on one: two jobs packed, a real out of memory with its diagnosis, a real training killed
# and resumed. With PyTorch in the environment the last two are PyTorch's; without it they go through the CUDA driver
# alone.
#
# Exit status: 0 if all is well, and where there is no GPU, which is said in one line; 1 if a check failed.
set -eu
cd "$(dirname "$0")/../.."
if [ -n "${PYTHON:-}" ]; then :
elif [ -x .venv/bin/python ]; then PYTHON=.venv/bin/python
else PYTHON=python3
fi
PYTHONPATH="$PWD:$PWD/cli${PYTHONPATH:+:$PYTHONPATH}" exec "$PYTHON" -m tests.gpu.real_gpu "$@"
