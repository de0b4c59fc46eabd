#include "engine/step/model_runner.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/log.h"
#include "base/os/clock.h"
#include "engine/executor/rank_sampling.h"

enum { GRAPH_ROWS_STEP = 16, WARM_ROWS_STEP = 16, WARM_ROWS_MANY = 512 };

// A recorded step of decodes, for one number of sequences. In two parts, because late masks come
// between them.
struct step_graph {
    struct backend_graph *forward, *sample; // both or none: NULL: such steps run eagerly
    const float *logits; // dev: where the recorded pass writes them
};

struct slot {
    struct sample_result *results; // host [max_num_logits], then those of prompts [max_num_tokens]
    struct backend_event *done; // NULL where the backend has no events
    bool is_sampled; // false from a launch until its sampling is enqueued
};

struct model_runner {
    struct backend *backend;
    struct comm alone; // used where the options bring none
    struct comm *comm;
    struct decoder *decoder;
    struct kv_cache *cache;
    uint32_t vocab_size;
    uint32_t max_num_logits, max_num_tokens;
    void *batch; // dev: copy of the flat batch
    // The device, or where it has no sampler a CPU, which works on downloaded logits.
    struct backend *sampler;
    struct token_counts *counts;
    float *sample_scratch; // of the sampler's backend
    float *host_logits; // [max_num_logits][vocab_size]; NULL where the device samples
    float *row_logits; // host [vocab_size]: of a row for on_row
    model_runner_row_fn on_row; // NULL: nobody takes them
    void *on_row_data;
    struct sample_result *results; // dev, laid out as a slot's; with several ranks in shared memory
    struct rank_sampling rank_sampling; // with several ranks
    struct slot slots[MODEL_RUNNER_SLOTS];
    struct step_graph *graphs; // [num_graphs], by graph_index
    uint32_t num_graphs; // sizes of steps that are recorded; a failure leaves the smaller ones
    uint64_t num_replays;
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

// Eager steps are padded too, so that they choose the same kernels as recorded ones.
static uint32_t padded_seqs(uint32_t max_num_seqs, uint32_t num_seqs) {
    uint32_t rows = graph_rows(graph_index(num_seqs));
    return rows < max_num_seqs ? rows : max_num_seqs;
}

uint32_t model_runner_padded_seqs(const struct model_runner_options *options, uint32_t num_seqs) {
    const struct decoder_options *decoder = &options->decoder;
    return decoder->backend->queue ? padded_seqs(decoder->limits.max_num_seqs, num_seqs) : 0;
}

static size_t num_results(const struct model_runner *r) {
    return (size_t)r->max_num_logits + r->max_num_tokens;
}

static enum status alloc_slot(struct model_runner *r, struct slot *slot, struct err *err) {
    void *host = NULL;
    size_t bytes = num_results(r) * sizeof *slot->results;
    enum status status = backend_alloc_host(r->backend, bytes, &host, err);
    slot->results = host;
    if (status || !r->backend->queue) return status;
    return r->backend->queue->event_create(r->backend, &slot->done, err);
}

static bool samples_on_device(const struct model_runner *r) {
    return r->sampler == r->backend;
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

static enum status alloc_buffers(struct model_runner *r, const struct model_runner_options *options,
                                 struct err *err) {
    const struct backend_ops *ops = r->backend->ops;
    uint32_t rows = r->max_num_logits;
    void *results = NULL;
    enum status status = ops->alloc(r->backend, options->batch_bytes, &r->batch, err);
    if (status) return status;
    void *row = NULL;
    status = backend_alloc_host(r->backend, r->vocab_size * sizeof *r->row_logits, &row, err);
    if (status) return status;
    r->row_logits = row;
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
    // A recorded step includes sampling: without a sampler on the device none is recorded.
    if (!r->backend->queue || !samples_on_device(r) || options->enforce_eager) return OK;
    uint32_t num_graphs = graph_index(rows) + 1;
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
        .max_num_logits = options->decoder.limits.max_num_seqs,
        .max_num_tokens = options->decoder.limits.max_num_tokens,
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

static void destroy_recording(struct model_runner *r, struct step_graph *graph) {
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
    if (r->rank_sampling.comm) {
        rank_sampling_fini(&r->rank_sampling);
    } else {
        ops->release(r->backend, r->results);
    }
    destroy_sampler(r);
    if (r->row_logits) backend_release_host(r->backend, r->row_logits);
    for (uint32_t i = 0; i < r->num_graphs; i++) {
        destroy_recording(r, &r->graphs[i]);
    }
    for (uint32_t i = 0; i < MODEL_RUNNER_SLOTS; i++) {
        if (queue) queue->event_destroy(r->backend, r->slots[i].done);
        backend_release_host(r->backend, r->slots[i].results);
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
    size_t rope = (size_t)d->limits.max_positions * d->config->head_dim * sizeof(float);
    return decoder_workspace_bytes(d->config, d->shape, &d->limits, d->backend) + rope +
           options->batch_bytes +
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

static void sample(struct model_runner *r, const struct step *step) {
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
        r->on_row(r->on_row_data, slot, first + i, shares ? gathered + at : r->row_logits);
    }
    return OK;
}

void model_runner_set_row_fn(struct model_runner *r, model_runner_row_fn on_row, void *user_data) {
    r->on_row = on_row;
    r->on_row_data = user_data;
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
    sample(r, step);
    return queue->graph_end(r->backend, &graph->sample, err);
}

// If it fails, warns: such steps and larger ones are to run eagerly.
static void record(struct model_runner *r, const struct step *step) {
    uint32_t index = graph_index(step->num_seqs);
    struct err why = {0};
    if (!try_record(r, step, &r->graphs[index], &why)) return;
    while (r->num_graphs > index) {
        destroy_recording(r, &r->graphs[--r->num_graphs]);
    }
    log_warning("steps of %u sequences and more are not recorded, they run slower: %s",
                step->num_seqs, why.message);
}

// The recorded step that serves this one; NULL: none does.
static const struct step_graph *graph_of(const struct model_runner *r, const struct step *step) {
    bool is_decode = step->max_query_len == 1 && step->num_logits == step->num_seqs;
    if (!is_decode || step->num_prompt_logits) return NULL;
    if (step->num_seqs != padded_seqs(r->max_num_logits, step->num_seqs)) return NULL;
    uint32_t index = graph_index(step->num_seqs);
    return index < r->num_graphs && r->graphs[index].sample ? &r->graphs[index] : NULL;
}

// From embedding to logits. nano-vllm: run_model.
static void run_forward(struct model_runner *r, const struct step *step,
                        struct model_runner_times *times) {
    const struct step_graph *graph = graph_of(r, step);
    if (graph) {
        r->logits = graph->logits;
        r->num_replays++;
        r->backend->queue->graph_launch(r->backend, graph->forward);
        return;
    }
    double start = clock_seconds();
    r->logits = decoder_forward(r->decoder, r->cache, step);
    times->forward_seconds += clock_seconds() - start;
}

// From logits to sampled ids, on the device. nano-vllm: the sampler.
static void run_sampling(struct model_runner *r, const struct step *step,
                         struct model_runner_times *times) {
    const struct step_graph *graph = graph_of(r, step);
    if (graph) {
        r->backend->queue->graph_launch(r->backend, graph->sample);
        return;
    }
    double start = clock_seconds();
    if (step->num_logits && samples_on_device(r)) sample(r, step);
    times->sample_seconds += clock_seconds() - start;
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
    log_progress_end(&progress);
}

// A step of padding alone, built in `batch`.
static struct step padding_of(const struct model_runner *r, struct batch *batch,
                              uint32_t num_seqs) {
    const struct schedule nothing = {0};
    batch_build(batch, &nothing, 1, NULL, num_seqs);
    struct step step = batch_bind(batch->header, r->batch);
    step.previous = r->results;
    return step;
}

// Loads the kernels of a step of decodes.
static enum status warm_up_decodes(struct model_runner *r, struct batch *batch, uint32_t num_seqs,
                                   struct err *err) {
    const struct backend_ops *ops = r->backend->ops;
    if (!comm_is_alive(r->comm)) return err_set(err, ERR_DEVICE, "another rank was lost");
    const struct step step = padding_of(r, batch, num_seqs);
    ops->upload(r->backend, r->batch, batch->header, batch->header->size_bytes);
    r->logits = decoder_warm_up_step(r->decoder, r->cache, &step);
    sample(r, &step);
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
        enum status status = warm_up_decodes(r, batch, num_seqs, err);
        if (status) return status;
    }
    return OK;
}

uint32_t model_runner_num_sizes(const struct model_runner *r) {
    return r->num_graphs;
}

enum status model_runner_record(struct model_runner *r, struct batch *batch, uint32_t first,
                                uint32_t end, struct err *err) {
    if (!r->num_graphs) return OK;
    for (uint32_t i = first; i < end && i < r->num_graphs; i++) {
        const struct step step =
            padding_of(r, batch, padded_seqs(r->max_num_logits, graph_rows(i)));
        record(r, &step);
    }
    return r->backend->ops->synchronize(r->backend, err);
}

enum status model_runner_set_cache(struct model_runner *r, const struct kv_cache_spec *spec,
                                   struct err *err) {
    const struct backend_ops *ops = r->backend->ops;
    ops->kv_cache_destroy(r->backend, r->cache);
    r->cache = NULL;
    return ops->kv_cache_create(r->backend, spec, &r->cache, err);
}

// Samples the last launch and enqueues the download of its results.
static enum status finish_launch(struct model_runner *r, const struct batch_header *batch,
                                 uint32_t slot, struct model_runner_times *times, struct err *err) {
    const struct backend_ops *ops = r->backend->ops;
    const struct step step = batch_bind(batch, r->batch);
    const struct step host = batch_bind(batch, (void *)(uintptr_t)batch);
    struct sample_result *results = r->slots[slot].results;
    enum status status = OK;
    run_sampling(r, &step, times);
    if (samples_on_device(r)) {
        ops->download(r->backend, results, r->results, step.num_logits * sizeof *results);
    } else if (step.num_logits) {
        status = sample_on_host(r, &host, results, err);
    }
    if (!status && step.num_prompt_logits) {
        double start = clock_seconds();
        status = sample_prompts(r, &step, &host, slot, err);
        times->sample_seconds += clock_seconds() - start;
    }
    r->slots[slot].is_sampled = true;
    if (status) return status;
    if (r->backend->queue) r->backend->queue->event_record(r->backend, r->slots[slot].done);
    return OK;
}

enum status model_runner_launch(struct model_runner *r, const struct batch_header *batch,
                                uint32_t slot, struct model_runner_times *times, struct err *err) {
    struct step step = batch_bind(batch, r->batch);
    step.previous = r->results;
    CHECK(slot < MODEL_RUNNER_SLOTS, "slot=%u", slot);
    bool is_late = batch->num_late_masks > 0;
    r->backend->ops->upload(r->backend, r->batch, batch, batch_launch_bytes(batch));
    r->slots[slot].is_sampled = false;
    run_forward(r, &step, times);
    return is_late ? OK : finish_launch(r, batch, slot, times, err);
}

enum status model_runner_sample(struct model_runner *r, const struct batch_header *batch,
                                uint32_t slot, struct model_runner_times *times, struct err *err) {
    CHECK(!r->slots[slot].is_sampled, "slot=%u", slot);
    r->backend->ops->upload(r->backend, (char *)r->batch + batch->masks_at,
                            (const char *)batch + batch->masks_at,
                            batch->size_bytes - batch->masks_at);
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
    return queue ? queue->event_wait(r->backend, r->slots[slot].done, err)
                 : r->backend->ops->synchronize(r->backend, err);
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
