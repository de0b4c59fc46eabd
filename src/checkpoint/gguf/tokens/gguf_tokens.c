#include "checkpoint/gguf/tokens/gguf_tokens.h"

#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "base/json/json_out.h"
#include "base/log.h"
#include "checkpoint/gguf/file/gguf_read.h"
#include "checkpoint/tokens/token_json.h"

enum { TOKENS_MAX = 1 << 22 };

static const char tokens_key[] = "tokenizer.ggml.tokens", types_key[] = "tokenizer.ggml.token_type";

// Control tokens that end an answer, whatever the file says about them: files name only one or two
// of a model's. As in llama.cpp.
static const char *const end_texts[] = {
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<end_of_turn>",
    "<turn|>",
    "<|tool_response>", // Gemma 4's: behind a call comes what the tool answers
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    ("<\xef\xbd\x9c"
     "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>"), // DeepSeek
};

bool gguf_has_tokenizer(const struct gguf *gguf) {
    struct gguf_value unused;
    return gguf_find(gguf, tokens_key, &unused);
}

static void add_end(struct gguf_special *special, int64_t id) {
    bool is_known = id < 0 || special->num_ends == GGUF_ENDS_MAX;
    for (size_t i = 0; i < special->num_ends && !is_known; i++) is_known = special->ends[i] == id;
    if (!is_known) special->ends[special->num_ends++] = id;
}

// An id that no token has counts as none: files write -1 so.
static enum status read_id(const struct gguf *gguf, const struct gguf_special *special,
                           const char *name, int64_t *id, struct err *err) {
    char key[GGUF_KEY_MAX];
    int64_t found = -1;
    snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", name);
    enum status status = gguf_read_int(gguf, key, 0, UINT32_MAX, &found, err);
    if (status) return status;
    if (found >= 0) *id = found;
    if (*id < 0 || (uint64_t)*id < special->num_tokens) return OK;
    if (special->num_tokens) log_info("%s: no token has the id of \"%s\"", gguf_path(gguf), key);
    *id = -1;
    return OK;
}

// Of another length than the tokens: refused.
static enum status read_types(const struct gguf *gguf, uint64_t num_tokens,
                              struct gguf_value *types, bool *found, struct err *err) {
    enum status status = gguf_read_array(gguf, types_key, GGUF_I32, types, found, err);
    if (status || !*found || types->count == num_tokens) return status;
    return err_set(err, ERR_FORMAT, "%s: \"%s\" has %llu elements, but there are %llu tokens",
                   gguf_path(gguf), types_key, (unsigned long long)types->count,
                   (unsigned long long)num_tokens);
}

static int64_t type_at(const struct gguf_value *types, bool has_types, uint64_t id) {
    int64_t type = GGUF_TOKEN_NORMAL;
    if (!has_types || !gguf_integer(types, id, &type)) return GGUF_TOKEN_NORMAL;
    return type;
}

static bool is_control(int64_t type) {
    return type == GGUF_TOKEN_CONTROL || type == GGUF_TOKEN_USER_DEFINED;
}

static void find_ends(struct gguf_special *special, const struct gguf_value *tokens,
                      const struct gguf_value *types) {
    const char *at = tokens->data;
    for (uint64_t id = 0; id < special->num_tokens; id++) {
        struct gguf_string text = gguf_next_string(&at);
        if (!is_control(type_at(types, true, id))) continue;
        for (size_t i = 0; i < ARRAY_LEN(end_texts); i++) {
            if (gguf_string_is(text, end_texts[i])) add_end(special, (int64_t)id);
        }
    }
}

enum status gguf_special_read(struct gguf_special *out, const struct gguf *gguf, struct err *err) {
    struct gguf_string model = {"", 0};
    struct gguf_value tokens, types;
    bool found = false, has_types = false;
    int64_t eot = -1, eom = -1;
    enum status status = gguf_read_string(gguf, "tokenizer.ggml.model", &model, err);
    bool is_spm = gguf_string_is(model, "llama");
    *out = (struct gguf_special){.is_spm = is_spm || gguf_string_is(model, "gemma4"),
                                 .has_merges = !is_spm,
                                 .bos = is_spm ? 1 : -1,
                                 .eos = is_spm ? 2 : -1,
                                 .unk = is_spm ? 0 : -1,
                                 .pad = -1};
    if (!status) status = gguf_read_array(gguf, tokens_key, GGUF_STRING, &tokens, &found, err);
    if (!status && found) out->num_tokens = tokens.count;
    if (!status && out->num_tokens > TOKENS_MAX) {
        status = err_set(err, ERR_FORMAT, "%s has %llu tokens, want at most %d", gguf_path(gguf),
                         (unsigned long long)out->num_tokens, TOKENS_MAX);
    }
    const struct {
        const char *name;
        int64_t *id;
    } roles[] = {{"bos", &out->bos},     {"eos", &out->eos}, {"unknown", &out->unk},
                 {"padding", &out->pad}, {"eot", &eot},      {"eom", &eom}};
    for (size_t i = 0; i < ARRAY_LEN(roles) && !status; i++) {
        status = read_id(gguf, out, roles[i].name, roles[i].id, err);
    }
    if (!status && found) status = read_types(gguf, out->num_tokens, &types, &has_types, err);
    if (status) return status;
    add_end(out, out->eos);
    add_end(out, eot);
    add_end(out, eom);
    if (has_types) find_ends(out, &tokens, &types);
    return OK;
}

// The state of writing tokenizer.json.
struct writer {
    const struct gguf *gguf;
    struct gguf_special special;
    struct gguf_value tokens, types;
    bool has_types;
    bool adds_bos, adds_eos, adds_space;
    struct gguf_split_rule rule; // of BPE
    struct json_out *out;
    struct err *err;
};

static void write_string(struct json_out *out, struct gguf_string string) {
    json_out_string(out, string.text, string.len);
}

// A file may have empty tokens; each needs a text of its own.
static struct gguf_string text_of(struct gguf_string token, uint64_t id, char own[32]) {
    if (token.len) return token;
    int len = snprintf(own, 32, "[EMPTY_%llu]", (unsigned long long)id);
    return (struct gguf_string){own, (uint64_t)len};
}

static void write_token(struct json_out *out, struct gguf_string token, uint64_t id) {
    char own[32];
    write_string(out, text_of(token, id, own));
}

// Tokens that pad the vocabulary come last, and no text has them: they are left out.
static uint64_t count_used(const struct writer *w) {
    uint64_t count = w->special.num_tokens;
    while (count && type_at(&w->types, w->has_types, count - 1) == GGUF_TOKEN_UNUSED) count--;
    return count;
}

static bool is_end(const struct gguf_special *special, uint64_t id) {
    for (size_t i = 0; i < special->num_ends; i++) {
        if (special->ends[i] == (int64_t)id) return true;
    }
    return false;
}

static void write_added_tokens(const struct writer *w) {
    const char *at = w->tokens.data;
    bool is_first = true;
    json_out_raw(w->out, "\"added_tokens\": [");
    for (uint64_t id = 0, count = count_used(w); id < count; id++) {
        struct gguf_string text = gguf_next_string(&at);
        int64_t type = type_at(&w->types, w->has_types, id);
        bool is_special = type == GGUF_TOKEN_CONTROL || type == GGUF_TOKEN_UNKNOWN ||
                          (is_control(type) && is_end(&w->special, id));
        if (!is_special && type != GGUF_TOKEN_USER_DEFINED) continue;
        json_out_rawf(w->out, "%s{\"id\": %llu, \"content\": ", is_first ? "" : ", ",
                      (unsigned long long)id);
        write_token(w->out, text, id);
        json_out_rawf(w->out, ", \"normalized\": false, \"special\": %s}",
                      is_special ? "true" : "false");
        is_first = false;
    }
    json_out_raw(w->out, "]");
}

static void write_vocab(const struct writer *w) {
    const char *at = w->tokens.data;
    json_out_raw(w->out, "\"vocab\": {");
    for (uint64_t id = 0, count = count_used(w); id < count; id++) {
        json_out_raw(w->out, id ? ", " : "");
        write_token(w->out, gguf_next_string(&at), id);
        json_out_rawf(w->out, ": %llu", (unsigned long long)id);
    }
    json_out_raw(w->out, "}");
}

static struct gguf_string token_at(const struct gguf_value *tokens, int64_t id) {
    const char *at = tokens->data;
    struct gguf_string text = gguf_next_string(&at);
    for (int64_t i = 0; i < id; i++) text = gguf_next_string(&at);
    return text;
}

static void write_post_processor(const struct writer *w) {
    const int64_t ids[2] = {w->adds_bos ? w->special.bos : -1, w->adds_eos ? w->special.eos : -1};
    struct token_text texts[2];
    char own[2][32];
    for (int i = 0; i < 2; i++) {
        if (ids[i] < 0) continue;
        struct gguf_string text = text_of(token_at(&w->tokens, ids[i]), (uint64_t)ids[i], own[i]);
        texts[i] = (struct token_text){.text = text.text, .len = text.len};
    }
    token_json_post_processor(w->out, ids[0] < 0 ? NULL : &texts[0], ids[0],
                              ids[1] < 0 ? NULL : &texts[1], ids[1]);
}

static enum status write_bpe_merges(const struct writer *w) {
    struct gguf_value merges;
    bool found = false;
    enum status status =
        gguf_read_array(w->gguf, "tokenizer.ggml.merges", GGUF_STRING, &merges, &found, w->err);
    if (status) return status;
    if (!found) return gguf_missing(w->gguf, "tokenizer.ggml.merges", w->err);
    const char *at = merges.data;
    json_out_raw(w->out, "\"merges\": [");
    for (uint64_t i = 0; i < merges.count; i++) {
        json_out_raw(w->out, i ? ", " : "");
        write_string(w->out, gguf_next_string(&at));
    }
    json_out_raw(w->out, "]");
    return OK;
}

static enum status write_model(const struct writer *w) {
    json_out_raw(w->out, "\"model\": {\"type\": \"BPE\", ");
    if (w->special.is_spm) {
        json_out_raw(w->out, "\"byte_fallback\": true, \"fuse_unk\": true, ");
    } else if (w->rule.ignores_merges) {
        json_out_raw(w->out, "\"ignore_merges\": true, ");
    }
    if (w->special.unk >= 0) {
        json_out_raw(w->out, "\"unk_token\": ");
        write_token(w->out, token_at(&w->tokens, w->special.unk), (uint64_t)w->special.unk);
        json_out_raw(w->out, ", ");
    }
    write_vocab(w);
    json_out_raw(w->out, ", ");
    enum status status = w->special.has_merges ? write_bpe_merges(w)
                                               : gguf_write_spm_merges(w->gguf, w->out, w->err);
    json_out_raw(w->out, "}");
    return status;
}

// The rule of byte-level BPE, by its name.
static enum status find_rule(struct writer *w) {
    struct gguf_string name = {"default", 7};
    struct gguf_value unused;
    static const char key[] = "tokenizer.ggml.pre";
    enum status status = gguf_read_string(w->gguf, key, &name, w->err);
    if (status) return status;
    if (!gguf_find(w->gguf, key, &unused)) {
        log_warning("%s has no \"%s\": words are cut by a rule that may not be the model's",
                    gguf_path(w->gguf), key);
    }
    if (gguf_find_split_rule(name, &w->rule)) return OK;
    return err_set(w->err, ERR_UNSUPPORTED, "%s: \"%s\" is \"%.*s\", which is not supported",
                   gguf_path(w->gguf), key, (int)name.len, name.text);
}

// Finds out how the tokenizer works.
static enum status read_kind(struct writer *w) {
    struct gguf_string model = {"", 0};
    enum status status = gguf_read_string(w->gguf, "tokenizer.ggml.model", &model, w->err);
    if (status) return status;
    if (!w->special.is_spm && !gguf_string_is(model, "gpt2")) {
        return err_set(w->err, ERR_UNSUPPORTED,
                       "%s: \"tokenizer.ggml.model\" is \"%.*s\", want gpt2, llama or gemma4",
                       gguf_path(w->gguf), (int)model.len, model.text);
    }
    w->adds_space = !w->special.has_merges;
    if (!w->special.is_spm) status = find_rule(w);
    w->adds_bos = w->special.is_spm || w->rule.adds_bos;
    if (!status) {
        status = gguf_read_bool(w->gguf, "tokenizer.ggml.add_space_prefix", &w->adds_space, w->err);
    }
    if (!status) {
        status = gguf_read_bool(w->gguf, "tokenizer.ggml.add_bos_token", &w->adds_bos, w->err);
    }
    if (!status) {
        status = gguf_read_bool(w->gguf, "tokenizer.ggml.add_eos_token", &w->adds_eos, w->err);
    }
    if (status) return status;
    if (!w->special.is_spm && w->adds_space) {
        return err_set(w->err, ERR_UNSUPPORTED,
                       "%s: \"tokenizer.ggml.add_space_prefix\" with gpt2 is not supported",
                       gguf_path(w->gguf));
    }
    if ((!w->adds_bos || w->special.bos >= 0) && (!w->adds_eos || w->special.eos >= 0)) return OK;
    return err_set(w->err, ERR_FORMAT, "%s adds a token to prompts that it does not have (%s)",
                   gguf_path(w->gguf), w->adds_bos && w->special.bos < 0 ? "bos" : "eos");
}

static enum status writer_open(struct writer *w, const struct gguf *gguf, struct json_out *out,
                               struct err *err) {
    bool found = false;
    *w = (struct writer){.gguf = gguf, .out = out, .err = err};
    enum status status = gguf_special_read(&w->special, gguf, err);
    if (!status) status = gguf_read_array(gguf, tokens_key, GGUF_STRING, &w->tokens, &found, err);
    if (!status && (!found || !w->special.num_tokens)) status = gguf_missing(gguf, tokens_key, err);
    if (!status) status = read_types(gguf, w->special.num_tokens, &w->types, &w->has_types, err);
    return status;
}

enum status gguf_write_tokenizer(const struct gguf *gguf, struct json_out *out, struct err *err) {
    struct writer w;
    enum status status = writer_open(&w, gguf, out, err);
    if (!status) status = read_kind(&w);
    if (status) return status;
    json_out_raw(out, "{\"version\": \"1.0\", ");
    if (w.special.is_spm) {
        token_json_spm_components(out, w.adds_space);
    } else {
        token_json_byte_level_components(out, w.rule.patterns);
    }
    write_post_processor(&w);
    status = write_model(&w);
    json_out_raw(out, ", ");
    write_added_tokens(&w);
    json_out_raw(out, "}");
    return status;
}

enum status gguf_write_tokenizer_config(const struct gguf *gguf, struct json_out *out,
                                        struct err *err) {
    struct writer w;
    enum status status = writer_open(&w, gguf, out, err);
    if (status) return status;
    const struct {
        const char *name;
        int64_t id;
    } roles[] = {{"bos_token", w.special.bos},
                 {"eos_token", w.special.eos},
                 {"unk_token", w.special.unk},
                 {"pad_token", w.special.pad}};
    bool is_first = true;
    json_out_raw(out, "{");
    for (size_t i = 0; i < ARRAY_LEN(roles); i++) {
        if (roles[i].id < 0) continue;
        json_out_rawf(out, "%s\"%s\": ", is_first ? "" : ", ", roles[i].name);
        write_token(out, token_at(&w.tokens, roles[i].id), (uint64_t)roles[i].id);
        is_first = false;
    }
    json_out_raw(out, "}");
    return OK;
}
