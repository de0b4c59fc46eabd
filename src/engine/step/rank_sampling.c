#include "engine/step/rank_sampling.h"

#include <stdlib.h>

size_t rank_sampling_bytes(uint32_t max_rows, uint32_t vocab_size) {
    const struct rank_sampling *s = NULL;
    return max_rows * (vocab_size * sizeof *s->logits + sizeof *s->rows + sizeof *s->results +
                       sizeof *s->owners);
}

enum status rank_sampling_init(struct rank_sampling *s, struct comm *comm, uint32_t max_rows,
                               uint32_t vocab_size, struct err *err) {
    *s = (struct rank_sampling){
        .comm = comm,
        .vocab_size = vocab_size,
        .logits = malloc((size_t)max_rows * vocab_size * sizeof *s->logits),
        .rows = calloc(max_rows, sizeof *s->rows),
        .results = calloc(max_rows, sizeof *s->results),
        .owners = calloc(max_rows, sizeof *s->owners),
    };
    bool has_all = s->logits && s->rows && s->results && s->owners;
    return has_all ? OK : err_nomem(err, "sampling");
}

void rank_sampling_fini(struct rank_sampling *s) {
    free(s->logits);
    free(s->rows);
    free(s->results);
    free(s->owners);
    *s = (struct rank_sampling){0};
}

static uint32_t owner_of(const struct comm *comm, uint32_t slot) {
    return slot % comm->world_size;
}

bool rank_sampling_has_slot(const struct comm *comm, uint32_t slot) {
    return owner_of(comm, slot) == comm->rank;
}

void rank_sampling_run(struct rank_sampling *s, struct backend *backend,
                       const struct sample_args *args) {
    uint32_t count = 0, rank = s->comm->rank;
    for (uint32_t i = 0; i < args->num_rows; i++) {
        const struct sample_row *row = &args->rows[i];
        s->owners[i] = owner_of(s->comm, row->counts_slot ? row->counts_slot : i);
        if (s->owners[i] == rank) s->rows[count++] = *row;
    }
    comm_gather_rows(s->comm, backend, s->owners, args->num_rows, s->vocab_size, s->logits);
    if (count) {
        struct sample_args mine = *args;
        mine.logits = s->logits;
        mine.rows = s->rows;
        mine.results = s->results;
        mine.num_rows = count;
        backend->sampler->sample(backend, &mine);
    }
    const struct sample_result *result = s->results;
    for (uint32_t i = 0; i < args->num_rows; i++) {
        if (s->owners[i] == rank) args->results[i] = *result++;
    }
    comm_share_results(s->comm, s->owners, args->num_rows, args->results, sizeof *args->results);
}

const float *rank_sampling_gather(struct rank_sampling *s, struct backend *backend,
                                  uint32_t num_rows) {
    for (uint32_t i = 0; i < num_rows; i++) s->owners[i] = 0;
    comm_gather_rows(s->comm, backend, s->owners, num_rows, s->vocab_size, s->logits);
    comm_barrier(s->comm); // before a rank overwrites its logits
    return s->comm->rank == 0 ? s->logits : NULL;
}
