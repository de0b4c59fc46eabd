# For the tests of the command under mpirun, after lib.bash. Exit 77 where there is no MPI.
if [[ ${NANOVLLM_HAS_MPI-ON} != ON ]] || ! command -v mpirun >/dev/null; then
    echo "skipped: no mpirun, or nanovllm is built without MPI (Debian: libopenmpi-dev openmpi-bin)"
    exit 77
fi
# Open MPI: as root, with more ranks than cores, without a container's permissions.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_btl_vader_single_copy_mechanism=none
mpirun_flags=()

# run_ranks N ARGS...: as `run`, by N processes.
run_ranks() {
    local ranks=$1
    shift
    command="mpirun ${mpirun_flags[*]} -np $ranks nanovllm $*"
    timeout 120 mpirun "${mpirun_flags[@]}" -np "$ranks" "$nanovllm" "$@" \
        >"$scratch/out" 2>"$scratch/err" </dev/null
    status=$?
}

# begin_generating N: starts N processes in the background, as $mpirun, and returns
# when the first results are in $scratch/got.jsonl.
begin_generating() {
    local ranks=$1 i
    command="mpirun ${mpirun_flags[*]} -np $ranks nanovllm generate, interrupted"
    for i in {1..400}; do echo '{"prompt": "Once upon", "max_tokens": 60}'; done >"$scratch/many.jsonl"
    rm -f "$scratch/got.jsonl"
    timeout 120 mpirun "${mpirun_flags[@]}" -np "$ranks" "$nanovllm" generate -m "$model" \
        --tensor-parallel-size "$ranks" --max-num-seqs 2 --input "$scratch/many.jsonl" \
        --output "$scratch/got.jsonl" >"$scratch/out" 2>"$scratch/err" &
    mpirun=$!
    for ((i = 0; i < 6000; i++)); do
        [[ ! -s $scratch/got.jsonl ]] || return 0
        sleep 0.01
    done
    failed "no result after a minute"
}

# ends PID: within 30 seconds, for a machine may be busy.
ends() {
    local i
    for ((i = 0; i < 3000; i++)); do
        kill -0 "$1" 2>/dev/null || return 0
        sleep 0.01
    done
    failed "process $1 is still there"
}
