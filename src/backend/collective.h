/* The group `collective` of a backend (backend.h): what the devices of a tensor-parallel group do
 * together. */
#ifndef BACKEND_COLLECTIVE_H
#define BACKEND_COLLECTIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct backend;
struct collective; // a device's connection to the devices of the other ranks

enum { COLLECTIVE_RANKS_MAX = 64, COLLECTIVE_CARD_BYTES = 256 };

// How devices reach each other: directly, by the library of their maker, or the first of these that
// works.
enum collective_kind { COLLECTIVE_AUTO, COLLECTIVE_P2P, COLLECTIVE_LIBRARY };

// The same on every rank, except `rank`.
struct collective_spec {
    enum collective_kind kind;
    bool is_one_host; // rank r has the device with the number of rank 0's + r of one host
    uint32_t rank, world_size;
    uint32_t hidden, max_num_tokens; // of a sum: [max_num_tokens][hidden]
    uint32_t max_num_logits;
    // First id of each rank's slice of the vocabulary; [world_size] is the vocabulary's size.
    uint32_t vocab_start[COLLECTIVE_RANKS_MAX + 1];
    // A 32-bit word of registered host memory. Once it is not 0, ranks that wait for each other
    // stop waiting, and results must not be used.
    const void *has_failed;
};

// residual += the sum over ranks, in the order of the ranks; is_first: residual = that sum. With
// `norm` also out = rms_norm(residual) * norm.
struct reduce_add_args {
    void *residual; // dev [rows][cols] in/out
    const float *norm; // dev [cols] or NULL
    void *out; // dev [rows][cols], with norm
    uint32_t rows, cols;
    float eps; // of the norm
    bool is_first;
};

/* What the devices of a tensor-parallel group do together, in stream order. All ranks make the same
 * calls in the same order. Like other ops they may be recorded. */
struct backend_collective {
    const char *library; // the library's name, a value of the option comm
    // What create allocates on the device.
    size_t (*bytes)(const struct backend *backend, const struct collective_spec *spec);
    // This rank's part. *card [COLLECTIVE_CARD_BYTES] is what the other ranks need to reach it.
    enum status (*create)(struct backend *backend, const struct collective_spec *spec,
                          struct collective **out, void *card, struct err *err);
    // Before the first op, by all ranks: `cards` [world_size][COLLECTIVE_CARD_BYTES].
    enum status (*connect)(struct backend *backend, struct collective *collective,
                           const void *cards, struct err *err);
    void (*destroy)(struct backend *backend, struct collective *collective); // NULL is fine
    // Makes waiting ops of this rank end, where has_failed alone does not. Any thread may call it.
    void (*stop_waiting)(struct collective *collective);
    // Memory for this rank's part of the next sum: dev [max_num_tokens][hidden].
    void *(*partial)(struct collective *collective);
    void (*reduce_add)(struct backend *backend, struct collective *collective,
                       const struct reduce_add_args *args);
    // Memory for this rank's logits: dev [max_num_logits][its slice of the vocabulary].
    float *(*logits)(struct collective *collective);
    // Copies row `row` of all ranks' logits to the host, ordered like a download. All ranks must
    // call it, because some kinds gather.
    void (*gather_logits)(struct backend *backend, struct collective *collective, uint32_t row,
                          float *host);
    // Later ops of this rank start when all ranks have come here.
    void (*barrier)(struct backend *backend, struct collective *collective);
};

#endif
