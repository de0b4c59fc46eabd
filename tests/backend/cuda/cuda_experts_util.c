#include "backend/cuda/cuda_experts_util.h"

#include <stdlib.h>
#include <string.h>

struct experts_call experts_call_make(uint32_t num_tokens, uint32_t top_k, uint32_t hidden,
                                      uint32_t num_used, uint64_t seed) {
    size_t pairs = (size_t)num_tokens * top_k;
    struct experts_call call = {.num_tokens = num_tokens, .top_k = top_k, .hidden = hidden};
    struct ops_rng rng = ops_rng_of(seed), values = ops_rng_of(seed + 1);
    call.x = bf16_values(&values, (size_t)num_tokens * hidden, 1);
    call.ids = test_alloc(pairs * sizeof *call.ids);
    call.weights = test_alloc(pairs * sizeof *call.weights);
    ops_rng_fill(&rng, call.weights, pairs);
    for (uint32_t token = 0; token < num_tokens; token++) {
        uint32_t first = ops_rng_below(&rng, num_used); // distinct ids: from here on, cyclically
        for (uint32_t slot = 0; slot < top_k; slot++) {
            call.ids[(size_t)token * top_k + slot] = (int32_t)((first + slot) % num_used);
        }
    }
    return call;
}

void experts_call_free(struct experts_call *call) {
    free(call->x);
    free(call->ids);
    free(call->weights);
}

struct experts_buffers experts_buffers_make(struct backend *backend,
                                            const struct experts_shape *shape,
                                            const struct experts *experts, uint32_t num_tokens,
                                            uint32_t top_k) {
    size_t pairs = (size_t)num_tokens * top_k, count = (size_t)num_tokens * shape->hidden;
    size_t scratch = backend->moe->experts_scratch_bytes(backend, shape, num_tokens, top_k);
    struct experts_buffers b = {.x = tensor_nan(backend, count),
                                .ids = tensor_raw(backend, NULL, pairs * sizeof(int32_t)),
                                .weights = tensor_raw(backend, NULL, pairs * sizeof(float)),
                                .out = tensor_nan(backend, count),
                                .scratch = tensor_raw(backend, NULL, scratch)};
    b.args = (struct experts_args){.experts = experts,
                                   .x = b.x.dev,
                                   .ids = b.ids.dev,
                                   .weights = b.weights.dev,
                                   .out = b.out.dev,
                                   .scratch = b.scratch.dev,
                                   .num_tokens = num_tokens,
                                   .top_k = top_k};
    return b;
}

static void upload(const struct tensor *tensor, const void *host) {
    struct err err = {0};
    tensor->backend->ops->upload(tensor->backend, tensor->dev, host, tensor->bytes);
    if (tensor->backend->ops->synchronize(tensor->backend, &err)) fail_msg("%s", err.message);
}

static void upload_bf16(const struct tensor *tensor, const float *values, size_t count) {
    uint16_t *rounded = test_alloc(tensor->bytes);
    for (size_t i = 0; i < count; i++) rounded[i] = f32_to_bf16(values[i]);
    upload(tensor, rounded);
    free(rounded);
}

void experts_buffers_fill(const struct experts_buffers *b, const struct experts_call *call,
                          uint32_t first) {
    size_t pair = (size_t)first * call->top_k, count = (size_t)b->args.num_tokens * call->hidden;
    const float *x = call->x + (size_t)first * call->hidden;
    upload(&b->ids, call->ids + pair);
    upload(&b->weights, call->weights + pair);
    if (b->x.backend->activation_dtype == DTYPE_F32) {
        upload(&b->x, x);
        return;
    }
    upload_bf16(&b->x, x, count);
}

void experts_buffers_free(struct experts_buffers *b) {
    tensor_free(&b->x);
    tensor_free(&b->ids);
    tensor_free(&b->weights);
    tensor_free(&b->out);
    tensor_free(&b->scratch);
}

struct experts *experts_of(struct backend *backend, const struct experts_spec *spec) {
    struct experts *experts = NULL;
    struct err err = {0};
    enum status status = backend->moe->experts_create(backend, spec, &experts, &err);
    if (!status && backend->queue) status = backend->queue->weights_finish(backend, SIZE_MAX, &err);
    if (status) fail_msg("%s", err.message);
    return experts;
}

static void run_call(struct backend *backend, const struct experts_shape *shape,
                     const struct experts *experts, const struct experts_call *call, uint32_t first,
                     uint32_t count, bool is_added, float *out) {
    struct experts_buffers b = experts_buffers_make(backend, shape, experts, count, call->top_k);
    size_t num_results = (size_t)count * call->hidden;
    float *results = out + (size_t)first * call->hidden;
    experts_buffers_fill(&b, call, first);
    if (is_added) upload_bf16(&b.out, results, num_results);
    b.args.is_added = is_added;
    if (is_added) assert_true(backend->moe->adds_sums(backend, &b.args));
    backend->moe->experts(backend, &b.args);
    float *got = tensor_read(&b.out);
    memcpy(results, got, num_results * sizeof *got);
    free(got);
    experts_buffers_free(&b);
}

void experts_run(struct backend *backend, const struct experts_shape *shape,
                 const struct experts *experts, const struct experts_call *call, uint32_t first,
                 uint32_t count, float *out) {
    run_call(backend, shape, experts, call, first, count, false, out);
}

void experts_run_added(struct backend *backend, const struct experts_shape *shape,
                       const struct experts *experts, const struct experts_call *call,
                       uint32_t first, uint32_t count, float *out) {
    run_call(backend, shape, experts, call, first, count, true, out);
}
