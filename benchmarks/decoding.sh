#!/bin/sh
# Measures what benchmarks/decoding.md has, and writes that page: sh benchmarks/decoding.sh
# One thread, so that time is that of the process; then all threads, on a machine that does nothing else.
set -e
cd "$(dirname "$0")/.."
measure() {
    record=benchmarks/records/decoding_$1.json
    shift
    hf-capsule-mt benchmark --decoders --device cpu --output_file "$record" "$@"
}
BASE="--size base --new_tokens ${NEW_TOKENS:-24} --rounds ${ROUNDS:-5} --warmup_rounds 1"
TINY="--size tiny --vocab_size 10000 --new_tokens 24 --rounds 15 --warmup_rounds 2"
export OMP_NUM_THREADS=1
measure tiny_32 $TINY --methods transformer em-routing --batch_size 32
measure tiny_1 $TINY --methods transformer --batch_size 1
measure base_32 $BASE --methods transformer em-routing gdr rnmt capsnmt --batch_size 32
measure base_1 $BASE --methods transformer --batch_size 1
measure memory --methods transformer --size base --batch_size 32 --new_tokens 1 --rounds 1 --memory_length 100
unset OMP_NUM_THREADS
measure base_32_threads $BASE --methods transformer --batch_size 32
measure tiny_32_threads $TINY --methods transformer --batch_size 32
hf-capsule-mt benchmark --page benchmarks/decoding.md
