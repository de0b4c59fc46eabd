#include "support/fake_device.h"

#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/device_list.h"
#include "base/check.h"

enum command_kind {
    COPY,
    UPDATE_TABLES,
    EMBED,
    RMS_NORM,
    LINEAR,
    ATTENTION_PREPARE,
    ATTENTION,
    GATED_DELTA,
    SILU_MUL,
    SIGMOID_MUL,
    SCALE,
    SOFTCAP,
    GATHER_ROWS,
    SAMPLE,
    COUNTS_BEGIN,
    GRAPH,
    NUM_KINDS,
};

struct copy {
    void *to;
    const void *from;
    size_t bytes;
};

struct counts_begin {
    struct token_counts *counts;
    uint32_t slot;
    const int32_t *ids; // the device's copy
    uint32_t num_prompt, num_ids;
};

// Ops borrow the step only during the call, so a command has a copy of it.
struct command {
    enum command_kind kind;
    struct step step;
    union {
        struct copy copy;
        struct embed_args embed;
        struct rms_norm_args rms_norm;
        struct linear_args linear;
        struct attention_args attention;
        struct gated_delta_args gated_delta;
        struct silu_mul_args silu_mul;
        struct sigmoid_mul_args sigmoid_mul;
        struct scale_args scale;
        struct softcap_args softcap;
        struct gather_rows_args gather_rows;
        struct update_tables_args update_tables;
        struct sample_args sample;
        struct counts_begin counts_begin;
        struct backend_graph *graph;
    } as;
};

struct backend_event {
    uint64_t at; // number of commands enqueued before it
};

struct backend_graph {
    size_t taken_bytes;
    uint32_t num_commands;
    struct command commands[]; // [num_commands]
};

enum { QUEUE_MAX = 4096, RECORD_MAX = 512, IDS_MAX = 1 << 15, HEAD_BYTES = 64 };

static struct fake {
    const struct backend_ops *cpu;
    const struct backend_sampler *cpu_sampler;
    const struct backend_recurrent *cpu_recurrent;
    struct backend_recurrent recurrent;
    struct backend_ops ops;
    struct command queue[QUEUE_MAX]; // ring: a command's number modulo QUEUE_MAX
    uint64_t num_enqueued, num_run;
    int32_t ids[IDS_MAX]; // copies for COUNTS_BEGIN
    uint32_t num_ids;
    struct command recorded[RECORD_MAX];
    uint32_t num_recorded;
    bool is_recording, is_broken, times_linears;
    bool has_run[NUM_KINDS]; // outside recordings
    size_t memory_bytes, cache_bytes, graph_bytes, later_graph_bytes;
    uint32_t num_early_graphs; // that take graph_bytes
    enum fake_fault fault;
    uint32_t occasions_left;
    bool has_failed;
    struct fake_device_counts counts;
} fake = {.memory_bytes = (size_t)2 << 30};

void fake_device_reset(void) {
    memset(&fake, 0, sizeof fake);
    fake.memory_bytes = (size_t)2 << 30;
}

void fake_device_fail_at(enum fake_fault fault, uint32_t n) {
    fake.fault = fault;
    fake.occasions_left = n;
    fake.has_failed = false;
}

int fake_device_has_failed(void) {
    return fake.has_failed;
}

void fake_device_set_memory(size_t bytes) {
    fake.memory_bytes = bytes;
}

void fake_device_set_timing(void) {
    fake.times_linears = true;
}

void fake_device_set_graph_bytes(size_t bytes) {
    fake.graph_bytes = fake.later_graph_bytes = bytes;
}

void fake_device_set_later_graph_bytes(uint32_t n, size_t bytes) {
    fake.num_early_graphs = n - 1;
    fake.later_graph_bytes = bytes;
}

struct fake_device_counts fake_device_counts(void) {
    return fake.counts;
}

static bool fails(enum fake_fault fault) {
    if (fake.fault != fault || fake.occasions_left == 0 || --fake.occasions_left) return false;
    fake.has_failed = true;
    return true;
}

// A device's kernels read the lengths from device memory, because the host's are old in a recorded
// step. Sequences without context pad a step; they come last and are not run.
static void run_attention(struct backend *backend, const struct command *command) {
    struct step step = command->step;
    struct attention_args args = command->as.attention;
    args.step = &step;
    while (step.num_seqs && step.context_len[step.num_seqs - 1] == 0) step.num_seqs--;
    step.num_tokens = (uint32_t)step.query_start[step.num_seqs];
    step.max_query_len = step.max_context_len = 0;
    for (uint32_t i = 0; i < step.num_seqs; i++) {
        uint32_t context_len = (uint32_t)step.context_len[i];
        uint32_t query_len = (uint32_t)(step.query_start[i + 1] - step.query_start[i]);
        if (context_len > step.max_context_len) step.max_context_len = context_len;
        if (query_len > step.max_query_len) step.max_query_len = query_len;
    }
    fake.cpu->attention(backend, &args);
}

static void run_embed(struct backend *backend, const struct command *command) {
    struct embed_args args = command->as.embed;
    args.step = &command->step;
    fake.cpu->embed(backend, &args);
}

static void run_attention_prepare(struct backend *backend, const struct command *command) {
    struct attention_args args = command->as.attention;
    args.step = &command->step;
    fake.cpu->attention_prepare(backend, &args);
}

static void run_gated_delta(struct backend *backend, const struct command *command) {
    struct gated_delta_args args = command->as.gated_delta;
    args.step = &command->step;
    fake.cpu_recurrent->gated_delta(backend, &args);
}

// An op whose arguments need nothing more.
#define RUN(command_kind, op)                                                                      \
    case command_kind:                                                                             \
        fake.cpu->op(b, &command->as.op);                                                          \
        return

static void run_simple(struct backend *b, const struct command *command) {
    const struct counts_begin *counts = &command->as.counts_begin;
    switch (command->kind) {
        RUN(RMS_NORM, rms_norm);
        RUN(LINEAR, linear);
        RUN(SILU_MUL, silu_mul);
        RUN(SIGMOID_MUL, sigmoid_mul);
        RUN(SCALE, scale);
        RUN(SOFTCAP, softcap);
        RUN(GATHER_ROWS, gather_rows);
        RUN(UPDATE_TABLES, update_tables);
    case COPY:
        memcpy(command->as.copy.to, command->as.copy.from, command->as.copy.bytes);
        return;
    case EMBED:
        run_embed(b, command);
        return;
    case ATTENTION_PREPARE:
        run_attention_prepare(b, command);
        return;
    case ATTENTION:
        run_attention(b, command);
        return;
    case GATED_DELTA:
        run_gated_delta(b, command);
        return;
    case SAMPLE:
        fake.cpu_sampler->sample(b, &command->as.sample);
        return;
    case COUNTS_BEGIN:
        fake.cpu_sampler->counts_begin(b, counts->counts, counts->slot, counts->ids,
                                       counts->num_prompt, counts->num_ids);
        return;
    case GRAPH:
    case NUM_KINDS:
        CHECK(false, "command %d inside a graph", (int)command->kind);
        return;
    }
}

static void run(struct backend *backend, const struct command *command) {
    if (fails(FAKE_FAULT_RUN)) fake.is_broken = true;
    if (fake.is_broken) return;
    if (command->kind != GRAPH) {
        fake.has_run[command->kind] = true;
        run_simple(backend, command);
        return;
    }
    const struct backend_graph *g = command->as.graph;
    for (uint32_t i = 0; i < g->num_commands; i++) run_simple(backend, &g->commands[i]);
}

static void run_until(struct backend *backend, uint64_t at) {
    while (fake.num_run < at) run(backend, &fake.queue[fake.num_run++ % QUEUE_MAX]);
}

static void enqueue(struct backend *backend, const struct command *command) {
    if (fake.is_recording) {
        CHECK(fake.num_recorded < RECORD_MAX && command->kind != COPY && command->kind != GRAPH,
              "command %d cannot be recorded", (int)command->kind);
        fake.recorded[fake.num_recorded++] = *command;
        fake.counts.num_recorded_cold += !fake.has_run[command->kind];
        return;
    }
    if (fake.num_enqueued - fake.num_run == QUEUE_MAX) run_until(backend, fake.num_run + 1);
    fake.queue[fake.num_enqueued++ % QUEUE_MAX] = *command;
}

static enum status report(struct err *err) {
    if (!fake.is_broken) return OK;
    fake.num_run = fake.num_enqueued; // a broken device runs nothing any more
    return err_set(err, ERR_DEVICE, "the fake device is broken");
}

static enum status fake_synchronize(struct backend *backend, struct err *err) {
    fake.counts.num_synchronized++;
    CHECK(!fake.is_recording, "waiting inside a recording");
    run_until(backend, fake.num_enqueued);
    return report(err);
}

// In front of an allocation stands how large it is.
static enum status fake_alloc(struct backend *backend, size_t bytes, void **dev, struct err *err) {
    void *whole = NULL;
    if (fails(FAKE_FAULT_CREATE)) return err_nomem(err, "fake device");
    enum status status = fake.cpu->alloc(backend, bytes + HEAD_BYTES, &whole, err);
    if (status) return status;
    char *memory = whole;
    memcpy(memory, &bytes, sizeof bytes);
    fake.counts.live++;
    fake.counts.taken_bytes += bytes;
    *dev = memory + HEAD_BYTES;
    return OK;
}

static void give_back(size_t bytes) {
    fake.counts.live--;
    fake.counts.taken_bytes -= bytes;
    if (fake.num_run < fake.num_enqueued && !fake.is_broken) fake.counts.num_given_back_early++;
}

static void fake_release(struct backend *backend, void *dev) {
    size_t bytes;
    if (!dev) return;
    char *memory = (char *)dev - HEAD_BYTES;
    memcpy(&bytes, memory, sizeof bytes);
    give_back(bytes);
    fake.cpu->release(backend, memory);
}

static size_t bytes_of_linear(const struct linear_spec *spec) {
    size_t rows = 0;
    for (uint32_t i = 0; i < spec->num_parts; i++) rows += spec->parts[i].rows;
    return rows * spec->parts[0].cols * sizeof(uint16_t);
}

// Until the device is gone: nobody gives a matrix back before.
static enum status fake_linear_create(struct backend *backend, const struct linear_spec *spec,
                                      struct linear **out, struct err *err) {
    fake.counts.taken_bytes += bytes_of_linear(spec);
    return fake.cpu->linear_create(backend, spec, out, err);
}

static enum status fake_kv_cache_create(struct backend *backend, const struct kv_cache_spec *spec,
                                        struct kv_cache **out, struct err *err) {
    if (fails(FAKE_FAULT_CREATE)) return err_nomem(err, "fake device");
    enum status status = fake.cpu->kv_cache_create(backend, spec, out, err);
    if (status) return status;
    fake.cache_bytes = fake.cpu->kv_cache_block_bytes(backend, spec) * spec->num_blocks;
    fake.counts.taken_bytes += fake.cache_bytes;
    fake.counts.live++;
    return OK;
}

static void fake_kv_cache_destroy(struct backend *backend, struct kv_cache *cache) {
    if (!cache) return;
    give_back(fake.cache_bytes);
    fake.cpu->kv_cache_destroy(backend, cache);
}

static void fake_upload(struct backend *backend, void *dev, const void *host, size_t bytes) {
    if (bytes) enqueue(backend, &(struct command){.kind = COPY, .as.copy = {dev, host, bytes}});
}

static void fake_download(struct backend *backend, void *host, const void *dev, size_t bytes) {
    fake_upload(backend, host, dev, bytes);
}

static enum status fake_event_create(struct backend *backend, struct backend_event **out,
                                     struct err *err) {
    (void)backend;
    *out = fails(FAKE_FAULT_CREATE) ? NULL : calloc(1, sizeof **out);
    if (!*out) return err_nomem(err, "event");
    fake.counts.live++;
    return OK;
}

static void fake_event_destroy(struct backend *backend, struct backend_event *event) {
    (void)backend;
    fake.counts.live -= event != NULL;
    free(event);
}

static void fake_event_record(struct backend *backend, struct backend_event *event) {
    (void)backend;
    event->at = fake.num_enqueued;
}

// As early as a device may: what was enqueued since the record has not run.
static void fake_upload_beside(struct backend *backend, struct backend_event *after, void *dev,
                               const void *host, size_t bytes) {
    run_until(backend, after->at);
    memcpy(dev, host, bytes);
}

static bool fake_event_is_done(struct backend *backend, struct backend_event *event) {
    run_until(backend, fake.num_run + (fake.num_run < event->at));
    return fake.num_run >= event->at;
}

static enum status fake_event_wait(struct backend *backend, struct backend_event *event,
                                   struct err *err) {
    CHECK(!fake.is_recording, "waiting inside a recording");
    fake.counts.num_waits++;
    run_until(backend, event->at);
    if (fails(FAKE_FAULT_WAIT)) fake.is_broken = true;
    return report(err);
}

static enum status fake_graph_begin(struct backend *backend, struct err *err) {
    (void)backend;
    CHECK(!fake.is_recording, "a recording inside a recording");
    if (fails(FAKE_FAULT_GRAPH_BEGIN)) return err_set(err, ERR_DEVICE, "fake: no recording");
    fake.is_recording = true;
    fake.num_recorded = 0;
    return OK;
}

static void fake_graph_destroy(struct backend *backend, struct backend_graph *graph) {
    (void)backend;
    if (graph) give_back(graph->taken_bytes);
    free(graph);
}

static enum status fake_graph_end(struct backend *backend, struct backend_graph **out,
                                  struct err *err) {
    (void)backend;
    CHECK(fake.is_recording, "no recording");
    fake.is_recording = false;
    fake_graph_destroy(backend, *out);
    *out = NULL;
    if (fails(FAKE_FAULT_GRAPH_END)) return err_set(err, ERR_DEVICE, "fake: no graph");
    size_t bytes = fake.num_recorded * sizeof *fake.recorded;
    struct backend_graph *graph = malloc(sizeof *graph + bytes);
    if (!graph) return err_nomem(err, "graph");
    bool is_early = fake.counts.num_graphs < fake.num_early_graphs;
    graph->taken_bytes = is_early ? fake.graph_bytes : fake.later_graph_bytes;
    graph->num_commands = fake.num_recorded;
    memcpy(graph->commands, fake.recorded, bytes);
    fake.counts.live++;
    fake.counts.taken_bytes += graph->taken_bytes;
    fake.counts.num_graphs++;
    *out = graph;
    return OK;
}

static void fake_graph_launch(struct backend *backend, struct backend_graph *graph) {
    fake.counts.num_graph_launches++;
    enqueue(backend, &(struct command){.kind = GRAPH, .as.graph = graph});
}

static enum status fake_memory(struct backend *backend, size_t *free_bytes, size_t *total_bytes,
                               struct err *err) {
    (void)backend, (void)err;
    size_t taken = fake.counts.taken_bytes;
    *free_bytes = fake.memory_bytes > taken ? fake.memory_bytes - taken : 0;
    *total_bytes = fake.memory_bytes;
    return OK;
}

// Ops that borrow nothing.
#define ENQUEUES(op, command_kind)                                                                 \
    static void fake_##op(struct backend *backend, const struct op##_args *args) {                 \
        enqueue(backend, &(struct command){.kind = command_kind, .as.op = *args});                 \
    }
ENQUEUES(rms_norm, RMS_NORM)
ENQUEUES(scale, SCALE)
ENQUEUES(softcap, SOFTCAP)
ENQUEUES(sigmoid_mul, SIGMOID_MUL)
ENQUEUES(silu_mul, SILU_MUL)
ENQUEUES(update_tables, UPDATE_TABLES)
ENQUEUES(gather_rows, GATHER_ROWS)
ENQUEUES(sample, SAMPLE)

// Ops that borrow the step.
#define ENQUEUES_STEP(op, command_kind)                                                            \
    static void fake_##op(struct backend *backend, const struct op##_args *args) {                 \
        const struct step *step = args->step;                                                      \
        enqueue(backend, &(struct command){.kind = command_kind, .step = *step, .as.op = *args});  \
    }
ENQUEUES_STEP(embed, EMBED)
ENQUEUES_STEP(attention, ATTENTION)
ENQUEUES_STEP(gated_delta, GATED_DELTA)

static void fake_linear(struct backend *backend, const struct linear_args *args) {
    backend->num_timed += fake.times_linears;
    enqueue(backend, &(struct command){.kind = LINEAR, .as.linear = *args});
}

static void fake_attention_prepare(struct backend *backend, const struct attention_args *args) {
    enqueue(backend, &(struct command){
                         .kind = ATTENTION_PREPARE, .step = *args->step, .as.attention = *args});
}

static enum status fake_weights_finish(struct backend *backend, size_t spare, struct err *err) {
    (void)backend, (void)spare, (void)err;
    return OK; // the CPU's linears are made at once
}

// Only for decodes, as on a real device.
static bool fake_attend(struct backend *backend, const struct attention_args *args) {
    if (args->step->max_query_len > 1) return false;
    fake_attention_prepare(backend, args);
    fake_attention(backend, args);
    return true;
}

static const struct backend_queue fake_queue = {
    .alloc_host = fake_alloc,
    .release_host = fake_release,
    .memory = fake_memory,
    .weights_finish = fake_weights_finish,
    .event_create = fake_event_create,
    .event_destroy = fake_event_destroy,
    .event_record = fake_event_record,
    .event_is_done = fake_event_is_done,
    .upload_beside = fake_upload_beside,
    .event_wait = fake_event_wait,
    .graph_begin = fake_graph_begin,
    .graph_end = fake_graph_end,
    .graph_launch = fake_graph_launch,
    .graph_destroy = fake_graph_destroy,
};

static size_t fake_scratch_floats(const struct backend *backend, uint32_t vocab_size,
                                  uint32_t num_rows) {
    return fake.cpu_sampler->scratch_floats(backend, vocab_size, num_rows);
}

static enum status fake_counts_create(struct backend *backend, uint32_t num_slots,
                                      uint32_t vocab_size, uint32_t max_ids,
                                      struct token_counts **out, struct err *err) {
    if (fails(FAKE_FAULT_CREATE)) return err_nomem(err, "fake device");
    enum status status =
        fake.cpu_sampler->counts_create(backend, num_slots, vocab_size, max_ids, out, err);
    if (!status) fake.counts.live++;
    return status;
}

static void fake_counts_destroy(struct backend *backend, struct token_counts *counts) {
    if (counts) give_back(0);
    fake.cpu_sampler->counts_destroy(backend, counts);
}

static size_t fake_counts_bytes(const struct backend *backend, uint32_t num_slots,
                                uint32_t vocab_size, uint32_t max_ids) {
    (void)backend, (void)max_ids;
    return (size_t)num_slots * vocab_size * sizeof(uint32_t);
}

// Copies the ids, because the caller may change them afterwards.
static void fake_counts_begin(struct backend *backend, struct token_counts *counts, uint32_t slot,
                              const int32_t *ids, uint32_t num_prompt, uint32_t num_ids) {
    CHECK(!fake.is_recording && num_ids <= IDS_MAX, "%u ids", num_ids);
    if (num_ids > IDS_MAX - fake.num_ids) {
        run_until(backend, fake.num_enqueued);
        fake.num_ids = 0;
    }
    int32_t *own = fake.ids + fake.num_ids;
    fake.num_ids += num_ids;
    memcpy(own, ids, num_ids * sizeof *ids);
    enqueue(backend,
            &(struct command){.kind = COUNTS_BEGIN,
                              .as.counts_begin = {counts, slot, own, num_prompt, num_ids}});
}

static const struct backend_sampler fake_sampler = {
    .sample = fake_sample,
    .scratch_floats = fake_scratch_floats,
    .counts_create = fake_counts_create,
    .counts_destroy = fake_counts_destroy,
    .counts_bytes = fake_counts_bytes,
    .counts_begin = fake_counts_begin,
};

static const struct backend_fusion fake_fusion = {.attend = fake_attend};

// Other ops stay the CPU's and run at once: weights, the cache, sizes.
static void fill_ops(void) {
    struct backend_ops *ops = &fake.ops;
    *ops = *fake.cpu;
    ops->alloc = fake_alloc;
    ops->release = fake_release;
    ops->linear_create = fake_linear_create;
    ops->kv_cache_create = fake_kv_cache_create;
    ops->kv_cache_destroy = fake_kv_cache_destroy;
    ops->upload = fake_upload;
    ops->download = fake_download;
    ops->synchronize = fake_synchronize;
    ops->embed = fake_embed;
    ops->rms_norm = fake_rms_norm;
    ops->linear = fake_linear;
    ops->attention_prepare = fake_attention_prepare;
    ops->attention = fake_attention;
    ops->silu_mul = fake_silu_mul;
    ops->sigmoid_mul = fake_sigmoid_mul;
    ops->scale = fake_scale;
    ops->softcap = fake_softcap;
    ops->update_tables = fake_update_tables;
    ops->gather_rows = fake_gather_rows;
}

static enum status fake_available(struct err *err) {
    (void)err;
    return OK;
}

static enum status fake_create(struct backend **out, const struct backend_options *options,
                               struct err *err) {
    enum status status = cpu_backend_create(out, options, err);
    if (status) return status;
    CHECK(fake.num_run == fake.num_enqueued || fake.is_broken, "commands of a device before");
    fake.cpu = (*out)->ops;
    fake.counts.taken_bytes = 0;
    fake.cpu_sampler = (*out)->sampler;
    fill_ops();
    (*out)->ops = &fake.ops;
    (*out)->queue = &fake_queue;
    (*out)->sampler = &fake_sampler;
    (*out)->moe = NULL;
    fake.recurrent = *(fake.cpu_recurrent = (*out)->recurrent);
    fake.recurrent.gated_delta = fake_gated_delta;
    (*out)->recurrent = &fake.recurrent;
    (*out)->fusion = &fake_fusion;
    (*out)->name = "fake";
    return OK;
}

// Replaces the device of src/backend.
const struct device_kind device_cuda = {
    .name = "cuda",
    .title = "GPU",
    .has_numbers = true,
    .available = fake_available,
    .create = fake_create,
};
