#include <stdlib.h>

#include "base/check.h"
#include "base/os/clock.h"
#include "engine/step/model_runner_internal.h"

uint32_t model_runner_padded_seqs(const struct model_runner_options *options, uint32_t num_seqs) {
    const struct decoder_options *decoder = &options->decoder;
    return decoder->backend->queue ? padded_seqs(decoder->limits.max_num_seqs, num_seqs) : 0;
}

bool model_runner_shares_prefixes(const struct model_runner_options *options) {
    const struct decoder_options *decoder = &options->decoder;
    const struct backend_ops *ops = decoder->backend->ops;
    const struct layer_table *table = decoder->table;
    if (table->num_kv_groups != 1 || table->kv_windows[0]) return false;
    for (uint32_t i = 0; i < table->num_layers; i++) {
        if (table->layers[i].softcap != 0 || table->layers[i].has_sinks) return false;
    }
    return ops->shares_prefixes && ops->shares_prefixes(decoder->backend, &options->kv_cache);
}

static size_t num_results(const struct model_runner *r) {
    return (size_t)r->max_num_logits + r->max_num_tokens;
}

static size_t hidden_bytes(const struct model_runner *r) {
    return r->hidden_size * dtype_size(r->backend->activation_dtype);
}

static enum status alloc_slot(struct model_runner *r, struct slot *slot, struct err *err) {
    void *host = NULL, *pooled = NULL;
    size_t bytes = num_results(r) * sizeof *slot->results;
    enum status status = backend_alloc_host(r->backend, bytes, &host, err);
    slot->results = host;
    if (status) return status;
    status = backend_alloc_host(r->backend, POOLED_ROWS * hidden_bytes(r), &pooled, err);
    slot->pooled = pooled;
    if (status || !r->backend->queue) return status;
    return r->backend->queue->event_create(r->backend, &slot->done, err);
}

static enum status make_sampler(struct model_runner *r, const struct model_runner_options *options,
                                struct err *err) {
    uint32_t rows = r->max_num_logits;
    void *scratch = NULL, *logits = NULL;
    enum status status = OK;
    r->sampler = r->backend;
    if (!r->backend->sampler) {
        const struct backend_options cpu = {.device = "cpu", .weight_dtype = DTYPE_F32};
        r->sampler = NULL;
        if ((status = backend_create(&r->sampler, &cpu, err))) return status;
        size_t bytes = (size_t)rows * r->vocab_size * sizeof *r->host_logits;
        if ((status = backend_alloc_host(r->backend, bytes, &logits, err))) return status;
        r->host_logits = logits;
    }
    const struct backend_sampler *ops = r->sampler->sampler;
    size_t floats = ops->scratch_floats(r->sampler, r->vocab_size, rows);
    status = r->sampler->ops->alloc(r->sampler, floats * sizeof(float), &scratch, err);
    if (status) return status;
    r->sample_scratch = scratch;
    return ops->counts_create(r->sampler, rows, r->vocab_size,
                              options->decoder.limits.max_positions, &r->counts, err);
}

static void destroy_sampler(struct model_runner *r) {
    if (!r->sampler) return;
    r->sampler->ops->release(r->sampler, r->sample_scratch);
    r->sampler->sampler->counts_destroy(r->sampler, r->counts);
    if (samples_on_device(r)) return;
    backend_release_host(r->backend, r->host_logits);
    backend_destroy(r->sampler);
}

static size_t tables_bytes(const struct step_limits *limits) {
    size_t rows = (size_t)limits->num_kv_groups * limits->max_num_seqs;
    return rows * limits->max_blocks_per_seq * sizeof(int32_t);
}

static enum status alloc_buffers(struct model_runner *r, const struct model_runner_options *options,
                                 struct err *err) {
    const struct backend_ops *ops = r->backend->ops;
    uint32_t rows = r->max_num_logits;
    void *results = NULL, *tables = NULL;
    enum status status = ops->alloc(r->backend, options->batch_bytes, &r->batch, err);
    if (status) return status;
    status = ops->alloc(r->backend, tables_bytes(&options->decoder.limits), &tables, err);
    if (status) return status;
    r->block_tables = tables;
    void *row = NULL;
    status = backend_alloc_host(r->backend, r->vocab_size * sizeof *r->row_logits, &row, err);
    if (status) return status;
    r->row_logits = row;
    r->hidden = malloc(r->hidden_size * sizeof *r->hidden);
    if (!r->hidden) return err_nomem(err, "hidden states");
    if (options->shared_results) {
        r->results = options->shared_results;
        status = rank_sampling_init(&r->rank_sampling, r->comm, rows, r->vocab_size, err);
    } else {
        status = ops->alloc(r->backend, num_results(r) * sizeof *r->results, &results, err);
        r->results = results;
    }
    if (status) return status;
    if ((status = make_sampler(r, options, err))) return status;
    for (uint32_t i = 0; i < MODEL_RUNNER_SLOTS; i++) {
        if ((status = alloc_slot(r, &r->slots[i], err))) return status;
    }
    r->num_plain_graphs = graph_index(options->max_num_seqs) + 1;
    // A recorded step includes sampling: without a sampler on the device none is recorded.
    if (!r->backend->queue || !samples_on_device(r) || options->enforce_eager) return OK;
    uint32_t num_graphs = r->num_plain_graphs;
    if (r->draft_rows) num_graphs += graph_index(r->draft_rows); // from 2 rows on
    r->graphs = calloc(num_graphs, sizeof *r->graphs);
    if (!r->graphs) return err_nomem(err, "recorded steps");
    r->num_graphs = num_graphs;
    return OK;
}

enum status model_runner_create(struct model_runner **out,
                                const struct model_runner_options *options, struct weights *weights,
                                struct err *err) {
    *out = NULL;
    struct model_runner *r = calloc(1, sizeof *r);
    if (!r) return err_nomem(err, "model runner");
    struct backend *backend = options->decoder.backend;
    *r = (struct model_runner){
        .backend = backend,
        .alone = comm_single(),
        .vocab_size = options->decoder.config->vocab_size,
        .hidden_size = options->decoder.config->hidden_size,
        .max_num_logits = options->decoder.limits.max_num_seqs,
        .max_num_tokens = options->decoder.limits.max_num_tokens,
        .table_stride = options->decoder.limits.max_blocks_per_seq,
        .draft_rows = options->draft_rows,
        .full_warm_up = options->full_warm_up,
    };
    struct decoder_options decoder = options->decoder;
    if (!decoder.comm) decoder.comm = &r->alone;
    r->comm = decoder.comm;
    enum status status = decoder_create(&r->decoder, &decoder, weights, err);
    if (status) goto fail;
    status = backend->ops->kv_cache_create(backend, &options->kv_cache, &r->cache, err);
    if (status) goto fail;
    status = alloc_buffers(r, options, err);
    if (status) goto fail;
    *out = r;
    return OK;
fail:
    model_runner_destroy(r);
    return status;
}

void model_runner_drop_recording(struct model_runner *r, struct step_graph *graph) {
    r->backend->queue->graph_destroy(r->backend, graph->forward);
    r->backend->queue->graph_destroy(r->backend, graph->sample);
    *graph = (struct step_graph){0};
}

void model_runner_destroy(struct model_runner *r) {
    if (!r) return;
    const struct backend_ops *ops = r->backend->ops;
    const struct backend_queue *queue = r->backend->queue;
    ops->kv_cache_destroy(r->backend, r->cache);
    decoder_destroy(r->decoder);
    ops->release(r->backend, r->batch);
    ops->release(r->backend, r->block_tables);
    if (r->rank_sampling.comm) {
        rank_sampling_fini(&r->rank_sampling);
    } else {
        ops->release(r->backend, r->results);
    }
    destroy_sampler(r);
    if (r->row_logits) backend_release_host(r->backend, r->row_logits);
    free(r->hidden);
    for (uint32_t i = 0; i < r->num_graphs; i++) {
        model_runner_drop_recording(r, &r->graphs[i]);
    }
    for (uint32_t i = 0; i < MODEL_RUNNER_SLOTS; i++) {
        if (queue) queue->event_destroy(r->backend, r->slots[i].done);
        backend_release_host(r->backend, r->slots[i].results);
        backend_release_host(r->backend, r->slots[i].pooled);
    }
    free(r->graphs);
    free(r);
}

struct comm *model_runner_comm(struct model_runner *r) {
    return r->comm;
}

size_t model_runner_workspace_bytes(const struct model_runner_options *options) {
    const struct decoder_options *d = &options->decoder;
    const struct backend_sampler *sampler = d->backend->sampler;
    uint32_t rows = d->limits.max_num_seqs, vocab_size = d->config->vocab_size;
    size_t sampling = 0;
    if (sampler) {
        sampling = sampler->scratch_floats(d->backend, vocab_size, rows) * sizeof(float) +
                   sampler->counts_bytes(d->backend, rows, vocab_size, d->limits.max_positions);
    }
    return decoder_workspace_bytes(d->config, d->table, d->shape, &d->limits, d->backend) +
           options->batch_bytes + tables_bytes(&d->limits) +
           ((size_t)rows + d->limits.max_num_tokens) * sizeof(struct sample_result) + sampling;
}

static struct sample_args sample_args_of(const struct model_runner *r, const struct step *step) {
    return (struct sample_args){
        .logits = r->logits,
        .collective = comm_collective(r->comm),
        .rows = step->rows,
        .biases = step->biases,
        .masks = step->masks,
        .counts = r->counts,
        .results = r->results,
        .num_rows = step->num_logits,
        .vocab_size = r->vocab_size,
        .scratch = r->sample_scratch,
    };
}

static void run_sampler(struct model_runner *r, const struct sample_args *args) {
    if (r->rank_sampling.comm) {
        rank_sampling_run(&r->rank_sampling, r->sampler, args);
    } else {
        r->sampler->sampler->sample(r->sampler, args);
    }
}

void model_runner_sample_rows(struct model_runner *r, const struct step *step) {
    const struct sample_args args = sample_args_of(r, step);
    run_sampler(r, &args);
}

// For a device without a sampler: logits to the host, ids back. `host` is the step as the host has
// it.
static enum status sample_on_host(struct model_runner *r, const struct step *host,
                                  struct sample_result *results, struct err *err) {
    const struct backend_ops *ops = r->backend->ops;
    struct sample_args args = sample_args_of(r, host);
    ops->download(r->backend, r->host_logits, r->logits,
                  (size_t)args.num_rows * r->vocab_size * sizeof *r->host_logits);
    enum status status = ops->synchronize(r->backend, err);
    if (status) return status;
    args.logits = r->host_logits;
    args.results = results;
    r->sampler->sampler->sample(r->sampler, &args);
    ops->upload(r->backend, r->results, results, args.num_rows * sizeof *results);
    return OK;
}

static bool is_whole(const struct sample_row *row) {
    return row->num_top > SAMPLE_TOP_MAX;
}

static bool has_whole(const struct sample_row *rows, uint32_t num_rows) {
    for (uint32_t i = 0; i < num_rows; i++) {
        if (is_whole(&rows[i])) return true;
    }
    return false;
}

// Brings the logits of rows whose whole vocabulary is wanted to the host. They were sampled, and
// are rows `first` and following of the slot's prompt rows. rows: host [num_rows]; logits: dev, as
// decoder_logits gave them.
static enum status read_rows(struct model_runner *r, uint32_t slot, uint32_t first,
                             const struct sample_row *rows, uint32_t num_rows, const float *logits,
                             struct err *err) {
    const struct backend_ops *ops = r->backend->ops;
    bool shares = r->rank_sampling.comm != NULL;
    const float *gathered = NULL;
    if (!has_whole(rows, num_rows)) return OK;
    if (shares) gathered = rank_sampling_gather(&r->rank_sampling, r->backend, num_rows);
    for (uint32_t i = 0; i < num_rows; i++) {
        if (!is_whole(&rows[i])) continue;
        size_t at = (size_t)i * r->vocab_size;
        if (!shares) {
            if (r->comm->world_size > 1) {
                comm_gather_logits(r->comm, r->backend, i, r->row_logits);
            } else {
                ops->download(r->backend, r->row_logits, logits + at,
                              r->vocab_size * sizeof *r->row_logits);
            }
            enum status status = ops->synchronize(r->backend, err);
            if (status) return status;
        }
        if (!r->on_row) continue;
        r->on_row(r->row_data, slot, first + i, shares ? gathered + at : r->row_logits);
    }
    return OK;
}

void model_runner_set_row_fns(struct model_runner *r, model_runner_row_fn on_row,
                              model_runner_hidden_fn on_hidden, void *user_data) {
    r->on_row = on_row;
    r->on_hidden = on_hidden;
    r->row_data = user_data;
}

// A row of activations as floats.
static const float *hidden_row(struct model_runner *r, const char *row) {
    if (r->backend->activation_dtype == DTYPE_F32) return (const float *)(const void *)row;
    for (uint32_t i = 0; i < r->hidden_size; i++) {
        uint16_t value;
        memcpy(&value, row + i * sizeof value, sizeof value);
        r->hidden[i] = bf16_to_f32(value);
    }
    return r->hidden;
}

// Hands out the rows of a slot, which are on the host. `first`: number of the first in the batch.
static void take_pooled(struct model_runner *r, uint32_t slot, uint32_t first) {
    uint32_t num_rows = r->slots[slot].num_pooled;
    r->slots[slot].num_pooled = 0;
    for (uint32_t i = 0; i < num_rows; i++) {
        const char *row = r->slots[slot].pooled + i * hidden_bytes(r);
        r->on_hidden(r->row_data, slot, first + i, hidden_row(r, row));
    }
}

// Brings the hidden states of the pooled rows to the host. They are whole on every rank. If a slot
// has room for all of them, they arrive with the step's results, so the next step can be launched
// before. Otherwise this waits for the device, and hands them out.
static enum status read_pooled(struct model_runner *r, const struct step *step, uint32_t slot,
                               struct err *err) {
    const struct backend_ops *ops = r->backend->ops;
    uint32_t most = r->max_num_logits < POOLED_ROWS ? r->max_num_logits : POOLED_ROWS;
    if (!r->on_hidden) return OK;
    for (uint32_t start = 0, rows; start < step->num_pooled; start += rows) {
        uint32_t left = step->num_pooled - start;
        rows = left < most ? left : most;
        const void *hidden = decoder_hidden(r->decoder, step->pool_index + start, rows);
        ops->download(r->backend, r->slots[slot].pooled, hidden, rows * hidden_bytes(r));
        r->slots[slot].num_pooled = rows;
        if (step->num_pooled <= most) return OK;
        enum status status = ops->synchronize(r->backend, err);
        if (status) return status;
        // A mean adds up rows in the order of steps, and the step before may not be finished.
        take_pooled(r, (slot + 1) % MODEL_RUNNER_SLOTS, 0);
        take_pooled(r, slot, start);
    }
    return OK;
}

// Samples rows of prompts, as many at a time as there is room for logits. `host` is the step as the
// host has it. The results are on the host when the step is done.
static enum status sample_prompts(struct model_runner *r, const struct step *step,
                                  const struct step *host, uint32_t slot, struct err *err) {
    const struct backend_ops *ops = r->backend->ops;
    struct sample_result *results = r->slots[slot].results + r->max_num_logits;
    enum status status = OK;
    bool on_device = samples_on_device(r);
    struct sample_args args = sample_args_of(r, on_device ? step : host);
    for (uint32_t start = 0; start < step->num_prompt_logits; start += args.num_rows) {
        uint32_t left = step->num_prompt_logits - start;
        args.num_rows = left < r->max_num_logits ? left : r->max_num_logits;
        args.rows = (on_device ? step : host)->prompt_rows + start;
        // Waits until no rank reads the logits of the previous rows any more.
        if (args.collective) comm_barrier(r->comm);
        args.results = (on_device ? r->results + r->max_num_logits : results) + start;
        const float *logits = decoder_logits(r->decoder, step->prompt_index + start, args.num_rows);
        args.logits = logits;
        if (!on_device) {
            ops->download(r->backend, r->host_logits, logits,
                          (size_t)args.num_rows * r->vocab_size * sizeof *r->host_logits);
            if ((status = ops->synchronize(r->backend, err))) return status;
            args.logits = r->host_logits;
        }
        run_sampler(r, &args);
        status = read_rows(r, slot, start, host->prompt_rows + start, args.num_rows, logits, err);
        if (status) return status;
    }
    if (on_device) {
        ops->download(r->backend, results, r->results + r->max_num_logits,
                      step->num_prompt_logits * sizeof *results);
    }
    return OK;
}

void model_runner_begin_counts(struct model_runner *r, uint32_t slot, const int32_t *ids,
                               uint32_t num_prompt, uint32_t num_ids) {
    if (r->rank_sampling.comm && !rank_sampling_has_slot(r->comm, slot)) return;
    r->sampler->sampler->counts_begin(r->sampler, r->counts, slot, ids, num_prompt, num_ids);
}

// Where the step that serves this one is recorded, or will be; NULL: none does.
static struct step_graph *graph_of(const struct model_runner *r, const struct step *step) {
    bool is_decode = step->num_tokens == step->num_seqs && step->num_logits == step->num_seqs;
    if (!is_decode || step->num_prompt_logits || step->shared.num) return NULL;
    if (step->num_snapshots) return NULL; // a prompt's last token alone may leave one
    if (step->num_seqs != padded_seqs(r->max_num_logits, step->num_seqs)) return NULL;
    return graph_place(r, step->num_seqs, has_drafts(step));
}

// From embedding to logits. nano-vllm: run_model.
static void run_forward(struct model_runner *r, const struct step *step,
                        struct model_runner_times *times) {
    struct step_graph *graph = graph_of(r, step);
    if (graph && graph->forward) {
        r->logits = graph->logits;
        r->num_replays++;
        r->backend->queue->graph_launch(r->backend, graph->forward);
        return;
    }
    double start = clock_seconds();
    r->logits = decoder_forward(r->decoder, r->cache, step);
    if (graph) graph->has_run = true;
    times->forward_seconds += clock_seconds() - start;
}

// From logits to sampled ids, on the device. nano-vllm: the sampler.
static void run_sampling(struct model_runner *r, const struct step *step,
                         struct model_runner_times *times) {
    const struct step_graph *graph = graph_of(r, step);
    if (graph && graph->sample) {
        r->backend->queue->graph_launch(r->backend, graph->sample);
        return;
    }
    double start = clock_seconds();
    if (step->num_logits && samples_on_device(r)) model_runner_sample_rows(r, step);
    times->sample_seconds += clock_seconds() - start;
}

enum status model_runner_set_cache(struct model_runner *r, const struct kv_cache_spec *spec,
                                   struct err *err) {
    const struct backend_ops *ops = r->backend->ops;
    ops->kv_cache_destroy(r->backend, r->cache);
    r->cache = NULL;
    return ops->kv_cache_create(r->backend, spec, &r->cache, err);
}

void model_runner_download_results(struct model_runner *r, const struct step *step, uint32_t slot) {
    const struct backend_sampler *sampler = r->backend->sampler;
    struct sample_result *host = r->slots[slot].results;
    if (sampler->download_results) {
        sampler->download_results(r->backend, host, r->results, step->rows, step->num_logits);
    } else {
        r->backend->ops->download(r->backend, host, r->results, step->num_logits * sizeof *host);
    }
}

// Samples the last launch and enqueues the download of its results.
static enum status finish_launch(struct model_runner *r, const struct batch_header *batch,
                                 uint32_t slot, struct model_runner_times *times, struct err *err) {
    const struct step step = bind_step(r, batch);
    const struct step host = batch_bind(batch, (void *)(uintptr_t)batch);
    struct sample_result *results = r->slots[slot].results;
    enum status status = OK;
    run_sampling(r, &step, times);
    if (samples_on_device(r)) {
        model_runner_download_results(r, &step, slot);
    } else if (step.num_logits) {
        status = sample_on_host(r, &host, results, err);
    }
    if (!status && step.num_prompt_logits) {
        double start = clock_seconds();
        status = sample_prompts(r, &step, &host, slot, err);
        times->sample_seconds += clock_seconds() - start;
    }
    if (!status && step.num_pooled) status = read_pooled(r, &step, slot, err);
    if (status) return status;
    if (r->backend->queue) r->backend->queue->event_record(r->backend, r->slots[slot].done);
    r->slots[slot].is_sampled = true;
    return OK;
}

enum status model_runner_launch(struct model_runner *r, const struct batch_header *batch,
                                uint32_t slot, struct model_runner_times *times, struct err *err) {
    const struct backend_ops *ops = r->backend->ops;
    const struct step step = bind_step(r, batch);
    const struct update_tables_args update = batch_table_update(batch, r->batch, r->block_tables);
    CHECK(slot < MODEL_RUNNER_SLOTS, "slot=%u", slot);
    bool is_late = batch->num_late_masks > 0;
    ops->upload(r->backend, r->batch, batch, batch_launch_bytes(batch));
    if (update.num_runs) ops->update_tables(r->backend, &update);
    r->slots[slot].is_sampled = false;
    r->slots[slot].num_pooled = 0;
    run_forward(r, &step, times);
    return is_late ? OK : finish_launch(r, batch, slot, times, err);
}

enum status model_runner_sample(struct model_runner *r, const struct batch_header *batch,
                                uint32_t slot, struct model_runner_times *times, struct err *err) {
    CHECK(!r->slots[slot].is_sampled, "slot=%u", slot);
    char *dev = (char *)r->batch + batch->masks_at;
    const char *host = (const char *)batch + batch->masks_at;
    size_t bytes = batch->size_bytes - batch->masks_at;
    if (r->backend->queue) {
        // Sampling the launch before has read the masks last.
        struct backend_event *after = r->slots[(slot + 1) % MODEL_RUNNER_SLOTS].done;
        r->backend->queue->upload_beside(r->backend, after, dev, host, bytes);
    } else {
        r->backend->ops->upload(r->backend, dev, host, bytes);
    }
    return finish_launch(r, batch, slot, times, err);
}

bool model_runner_is_done(const struct model_runner *r, uint32_t slot) {
    const struct backend_queue *queue = r->backend->queue;
    if (!r->slots[slot].is_sampled) return false;
    return !queue || queue->event_is_done(r->backend, r->slots[slot].done);
}

enum status model_runner_wait(struct model_runner *r, uint32_t slot,
                              const struct sample_result **results,
                              const struct sample_result **prompt_results, struct err *err) {
    const struct backend_queue *queue = r->backend->queue;
    *results = r->slots[slot].results;
    *prompt_results = *results + r->max_num_logits;
    // If sampling failed, `done` is that of an earlier step, and the device may still run this one.
    enum status status = !queue || !r->slots[slot].is_sampled
                             ? r->backend->ops->synchronize(r->backend, err)
                             : queue->event_wait(r->backend, r->slots[slot].done, err);
    if (!status) take_pooled(r, slot, 0);
    return status;
}

uint64_t model_runner_num_replays(const struct model_runner *r) {
    return r->num_replays;
}

enum status model_runner_read_logits(struct model_runner *r, float *out, uint32_t num_logits,
                                     struct err *err) {
    CHECK(r->logits && num_logits <= r->max_num_logits, "num_logits=%u", num_logits);
    if (r->comm->world_size > 1) {
        for (uint32_t i = 0; i < num_logits; i++) {
            comm_gather_logits(r->comm, r->backend, i, out + (size_t)i * r->vocab_size);
        }
        return r->backend->ops->synchronize(r->backend, err);
    }
    r->backend->ops->download(r->backend, out, r->logits,
                              (size_t)num_logits * r->vocab_size * sizeof *out);
    return r->backend->ops->synchronize(r->backend, err);
}
