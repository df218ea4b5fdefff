#!/usr/bin/env bash
# Write the card of every published row from its records: model_cards/write_all.sh [FOLDER]
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-model_cards}
records=benchmarks/records

for method in transformer em-routing; do
  python scripts/write_model_card.py --output_file "$folder/multi30k-en-de-tiny-$method.md" \
    --run_record "$records/multi30k_${method}_run_record.json" \
    --evaluations "$records/multi30k_${method}_test_2016_flickr.json" "$records/multi30k_${method}_test_2017_flickr.json" \
    --speed "$records/speed_tiny.json" \
    --data_name "Multi30k, lower-cased, normalised and Moses-tokenised" \
    --data_license "research and education, non-commercial" --license other --license_name non-commercial \
    --example "two dogs are running on the beach ." \
    --note "The scores are of the mean of the run's last ten checkpoints, 100 updates apart, decoded with 5 beams."
done
