#include "hub/hub_reply.h"

#include <stdio.h>
#include <string.h>

#include "base/text/blank.h"
#include "base/text/c_locale.h"

void hub_reply_init(struct hub_reply *reply) {
    *reply = (struct hub_reply){.size = HUB_SIZE_UNKNOWN, .retry_after = -1};
}

// The value of the header `name` (in lower case); *len its length. NULL: another header.
static const char *value_of(const char *line, size_t *len, const char *name) {
    size_t name_len = strlen(name);
    if (*len <= name_len || line[name_len] != ':') return NULL;
    for (size_t i = 0; i < name_len; i++) {
        char c = line[i] >= 'A' && line[i] <= 'Z' ? (char)(line[i] + 'a' - 'A') : line[i];
        if (c != name[i]) return NULL;
    }
    line += name_len + 1;
    *len -= name_len + 1;
    while (*len && is_blank(*line)) line++, --*len;
    while (*len && is_blank(line[*len - 1])) --*len;
    return line;
}

// W/"abc" is abc. What is no hash counts as none.
static void take_etag(char etag[HUB_ETAG_MAX], const char *value, size_t len) {
    etag[0] = '\0';
    if (len > 2 && value[0] == 'W' && value[1] == '/') value += 2, len -= 2;
    if (len > 1 && value[0] == '"' && value[len - 1] == '"') value++, len -= 2;
    if (len != 40 && len != 64) return;
    for (size_t i = 0; i < len; i++) {
        bool is_digit = c_locale_is_digit(value[i]) || (value[i] >= 'a' && value[i] <= 'f');
        if (!is_digit) return;
    }
    memcpy(etag, value, len);
    etag[len] = '\0';
}

static bool take_number(uint64_t *number, const char *value, size_t len) {
    uint64_t sum = 0;
    if (!len || len > 15) return false; // below 2^50
    for (size_t i = 0; i < len; i++) {
        if (!c_locale_is_digit(value[i])) return false;
        sum = 10 * sum + (uint64_t)(value[i] - '0');
    }
    *number = sum;
    return true;
}

static void take_text(char *out, size_t size, const char *value, size_t len) {
    snprintf(out, size, "%.*s", (int)(len < size ? len : size - 1), value);
}

// "bytes 100-199/200"
static void take_range(struct hub_reply *reply, const char *value, size_t len) {
    static const char unit[] = "bytes ";
    const size_t unit_len = sizeof unit - 1;
    if (len <= unit_len || memcmp(value, unit, unit_len) != 0) return;
    const char *dash = memchr(value, '-', len);
    if (!dash || dash < value + unit_len) return;
    reply->has_range =
        take_number(&reply->range_start, value + unit_len, (size_t)(dash - value) - unit_len);
}

void hub_reply_take_header(struct hub_reply *reply, const char *line, size_t len) {
    const char *value;
    size_t n = len;
    if ((value = value_of(line, &n, "x-linked-etag"))) {
        take_etag(reply->etag, value, n);
        reply->is_linked = true;
    } else if (n = len, (value = value_of(line, &n, "etag"))) {
        if (!reply->is_linked) take_etag(reply->etag, value, n);
    } else if (n = len, (value = value_of(line, &n, "x-linked-size"))) {
        reply->has_linked_size = take_number(&reply->size, value, n);
    } else if (n = len, (value = value_of(line, &n, "content-length"))) {
        if (!reply->has_linked_size) take_number(&reply->size, value, n);
    } else if (n = len, (value = value_of(line, &n, "x-repo-commit"))) {
        take_text(reply->commit, sizeof reply->commit, value, n);
    } else if (n = len, (value = value_of(line, &n, "content-range"))) {
        take_range(reply, value, n);
    } else if (n = len, (value = value_of(line, &n, "retry-after"))) {
        uint64_t seconds;
        if (take_number(&seconds, value, n)) reply->retry_after = (double)seconds;
    } else if (n = len, (value = value_of(line, &n, "x-error-code"))) {
        take_text(reply->error_code, sizeof reply->error_code, value, n);
    } else if (n = len, (value = value_of(line, &n, "x-error-message"))) {
        take_text(reply->error_message, sizeof reply->error_message, value, n);
    }
}

// ---- sentences ----

static enum status refuse_access(const struct hub_reply *reply, const struct hub_settings *settings,
                                 const struct hub_wish *wish, struct err *err) {
    const char *id = wish->name->id;
    if (strcmp(reply->error_code, "GatedRepo") == 0) {
        return err_set(
            err, ERR_IO,
            "%s is gated: accept its terms at %s/%s, and set HF_TOKEN to a token of that "
            "account%s",
            id, settings->endpoint, id,
            *settings->token ? "; the present token may not read it" : "");
    }
    if (*settings->token) {
        return err_set(err, ERR_IO,
                       "%s may not read %s with this token (HTTP %ld%s%s): is the name right, and "
                       "the token valid?",
                       settings->endpoint, id, reply->http_status,
                       *reply->error_message ? ", " : "", reply->error_message);
    }
    return err_set(err, ERR_IO,
                   "%s has no model %s, or it is private: a private one needs HF_TOKEN",
                   settings->endpoint, id);
}

enum status hub_reply_refuse(const struct hub_reply *reply, const struct hub_settings *settings,
                             const struct hub_wish *wish, const char *file, struct err *err) {
    const char *id = wish->name->id, *code = reply->error_code;
    if (reply->http_status == 401 || reply->http_status == 403) {
        return refuse_access(reply, settings, wish, err);
    }
    if (reply->http_status == 404 && strcmp(code, "RevisionNotFound") == 0) {
        return err_set(err, ERR_IO, "%s has no revision %s", id,
                       wish->revision ? wish->revision : "main");
    }
    if (reply->http_status == 404 && file) {
        return err_set(err, ERR_IO, "%s has no file %s", id, file);
    }
    if (reply->http_status == 404) {
        return err_set(err, ERR_IO, "%s has no model %s", settings->endpoint, id);
    }
    if (reply->http_status == 429) {
        return err_set(err, ERR_IO,
                       "%s refuses more requests for now (HTTP 429): wait, or set HF_TOKEN",
                       settings->endpoint);
    }
    return err_set(err, ERR_IO, "%s answers with HTTP %ld for %s%s%s%s%s", settings->endpoint,
                   reply->http_status, id, file ? "/" : "", file ? file : "",
                   *reply->error_message ? ": " : "", reply->error_message);
}
