#include "engine/schedule/sequence.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

enum status sequence_create(struct sequence **out, uint64_t id, const int32_t *prompt,
                            uint32_t num_prompt_tokens, uint32_t max_new_tokens,
                            uint32_t block_size, uint32_t num_kv_groups, struct err *err) {
    *out = NULL;
    if (num_prompt_tokens == 0) return err_set(err, ERR_INVALID, "the prompt has no tokens");
    if (max_new_tokens == 0) return err_set(err, ERR_INVALID, "max_tokens is 0, want at least 1");
    if (block_size == 0) return err_set(err, ERR_INVALID, "block_size is 0, want at least 1");
    if (num_kv_groups == 0) return err_set(err, ERR_INVALID, "a sequence without KV groups");
    // Positions travel as int32.
    if ((uint64_t)num_prompt_tokens + max_new_tokens > INT32_MAX) {
        return err_set(err, ERR_INVALID, "%u prompt tokens and %u to generate exceed %d",
                       num_prompt_tokens, max_new_tokens, INT32_MAX);
    }
    uint32_t num_tokens_max = num_prompt_tokens + max_new_tokens;
    uint32_t num_kv_tokens_max = num_tokens_max - 1; // sequence_num_kv_tokens_max
    uint32_t num_blocks_max =
        num_kv_tokens_max / block_size + (num_kv_tokens_max % block_size != 0);

    // One allocation, widest elements first, so that every part is aligned.
    size_t hashes_bytes = (size_t)num_blocks_max * sizeof(uint64_t);
    size_t tokens_bytes = (size_t)num_tokens_max * sizeof(int32_t);
    // Of each KV group: its table, and its entry of first_blocks.
    size_t table_bytes = (size_t)num_kv_groups * num_blocks_max * sizeof(uint32_t);
    size_t firsts_bytes = num_kv_groups * sizeof(uint32_t);
    struct sequence *seq =
        malloc(sizeof *seq + hashes_bytes + tokens_bytes + table_bytes + firsts_bytes);
    if (!seq) return err_nomem(err, "sequence");
    *seq = (struct sequence){
        .id = id,
        .status = SEQUENCE_WAITING,
        .num_tokens = num_prompt_tokens,
        .num_prompt_tokens = num_prompt_tokens,
        .num_tokens_max = num_tokens_max,
        .schedule_index = SEQUENCE_UNSCHEDULED,
        .num_kv_groups = num_kv_groups,
        .num_blocks_max = num_blocks_max,
    };
    char *arrays = (char *)(seq + 1);
    seq->block_hashes = (void *)arrays;
    seq->token_ids = (void *)(arrays + hashes_bytes);
    seq->block_table = (void *)(arrays + hashes_bytes + tokens_bytes);
    seq->first_blocks = (void *)(arrays + hashes_bytes + tokens_bytes + table_bytes);
    memset(seq->first_blocks, 0, firsts_bytes);
    memcpy(seq->token_ids, prompt, (size_t)num_prompt_tokens * sizeof *prompt);
    *out = seq;
    return OK;
}

void sequence_destroy(struct sequence *seq) {
    if (!seq) return;
    CHECK(!seq->queued && seq->num_blocks == 0, "sequence %" PRIu64 " is queued=%d, blocks=%u",
          seq->id, seq->queued, seq->num_blocks);
    free(seq);
}
