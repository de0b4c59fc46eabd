#include "support/fake_device.h"

#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/select.h"
#include "base/check.h"

enum command_kind {
    COPY,
    EMBED,
    RMS_NORM,
    LINEAR,
    LOGITS,
    ATTENTION_PREPARE,
    ATTENTION_PLAN,
    ATTENTION,
    SILU_MUL,
    GATHER_ROWS,
    SAMPLE,
    GRAPH,
};

struct copy {
    void *to;
    const void *from;
    size_t bytes;
};

struct command {
    enum command_kind kind;
    union {
        struct copy copy;
        struct embed_args embed;
        struct rms_norm_args rms_norm;
        struct linear_args linear;
        struct logits_args logits;
        struct attention_prepare_args attention_prepare;
        struct attention_plan_args attention_plan;
        struct attention_args attention;
        struct silu_mul_args silu_mul;
        struct gather_rows_args gather_rows;
        struct sample_args sample;
        struct backend_graph *graph;
    } as;
};

struct backend_event {
    uint64_t at; // number of commands enqueued before it
};

struct backend_graph {
    uint32_t num_commands;
    struct command commands[]; // [num_commands]
};

enum { QUEUE_MAX = 4096, RECORD_MAX = 512 };

static struct {
    const struct backend_ops *cpu;
    struct backend_ops ops;
    struct command queue[QUEUE_MAX]; // ring, by number modulo QUEUE_MAX
    uint64_t num_enqueued, num_run;
    struct command recorded[RECORD_MAX];
    uint32_t num_recorded;
    bool is_recording, is_broken;
    const uint32_t *block_table_stride; // of the last plan
    size_t memory_bytes;
    enum fake_fault fault;
    uint32_t occasions_left;
    bool has_failed;
    struct fake_device_counts counts;
} fake;

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

struct fake_device_counts fake_device_counts(void) {
    return fake.counts;
}

static bool fails(enum fake_fault fault) {
    if (fake.fault != fault || fake.occasions_left == 0 || --fake.occasions_left) return false;
    fake.has_failed = true;
    return true;
}

// The device's kernels find the lengths in device memory: a recorded step has only old ones on the
// host. Sequences without context, which pad a step, come last and are not run.
static void run_attention(struct backend *backend, struct attention_args args) {
    while (args.num_seqs && args.context_len[args.num_seqs - 1] == 0) args.num_seqs--;
    args.num_tokens = (uint32_t)args.query_start[args.num_seqs];
    args.block_table_stride = *fake.block_table_stride;
    args.max_query_len = args.max_context_len = 0;
    for (uint32_t i = 0; i < args.num_seqs; i++) {
        uint32_t context_len = (uint32_t)args.context_len[i];
        uint32_t query_len = (uint32_t)(args.query_start[i + 1] - args.query_start[i]);
        if (context_len > args.max_context_len) args.max_context_len = context_len;
        if (query_len > args.max_query_len) args.max_query_len = query_len;
    }
    fake.cpu->attention(backend, NULL, &args);
}

static void run_simple(struct backend *b, const struct command *command) {
    const struct backend_ops *cpu = fake.cpu;
    switch (command->kind) {
    case COPY:
        memcpy(command->as.copy.to, command->as.copy.from, command->as.copy.bytes);
        return;
    case EMBED:
        cpu->embed(b, NULL, &command->as.embed);
        return;
    case RMS_NORM:
        cpu->rms_norm(b, NULL, &command->as.rms_norm);
        return;
    case LINEAR:
        cpu->linear(b, NULL, &command->as.linear);
        return;
    case LOGITS:
        cpu->logits(b, NULL, &command->as.logits);
        return;
    case ATTENTION_PREPARE:
        cpu->attention_prepare(b, NULL, &command->as.attention_prepare);
        return;
    case ATTENTION_PLAN:
        fake.block_table_stride = command->as.attention_plan.block_table_stride;
        return;
    case ATTENTION:
        run_attention(b, command->as.attention);
        return;
    case SILU_MUL:
        cpu->silu_mul(b, NULL, &command->as.silu_mul);
        return;
    case GATHER_ROWS:
        cpu->gather_rows(b, NULL, &command->as.gather_rows);
        return;
    case SAMPLE:
        cpu->sample(b, NULL, &command->as.sample);
        return;
    case GRAPH:
        CHECK(false, "a graph inside a graph");
        return;
    }
}

static void run(struct backend *backend, const struct command *command) {
    if (fails(FAKE_FAULT_RUN)) fake.is_broken = true;
    if (fake.is_broken) return;
    if (command->kind != GRAPH) {
        run_simple(backend, command);
        return;
    }
    const struct backend_graph *graph = command->as.graph;
    for (uint32_t i = 0; i < graph->num_commands; i++) run_simple(backend, &graph->commands[i]);
}

static void run_until(struct backend *backend, uint64_t at) {
    while (fake.num_run < at) run(backend, &fake.queue[fake.num_run++ % QUEUE_MAX]);
}

static void enqueue(struct backend *backend, const struct command *command) {
    if (fake.is_recording) {
        CHECK(fake.num_recorded < RECORD_MAX && command->kind != COPY && command->kind != GRAPH,
              "command %d cannot be recorded", (int)command->kind);
        fake.recorded[fake.num_recorded++] = *command;
        return;
    }
    if (fake.num_enqueued - fake.num_run == QUEUE_MAX) run_until(backend, fake.num_run + 1);
    fake.queue[fake.num_enqueued++ % QUEUE_MAX] = *command;
}

static enum status report(struct err *err) {
    if (!fake.is_broken) return OK;
    fake.num_run = fake.num_enqueued; // a broken device touches nothing any more
    return err_set(err, ERR_DEVICE, "the fake device is broken");
}

static enum status fake_synchronize(struct backend *backend, struct backend_stream *stream,
                                    struct err *err) {
    (void)stream;
    CHECK(!fake.is_recording, "waiting inside a recording");
    run_until(backend, fake.num_enqueued);
    return report(err);
}

static enum status fake_alloc(struct backend *backend, size_t bytes, void **dev, struct err *err) {
    if (fails(FAKE_FAULT_CREATE)) return err_nomem(err, "fake device");
    enum status status = fake.cpu->alloc(backend, bytes, dev, err);
    if (!status) fake.counts.live++;
    return status;
}

static void fake_release(struct backend *backend, void *dev) {
    if (!dev) return;
    fake.counts.live--;
    if (fake.num_run < fake.num_enqueued && !fake.is_broken) fake.counts.num_given_back_early++;
    fake.cpu->release(backend, dev);
}

static void fake_copy(struct backend *backend, struct backend_stream *stream, void *to,
                      const void *from, size_t bytes) {
    (void)stream;
    if (!bytes) return;
    enqueue(backend, &(struct command){.kind = COPY, .as.copy = {to, from, bytes}});
}

static enum status fake_event_create(struct backend *backend, struct backend_event **out,
                                     struct err *err) {
    (void)backend;
    struct backend_event *event = fails(FAKE_FAULT_CREATE) ? NULL : calloc(1, sizeof *event);
    if (!event) return err_nomem(err, "event");
    fake.counts.live++;
    *out = event;
    return OK;
}

static void fake_event_destroy(struct backend *backend, struct backend_event *event) {
    (void)backend;
    if (!event) return;
    fake.counts.live--;
    free(event);
}

static void fake_event_record(struct backend *backend, struct backend_stream *stream,
                              struct backend_event *event) {
    (void)backend, (void)stream;
    event->at = fake.num_enqueued;
}

static enum status fake_event_wait(struct backend *backend, struct backend_event *event,
                                   struct err *err) {
    CHECK(!fake.is_recording, "waiting inside a recording");
    fake.counts.num_waits++;
    run_until(backend, event->at);
    if (fails(FAKE_FAULT_WAIT)) fake.is_broken = true;
    return report(err);
}

static enum status fake_graph_begin(struct backend *backend, struct backend_stream *stream,
                                    struct err *err) {
    (void)backend, (void)stream;
    CHECK(!fake.is_recording, "a recording inside a recording");
    if (fails(FAKE_FAULT_GRAPH_BEGIN)) return err_set(err, ERR_DEVICE, "fake: no recording");
    fake.is_recording = true;
    fake.num_recorded = 0;
    return OK;
}

static enum status fake_graph_end(struct backend *backend, struct backend_stream *stream,
                                  struct backend_graph **out, struct err *err) {
    (void)backend, (void)stream;
    CHECK(fake.is_recording, "no recording");
    fake.is_recording = false;
    if (fails(FAKE_FAULT_GRAPH_END)) return err_set(err, ERR_DEVICE, "fake: no graph");
    size_t bytes = fake.num_recorded * sizeof *fake.recorded;
    struct backend_graph *graph = malloc(sizeof *graph + bytes);
    if (!graph) return err_nomem(err, "graph");
    graph->num_commands = fake.num_recorded;
    memcpy(graph->commands, fake.recorded, bytes);
    fake.counts.live++;
    fake.counts.num_graphs++;
    *out = graph;
    return OK;
}

static void fake_graph_launch(struct backend *backend, struct backend_stream *stream,
                              struct backend_graph *graph) {
    (void)stream;
    fake.counts.num_graph_launches++;
    enqueue(backend, &(struct command){.kind = GRAPH, .as.graph = graph});
}

static void fake_graph_destroy(struct backend *backend, struct backend_graph *graph) {
    (void)backend;
    if (!graph) return;
    fake.counts.live--;
    if (fake.num_run < fake.num_enqueued && !fake.is_broken) fake.counts.num_given_back_early++;
    free(graph);
}

static enum status fake_memory(struct backend *backend, size_t *free_bytes, size_t *total_bytes,
                               struct err *err) {
    (void)backend, (void)err;
    *free_bytes = *total_bytes = fake.memory_bytes;
    return OK;
}

static void fake_embed(struct backend *backend, struct backend_stream *stream,
                       const struct embed_args *args) {
    (void)stream;
    enqueue(backend, &(struct command){.kind = EMBED, .as.embed = *args});
}

static void fake_rms_norm(struct backend *backend, struct backend_stream *stream,
                          const struct rms_norm_args *args) {
    (void)stream;
    enqueue(backend, &(struct command){.kind = RMS_NORM, .as.rms_norm = *args});
}

static void fake_linear(struct backend *backend, struct backend_stream *stream,
                        const struct linear_args *args) {
    (void)stream;
    enqueue(backend, &(struct command){.kind = LINEAR, .as.linear = *args});
}

static void fake_logits(struct backend *backend, struct backend_stream *stream,
                        const struct logits_args *args) {
    (void)stream;
    enqueue(backend, &(struct command){.kind = LOGITS, .as.logits = *args});
}

static void fake_attention_prepare(struct backend *backend, struct backend_stream *stream,
                                   const struct attention_prepare_args *args) {
    (void)stream;
    enqueue(backend, &(struct command){.kind = ATTENTION_PREPARE, .as.attention_prepare = *args});
}

static void fake_attention_plan(struct backend *backend, struct backend_stream *stream,
                                const struct attention_plan_args *args) {
    (void)stream;
    enqueue(backend, &(struct command){.kind = ATTENTION_PLAN, .as.attention_plan = *args});
}

static void fake_attention(struct backend *backend, struct backend_stream *stream,
                           const struct attention_args *args) {
    if (args->prepare) fake_attention_prepare(backend, stream, args->prepare);
    struct command command = {.kind = ATTENTION, .as.attention = *args};
    command.as.attention.prepare = NULL;
    enqueue(backend, &command);
}

static void fake_silu_mul(struct backend *backend, struct backend_stream *stream,
                          const struct silu_mul_args *args) {
    (void)stream;
    enqueue(backend, &(struct command){.kind = SILU_MUL, .as.silu_mul = *args});
}

static void fake_gather_rows(struct backend *backend, struct backend_stream *stream,
                             const struct gather_rows_args *args) {
    (void)stream;
    enqueue(backend, &(struct command){.kind = GATHER_ROWS, .as.gather_rows = *args});
}

static void fake_sample(struct backend *backend, struct backend_stream *stream,
                        const struct sample_args *args) {
    (void)stream;
    enqueue(backend, &(struct command){.kind = SAMPLE, .as.sample = *args});
}

// What is not named stays the CPU's, at once: weights, the cache, sizes.
static void fill_ops(void) {
    struct backend_ops *ops = &fake.ops;
    *ops = *fake.cpu;
    ops->alloc = ops->alloc_host = fake_alloc;
    ops->release = ops->release_host = fake_release;
    ops->upload = ops->download = fake_copy;
    ops->synchronize = fake_synchronize;
    ops->event_create = fake_event_create;
    ops->event_destroy = fake_event_destroy;
    ops->event_record = fake_event_record;
    ops->event_wait = fake_event_wait;
    ops->graph_begin = fake_graph_begin;
    ops->graph_end = fake_graph_end;
    ops->graph_launch = fake_graph_launch;
    ops->graph_destroy = fake_graph_destroy;
    ops->memory = fake_memory;
    ops->embed = fake_embed;
    ops->rms_norm = fake_rms_norm;
    ops->linear = fake_linear;
    ops->logits = fake_logits;
    ops->attention_prepare = fake_attention_prepare;
    ops->attention_plan = fake_attention_plan;
    ops->attention = fake_attention;
    ops->silu_mul = fake_silu_mul;
    ops->gather_rows = fake_gather_rows;
    ops->sample = fake_sample;
    ops->experts_create = NULL;
    ops->experts_destroy = NULL;
    ops->experts_bytes = NULL;
    ops->experts_scratch_bytes = NULL;
    ops->route = NULL;
    ops->experts = NULL;
}

// These two take the place of those in src/backend.
enum status select_cuda_available(struct err *err) {
    (void)err;
    return OK;
}

enum status select_cuda_create(struct backend **out, const struct backend_options *options,
                               struct err *err) {
    enum status status = cpu_backend_create(out, options, err);
    if (status) return status;
    CHECK(fake.num_run == fake.num_enqueued || fake.is_broken, "commands of a device before");
    fake.cpu = (*out)->ops;
    fill_ops();
    (*out)->ops = &fake.ops;
    (*out)->name = "fake";
    (*out)->attention_prepares = true;
    return OK;
}
