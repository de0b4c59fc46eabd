/* Chooses the engine of a data-parallel group that a request goes to: the one with the fewest
 * tokens to compute until the request is done. That is the tokens of its unfinished requests, and
 * those of the new prompt that its prefix cache does not have.
 *
 * The router does not ask the engines' caches, which change during steps. It remembers by hash
 * which engines were lately given a prompt that begins with the same blocks. A wrong memory (the
 * engine has evicted the block since) costs time and changes no result.
 *
 * Pure: no clock, no device, and no lock, which is the caller's. */
#ifndef ENGINE_DATA_PARALLEL_REQUEST_ROUTER_H
#define ENGINE_DATA_PARALLEL_REQUEST_ROUTER_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "nanovllm.h"

struct route; // a prefix, and who was given it

struct request_router {
    uint32_t num_engines;
    uint32_t block_size; // tokens
    uint64_t secret; // keys the hashes: nobody can make two prompts that meet
    // [num_routes] in buckets of a few, chosen by the hash, the newest first; NULL: none
    struct route *routes;
    size_t num_routes; // a power of two
};

// `num_blocks`: KV blocks of all engines together; 0: they cache no prefixes.
MUST_USE enum status request_router_init(struct request_router *router, uint32_t num_engines,
                                         uint32_t block_size, uint64_t num_blocks, uint64_t secret,
                                         struct err *err);
void request_router_fini(struct request_router *router); // all-zero is fine

// Returns the engine's index. loads [num_engines]: tokens of each engine's unfinished requests; of
// equal engines it is the first. Only prompts of the same `salt` share prefixes.
uint32_t request_router_choose(const struct request_router *router, const uint64_t *loads,
                               const int32_t *ids, uint32_t num_ids, uint64_t salt);
// The engine was given that prompt.
void request_router_note(struct request_router *router, uint32_t engine, const int32_t *ids,
                         uint32_t num_ids, uint64_t salt);

#endif
