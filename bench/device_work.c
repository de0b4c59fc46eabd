#include "device_work.h"

#include <stdlib.h>
#include <string.h>

#include "base/os/clock.h"

enum {
    CALLS = 16, // recorded as one graph
    TURNS = 9, // runs of the graph; the median counts
};

void work_stop(const char *why) {
    fprintf(stderr, "bench_device_ops: %s\n", why);
    exit(1);
}

void work_weights_finish(struct work *w) {
    struct backend *b = w->bench->backend;
    struct err err = {0};
    if (b->queue && b->queue->weights_finish(b, SIZE_MAX, &err)) work_stop(err.message);
}

void *work_take(struct work *w, size_t bytes) {
    struct backend *b = w->bench->backend;
    struct err err = {0};
    void *dev = NULL;
    if (b->ops->alloc(b, bytes, &dev, &err)) work_stop(err.message);
    return w->memory[w->num_memory++] = dev;
}

void work_put(struct work *w, void *dev, const void *host, size_t bytes) {
    struct backend *b = w->bench->backend;
    struct err err = {0};
    b->ops->upload(b, dev, host, bytes);
    if (b->ops->synchronize(b, &err)) work_stop(err.message);
}

void *work_activations(struct work *w, size_t count) {
    struct bench *bench = w->bench;
    bool is_bf16 = bench->backend->activation_dtype == DTYPE_BF16;
    size_t size = is_bf16 ? sizeof(uint16_t) : sizeof(float);
    char *dev = work_take(w, count * size);
    float *floats = is_bf16 ? NULL : malloc(WORK_CHUNK * sizeof *floats);
    if (!is_bf16 && !floats) work_stop("out of memory");
    for (size_t i = 0; floats && i < WORK_CHUNK; i++) floats[i] = bf16_to_f32(bench->noise[i]);
    for (size_t done = 0; done < count; done += WORK_CHUNK) {
        size_t left = count - done < WORK_CHUNK ? count - done : WORK_CHUNK;
        const void *from = is_bf16 ? (const void *)bench->noise : floats;
        work_put(w, dev + done * size, from, left * size);
    }
    free(floats);
    return dev;
}

void *work_floats(struct work *w, size_t count, float value) {
    float *host = malloc(count * sizeof *host);
    void *dev = work_take(w, count * sizeof *host);
    if (!host) work_stop("out of memory");
    for (size_t i = 0; i < count; i++) host[i] = value;
    work_put(w, dev, host, count * sizeof *host);
    free(host);
    return dev;
}

void work_end(struct work *w) {
    struct backend *b = w->bench->backend;
    for (uint32_t i = 0; i < WORK_COPIES_MAX; i++) {
        b->ops->linear_destroy(b, w->linears[i]);
        if (b->moe) b->moe->experts_destroy(b, w->experts[i]);
    }
    b->ops->kv_cache_destroy(b, w->cache);
    for (int i = 0; i < w->num_memory; i++) b->ops->release(b, w->memory[i]);
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void calls(struct work *w, work_call call) {
    for (uint32_t i = 0; i < CALLS; i++) call(w, i);
}

// Returns the seconds of one call.
static double time_calls(struct work *w, work_call call) {
    struct backend *b = w->bench->backend;
    struct backend_graph *graph = NULL;
    struct err err = {0};
    double seconds[TURNS];
    calls(w, call);
    if (b->ops->synchronize(b, &err)) work_stop(err.message);
    if (b->queue) {
        if (b->queue->graph_begin(b, &err)) work_stop(err.message);
        calls(w, call);
        if (b->queue->graph_end(b, &graph, &err)) work_stop(err.message);
    }
    for (int i = 0; i < TURNS; i++) {
        double start = clock_seconds();
        if (graph) {
            b->queue->graph_launch(b, graph);
        } else {
            calls(w, call);
        }
        if (b->ops->synchronize(b, &err)) work_stop(err.message);
        seconds[i] = (clock_seconds() - start) / CALLS;
    }
    if (graph) b->queue->graph_destroy(b, graph);
    qsort(seconds, TURNS, sizeof *seconds, compare);
    return seconds[TURNS / 2];
}

void work_measure(struct work *w, work_call call, const char *op, const char *shape, double bytes,
                  double flops) {
    double seconds = time_calls(w, call);
    printf("%-18s %-34s %10.2f us %7.3f TB/s %8.1f TFLOP/s\n", op, shape, seconds * 1e6,
           bytes / seconds * 1e-12, flops / seconds * 1e-12);
    fflush(stdout);
    if (w->bench->csv) {
        fprintf(w->bench->csv, "%s,\"%s\",%.3f,%.4f,%.2f\n", op, shape, seconds * 1e6,
                bytes / seconds * 1e-12, flops / seconds * 1e-12);
    }
}

// Sums of two uniform numbers, from -0.04 to 0.04: close enough to a normal distribution.
void work_make_noise(struct bench *bench) {
    uint64_t state = 1;
    for (size_t i = 0; i < bench->num_noise; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        float a = (float)(state >> 40) / (1 << 24), b = (float)(state >> 16 & 0xffffff) / (1 << 24);
        bench->noise[i] = f32_to_bf16((a + b - 1) * 0.04f);
    }
}
