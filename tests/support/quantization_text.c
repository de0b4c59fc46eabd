#include "support/quantization_text.h"

#include <stdio.h>
#include <string.h>

#include "support/cmocka_all.h"

// `text`: "quantization_config", or all of config.json.
static enum status read_text(struct quantization_config *config, const char *text,
                             struct err *err) {
    char whole[2048];
    bool is_all = strstr(text, "\"architectures\"") != NULL;
    snprintf(whole, sizeof whole, is_all ? "%s" : "{\"quantization_config\": %s}", text);
    json_t *root = json_loads(whole, 0, NULL);
    if (!root) fail_msg("no JSON: %s", whole);
    enum status status = quantization_config_read(config, root, "config.json", err);
    json_decref(root);
    return status;
}

struct quantization_config quantization_read(const char *text) {
    struct quantization_config config;
    struct err err = {0};
    if (read_text(&config, text, &err)) fail_msg("%s", err.message);
    return config;
}

void quantization_refused(enum status status, const char *text, const char *words) {
    struct quantization_config config;
    struct err err = {0};
    enum status found = read_text(&config, text, &err);
    if (found != status) fail_msg("%s: %s: %s", text, status_name(found), err.message);
    if (!strstr(err.message, words)) fail_msg("no \"%s\" in: %s", words, err.message);
    assert_int_equal(config.method, QUANTIZED_NOT);
    assert_null(config.skipped);
}
