/* Host side of sampling: its memory, and the token counts of sequences. */
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda_ops.h"
#include "backend/cuda/ranks/collective.h"
#include "base/check.h"

void cuda_sample(struct backend *backend, const struct sample_args *args) {
    struct cuda_backend *cuda = cuda_backend_of(backend);
    struct cuda_logit_slices slices, *cut = NULL;
    if (args->collective) {
        cut = &slices;
        cuda_collective_slices(cuda, args->collective, args->num_rows, cut);
    }
    cuda_sample_scan_launch(args, cut, &cuda->info, cuda->stream);
    // The second half needs the scans of all ranks.
    if (cut && cut->num_shared) cuda_collective_barrier(backend, args->collective);
    cuda_sample_finish_launch(args, cut, &cuda->info, cuda->stream);
}

size_t cuda_scratch_floats(const struct backend *backend, uint32_t vocab_size, uint32_t num_rows) {
    (void)backend;
    return cuda_sample_scratch_floats(vocab_size, num_rows);
}

static size_t count_bytes(uint32_t num_slots, uint32_t vocab_size) {
    return (size_t)num_slots * vocab_size * sizeof(uint32_t);
}

size_t cuda_counts_bytes(const struct backend *backend, uint32_t num_slots, uint32_t vocab_size,
                         uint32_t max_ids) {
    (void)backend;
    return count_bytes(num_slots, vocab_size) + max_ids * sizeof(int32_t);
}

enum status cuda_counts_create(struct backend *backend, uint32_t num_slots, uint32_t vocab_size,
                               uint32_t max_ids, struct token_counts **out, struct err *err) {
    enum status status = OK;
    *out = NULL;
    struct token_counts *counts = calloc(1, sizeof *counts);
    if (!counts) return err_nomem(err, "token counts");
    *counts =
        (struct token_counts){.num_slots = num_slots, .vocab_size = vocab_size, .max_ids = max_ids};
    counts->host_ids = malloc(max_ids * sizeof *counts->host_ids);
    if (!counts->host_ids) {
        status = err_nomem(err, "token counts");
        goto fail;
    }
    CU(cudaMalloc((void **)&counts->counts, count_bytes(num_slots, vocab_size)));
    CU(cudaMalloc((void **)&counts->ids, max_ids * sizeof *counts->ids));
    *out = counts;
    return OK;
fail:
    cuda_counts_destroy(backend, counts);
    return status;
}

void cuda_counts_destroy(struct backend *backend, struct token_counts *counts) {
    (void)backend;
    if (!counts) return;
    cudaFree(counts->counts);
    cudaFree(counts->ids);
    free(counts->host_ids);
    free(counts);
}

void cuda_counts_begin(struct backend *backend, struct token_counts *counts, uint32_t slot,
                       const int32_t *ids, uint32_t num_prompt, uint32_t num_ids) {
    struct cuda_backend *cuda = cuda_enter(backend);
    CHECK(slot > 0 && slot <= counts->num_slots && num_ids <= counts->max_ids, "slot=%u num_ids=%u",
          slot, num_ids);
    uint32_t *row = counts->counts + (size_t)(slot - 1) * counts->vocab_size;
    cuda_check(cuda, cudaMemsetAsync(row, 0, counts->vocab_size * sizeof *row, cuda->stream),
               "clearing token counts");
    // CUDA reads pageable memory before the copy's call returns. `ids` may be pinned: that would be
    // read later, when the caller may have changed it.
    memcpy(counts->host_ids, ids, num_ids * sizeof *ids);
    cuda_check(cuda,
               cudaMemcpyAsync(counts->ids, counts->host_ids, num_ids * sizeof *ids,
                               cudaMemcpyHostToDevice, cuda->stream),
               "upload of token ids");
    cuda_count_tokens_launch(row, counts->ids, num_prompt, num_ids, cuda->stream);
}
