#include "hub/hub_name.h"

#include <stdio.h>
#include <string.h>

#include "base/text/c_locale.h"

static bool is_name_byte(char c) {
    return c_locale_is_alnum(c) || c == '_' || c == '-' || c == '.';
}

// One part of a name: it begins and ends with a letter, a digit or '_'.
static bool is_part(const char *text, size_t len) {
    if (!len || len > 96) return false;
    for (size_t i = 0; i < len; i++) {
        if (!is_name_byte(text[i])) return false;
        bool is_mark = text[i] == '-' || text[i] == '.';
        if (is_mark && (i == 0 || i + 1 == len)) return false;
        // "--" stands for the slash in the cache's folders.
        if (is_mark && text[i + 1] == text[i]) return false;
    }
    return true;
}

bool hub_name_parse(struct hub_name *name, const char *text) {
    *name = (struct hub_name){0};
    const char *slash = strchr(text, '/'), *colon = strchr(text, ':');
    if (!slash || (colon && colon < slash)) return false;
    const char *end = colon ? colon : text + strlen(text);
    size_t first = (size_t)(slash - text), second = (size_t)(end - slash) - 1;
    if (!is_part(text, first) || !is_part(slash + 1, second)) return false;
    // A folder of this name belongs to the source and to installations.
    if (first == strlen("models") && memcmp(text, "models", first) == 0) return false;
    if (colon) {
        size_t len = strlen(colon + 1);
        if (!len || len >= sizeof name->quant) return false;
        for (size_t i = 0; i < len; i++) {
            if (!is_name_byte(colon[1 + i])) return false;
        }
        memcpy(name->quant, colon + 1, len + 1);
    }
    snprintf(name->id, sizeof name->id, "%.*s", (int)(end - text), text);
    snprintf(name->folder, sizeof name->folder, "models--%.*s--%.*s", (int)first, text, (int)second,
             slash + 1);
    return true;
}

// Parts between slashes, none of them empty, "." or "..".
static bool has_safe_parts(const char *text) {
    while (true) {
        size_t len = strcspn(text, "/");
        if (!len || len > 255) return false;
        if (strspn(text, ".") >= len) return false;
        if (!text[len]) return true;
        text += len + 1;
    }
}

enum status hub_revision_check(const char *revision, struct err *err) {
    size_t len = strlen(revision);
    bool is_valid =
        len && len < HUB_REVISION_MAX && has_safe_parts(revision) && !strstr(revision, "..");
    for (size_t i = 0; i < len && is_valid; i++) {
        is_valid = is_name_byte(revision[i]) || strchr("/+", revision[i]);
    }
    if (is_valid) return OK;
    return err_set(err, ERR_INVALID,
                   "the revision is \"%.100s\", want a branch, a tag or a commit of the model",
                   revision);
}

bool hub_is_commit(const char *revision) {
    return strlen(revision) == 40 && strspn(revision, "0123456789abcdef") == 40;
}

bool hub_file_name_is_safe(const char *name) {
    size_t len = strlen(name);
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)name[i] < ' ' || name[i] == '\\' || name[i] == 0x7f) return false;
    }
    return len <= 1000 && has_safe_parts(name);
}
