#include "hub/hub_settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/blank.h"
#include "base/text/c_locale.h"

#define HUB_ENDPOINT "https://huggingface.co"

static const double timeout_seconds_default = 10, timeout_seconds_max = 86400;

// A variable that is set to nothing counts as not set. NULL: not set.
static const char *variable(const char *name) {
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

// The first of these variables that is set.
static const char *first_variable(const char *const *names) {
    const char *value = NULL;
    while (*names && !(value = variable(*names++))) continue;
    return value;
}

static bool is_true(const char *name) {
    static const char *const words[] = {"1", "on", "yes", "true"};
    const char *value = variable(name);
    if (!value || strlen(value) > 4) return false;
    char lower[8] = "";
    for (size_t i = 0; value[i]; i++) {
        lower[i] = value[i] >= 'A' && value[i] <= 'Z' ? (char)(value[i] + 'a' - 'A') : value[i];
    }
    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        if (strcmp(lower, words[i]) == 0) return true;
    }
    return false;
}

// "<path><below>", where a path that begins with "~/" is in the user's home.
static enum status put_path(char out[FILE_PATH_MAX], const char *path, const char *below,
                            struct err *err) {
    const char *home = "";
    if (path[0] == '~' && (path[1] == '/' || !path[1])) {
        home = variable("HOME");
        if (!home) return err_set(err, ERR_IO, "%s: HOME is not set", path);
        path++;
    }
    int len = snprintf(out, FILE_PATH_MAX, "%s%s%s", home, path, below);
    if (len > 0 && len < FILE_PATH_MAX) return OK;
    return err_set(err, ERR_INVALID, "path too long: %.64s...", path);
}

// "<HF_HOME><below>".
static enum status put_below_home(char out[FILE_PATH_MAX], const char *below, struct err *err) {
    const char *home = variable("HF_HOME"), *cache = variable("XDG_CACHE_HOME");
    char path[FILE_PATH_MAX] = "";
    if (home) return put_path(out, home, below, err);
    enum status status = put_path(path, cache ? cache : "~/.cache", "/huggingface", err);
    return status ? status : put_path(out, path, below, err);
}

static enum status put_endpoint(char out[HUB_ENDPOINT_MAX], struct err *err) {
    const char *endpoint = variable("HF_ENDPOINT");
    if (!endpoint) endpoint = HUB_ENDPOINT;
    size_t len = strlen(endpoint);
    while (len && endpoint[len - 1] == '/') len--;
    bool is_url = strncmp(endpoint, "http://", 7) == 0 || strncmp(endpoint, "https://", 8) == 0;
    for (size_t i = 0; i < len; i++) is_url = is_url && endpoint[i] > ' ' && endpoint[i] < 0x7f;
    if (!is_url || len >= HUB_ENDPOINT_MAX) {
        return err_set(err, ERR_INVALID, "HF_ENDPOINT is %.100s, want an http or https URL",
                       endpoint);
    }
    snprintf(out, HUB_ENDPOINT_MAX, "%.*s", (int)len, endpoint);
    return OK;
}

enum status hub_settings_read(struct hub_settings *settings, struct err *err) {
    static const char *const caches[] = {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", NULL};
    static const char *const authorities[] = {"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE",
                                              "CURL_CA_BUNDLE", NULL};
    *settings = (struct hub_settings){.is_offline = is_true("HF_HUB_OFFLINE") ||
                                                    is_true("TRANSFORMERS_OFFLINE"),
                                      .timeout_seconds = timeout_seconds_default};
    const char *cache = first_variable(caches), *authority = first_variable(authorities);
    enum status status = cache ? put_path(settings->cache, cache, "", err)
                               : put_below_home(settings->cache, "/hub", err);
    if (!status && authority) status = put_path(settings->ca_file, authority, "", err);
    if (!status) status = put_endpoint(settings->endpoint, err);
    const char *timeout = variable("HF_HUB_DOWNLOAD_TIMEOUT");
    if (status || !timeout) return status;
    char *end;
    double seconds = c_locale_strtod(timeout, &end);
    if (*end || !(seconds > 0) || seconds > timeout_seconds_max) {
        return err_set(err, ERR_INVALID, "HF_HUB_DOWNLOAD_TIMEOUT is %.50s, want seconds", timeout);
    }
    settings->timeout_seconds = seconds;
    return OK;
}

enum status hub_settings_read_token(struct hub_settings *settings, struct err *err) {
    static const char *const tokens[] = {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", NULL};
    settings->token[0] = '\0';
    if (is_true("HF_HUB_DISABLE_IMPLICIT_TOKEN")) return OK;
    const char *token = first_variable(tokens), *from = "HF_TOKEN";
    const char *given = variable("HF_TOKEN_PATH");
    char path[FILE_PATH_MAX];
    struct buf text = {0};
    enum status status = OK;
    if (!token) {
        status = given ? put_path(path, given, "", err) : put_below_home(path, "/token", err);
        if (!status && !file_exists(path)) return OK;
        if (!status) status = file_read(&text, path, err);
        token = text.data;
        from = path;
    }
    if (status) {
        buf_fini(&text);
        return status;
    }
    size_t len = strlen(token);
    while (len && is_blank(token[len - 1])) len--;
    while (len && is_blank(*token)) token++, len--;
    // It becomes a line of a request, so it must not end that line.
    bool is_valid = len < sizeof settings->token;
    for (size_t i = 0; i < len; i++) is_valid = is_valid && token[i] > ' ' && token[i] < 0x7f;
    if (is_valid) {
        memcpy(settings->token, token, len);
        settings->token[len] = '\0';
    } else {
        status = err_set(err, ERR_INVALID, "%s: a token has up to %d letters, digits and marks",
                         from, HUB_TOKEN_MAX - 1);
    }
    buf_fini(&text);
    return status;
}
