#!/bin/bash
# Tests and measures device cuda in one call of a few minutes: the tests that need a GPU, single ops, and
# every workload that has a goal (random weights in the shapes of bench/configs). Prints a table and
# writes it to RESULTS/gpu.csv. RESULTS/ops.csv has all ops, RESULTS/*.json the output of each bench. A
# missed goal is no failure; a failed run is.
#   bench/gpu.sh [--sanitize] [BUILD [RESULTS]]     defaults: build/cuda build/gpu
# Each workload runs three times in one process, and the median counts. To time starts, 18 GB of
# checkpoints are written to TMPDIR and removed.
#   --sanitize    also runs the op tests under compute-sanitizer, which takes minutes more
set -u
cd "$(dirname "$(readlink -f "$0")")/.." || exit 1

sanitize=0
[[ ${1-} != --sanitize ]] || { sanitize=1 && shift; }
build=${1-build/cuda}
results=${2-build/gpu}
program=$build/nanovllm
csv=$results/gpu.csv
num_failed=0
[[ -x $program ]] || { echo "gpu.sh: there is no $program (cmake --preset cuda, and build it)" && exit 2; }
mkdir -p "$results" || exit 2

fail() {
    echo "FAILED: $*"
    num_failed=$((num_failed + 1))
}

tests() {
    local log=$results/tests.log
    ctest --test-dir "$build" -L '^gpu$' --no-tests=error --output-on-failure >"$log" 2>&1 ||
        fail "the tests, see $log"
    grep -E 'tests passed|Passed|Skipped|Failed' "$log"
    # A skipped test is a failure: this script is for machines that have the device.
    if [[ $(nvidia-smi --list-gpus 2>/dev/null | wc -l) -ge 2 ]]; then
        ! grep -q Skipped "$log" || fail "tests were skipped"
    else
        ! grep Skipped "$log" | grep -qv nccl || fail "tests were skipped"
    fi
    log=$results/python.log
    NANOVLLM_TEST_DEVICE=cuda NANOVLLM_LIBRARY=$build/libnanovllm.so \
        tests/python/run "$results" tests/python >"$log" 2>&1 ||
        fail "Python's tests, see $log"
    tail -n 1 "$log"
}

# Ranks and engines that mpirun starts, all on the first GPU, answer as one process does.
under_mpirun() {
    local log=$results/mpirun.log want got ranks flags
    local -a generate=("$program" generate -m models/tiny-qwen3 --chat --prompt "What is 2 + 3?"
        --temperature 0 --max-tokens 24 --num-kvcache-blocks 64)
    command -v mpirun >/dev/null || { echo "there is no mpirun: GPUs under it are not tested" && return; }
    want=$("${generate[@]}" --device cuda:0 2>"$log") || fail "one process, see $log"
    while read -r ranks flags; do
        # shellcheck disable=SC2086 # flags are words
        got=$(mpirun --oversubscribe -np "$ranks" "${generate[@]}" $flags </dev/null 2>>"$log") ||
            fail "mpirun -np $ranks $flags, see $log"
        [[ $got == "$want" ]] || fail "mpirun -np $ranks $flags: $got, want $want"
    done <<'RANKS'
2 --device cuda:0,0 --tensor-parallel-size 2
2 --device cuda:0,0 --data-parallel-size 2
4 --device cuda:0,0,0,0 --tensor-parallel-size 2 --data-parallel-size 2
RANKS
}

# racecheck skips the kernels in which one lane, after __syncwarp, releases shared memory for its whole
# warp by an mbarrier. There it reports races between the other lanes' reads and the next copy to that
# memory, and with some kernels it ends with an internal error (doc/log-cuda.md).
sanitized() {
    local test tool log name
    local -a flags
    for test in test_cuda_rows test_cuda_linear test_cuda_linear_ways test_cuda_attention \
        test_cuda_kv_codes test_cuda_decode_layers test_cuda_experts test_cuda_sample; do
        for tool in memcheck racecheck; do
            log=$results/$tool-$test.log
            flags=(--tool "$tool" --error-exitcode 9)
            [[ $tool == memcheck ]] || for name in layers prefill_sm90 few_rows_sm90 \
                cluster compact decode gated batch; do
                flags+=(--kernel-name-exclude "kns=${name}_kernel")
            done
            timeout 900 compute-sanitizer "${flags[@]}" "$build/$test" >"$log" 2>&1 ||
                fail "$tool of $test, see $log"
        done
    done
}

# report MODEL NAME FIELD VALUE GOAL: a goal in seconds or microseconds is an upper bound, any other a
# lower bound.
report() {
    local model=$1 name=$2 field=$3 value=$4 goal=$5 met
    met=$(awk -v field="$field" -v value="$value" -v goal="$goal" 'BEGIN {
        print ((field ~ /(_seconds|_us)$/ ? value <= goal : value >= goal) ? "yes" : "no") }')
    printf '%s,%s,%s,%s,%s,%s\n' "$model" "$name" "$field" "$value" "$goal" "$met" >>"$csv"
    printf '%-12s %-22s %-16s %14.2f %10s  %s\n' "$model" "$name" "$field" "$value" "$goal" "$met"
}

# measure MODEL NAME FIELD GOAL FLAGS...: runs one bench and compares FIELD of its JSON with the goal.
measure() {
    local model=$1 name=$2 field=$3 goal=$4 json value
    shift 4
    json=$results/$model-$name.json
    if ! "$program" bench --model "bench/configs/$model" --load-format dummy --device cuda \
        --json --repeat 3 "$@" >"$json" 2>"$json.log"; then
        fail "$model $name: $(tail -n 1 "$json.log")"
        return
    fi
    value=$(sed -n "s/^  \"$field\": \([0-9.e+-]*\),*\$/\1/p" "$json")
    [[ -n $value ]] || { fail "$model $name: no $field in $json" && return; }
    report "$model" "$name" "$field" "$value" "$goal"
}

# host_time MODEL NAME GOAL: the host's time for scheduling and output per step, from an earlier bench's JSON.
host_time() {
    local model=$1 name=$2 goal=$3 value
    value=$(sed -n 's/.*"num_steps": \([0-9]*\).*/steps \1/p
        s/.*"schedule": \([0-9.]*\).*"output": \([0-9.]*\).*/host \1 \2/p' \
        "$results/$model-$name.json" |
        awk '/steps/ { n = $2 } /host/ { s = $2 + $3 } END { if (n) print s / n * 1e6 }')
    [[ -n $value ]] || { fail "$model $name: no times of the host" && return; }
    report "$model" "$name" host_step_us "$value" "$goal"
}

# Single ops. Those with a goal are listed as OP|SHAPE|COLUMN|FIELD|GOAL; COLUMN counts from the last, 0.
ops() {
    local log=$results/ops.log op shape column field goal value
    "$build/bench_device_ops" cuda "$results/ops.csv" >"$log" 2>&1 ||
        { fail "single ops, see $log" && return; }
    while IFS='|' read -r op shape column field goal; do
        value=$(awk -F, -v start="$op,\"$shape" -v column="$column" \
            'index($0, start) == 1 { print $(NF - column) }' "$results/ops.csv")
        [[ -n $value ]] || { fail "no $op $shape in $results/ops.csv" && continue; }
        report ops "$op" "$field" "$value" "$goal"
    done <<'GOALS'
decode attention|256 x 1 of 1024, 16 over 8|1|kv_tb_s|3.8
logits|lm_head 256 x [151936][1024]|0|tflop_s|650
GOALS
}

# start MODEL GOAL: the time from exec to exit for one token. The second of two starts counts, as the
# checkpoint is in the page cache by then.
start() {
    local model=$1 goal=$2 folder began
    folder=$(mktemp -d) || { fail "no folder for a checkpoint" && return; }
    if bench/make_checkpoint.py "bench/configs/$model" "$folder"; then
        for _ in 1 2; do
            began=$EPOCHREALTIME
            "$program" bench --model "$folder" --device cuda --workload one-stream --input-len 1 \
                --output-len 1 >"$results/$model-start.log" 2>&1 || fail "$model does not start"
        done
        report "$model" start exec_to_exit_seconds \
            "$(awk -v a="$began" -v b="$EPOCHREALTIME" 'BEGIN { print b - a }')" "$goal"
    else
        fail "a checkpoint of $model"
    fi
    rm -r "$folder"
}

# Two GPUs share each model. RESULTS/rank_sums.csv has the sum over ranks by size, beside NCCL's.
two_gpus() {
    local log=$results/rank_sums.log value bytes
    local ranks="--tensor-parallel-size 2"
    if "$build/bench_rank_sums" >"$results/rank_sums.csv" 2>"$log"; then
        for bytes in 8192 65536; do
            value=$(awk -F, -v bytes="$bytes" '$1 == bytes { print $3 }' "$results/rank_sums.csv")
            report "2 GPUs" "sum of $bytes bytes" sum_us "$value" 6
        done
    else
        fail "sums over ranks, see $log"
    fi
    # shellcheck disable=SC2086 # flags are words
    {
        measure qwen3-8b one-stream-2 decode_tok_s 400 --workload one-stream $ranks
        measure qwen3-8b batch-64-2 throughput_tok_s 17000 --workload batch-64 --input-len 128 \
            --output-len 256 $ranks
        measure qwen3-8b nano-vllm-2 throughput_tok_s 18000 $many $ranks
        measure qwen3-8b prefill-16x1024-2 prefill_tok_s 82000 --workload prefill --batch-size 16 \
            --input-len 1024 $many $ranks
        measure qwen3-32b one-stream-2 decode_tok_s 110 --workload one-stream $ranks
    }
}

command -v nvidia-smi >/dev/null &&
    nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader | tee "$results/gpu.txt"
tests
under_mpirun
[[ $sanitize == 0 ]] || sanitized

echo "model,workload,figure,value,goal,met" >"$csv"
printf '%-12s %-22s %-16s %14s %10s  %s\n' model workload figure value goal met
many="--max-num-batched-tokens 16384"
ops
# shellcheck disable=SC2086 # flags are words
{
    measure qwen3-0.6b nano-vllm throughput_tok_s 32000 $many
    measure qwen3-0.6b one-stream decode_tok_s 2600 --workload one-stream
    measure qwen3-0.6b batch-8 throughput_tok_s 13000 --workload batch-8 --input-len 512 --output-len 512
    measure qwen3-0.6b prefill-128x1024 prefill_tok_s 620000 --workload prefill --batch-size 128 \
        --input-len 1024 $many
    measure qwen3-0.6b batch-256 throughput_tok_s 85000 --workload batch-256 --input-len 32 \
        --output-len 512 $many
    host_time qwen3-0.6b batch-256 50
    measure qwen3-0.6b shared-prefix time_seconds 0.45 --workload shared-prefix $many
    measure qwen3-8b nano-vllm throughput_tok_s 11000 $many
    measure qwen3-8b one-stream decode_tok_s 268 --workload one-stream
    measure qwen3-8b batch-64 throughput_tok_s 9000 --workload batch-64 --input-len 128 --output-len 256
    measure qwen3-8b prefill-16x1024 prefill_tok_s 47000 --workload prefill --batch-size 16 \
        --input-len 1024 $many
    start qwen3-0.6b 1.0
    start qwen3-8b 1.5
}

[[ $(nvidia-smi --list-gpus 2>/dev/null | wc -l) -lt 2 ]] || two_gpus

[[ $num_failed == 0 ]] || echo "$num_failed failed"
[[ $num_failed == 0 ]]
