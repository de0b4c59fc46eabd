#include "engine/data_parallel/request_router.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/check.h"

struct route {
    uint64_t hash; // of the prefix up to the end of a block
    uint64_t engines; // bit e: engine e was given it
};

enum {
    BUCKET = 4, // routes
    ROUTES_MIN = 1024,
    ROUTES_MAX = 1 << 16, // 1 MiB: with more blocks, old prefixes are forgotten earlier
};

enum status request_router_init(struct request_router *router, uint32_t num_engines,
                                uint32_t block_size, uint64_t num_blocks, uint64_t secret,
                                struct err *err) {
    CHECK(num_engines >= 1 && num_engines <= NVLLM_ENGINES_MAX, "%u engines", num_engines);
    *router = (struct request_router){
        .num_engines = num_engines, .block_size = block_size, .secret = secret};
    if (!num_blocks) return OK;
    router->num_routes = ROUTES_MIN;
    // Twice as many as blocks, so that few buckets are full.
    while (router->num_routes < 2 * num_blocks && router->num_routes < ROUTES_MAX) {
        router->num_routes *= 2;
    }
    router->routes = calloc(router->num_routes, sizeof *router->routes);
    return router->routes ? OK : err_nomem(err, "routes");
}

void request_router_fini(struct request_router *router) {
    free(router->routes);
    *router = (struct request_router){0};
}

static uint64_t hash_start(const struct request_router *router, uint64_t salt) {
    return XXH3_64bits_withSeed(&salt, sizeof salt, router->secret);
}

static uint64_t hash_block(const struct request_router *router, const int32_t *ids, uint32_t block,
                           uint64_t before) {
    return XXH3_64bits_withSeed(ids + (size_t)block * router->block_size,
                                router->block_size * sizeof *ids, before);
}

static struct route *bucket_of(const struct request_router *router, uint64_t hash) {
    return &router->routes[hash & (router->num_routes - BUCKET)];
}

// The engines that were given that prefix, as bits.
static uint64_t engines_of(const struct request_router *router, uint64_t hash) {
    const struct route *bucket = bucket_of(router, hash);
    for (int i = 0; i < BUCKET; i++) {
        if (bucket[i].hash == hash) return bucket[i].engines;
    }
    return 0;
}

// In the place of the oldest of its bucket.
static void add_route(struct request_router *router, uint64_t hash, uint32_t engine) {
    struct route route = {hash, engines_of(router, hash) | (uint64_t)1 << engine};
    struct route *bucket = bucket_of(router, hash);
    int i = 0;
    while (i < BUCKET - 1 && bucket[i].hash != hash) i++;
    memmove(bucket + 1, bucket, (size_t)i * sizeof *bucket);
    bucket[0] = route;
}

// Full blocks that a cache can have of it: at least one token is always computed.
static uint32_t num_blocks_of(const struct request_router *router, uint32_t num_ids) {
    return router->routes && num_ids ? (num_ids - 1) / router->block_size : 0;
}

uint32_t request_router_choose(const struct request_router *router, const uint64_t *loads,
                               const int32_t *ids, uint32_t num_ids, uint64_t salt) {
    uint64_t cached[NVLLM_ENGINES_MAX] = {0}; // tokens of the prompt
    uint64_t engines = UINT64_MAX; // that have all blocks so far
    uint64_t hash = hash_start(router, salt);
    uint32_t num_blocks = num_blocks_of(router, num_ids);
    for (uint32_t block = 0; block < num_blocks && engines; block++) {
        hash = hash_block(router, ids, block, hash);
        engines &= engines_of(router, hash);
        for (uint32_t e = 0; e < router->num_engines; e++) {
            if (engines >> e & 1) cached[e] += router->block_size;
        }
    }
    uint32_t best = 0;
    for (uint32_t e = 1; e < router->num_engines; e++) {
        if (loads[e] + cached[best] < loads[best] + cached[e]) best = e;
    }
    return best;
}

void request_router_note(struct request_router *router, uint32_t engine, const int32_t *ids,
                         uint32_t num_ids, uint64_t salt) {
    uint64_t hash = hash_start(router, salt);
    uint32_t num_blocks = num_blocks_of(router, num_ids);
    for (uint32_t block = 0; block < num_blocks; block++) {
        hash = hash_block(router, ids, block, hash);
        add_route(router, hash, engine);
    }
}
