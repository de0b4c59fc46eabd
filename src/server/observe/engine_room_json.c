#include "server/observe/engine_room_json.h"

#include <string.h>

#include "base/compiler.h"

// One message a block, in the order of enum view_block_state.
static const char messages[] = "fcups";
static const char *const names[] = {"free", "cached", "used", "published", "shared"};

void engine_room_write_stats(struct json_out *out, const struct nvllm_stats *stats) {
    const struct {
        const char *name;
        uint64_t value;
    } members[] = {
        {"num_steps", stats->num_steps},
        {"num_prefill_tokens", stats->num_prefill_tokens},
        {"num_decode_tokens", stats->num_decode_tokens},
        {"num_generated_tokens", stats->num_generated_tokens},
        {"num_cached_tokens", stats->num_cached_tokens},
        {"num_preemptions", stats->num_preemptions},
        {"num_requests_added", stats->num_requests_added},
        {"num_requests_finished", stats->num_requests_finished},
        {"num_running", stats->num_running},
        {"num_waiting", stats->num_waiting},
        {"num_kv_blocks", stats->num_kv_blocks},
        {"num_kv_blocks_used", stats->num_kv_blocks_used},
        {"num_kv_blocks_peak", stats->num_kv_blocks_peak},
        {"block_size", stats->block_size},
        {"max_model_len", stats->max_model_len},
    };
    json_out_raw(out, "\"stats\":{");
    for (size_t i = 0; i < ARRAY_LEN(members); i++) {
        json_out_rawf(out, "%s\"%s\":%llu", i ? "," : "", members[i].name,
                      (unsigned long long)members[i].value);
    }
    json_out_raw(out, "}");
}

// All blocks as one string of messages; those that are neither free nor full are listed beside.
static void write_whole(struct json_out *out, const struct room_now *now) {
    const struct view_news *news = now->news;
    json_out_rawf(out, "\"num_blocks\":%u,\"block_size\":%u,\"blocks\":\"", now->num_blocks,
                  now->block_size);
    size_t start = out->buf.len;
    if (!out->status) out->status = buf_reserve(&out->buf, now->num_blocks + 1, NULL);
    if (out->status) return;
    for (uint32_t id = 0, i = 0; id < now->num_blocks; id++) {
        bool is_listed = i < news->num_changed && news->blocks[i].id == id;
        out->buf.data[start + id] = messages[is_listed ? news->blocks[i].state : VIEW_FREE];
        i += is_listed;
    }
    out->buf.len += now->num_blocks;
    out->buf.data[out->buf.len] = '\0';
    json_out_raw(out, "\",\"fills\":[");
    const char *comma = "";
    for (uint32_t i = 0; i < news->num_changed; i++) {
        const struct view_block *block = &news->blocks[i];
        if (block->num_tokens == now->block_size) continue;
        json_out_rawf(out, "%s%u,%u", comma, block->id, block->num_tokens);
        comma = ",";
    }
    json_out_raw(out, "],");
}

static void write_changes(struct json_out *out, const struct view_news *news) {
    json_out_raw(out, "\"changed\":[");
    for (uint32_t i = 0; i < news->num_changed; i++) {
        const struct view_block *block = &news->blocks[i];
        json_out_rawf(out, "%s%u,\"%c\",%u", i ? "," : "", block->id, messages[block->state],
                      block->num_tokens);
    }
    json_out_raw(out, "],");
}

static void write_steps(struct json_out *out, const struct view_news *news) {
    json_out_raw(out, "\"steps\":[");
    for (uint32_t i = 0; i < news->num_steps; i++) {
        const struct view_step *step = &news->steps[i];
        json_out_rawf(out,
                      "%s{\"number\":%llu,\"end\":%.4f,\"schedule_ms\":%.3f,\"model_ms\":%.3f,"
                      "\"output_ms\":%.3f,\"prefill\":%u,\"decode\":%u,\"seqs\":%u,"
                      "\"preempted\":%u}",
                      i ? "," : "", (unsigned long long)step->number, step->end,
                      (double)step->schedule_ms, (double)step->model_ms, (double)step->output_ms,
                      step->num_prefill_tokens, step->num_decode_tokens, step->num_seqs,
                      step->num_preempted);
    }
    json_out_raw(out, "],");
}

static void write_sequence(struct json_out *out, const struct view_sequence *sequence,
                           const char *request_id) {
    const struct nvllm_sequence *seq = &sequence->seq;
    json_out_rawf(out,
                  "{\"id\":%llu,\"request\":%llu,\"index\":%u,\"is_running\":%s,\"prompt\":%u,"
                  "\"tokens\":%u,\"computed\":%u,\"cached\":%u,\"step_tokens\":%u,"
                  "\"is_prefill\":%s,\"blocks\":[",
                  (unsigned long long)seq->sequence_id, (unsigned long long)seq->request_id,
                  seq->index, seq->is_running ? "true" : "false", seq->num_prompt_tokens,
                  seq->num_tokens, seq->num_computed_tokens, seq->num_cached_tokens,
                  sequence->num_step_tokens, sequence->is_prefill ? "true" : "false");
    for (uint32_t i = 0; i < seq->num_blocks; i++) {
        json_out_rawf(out, "%s%u", i ? "," : "", seq->block_table[i]);
    }
    json_out_raw(out, "],\"request_id\":");
    if (request_id) {
        json_out_string(out, request_id, strlen(request_id));
    } else {
        json_out_raw(out, "null");
    }
    json_out_raw(out, "}");
}

void engine_room_write_event(struct json_out *out, const struct room_now *now) {
    const struct view_news *news = now->news;
    json_out_raw(out, news->is_whole ? "event: state\ndata: {" : "event: step\ndata: {");
    if (news->is_whole) {
        write_whole(out, now);
    } else {
        write_changes(out, news);
    }
    write_steps(out, news);
    json_out_rawf(out, "\"is_paused\":%s,\"num_running\":%u,\"num_waiting\":%u,\"sequences\":[",
                  now->is_paused ? "true" : "false", news->num_running, news->num_waiting);
    for (uint32_t i = 0; i < news->num_sequences; i++) {
        if (i) json_out_raw(out, ",");
        write_sequence(out, &news->sequences[i], now->request_ids[i]);
    }
    json_out_raw(out, "],");
    engine_room_write_stats(out, &now->stats);
    json_out_raw(out, "}\n\n");
}

static void write_text(struct json_out *out, const struct nvllm_tokenizer *tokenizer,
                       const int32_t *ids, size_t num_ids) {
    char *text = NULL;
    size_t len = 0;
    nvllm_tokenizer_decode(tokenizer, ids, num_ids, NVLLM_DECODE_SKIP_UNKNOWN, &text, &len, NULL);
    json_out_string(out, text ? text : "", text ? len : 0);
    nvllm_free(text);
}

void engine_room_write_block(struct json_out *out, const struct view_block *block,
                             const int32_t *tokens, uint32_t block_size,
                             const struct nvllm_tokenizer *tokenizer) {
    uint32_t count = block->num_tokens < block_size ? block->num_tokens : block_size;
    json_out_rawf(out,
                  "{\"block_id\":%u,\"state\":\"%s\",\"num_holders\":%u,\"num_tokens\":%u,"
                  "\"block_size\":%u,\"tokens\":[",
                  block->id, names[block->state], block->num_holders, block->num_tokens,
                  block_size);
    for (uint32_t i = 0; i < count; i++) {
        json_out_rawf(out, "%s{\"id\":%d,\"text\":", i ? "," : "", tokens[i]);
        if (tokens[i] < 0) {
            json_out_raw(out, "null");
        } else {
            write_text(out, tokenizer, &tokens[i], 1);
        }
        json_out_raw(out, "}");
    }
    uint32_t first = 0; // what was computed before anybody watched is not known
    while (first < count && tokens[first] < 0) first++;
    json_out_raw(out, "],\"text\":");
    write_text(out, tokenizer, tokens + first, count - first);
    json_out_raw(out, "}");
}
