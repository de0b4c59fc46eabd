/* A runner's start on a device: loads its kernels, times its matrix products, records its steps. */
#include "base/check.h"
#include "base/log.h"
#include "engine/step/model_runner_internal.h"

enum { WARM_ROWS_STEP = 16, WARM_ROWS_MANY = 512 };

// Records the pass of a step of decodes, in the place of an earlier recording of its size.
// nano-vllm: capture_cudagraph.
static enum status try_record(struct model_runner *r, const struct step *step,
                              struct step_graph *graph, struct err *err) {
    const struct backend_queue *queue = r->backend->queue;
    enum status status = queue->graph_begin(r->backend, err);
    if (status) return status;
    r->logits = decoder_forward(r->decoder, r->cache, step);
    graph->logits = r->logits;
    status = queue->graph_end(r->backend, &graph->forward, err);
    if (status || (status = queue->graph_begin(r->backend, err))) return status;
    model_runner_sample_rows(r, step);
    return queue->graph_end(r->backend, &graph->sample, err);
}

// If it fails, warns: such steps and larger ones are to run eagerly. A larger one may still be
// running.
static void record(struct model_runner *r, const struct step *step, uint32_t index) {
    struct err why = {0};
    if (!try_record(r, step, &r->graphs[index], &why)) return;
    (void)!r->backend->ops->synchronize(r->backend, NULL);
    while (r->num_graphs > index) {
        model_runner_drop_recording(r, &r->graphs[--r->num_graphs]);
    }
    log_warning("steps of %u %s and more are not recorded, they run slower: %s", step->num_seqs,
                has_drafts(step) ? "rows with drafts" : "sequences", why.message);
}

// The next of the row counts for which a device may choose different kernels: 1 to 16 by doubling,
// multiples of 16, from 512 on by doubling again, and max_num_tokens as the last.
static uint32_t next_warm_rows(const struct model_runner *r, uint32_t rows) {
    bool doubles = rows < WARM_ROWS_STEP || rows >= WARM_ROWS_MANY;
    uint32_t next = doubles ? (rows ? rows * 2 : 1) : rows + WARM_ROWS_STEP;
    return next < r->max_num_tokens ? next : r->max_num_tokens;
}

// Takes seconds where the device times its matrix products, and says so then.
static void warm_up_linears(struct model_runner *r) {
    struct log_progress progress = {0};
    uint32_t total = 0, done = 0;
    const struct backend_queue *queue = r->backend->queue;
    if (r->full_warm_up && queue->wait_loaded) queue->wait_loaded(r->backend);
    r->backend->leaves_loading = !r->full_warm_up;
    for (uint32_t rows = 0; rows < r->max_num_tokens; total++) rows = next_warm_rows(r, rows);
    for (uint32_t rows = 0; rows < r->max_num_tokens;) {
        rows = next_warm_rows(r, rows);
        decoder_warm_up_linears(r->decoder, rows);
        done++;
        if (!r->backend->num_timed) continue;
        log_progress(&progress, done, total,
                     "first start of this model on %s: timing matrix products",
                     r->backend->description);
    }
    r->backend->leaves_loading = false;
    log_progress_end(&progress);
}

// A step of padding alone, built in `batch`.
static struct step padding_of(const struct model_runner *r, struct batch *batch, uint32_t num_seqs,
                              bool drafts) {
    const struct schedule nothing = {.num_draft_tokens = drafts};
    batch_build(batch, &nothing, 1, NULL, num_seqs);
    return bind_step(r, batch->header);
}

// Whether steps of decodes of this size are warmed up before the first request: those of few rows,
// which answer it, and the largest, for a burst of requests. A recording takes some 3 ms.
static bool is_first(const struct model_runner *r, uint32_t num_seqs, bool drafts) {
    uint32_t largest = drafts ? graph_index(r->draft_rows) : r->num_plain_graphs - 1;
    return r->full_warm_up || num_seqs <= GRAPH_ROWS_STEP || graph_index(num_seqs) == largest;
}

// Loads the kernels of a step of decodes.
static enum status warm_up_decodes(struct model_runner *r, struct batch *batch, uint32_t num_seqs,
                                   bool drafts, struct err *err) {
    const struct backend_ops *ops = r->backend->ops;
    if (!is_first(r, num_seqs, drafts)) return OK;
    if (!comm_is_alive(r->comm)) return err_set(err, ERR_DEVICE, "another rank was lost");
    const struct step step = padding_of(r, batch, num_seqs, drafts);
    const struct update_tables_args nothing = batch_table_update(batch->header, r->batch, NULL);
    ops->upload(r->backend, r->batch, batch->header, batch->header->size_bytes);
    ops->update_tables(r->backend, &nothing);
    r->logits = decoder_warm_up_step(r->decoder, r->cache, &step);
    model_runner_sample_rows(r, &step);
    model_runner_download_results(r, &step, 0);
    return ops->synchronize(r->backend, err);
}

enum status model_runner_warm_up(struct model_runner *r, struct batch *batch, struct err *err) {
    if (!r->backend->queue || !samples_on_device(r)) return OK;
    // Rank 0 alone times, and the others take its choices.
    if (r->comm->rank > 0) {
        comm_minimum(r->comm, 0);
        r->backend->queue->timings_read(r->backend);
    }
    warm_up_linears(r);
    if (r->comm->rank == 0 && r->comm->world_size > 1) {
        r->backend->queue->timings_write(r->backend);
        comm_minimum(r->comm, 0);
    }
    for (uint32_t num_seqs = 0; num_seqs < r->max_num_logits;) {
        num_seqs = padded_seqs(r->max_num_logits, num_seqs + 1);
        enum status status = warm_up_decodes(r, batch, num_seqs, false, err);
        if (!status && num_seqs > 1 && num_seqs <= r->draft_rows) {
            status = warm_up_decodes(r, batch, num_seqs, true, err);
        }
        if (status) return status;
    }
    return OK;
}

uint32_t model_runner_num_sizes(const struct model_runner *r) {
    return r->num_graphs;
}

uint32_t model_runner_num_unrecorded(const struct model_runner *r) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < r->num_graphs; i++) count += !r->graphs[i].sample;
    return count;
}

// The sequences of a size, padding included.
static uint32_t seqs_of(const struct model_runner *r, uint32_t index, bool *drafts) {
    *drafts = index >= r->num_plain_graphs;
    uint32_t rows = graph_rows(*drafts ? index - r->num_plain_graphs + 1 : index);
    return padded_seqs(r->max_num_logits, rows);
}

enum status model_runner_record(struct model_runner *r, struct batch *batch, uint32_t index,
                                struct err *err) {
    bool drafts;
    uint32_t num_seqs = seqs_of(r, index, &drafts);
    const struct step step = padding_of(r, batch, num_seqs, drafts);
    record(r, &step, index);
    return r->backend->ops->synchronize(r->backend, err);
}

enum status model_runner_record_first(struct model_runner *r, struct batch *batch,
                                      struct err *err) {
    enum status status = OK;
    for (uint32_t i = 0; i < r->num_graphs && !status; i++) {
        bool drafts;
        uint32_t num_seqs = seqs_of(r, i, &drafts);
        if (is_first(r, num_seqs, drafts)) status = model_runner_record(r, batch, i, err);
    }
    return status;
}

void model_runner_record_later(struct model_runner *r, struct batch *batch, uint32_t num_seqs,
                               bool drafts) {
    struct step_graph *graph = graph_place(r, num_seqs, drafts);
    if (!graph || graph->sample || !graph->has_run) return;
    const struct step step = padding_of(r, batch, num_seqs, drafts);
    record(r, &step, (uint32_t)(graph - r->graphs));
}
