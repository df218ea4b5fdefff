#!/usr/bin/env bash
# One row of benchmarks/multi30k.md: benchmarks/multi30k.sh METHOD UPDATES WARMUP LEARNING_RATE TOKENS_PER_BATCH [options of train]
#   DATA  folder with NAME.lc.norm.tok.{en,de}.gz, NAME among train, val, test_2016_flickr, test_2017_flickr
#   RUNS  folder to work in
# A run that stopped goes on from its last checkpoint when the same command is given again.
set -euo pipefail
: "${DATA:?}" "${RUNS:?}"
method=$1 updates=$2 warmup=$3 rate=$4 budget=$5
shift 5
run=$RUNS/$method
# Without these, glibc returns the pages of the logits to the system after every update and faults them in again.
export MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=20000000000 MALLOC_TOP_PAD_=500000000
export GLIBC_TUNABLES=glibc.malloc.hugetlb=1
pair() { echo "$DATA/$1.lc.norm.tok.en.gz $DATA/$1.lc.norm.tok.de.gz"; }

if [ ! -e "$RUNS/tokenizer" ]; then
  python scripts/train_tokenizer.py --train_file $(pair train) --vocab_size 10000 --output_dir "$RUNS/tokenizer"
fi
if [ ! -e "$run/run_record.json" ]; then
  last=$(ls -d "$run"/checkpoint-* 2>/dev/null | sort -V | tail -n 1 || true)
  accelerate launch --num_processes 1 --num_machines 1 --mixed_precision no --dynamo_backend no scripts/train.py \
    --method "$method" --size tiny --tokenizer_name "$RUNS/tokenizer" --output_dir "$run" \
    --train_file $(pair train) --validation_file $(pair val) \
    --max_tokens_per_batch "$budget" --max_steps "$updates" --learning_rate "$rate" --warmup_steps "$warmup" \
    --logging_steps 50 --eval_strategy steps --eval_steps 500 --save_strategy steps --save_steps 100 \
    --save_total_limit 12 --per_device_eval_batch_size 128 --generation_max_length 80 --seed 1 \
    ${last:+--resume_from_checkpoint "$last"} "$@"
fi
if [ ! -e "$run/average" ]; then
  python scripts/average_checkpoints.py --run_dir "$run" --last 10 --output_dir "$run/average"
fi
for year in 2016 2017; do
  test=test_${year}_flickr
  python scripts/translate.py --model "$run/average" --input_file "$DATA/$test.lc.norm.tok.en.gz" \
    --output_file "$run/$test.de" --num_beams 5
  python scripts/evaluate.py --hypotheses "$run/$test.de" --references "$DATA/$test.lc.norm.tok.de.gz" \
    --tokenize none --output_file "$run/$test.json"
done
