#!/usr/bin/env bash
# Write the card of every published row from its records: model_cards/write_all.sh [FOLDER]
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-model_cards}
records=benchmarks/records

for record in "$records"/multi30k_*_run_record.json; do
  row=$(basename "$record" _run_record.json)
  row=${row#multi30k_}
  speed=() note="The scores are of the mean of the run's last ten checkpoints, 100 updates apart, decoded with 5 beams."
  case $row in
    transformer* | em-routing) speed=(--speed "$records/speed_tiny.json") ;;
    gdr | rnmt-gdr) speed=(--speed "$records/speed_tiny_$row.json") ;;
    *-distilled) note+=" The targets of its training data are translations by multi30k-en-de-tiny-transformer-3000, with 4 beams." ;;
  esac
  hf-capsule-mt write_model_card --output_file "$folder/multi30k-en-de-tiny-$row.md" --run_record "$record" \
    --evaluations "$records/multi30k_${row}_test_2016_flickr.json" "$records/multi30k_${row}_test_2017_flickr.json" \
    ${speed[@]+"${speed[@]}"} \
    --data_name "Multi30k, lower-cased, normalised and Moses-tokenised" \
    --data_license "research and education, non-commercial" --license other --license_name non-commercial \
    --example "two dogs are running on the beach ." --note "$note"
done
