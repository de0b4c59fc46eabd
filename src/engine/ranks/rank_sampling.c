#include "engine/ranks/rank_sampling.h"

#include <stdlib.h>

size_t rank_sampling_bytes(uint32_t max_rows, uint32_t vocab_size) {
    const struct rank_sampling *s = NULL;
    return max_rows * (vocab_size * sizeof *s->logits + sizeof *s->rows + sizeof *s->results +
                       sizeof *s->indices);
}

enum status rank_sampling_init(struct rank_sampling *s, struct comm *comm, uint32_t max_rows,
                               uint32_t vocab_size, struct err *err) {
    *s = (struct rank_sampling){
        .comm = comm,
        .vocab_size = vocab_size,
        .logits = malloc((size_t)max_rows * vocab_size * sizeof *s->logits),
        .rows = calloc(max_rows, sizeof *s->rows),
        .results = calloc(max_rows, sizeof *s->results),
        .indices = calloc(max_rows, sizeof *s->indices),
    };
    bool has_all = s->logits && s->rows && s->results && s->indices;
    return has_all ? OK : err_nomem(err, "sampling");
}

void rank_sampling_fini(struct rank_sampling *s) {
    free(s->logits);
    free(s->rows);
    free(s->results);
    free(s->indices);
    *s = (struct rank_sampling){0};
}

bool rank_sampling_has_slot(const struct comm *comm, uint32_t slot) {
    return slot % comm->world_size == comm->rank;
}

void rank_sampling_run(struct rank_sampling *s, struct backend *backend,
                       const struct sample_args *args) {
    uint32_t count = 0;
    comm_barrier(s->comm); // all logits are there
    for (uint32_t i = 0; i < args->num_rows; i++) {
        const struct sample_row *row = &args->rows[i];
        if (!rank_sampling_has_slot(s->comm, row->counts_slot ? row->counts_slot : i)) continue;
        comm_gather_logits(s->comm, backend, i, s->logits + (size_t)count * s->vocab_size);
        s->rows[count] = *row;
        s->indices[count++] = i;
    }
    if (count) {
        struct sample_args mine = *args;
        mine.logits = s->logits;
        mine.rows = s->rows;
        mine.results = s->results;
        mine.num_rows = count;
        backend->sampler->sample(backend, &mine);
    }
    for (uint32_t i = 0; i < count; i++) args->results[s->indices[i]] = s->results[i];
    comm_barrier(s->comm); // all results are there
}
