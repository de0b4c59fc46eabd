/* Arbitrary text as config.json and as generation_config.json. What is accepted must keep the
 * promises that the rest of the program computes with. */
#include <stdint.h>
#include <string.h>

#include "base/check.h"
#include "checkpoint/model_config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_experts(const struct model_config *c) {
    const struct moe_config *moe = &c->moe;
    CHECK((moe->is_sparse != NULL) == (moe->num_experts > 0), "experts=%u", moe->num_experts);
    CHECK((moe->num_sparse_layers > 0) == (moe->num_experts > 0), "experts=%u", moe->num_experts);
    if (!moe->num_experts) return;
    uint32_t num_sparse = 0;
    for (uint32_t i = 0; i < c->num_layers; i++) num_sparse += moe->is_sparse[i];
    CHECK(num_sparse == moe->num_sparse_layers, "sparse=%u", num_sparse);
    CHECK(moe->num_experts_per_tok >= 1 && moe->num_experts_per_tok <= moe->num_experts &&
              moe->num_experts_per_tok <= 256,
          "per_tok=%u", moe->num_experts_per_tok);
    CHECK(moe->intermediate_size >= 1 &&
              (uint64_t)moe->num_experts * moe->intermediate_size <= 1u << 26,
          "size=%u", moe->intermediate_size);
}

static void check_config(const struct model_config *c) {
    CHECK(c->architecture[0] && memchr(c->architecture, 0, sizeof c->architecture), "%s", "name");
    CHECK(c->vocab_size && c->hidden_size && c->intermediate_size && c->num_layers, "%s", "sizes");
    CHECK(c->num_kv_heads && c->num_heads % c->num_kv_heads == 0, "heads=%u", c->num_heads);
    CHECK(c->head_dim && c->head_dim % 2 == 0 && c->head_dim <= 4096, "head_dim=%u", c->head_dim);
    CHECK((uint64_t)c->num_heads * c->head_dim < UINT32_MAX, "heads=%u", c->num_heads);
    CHECK(c->max_position_embeddings && c->max_position_embeddings <= 1u << 30, "positions=%u",
          c->max_position_embeddings);
    CHECK(c->rms_norm_eps > 0 && c->rms_norm_eps <= 1, "eps=%g", (double)c->rms_norm_eps);
    CHECK(c->rope.theta >= 1, "theta=%g", c->rope.theta);
    CHECK(c->rope.type == ROPE_DEFAULT || c->rope.factor >= 1, "factor=%g", c->rope.factor);
    CHECK((c->is_sliding != NULL) == (c->sliding_window > 0), "window=%u", c->sliding_window);
    check_experts(c);
    for (uint32_t i = 0; i < c->num_eos_token_ids; i++) {
        int32_t id = c->eos_token_ids[i];
        CHECK(id >= 0 && (uint32_t)id < c->vocab_size, "id=%d", id);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *text = (const char *)data;
    struct model_config config;
    struct generation_config generation;
    struct err err = {0};
    if (model_config_parse(&config, text, size, "config.json", &err) == OK) {
        check_config(&config);
    } else {
        CHECK(err.message[0], "%s", "no message");
        config = (struct model_config){.vocab_size = 1000};
    }
    err.message[0] = '\0';
    if (generation_config_parse(&config, &generation, text, size, "generation", &err) == OK) {
        CHECK(!generation.has_temperature || generation.temperature >= 0, "%s", "temperature");
        CHECK(!generation.has_top_p || (generation.top_p > 0 && generation.top_p <= 1), "%s", "p");
    } else {
        CHECK(err.message[0], "%s", "no message");
    }
    model_config_fini(&config);
    return 0;
}
