#include "backend/cuda/ranks/collective.h"

#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda_ops.h"
#include "backend/cuda/ranks/nccl.h"
#include "base/check.h"

enum {
    ALIGN = 256,
    // Measured (doc/parallel.md). Larger inboxes would cost more memory and save little time.
    SMALL_BYTES_OF_TWO = 16 << 20,
    // What goes over a link in the time of a large sum's meetings, 8 us.
    MEETING_BYTES = 5 << 19,
};

// What other ranks need to reach this one.
struct card {
    uint32_t is_p2p;
    int num_sms; // all ranks launch the same grids
    cudaIpcMemHandle_t memory; // with p2p
    struct nccl_id id; // without p2p: only rank 0's counts
};
_Static_assert(sizeof(struct card) <= COLLECTIVE_CARD_BYTES, "a card is larger than its place");

// Where things are in the one allocation of each rank.
struct layout {
    struct cuda_ranks ranks; // its offsets alone
    size_t logits_at; // float [max_num_logits][widest slice]
    size_t shared_at; // with p2p: the results of all ranks' scans of logits
    size_t gathered_at; // without p2p: float [world_size][max_num_logits][widest slice]
    size_t size_bytes;
    uint32_t widest; // slice of the vocabulary
};

struct collective {
    struct collective_spec spec;
    struct layout layout;
    bool is_p2p;
    int num_sms;
    struct cuda_ranks ranks; // with p2p all ranks, else this rank alone
    char *memory; // dev, this rank's
    struct nccl nccl;
};

// The GPU of a rank of the same host.
static enum status gpu_of(const struct backend *backend, const struct collective_spec *spec,
                          uint32_t rank, uint32_t *gpu, struct err *err) {
    const struct cuda_backend *cuda = cuda_backend_of(backend);
    int count = 0;
    if (cudaGetDeviceCount(&count)) (void)cudaGetLastError();
    return gpu_choice_of_rank(&cuda->gpus, cuda->rank_on_host - spec->rank + rank, (uint32_t)count,
                              gpu, err);
}

static bool reaches(const struct backend *backend, const struct collective_spec *spec, uint32_t a,
                    uint32_t b) {
    uint32_t from, to;
    int can = 0;
    if (gpu_of(backend, spec, a, &from, NULL) || gpu_of(backend, spec, b, &to, NULL)) return false;
    if (from == to) return true;
    if (cudaDeviceCanAccessPeer(&can, (int)from, (int)to)) (void)cudaGetLastError();
    return can != 0;
}

static bool is_p2p(const struct backend *backend, const struct collective_spec *spec) {
    if (spec->kind == COLLECTIVE_LIBRARY || !spec->is_one_host) return false;
    if (spec->world_size > CUDA_RANKS_MAX) return false;
    for (uint32_t a = 0; a < spec->world_size; a++) {
        for (uint32_t b = 0; b < spec->world_size; b++) {
            if (!reaches(backend, spec, a, b)) return false;
        }
    }
    return true;
}

static size_t take(size_t *size, size_t bytes) {
    size_t at = *size;
    *size += (bytes + ALIGN - 1) / ALIGN * ALIGN;
    return at;
}

// The largest part of a small sum. There a rank of n sends n - 1 parts. In a large sum it sends
// 2 (n - 1) / n parts, but meets the others twice. With two ranks that is as much. With more, sums
// are small while what they send beyond large ones takes less time than meetings: an estimate.
static size_t small_bytes_max(uint32_t n) {
    if (n == 2) return SMALL_BYTES_OF_TWO;
    return (size_t)MEETING_BYTES * n / ((n - 1) * (n - 2));
}

// Two inboxes for each of the others.
static size_t inbox_bytes(const struct collective_spec *spec, const struct layout *l) {
    return 2 * (spec->world_size - 1) * l->ranks.small_bytes;
}

static struct layout lay_out(const struct collective_spec *spec, bool is_p2p) {
    struct layout l = {0};
    size_t size = 0;
    CHECK(spec->world_size > 1, "world_size=%u", spec->world_size);
    for (uint32_t r = 0; r < spec->world_size; r++) {
        uint32_t slice = spec->vocab_start[r + 1] - spec->vocab_start[r];
        if (slice > l.widest) l.widest = slice;
    }
    size_t counts = CUDA_REDUCE_BLOCKS + 1;
    l.ranks.flags_at = take(&size, CUDA_RANKS_MAX * counts * sizeof(uint32_t));
    l.ranks.counts_at = take(&size, (counts + CUDA_REDUCE_SMALL_ROWS) * sizeof(uint32_t));
    l.ranks.lost_at = take(&size, sizeof(uint32_t));
    size_t sum_bytes = (size_t)spec->max_num_tokens * spec->hidden * sizeof(uint16_t);
    size_t small = small_bytes_max(spec->world_size);
    l.ranks.small_bytes = (small < sum_bytes ? small : sum_bytes) / ALIGN * ALIGN;
    if (is_p2p) {
        l.ranks.exchange_at = take(&size, (size_t)2 * spec->world_size * CUDA_DECODE_ROWS *
                                              spec->hidden * sizeof(uint64_t));
        l.ranks.inbox_at = take(&size, inbox_bytes(spec, &l));
        l.shared_at = take(&size, cuda_sample_shared_bytes(spec->vocab_start[spec->world_size],
                                                           spec->max_num_logits));
    }
    l.ranks.partial_at = take(&size, sum_bytes);
    size_t logits_bytes = (size_t)spec->max_num_logits * l.widest * sizeof(float);
    l.logits_at = take(&size, logits_bytes);
    if (!is_p2p) l.gathered_at = take(&size, spec->world_size * logits_bytes);
    l.size_bytes = size;
    return l;
}

const struct cuda_ranks *cuda_collective_ranks(const struct collective *c) {
    return c->is_p2p ? &c->ranks : NULL;
}

static size_t collective_bytes(const struct backend *backend, const struct collective_spec *spec) {
    return lay_out(spec, is_p2p(backend, spec)).size_bytes;
}

static void collective_destroy(struct backend *backend, struct collective *c) {
    if (!c) return;
    cuda_enter(backend);
    // Before the ranks are connected, memory[0] is this rank's own.
    for (uint32_t r = 0; c->is_p2p && r < c->spec.world_size; r++) {
        char *memory = c->ranks.memory[r];
        if (memory && memory != c->memory) cudaIpcCloseMemHandle(memory);
    }
    nccl_close(&c->nccl);
    cudaFree(c->memory);
    free(c);
}

static enum status check_spec(const struct backend *backend, const struct collective_spec *spec,
                              bool is_p2p, struct err *err) {
    for (uint32_t r = 0; spec->is_one_host && r < spec->world_size; r++) {
        uint32_t gpu;
        enum status status = gpu_of(backend, spec, r, &gpu, err);
        if (status) return status;
    }
    if (spec->kind == COLLECTIVE_P2P && !is_p2p) {
        return err_set(err, ERR_UNSUPPORTED,
                       "comm is p2p, but the %u GPUs do not all reach each other's memory (at most "
                       "%u of one host can)",
                       spec->world_size, CUDA_RANKS_MAX);
    }
    const struct cuda_backend *cuda = cuda_backend_of(backend);
    if (!is_p2p && gpu_choice_num_sharing(&cuda->gpus, (uint32_t)cuda->device) > 1) {
        return err_set(err, ERR_UNSUPPORTED,
                       "NCCL wants a GPU for each rank, and several share GPU %d", cuda->device);
    }
    if (spec->hidden % 8) {
        return err_set(err, ERR_UNSUPPORTED, "hidden_size %u: GPUs need a multiple of 8",
                       spec->hidden);
    }
    for (uint32_t r = 0; r < spec->world_size; r++) {
        if (spec->vocab_start[r] % 4 == 0) continue;
        return err_set(err, ERR_UNSUPPORTED, "a vocabulary of %u is too small for %u GPUs",
                       spec->vocab_start[spec->world_size], spec->world_size);
    }
    return OK;
}

static enum status write_card(struct collective *c, void *out, struct err *err) {
    enum status status = OK;
    struct card card = {.is_p2p = c->is_p2p, .num_sms = c->num_sms};
    if (c->is_p2p) {
        CU(cudaIpcGetMemHandle(&card.memory, c->memory));
    } else {
        status = nccl_open(&c->nccl, err);
        if (!status && c->spec.rank == 0) status = nccl_make_id(&c->nccl, &card.id, err);
    }
    memcpy(out, &card, sizeof card);
fail:
    return status;
}

static enum status collective_create(struct backend *backend, const struct collective_spec *spec,
                                     struct collective **out, void *card, struct err *err) {
    struct cuda_backend *cuda = cuda_enter(backend);
    *out = NULL;
    bool p2p = is_p2p(backend, spec);
    enum status status = check_spec(backend, spec, p2p, err);
    if (status) return status;
    struct collective *c = calloc(1, sizeof *c);
    if (!c) return err_nomem(err, "ranks");
    c->spec = *spec;
    c->is_p2p = p2p;
    c->num_sms = cuda->info.num_sms;
    c->layout = lay_out(spec, p2p);
    CU(cudaMalloc((void **)&c->memory, c->layout.size_bytes));
    CU(cudaMemsetAsync(c->memory, 0, c->layout.size_bytes, cuda->stream));
    if (p2p) {
        CU(cudaMemsetAsync(c->memory + c->layout.ranks.inbox_at, CUDA_REDUCE_ABSENT_BYTE,
                           inbox_bytes(spec, &c->layout), cuda->stream));
    }
    CU(cudaStreamSynchronize(cuda->stream)); // before another rank writes to it
    c->ranks = c->layout.ranks;
    c->ranks.has_failed = spec->has_failed;
    c->ranks.world_size = 1; // until the others are connected
    c->ranks.memory[0] = c->memory;
    status = write_card(c, card, err);
    if (status) goto fail;
    *out = c;
    return OK;
fail:
    collective_destroy(backend, c);
    return status;
}

static enum status collective_connect(struct backend *backend, struct collective *c,
                                      const void *cards, struct err *err) {
    enum status status = OK;
    cuda_enter(backend);
    uint32_t world_size = c->spec.world_size, own = c->spec.rank;
    struct card card = {0};
    for (uint32_t r = 0; r < world_size; r++) {
        memcpy(&card, (const char *)cards + (size_t)r * COLLECTIVE_CARD_BYTES, sizeof card);
        if (card.num_sms == c->num_sms && card.is_p2p == c->is_p2p) continue;
        return err_set(err, ERR_UNSUPPORTED, "the GPUs of ranks %u and %u are not of one kind", own,
                       r);
    }
    if (!c->is_p2p) {
        memcpy(&card, cards, sizeof card);
        return nccl_connect(&c->nccl, &card.id, own, world_size, c->spec.has_failed, err);
    }
    c->ranks.memory[0] = NULL;
    c->ranks.rank = own;
    c->ranks.world_size = world_size;
    c->ranks.memory[own] = c->memory;
    for (uint32_t r = 0; r < world_size; r++) {
        if (r == own) continue;
        memcpy(&card, (const char *)cards + (size_t)r * COLLECTIVE_CARD_BYTES, sizeof card);
        void *memory = NULL;
        CU(cudaIpcOpenMemHandle(&memory, card.memory, cudaIpcMemLazyEnablePeerAccess));
        c->ranks.memory[r] = memory;
    }
fail:
    return status;
}

static void collective_stop_waiting(struct collective *c) {
    nccl_stop_waiting(&c->nccl); // kernels of ours look at has_failed
}

static void *collective_partial(struct collective *c) {
    return c->memory + c->layout.ranks.partial_at;
}

static void collective_reduce_add(struct backend *backend, struct collective *c,
                                  const struct reduce_add_args *args) {
    struct cuda_backend *cuda = cuda_backend_of(backend);
    size_t count = (size_t)args->rows * args->cols;
    CHECK(args->rows <= c->spec.max_num_tokens && args->cols == c->spec.hidden, "%u x %u",
          args->rows, args->cols);
    const struct cuda_reduce reduce = {
        .ranks = c->ranks,
        .residual = args->residual,
        .norm = args->norm,
        .out = args->out,
        .rows = args->rows,
        .cols = args->cols,
        .is_first = args->is_first,
        .eps = args->eps,
    };
    bool is_small = c->is_p2p && args->rows <= CUDA_REDUCE_SMALL_ROWS &&
                    count * sizeof(uint16_t) <= c->ranks.small_bytes;
    if (is_small) {
        cuda_reduce_small_launch(&reduce, &cuda->info, cuda->stream);
        return;
    }
    if (!c->is_p2p) nccl_sum(&c->nccl, cuda, collective_partial(c), count);
    cuda_reduce_large_launch(&reduce, &cuda->info, cuda->stream);
}

static float *collective_logits(struct collective *c) {
    return (float *)(void *)(c->memory + c->layout.logits_at);
}

void cuda_collective_slices(struct cuda_backend *cuda, struct collective *c, uint32_t num_rows,
                            struct cuda_logit_slices *out) {
    uint32_t world_size = c->spec.world_size;
    *out = (struct cuda_logit_slices){.count = world_size, .scan_count = world_size};
    for (uint32_t r = 0; r <= world_size; r++) out->start[r] = (int32_t)c->spec.vocab_start[r];
    if (c->is_p2p) {
        out->scan_first = out->own = c->spec.rank;
        out->scan_count = 1;
        out->num_shared = world_size;
        for (uint32_t r = 0; r < world_size; r++) {
            out->logits[r] = (const float *)(void *)(c->ranks.memory[r] + c->layout.logits_at);
            out->shared[r] = c->ranks.memory[r] + c->layout.shared_at;
        }
        return;
    }
    // NCCL gathers parts of equal size: each is as large as the widest slice, and a narrower
    // slice's rows are at its beginning.
    size_t count = (size_t)num_rows * c->layout.widest;
    float *gathered = (float *)(void *)(c->memory + c->layout.gathered_at);
    nccl_gather(&c->nccl, cuda, collective_logits(c), gathered, count);
    for (uint32_t r = 0; r < world_size; r++) out->logits[r] = gathered + r * count;
}

static void collective_gather_logits(struct backend *backend, struct collective *c, uint32_t row,
                                     float *host) {
    struct cuda_backend *cuda = cuda_enter(backend);
    struct cuda_logit_slices slices;
    cuda_collective_slices(cuda, c, row + 1, &slices);
    for (uint32_t r = 0; r < c->spec.world_size; r++) {
        size_t slice = (size_t)(slices.start[r + 1] - slices.start[r]);
        cuda_check(cuda,
                   cudaMemcpyAsync(host + slices.start[r], slices.logits[r] + row * slice,
                                   slice * sizeof *host, cudaMemcpyDefault, cuda->stream),
                   "download of logits");
    }
}

void cuda_collective_barrier(struct backend *backend, struct collective *c) {
    struct cuda_backend *cuda = cuda_backend_of(backend);
    if (c->is_p2p) cuda_ranks_meet_launch(&c->ranks, &cuda->info, cuda->stream);
    // NCCL's operations keep ranks in step by themselves, and nobody reads another's memory.
}

const struct backend_collective cuda_collective = {
    .library = "nccl",
    .bytes = collective_bytes,
    .create = collective_create,
    .connect = collective_connect,
    .destroy = collective_destroy,
    .stop_waiting = collective_stop_waiting,
    .partial = collective_partial,
    .reduce_add = collective_reduce_add,
    .logits = collective_logits,
    .gather_logits = collective_gather_logits,
    .barrier = cuda_collective_barrier,
};
