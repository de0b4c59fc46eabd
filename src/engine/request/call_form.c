#include "engine/request/call_form.h"

#include <string.h>

#include "base/json/json_text.h"

static enum status write_part(struct buf *out, const char *type, const char *key, const char *text,
                              size_t len, struct err *err) {
    enum status status = buf_appendf(out, err, "{\"type\":\"%s\",\"%s\":", type, key);
    if (!status) status = json_text_string(out, text, len, err);
    return status ? status : buf_append_str(out, "},", err);
}

// The bytes of tokens that are not added ones, as one part; then `bytes` is empty.
static enum status write_bytes(struct buf *out, struct buf *bytes, struct err *err) {
    if (!bytes->len) return OK;
    enum status status = write_part(out, "const_string", "value", bytes->data, bytes->len, err);
    buf_clear(bytes);
    return status;
}

static enum status write_token(struct buf *out, struct buf *bytes,
                               const struct tokenizer *tokenizer, int32_t id, struct err *err) {
    size_t len;
    const char *text = tokenizer_token_bytes(tokenizer, id, &len);
    if (!tokenizer_token_is_added(tokenizer, id)) return buf_append(bytes, text, len, err);
    enum status status = write_bytes(out, bytes, err);
    return status ? status : write_part(out, "token", "token", text, len, err);
}

static enum status write_ids(struct buf *out, const struct tokenizer *tokenizer,
                             const struct token_list *ids, uint32_t vocab_size, struct err *err) {
    struct buf bytes = {0};
    enum status status = buf_append_str(out, "{\"type\":\"sequence\",\"elements\":[", err);
    for (size_t i = 0; i < ids->len && !status; i++) {
        if ((uint32_t)ids->ids[i] >= vocab_size) {
            status = err_set(err, ERR_INVALID, "a call's prefix has a token out of the vocabulary");
        } else {
            status = write_token(out, &bytes, tokenizer, ids->ids[i], err);
        }
    }
    if (!status) status = write_bytes(out, &bytes, err);
    if (!status) {
        out->len--; // the last comma
        status = buf_append_str(out, "]},", err);
    }
    buf_fini(&bytes);
    return status;
}

static enum status write_prefix(struct buf *out, const char *prefix,
                                const struct tokenizer *tokenizer, uint32_t vocab_size,
                                struct err *err) {
    size_t len = prefix ? strlen(prefix) : 0;
    if (!len || len > CALL_PREFIX_BYTES_MAX) {
        return err_set(err, ERR_INVALID, "a call's prefix has %zu bytes, want 1 to %d", len,
                       CALL_PREFIX_BYTES_MAX);
    }
    struct token_list ids = {0};
    enum status status = tokenizer_encode(tokenizer, prefix, len, false, NULL, &ids, err);
    if (!status) status = write_ids(out, tokenizer, &ids, vocab_size, err);
    token_list_fini(&ids);
    return status;
}

enum status call_form_write(struct buf *out, const char *const *prefixes, size_t num_prefixes,
                            const struct tokenizer *tokenizer, uint32_t vocab_size,
                            struct err *err) {
    if (!prefixes) {
        return err_set(err, ERR_INVALID, "call_prefixes is NULL with %zu entries", num_prefixes);
    }
    if (num_prefixes > CALL_PREFIXES_MAX) {
        return err_set(err, ERR_INVALID, "a call is forced to be one of %zu, want at most %d",
                       num_prefixes, CALL_PREFIXES_MAX);
    }
    if (!tokenizer) {
        return err_set(err, ERR_INVALID,
                       "a forced call needs the tokenizer, which skip_tokenizer_init left out");
    }
    enum status status =
        buf_append_str(out,
                       "{\"structural_tag\":{\"format\":{\"type\":\"sequence\",\"elements\":["
                       "{\"type\":\"or\",\"elements\":[",
                       err);
    for (size_t i = 0; i < num_prefixes && !status; i++) {
        status = write_prefix(out, prefixes[i], tokenizer, vocab_size, err);
    }
    if (status) return status;
    out->len--; // the last comma
    return buf_append_str(out,
                          "]},{\"type\":\"regex\",\"pattern\":\"[ \\\\t\\\\r\\\\n]{0,4}\"},"
                          "{\"type\":\"json_schema\",\"json_schema\":{\"type\":\"object\"}},"
                          "{\"type\":\"any_tokens\"}]}}}",
                          err);
}
