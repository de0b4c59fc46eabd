#include "support/config_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/cmocka_all.h"

// The required keys.
static const struct field base_fields[] = {
    {"architectures", "[\"Qwen3ForCausalLM\"]"},
    {"vocab_size", "1000"},
    {"hidden_size", "256"},
    {"intermediate_size", "512"},
    {"num_hidden_layers", "3"},
    {"num_attention_heads", "4"},
    {"max_position_embeddings", "2048"},
};

char *make_config(const struct field changes[CHANGES_MAX]) {
    size_t capacity = 4096;
    for (size_t i = 0; i < CHANGES_MAX; i++) {
        if (changes[i].value) capacity += strlen(changes[i].value);
    }
    char *text = malloc(capacity);
    assert_non_null(text);
    size_t used = (size_t)snprintf(text, capacity, "{\"model_type\": \"qwen3\"");
    for (size_t i = 0; i < sizeof base_fields / sizeof base_fields[0]; i++) {
        bool changed = false;
        for (size_t k = 0; k < CHANGES_MAX; k++) {
            if (changes[k].key && !strcmp(changes[k].key, base_fields[i].key)) changed = true;
        }
        if (changed) continue;
        used += (size_t)snprintf(text + used, capacity - used, ", \"%s\": %s", base_fields[i].key,
                                 base_fields[i].value);
    }
    for (size_t k = 0; k < CHANGES_MAX; k++) {
        if (!changes[k].key || !changes[k].value) continue;
        used += (size_t)snprintf(text + used, capacity - used, ", \"%s\": %s", changes[k].key,
                                 changes[k].value);
    }
    snprintf(text + used, capacity - used, "}");
    return text;
}

struct model_config parse_ok(const struct field changes[CHANGES_MAX]) {
    char *text = make_config(changes);
    struct model_config config;
    struct err err = {0};
    if (model_config_parse(&config, text, strlen(text), "c.json", &err) != OK) {
        fail_msg("%s\n%s", err.message, text);
    }
    free(text);
    return config;
}

void expect_words(const struct err *err, const char *words) {
    char copy[512];
    snprintf(copy, sizeof copy, "%s", words);
    for (char *save, *word = strtok_r(copy, "|", &save); word; word = strtok_r(NULL, "|", &save)) {
        if (!strstr(err->message, word)) fail_msg("no \"%s\" in: %s", word, err->message);
    }
}

void text_refused(const char *text, enum status status, const char *words) {
    struct model_config config;
    struct err err = {0};
    enum status found = model_config_parse(&config, text, strlen(text), "c.json", &err);
    if (found != status) fail_msg("%s: status %s: %s", text, status_name(found), err.message);
    expect_words(&err, "c.json");
    expect_words(&err, words);
    assert_int_equal(config.architecture[0], 0); // a refused config is left empty
    assert_int_equal(config.vocab_size, 0);
    assert_null(config.eos_token_ids);
}

void refuse_all(const struct refusal *cases, size_t count) {
    for (size_t i = 0; i < count; i++) {
        char *text = make_config(cases[i].changes);
        text_refused(text, cases[i].status, cases[i].words);
        free(text);
    }
}

static char *read_file(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) fail_msg("cannot open %s", path);
    char *text = calloc(1, 65536);
    assert_non_null(text);
    assert_true(fread(text, 1, 65535, file) > 0);
    fclose(file);
    return text;
}

void parse_path(struct model_config *config, const char *path) {
    struct err err = {0};
    char *text = read_file(path);
    if (model_config_parse(config, text, strlen(text), path, &err) != OK) {
        fail_msg("%s", err.message);
    }
    free(text);
}
