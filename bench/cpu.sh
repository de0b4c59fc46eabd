#!/bin/bash
# Measures device cpu in one call: single ops, every workload that has a goal (random weights in the
# shapes of bench/configs), and the bundled model. Prints a table and writes it to RESULTS/cpu.csv.
# RESULTS/ops.txt has all ops, RESULTS/*.json the output of each bench. A missed goal is no failure; a
# failed run is.
#   bench/cpu.sh [--threads N] [--repeat N] [--baseline PROGRAM] [BUILD [RESULTS]]
# BUILD is build/release and RESULTS build/cpu by default. The goals are for 16 cores of a Xeon with AMX; on
# other machines they are only a comparison.
#   --threads N           CPU threads; default: one for each core that this process may use
#   --repeat N            runs of each workload in one process, of which the median counts; default 3
#   --baseline PROGRAM    another nanovllm: the bundled model's goal is 4 times its speed
set -u
cd "$(dirname "$(readlink -f "$0")")/.." || exit 1

threads=0
repeat=3
baseline=
while [[ ${1-} == --* ]]; do
    case $1 in
    --threads) threads=${2-} ;;
    --repeat) repeat=${2-} ;;
    --baseline) baseline=${2-} ;;
    *) echo "cpu.sh: unknown option $1" && exit 2 ;;
    esac
    shift 2 || exit 2
done
build=${1-build/release}
results=${2-build/cpu}
program=$build/nanovllm
csv=$results/cpu.csv
num_failed=0
[[ -x $program ]] || { echo "cpu.sh: there is no $program (cmake --preset release, and build it)" && exit 2; }
mkdir -p "$results" || exit 2

fail() {
    echo "FAILED: $*"
    num_failed=$((num_failed + 1))
}

# report MODEL NAME FIELD VALUE GOAL: a goal is a lower bound; "-" is none.
report() {
    local model=$1 name=$2 field=$3 value=$4 goal=$5 met
    met=$(awk -v value="$value" -v goal="$goal" 'BEGIN {
        print (goal == "-" ? "" : value >= goal ? "yes" : "no") }')
    printf '%s,%s,%s,%s,%s,%s\n' "$model" "$name" "$field" "$value" "$goal" "$met" >>"$csv"
    printf '%-12s %-22s %-20s %12.2f %10s  %s\n' "$model" "$name" "$field" "$value" "$goal" "$met"
}

# bench_value PROGRAM JSON FIELD FLAGS...: runs one bench and prints FIELD of its JSON; nothing if it failed.
bench_value() {
    local tool=$1 json=$2 field=$3
    shift 3
    "$tool" bench --device cpu --threads "$threads" --json --repeat "$repeat" "$@" >"$json" 2>"$json.log" &&
        sed -n "s/^  \"$field\": \([0-9.e+-]*\),*\$/\1/p" "$json"
}

# measure MODEL NAME FIELD GOAL FLAGS...: runs one bench and compares FIELD of its JSON with the goal. Leaves it in
# `value`.
measure() {
    local model=$1 name=$2 field=$3 goal=$4 json
    shift 4
    json=$results/$model-$name.json
    value=$(bench_value "$program" "$json" "$field" --model "bench/configs/$model" --load-format dummy "$@")
    [[ -n $value ]] || { fail "$model $name: $(tail -n 1 "$json.log")" && return; }
    report "$model" "$name" "$field" "$value" "$goal"
}

# product FACTOR VALUE: their product, as a goal; "-" if there is no value.
product() { awk -v factor="$1" -v value="$2" 'BEGIN { print value ? factor * value : "-" }'; }

# The memory read rate of all threads, and the share of it that attention reaches at 16,000 positions.
ops() {
    local log=$results/ops.txt share
    [[ -x $build/bench_ops ]] || { fail "there is no $build/bench_ops (build the target bench_ops)" && return; }
    "$build/bench_ops" auto "$threads" 20 >"$log" 2>&1 || { fail "single ops, see $log" && return; }
    read_rate=$(sed -n 's/^at the end: read \([0-9.]*\) GB.*/\1/p' "$log")
    report ops memory read_gb_s "$read_rate" -
    share=$(sed -n 's/^attention 1 x 1, context 16000, BF16 .* \([0-9.]*\) % of .*/\1/p' "$log")
    [[ -n $share ]] || { fail "no attention at 16,000 positions in $log" && return; }
    report ops attention-16000 percent_of_bound "$share" 80
}

# The bundled model on nano-vllm's workload. The goal is 4 times the baseline's speed.
bundled() {
    local value before goal=-
    if [[ -n $baseline ]]; then
        before=$(bench_value "$baseline" "$results/bundled-before.json" throughput_tok_s \
            --model models/tiny-qwen3)
        [[ -n $before ]] || { fail "the baseline: $(tail -n 1 "$results/bundled-before.json.log")" && return; }
        report bundled nano-vllm-before throughput_tok_s "$before" -
        goal=$(product 4 "$before")
    fi
    value=$(bench_value "$program" "$results/bundled.json" throughput_tok_s --model models/tiny-qwen3)
    [[ -n $value ]] || { fail "bundled: $(tail -n 1 "$results/bundled.json.log")" && return; }
    report bundled nano-vllm throughput_tok_s "$value" "$goal"
}

lscpu | grep -E '^(Model name|CPU\(s\)|L3)' | tee "$results/cpu.txt"
echo "model,workload,figure,value,goal,met" >"$csv"
printf '%-12s %-22s %-20s %12s %10s  %s\n' model workload figure value goal met
read_rate=
ops
measure qwen3-0.6b prefill-512 prefill_tok_s 12000 --workload prefill --batch-size 1 --input-len 512
measure qwen3-0.6b prefill-4x2048 prefill_tok_s 10000 --workload prefill --batch-size 4 --input-len 2048
# A step of one stream reads 1.19 GB of weights. The goal is 95 % of the read rate; with fewer bits a multiple of
# what was reached.
one_stream=(--workload one-stream --output-len 128)
value=
measure qwen3-0.6b one-stream decode_tok_s "$(product 0.798 "$read_rate")" "${one_stream[@]}"
bf16=$value
measure qwen3-0.6b one-stream-int8 decode_tok_s "$(product 1.8 "$bf16")" "${one_stream[@]}" --quantization int8
measure qwen3-0.6b one-stream-int4 decode_tok_s "$(product 3 "$bf16")" "${one_stream[@]}" --quantization int4
measure qwen3-8b one-stream-int4 decode_tok_s 18 --workload one-stream --output-len 32 --quantization int4
measure qwen3-0.6b one-stream-16000 decode_tok_s - --workload one-stream --input-len 16000 \
    --output-len 64 --max-model-len 16384
measure qwen3-0.6b batch-8 decode_tok_s 700 --workload batch-8 --input-len 128 --output-len 64
measure qwen3-0.6b batch-32 decode_tok_s 2200 --workload batch-32 --input-len 128 --output-len 64
measure qwen3-0.6b batch-64 decode_tok_s 3500 --workload batch-64 --input-len 128 --output-len 64
measure qwen3-0.6b nano-vllm throughput_tok_s 2500 --kv-cache-gib 32
bundled

[[ $num_failed == 0 ]] || echo "$num_failed failed"
[[ $num_failed == 0 ]]
