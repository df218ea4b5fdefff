#!/usr/bin/env bash
# Parameters and speed of the rows of Li et al. 2019, Table 2 (2 to 8) and Table 3 (2 to 7), next to the printed ratios:
#   benchmarks/training/head_aggregation.sh [options of python -m benchmarks.training train]
set -euo pipefail
encoder="head_aggregation_encoder_layers" cross="head_aggregation_cross_layers=null" decoder="head_aggregation_decoder_layers=null"
python -m benchmarks.training train --size base "$@" --methods \
  "transformer" \
  "head-simple-routing" \
  "head-em-routing" \
  "head-em-routing $encoder=[] $cross" \
  "head-em-routing $encoder=[] $decoder" \
  "head-em-routing $cross" \
  "head-em-routing $cross $decoder" \
  "head-em-routing $encoder=[3,4,5]" \
  "head-em-routing $encoder=[0,1,2]" \
  "head-em-effective" \
  "head-em-routing $encoder=[5]" \
  "head-em-routing $encoder=[0]"
