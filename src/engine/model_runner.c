#include "engine/model_runner.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"

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
    struct sample_result *host_results; // [max_num_logits]
    const float *logits; // dev, of the last pass
};

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
    r->host_results = calloc(rows, sizeof *r->host_results);
    return r->host_results ? OK : err_nomem(err, "sample results");
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
    free(r->host_results);
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
    ops->download(r->backend, r->backend->stream, r->host_results, r->results,
                  header->num_logits * sizeof *r->results);
}

enum status model_runner_execute(struct model_runner *r, const struct batch_arrays *batch,
                                 const struct sample_result **results,
                                 struct model_runner_times *times, struct err *err) {
    const struct batch_header *header = batch->header;
    const struct batch_arrays dev = batch_bind(header, r->batch);
    double start = clock_seconds();
    r->backend->ops->upload(r->backend, r->backend->stream, r->batch, batch->header,
                            batch->size_bytes);
    r->logits = decoder_forward(r->decoder, r->cache,
                                &(struct decoder_input){
                                    .tokens = dev.tokens,
                                    .positions = dev.positions,
                                    .slot_mapping = dev.slot_mapping,
                                    .query_start = dev.query_start,
                                    .context_len = dev.context_len,
                                    .block_tables = dev.block_tables,
                                    .logit_index = dev.logit_index,
                                    .num_tokens = header->num_tokens,
                                    .num_seqs = header->num_seqs,
                                    .num_logits = header->num_logits,
                                    .block_table_stride = header->block_table_stride,
                                    .max_query_len = header->max_query_len,
                                    .max_context_len = header->max_context_len,
                                });
    double sampling = clock_seconds();
    times->forward_seconds += sampling - start;
    if (header->num_logits) sample(r, header, &dev);
    enum status status = r->backend->ops->synchronize(r->backend, r->backend->stream, err);
    times->sample_seconds += clock_seconds() - sampling;
    *results = r->host_results;
    return status;
}

enum status model_runner_read_logits(struct model_runner *r, float *out, uint32_t num_logits,
                                     struct err *err) {
    CHECK(r->logits && num_logits <= r->max_num_logits, "num_logits=%u", num_logits);
    r->backend->ops->download(r->backend, r->backend->stream, out, r->logits,
                              (size_t)num_logits * r->vocab_size * sizeof *out);
    return r->backend->ops->synchronize(r->backend, r->backend->stream, err);
}
