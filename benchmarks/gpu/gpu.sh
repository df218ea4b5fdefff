#!/usr/bin/env bash
# What a GPU is asked, in pieces of at most four minutes, without a network. What is measured is not measured again:
#   benchmarks/gpu/gpu.sh tests train decode profile study
#   benchmarks/gpu/gpu.sh train --device cpu --quick --output_dir /tmp/gpu
set -euo pipefail
root="$(cd "$(dirname "$0")/../.." && pwd)"
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}" HF_HUB_OFFLINE=1
exec "${PYTHON:-python3}" "$root/benchmarks/gpu/gpu.py" "$@"
