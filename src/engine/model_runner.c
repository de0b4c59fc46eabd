#include "engine/model_runner.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"

enum { GRAPH_ROWS_STEP = 16 };

// A step of so many padded decodes: run once as it is, which warms up what is done on a shape's
// first use, then recorded.
struct step_graph {
    struct backend_graph *graph;
    const float *logits; // dev, that the recorded pass writes
    bool is_warm;
};

struct slot {
    struct sample_result *results; // host [max_num_logits]
    struct backend_event *done; // NULL where the backend has no events
};

struct model_runner {
    struct backend *backend;
    struct comm comm;
    struct decoder *decoder;
    struct kv_cache *cache;
    uint32_t vocab_size;
    uint32_t max_num_logits;
    void *batch; // dev: copy of the flat batch
    struct sample_result *results; // dev [max_num_logits]
    float *sample_scratch; // dev
    struct slot slots[MODEL_RUNNER_SLOTS];
    struct step_graph *graphs; // [num_graphs], by graph_index; NULL: no steps are recorded
    uint32_t num_graphs;
    const float *logits; // dev, of the last pass
};

// 1, 2, 4, 8, 16, then every 16.
static uint32_t graph_index(uint32_t rows) {
    uint32_t index = 0;
    if (rows > GRAPH_ROWS_STEP) return 4 + (rows - 1) / GRAPH_ROWS_STEP;
    while (1u << index < rows) index++;
    return index;
}

static uint32_t graph_rows(uint32_t index) {
    return index <= 4 ? 1u << index : (index - 3) * GRAPH_ROWS_STEP;
}

uint32_t model_runner_padded_rows(const struct model_runner *r, uint32_t num_seqs) {
    if (!r->graphs) return 0;
    uint32_t rows = graph_rows(graph_index(num_seqs));
    return rows < r->max_num_logits ? rows : r->max_num_logits;
}

static enum status alloc_buffers(struct model_runner *r, const struct model_runner_limits *limits,
                                 struct err *err) {
    const struct backend_ops *ops = r->backend->ops;
    uint32_t rows = r->max_num_logits;
    void *results = NULL, *scratch = NULL;
    enum status status = ops->alloc(r->backend, limits->batch_bytes, &r->batch, err);
    if (status) return status;
    status = ops->alloc(r->backend, rows * sizeof *r->results, &results, err);
    if (status) return status;
    r->results = results;
    size_t floats = ops->sample_scratch_floats(r->backend, r->vocab_size, rows);
    status = ops->alloc(r->backend, floats * sizeof(float), &scratch, err);
    if (status) return status;
    r->sample_scratch = scratch;
    for (uint32_t i = 0; i < MODEL_RUNNER_SLOTS; i++) {
        struct slot *slot = &r->slots[i];
        void *host = NULL;
        status = ops->alloc_host(r->backend, rows * sizeof *slot->results, &host, err);
        slot->results = host;
        if (!status && ops->event_create) {
            status = ops->event_create(r->backend, &slot->done, err);
        }
        if (status) return status;
    }
    if (!ops->graph_begin || limits->enforce_eager) return OK;
    uint32_t num_graphs = graph_index(rows) + 1;
    r->graphs = calloc(num_graphs, sizeof *r->graphs);
    if (!r->graphs) return err_nomem(err, "recorded steps");
    r->num_graphs = num_graphs;
    return OK;
}

enum status model_runner_create(struct model_runner **out, const struct model_config *config,
                                struct weights *weights, struct backend *backend,
                                const struct model_runner_limits *limits, struct err *err) {
    *out = NULL;
    struct model_runner *r = calloc(1, sizeof *r);
    if (!r) return err_nomem(err, "model runner");
    *r = (struct model_runner){
        .backend = backend,
        .comm = comm_single(),
        .vocab_size = config->vocab_size,
        .max_num_logits = limits->decoder.max_num_logits,
    };
    enum status status =
        decoder_create(&r->decoder, config, weights, backend, &r->comm, &limits->decoder, err);
    if (status) goto fail;
    status = backend->ops->kv_cache_create(backend, &limits->kv_cache, &r->cache, err);
    if (status) goto fail;
    status = alloc_buffers(r, limits, err);
    if (status) goto fail;
    *out = r;
    return OK;
fail:
    model_runner_destroy(r);
    return status;
}

void model_runner_destroy(struct model_runner *r) {
    if (!r) return;
    const struct backend_ops *ops = r->backend->ops;
    ops->kv_cache_destroy(r->backend, r->cache);
    decoder_destroy(r->decoder);
    ops->release(r->backend, r->batch);
    ops->release(r->backend, r->results);
    ops->release(r->backend, r->sample_scratch);
    for (uint32_t i = 0; i < r->num_graphs; i++) ops->graph_destroy(r->backend, r->graphs[i].graph);
    for (uint32_t i = 0; i < MODEL_RUNNER_SLOTS; i++) {
        if (ops->event_destroy) ops->event_destroy(r->backend, r->slots[i].done);
        ops->release_host(r->backend, r->slots[i].results);
    }
    free(r->graphs);
    free(r);
}

size_t model_runner_workspace_bytes(const struct model_config *config,
                                    const struct decoder_shape *shape,
                                    const struct model_runner_limits *limits,
                                    const struct backend *backend) {
    uint32_t rows = limits->decoder.max_num_logits;
    size_t scratch = backend->ops->sample_scratch_floats(backend, config->vocab_size, rows);
    size_t rope = (size_t)limits->decoder.max_positions * config->head_dim * sizeof(float);
    return decoder_workspace_bytes(config, shape, &limits->decoder, backend) + rope +
           limits->batch_bytes + rows * sizeof(struct sample_result) + scratch * sizeof(float);
}

static void sample(struct model_runner *r, const struct batch_header *header,
                   const struct batch_arrays *dev) {
    const struct backend_ops *ops = r->backend->ops;
    ops->sample(r->backend, r->backend->stream,
                &(struct sample_args){
                    .logits = r->logits,
                    .rows = dev->rows,
                    .adjusts = dev->adjusts,
                    .results = r->results,
                    .num_rows = header->num_logits,
                    .vocab_size = r->vocab_size,
                    .scratch = r->sample_scratch,
                });
}

static void forward(struct model_runner *r, const struct batch_header *header,
                    const struct batch_arrays *dev) {
    r->logits = decoder_forward(r->decoder, r->cache,
                                &(struct decoder_input){
                                    .tokens = dev->tokens,
                                    .positions = dev->positions,
                                    .slot_mapping = dev->slot_mapping,
                                    .query_start = dev->query_start,
                                    .context_len = dev->context_len,
                                    .block_tables = dev->block_tables,
                                    .logit_index = dev->logit_index,
                                    .num_tokens = header->num_tokens,
                                    .num_seqs = header->num_seqs,
                                    .num_logits = header->num_logits,
                                    .block_table_stride = header->block_table_stride,
                                    .device_stride = &dev->header->block_table_stride,
                                    .max_query_len = header->max_query_len,
                                    .max_context_len = header->max_context_len,
                                    .previous = r->results,
                                });
}

static enum status record(struct model_runner *r, const struct batch_header *header,
                          const struct batch_arrays *dev, struct step_graph *step,
                          struct err *err) {
    const struct backend_ops *ops = r->backend->ops;
    enum status status = ops->graph_begin(r->backend, r->backend->stream, err);
    if (status) return status;
    forward(r, header, dev);
    sample(r, header, dev);
    step->logits = r->logits;
    return ops->graph_end(r->backend, r->backend->stream, &step->graph, err);
}

// From embedding to sampled ids, recorded where the batch has a recorded step's form.
static enum status run_step(struct model_runner *r, const struct batch_header *header,
                            const struct batch_arrays *dev, struct model_runner_times *times,
                            struct err *err) {
    bool is_decode = header->max_query_len == 1 && header->num_logits == header->num_seqs;
    struct step_graph *step = NULL;
    if (is_decode && header->num_seqs == model_runner_padded_rows(r, header->num_seqs)) {
        step = &r->graphs[graph_index(header->num_seqs)];
    }
    if (step && step->is_warm && !step->graph) {
        enum status status = record(r, header, dev, step, err);
        if (status) return status;
    }
    if (step && step->graph) {
        r->logits = step->logits;
        r->backend->ops->graph_launch(r->backend, r->backend->stream, step->graph);
        return OK;
    }
    double start = clock_seconds();
    forward(r, header, dev);
    double sampling = clock_seconds();
    times->forward_seconds += sampling - start;
    if (header->num_logits) sample(r, header, dev);
    times->sample_seconds += clock_seconds() - sampling;
    if (step) step->is_warm = true;
    return OK;
}

enum status model_runner_launch(struct model_runner *r, const struct batch_arrays *batch,
                                uint32_t slot, struct model_runner_times *times, struct err *err) {
    const struct backend_ops *ops = r->backend->ops;
    const struct batch_header *header = batch->header;
    const struct batch_arrays dev = batch_bind(header, r->batch);
    CHECK(slot < MODEL_RUNNER_SLOTS, "slot=%u", slot);
    ops->upload(r->backend, r->backend->stream, r->batch, batch->header, batch->size_bytes);
    enum status status = run_step(r, header, &dev, times, err);
    if (status) { // nobody will wait for what is on its way and reads the batch
        (void)!ops->synchronize(r->backend, r->backend->stream, NULL);
        return status;
    }
    ops->download(r->backend, r->backend->stream, r->slots[slot].results, r->results,
                  header->num_logits * sizeof *r->results);
    if (ops->event_record) ops->event_record(r->backend, r->backend->stream, r->slots[slot].done);
    return OK;
}

enum status model_runner_wait(struct model_runner *r, uint32_t slot,
                              const struct sample_result **results,
                              struct model_runner_times *times, struct err *err) {
    const struct backend_ops *ops = r->backend->ops;
    double start = clock_seconds();
    *results = r->slots[slot].results;
    enum status status = ops->event_wait ? ops->event_wait(r->backend, r->slots[slot].done, err)
                                         : ops->synchronize(r->backend, r->backend->stream, err);
    times->forward_seconds += clock_seconds() - start;
    return status;
}

enum status model_runner_read_logits(struct model_runner *r, float *out, uint32_t num_logits,
                                     struct err *err) {
    CHECK(r->logits && num_logits <= r->max_num_logits, "num_logits=%u", num_logits);
    r->backend->ops->download(r->backend, r->backend->stream, out, r->logits,
                              (size_t)num_logits * r->vocab_size * sizeof *out);
    return r->backend->ops->synchronize(r->backend, r->backend->stream, err);
}
