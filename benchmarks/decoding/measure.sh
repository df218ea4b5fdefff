#!/bin/sh
# Measures what benchmarks/decoding/README.md has, and writes that page: sh benchmarks/decoding/measure.sh
# MACHINE=intel_ gives the records of another machine names of their own.
# With one thread time is that of the process; measure with all threads on a machine that does nothing else.
set -e
cd "$(dirname "$0")/../.."
records=$(mktemp -d)
measure() {
    record=$records/decoding_$MACHINE$1.json
    shift
    python -m benchmarks.decoding decode --device cpu --output_file "$record" "$@"
}
BASE="--size base --max_new_tokens ${NEW_TOKENS:-16} --rounds ${ROUNDS:-3}"
TINY="--size tiny --vocab_size 10000 --max_new_tokens 24"
export OMP_NUM_THREADS=1
measure tiny_1 $TINY --methods transformer --batch_size 1 --rounds 15 --warmup_rounds 2
# The shape of checkpoints/tatoeba-en-de-transformer.
measure tatoeba_1 --size tiny --vocab_size 8000 --max_new_tokens 35 \
    --config_overrides decoder_layers=2 encoder_ffn_dim=512 decoder_ffn_dim=512 \
    --methods transformer --batch_size 1 --rounds 15 --warmup_rounds 2
measure tiny_32 $TINY --methods transformer em-routing --batch_size 32 --rounds 7
measure base_32 $BASE --methods transformer em-routing --batch_size 32
measure base_1 $BASE --methods transformer --batch_size 1
# Few words, so that next to the caches the scores of words count for nothing.
measure memory --methods transformer --size base --vocab_size 2000 --batch_size 32 --max_new_tokens 1 --rounds 1 \
    --warmup_rounds 0 --memory_length 100
measure base_32_others $BASE --methods gdr rnmt capsnmt --batch_size 32
if [ -n "$ALL_THREADS" ]; then
    unset OMP_NUM_THREADS
    measure base_32_threads $BASE --methods transformer --batch_size 32
    measure tiny_32_threads $TINY --methods transformer --batch_size 32 --rounds 7
fi
python -m benchmarks.common.records add benchmarks/decoding/decoding.jsonl "$records"/*.json
python -m benchmarks.decoding page benchmarks/decoding/README.md
