# For the tests of the command: `run` it, then check the result. A failed check prints the
# command and its output; `finish` ends the test with the number of failures. $nanovllm is the binary.
set -u
nanovllm=$(readlink -f "$1")
model=models/tiny-qwen3
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
num_failed=0
command=

# run ARGS...: sets $status; standard output and error are in $scratch/out and $scratch/err.
run() {
    command="nanovllm $*"
    "$nanovllm" "$@" >"$scratch/out" 2>"$scratch/err" </dev/null
    status=$?
}

# run_with TEXT ARGS...: with standard input.
run_with() {
    local input=$1
    shift
    command="nanovllm $* (with input)"
    printf '%s' "$input" | "$nanovllm" "$@" >"$scratch/out" 2>"$scratch/err"
    status=${PIPESTATUS[1]}
}

failed() {
    num_failed=$((num_failed + 1))
    printf 'FAILED: %s\n  %s\n' "$command" "$1"
    sed 's/^/  out: /' "$scratch/out" | head -n 20
    sed 's/^/  err: /' "$scratch/err" | head -n 20
}

exits() { [[ $status == "$1" ]] || failed "exit status $status, want $1"; }
says() { grep -qF -- "$1" "$scratch/out" || failed "standard output lacks: $1"; }
complains() { grep -qF -- "$1" "$scratch/err" || failed "standard error lacks: $1"; }
silent() { [[ ! -s $scratch/err ]] || failed "standard error is not empty"; }
prints() { [[ $(cat "$scratch/out") == "$1" ]] || failed "standard output is not: $1"; }
prints_nothing() { [[ ! -s $scratch/out ]] || failed "standard output is not empty"; }

# holds PYTHON: assertions about `lines`, the JSON values of the lines of FILE (default: standard
# output), and `text`, all of it.
holds() {
    local code=$1 file=${2:-$scratch/out}
    python3 - "$file" >"$scratch/python" 2>&1 <<EOF || failed "$(cat "$scratch/python")"
import json, sys
text = open(sys.argv[1], encoding="utf-8").read()
try:
    lines = [json.loads(line) for line in text.splitlines()]
except ValueError:
    lines = None
$code
EOF
}

finish() {
    ((num_failed == 0)) || printf '%d checks failed\n' "$num_failed"
    exit $((num_failed != 0))
}
