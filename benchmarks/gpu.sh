#!/usr/bin/env bash
# All that wants a GPU, in pieces of less than ten minutes, without a network; what is done is not done again:
#   benchmarks/gpu.sh --list
#   benchmarks/gpu.sh --output_dir outputs/gpu --data multi30k --minutes 9.5
#   benchmarks/gpu.sh --device cpu --quick --output_dir /tmp/gpu
set -euo pipefail
root="$(cd "$(dirname "$0")/.." && pwd)"
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}" HF_HUB_OFFLINE=1
exec "${PYTHON:-python3}" "$root/benchmarks/gpu.py" "$@"
