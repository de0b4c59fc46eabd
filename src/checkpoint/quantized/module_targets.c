#include "checkpoint/quantized/module_targets.h"

#include <stdlib.h>
#include <string.h>

#include "text/effort.h"
#include "text/regex/regex.h"

static const char pattern_prefix[] = "re:";

enum status module_targets_add(struct module_targets *targets, const char *text, uint32_t owner,
                               const char *what, struct err *err) {
    for (uint32_t i = 0; i < targets->count; i++) {
        if (strcmp(targets->items[i].text, text) != 0) continue;
        targets->items[i].owner = owner;
        return OK;
    }
    const size_t prefix_len = sizeof pattern_prefix - 1;
    struct module_target *items =
        realloc(targets->items, (targets->count + 1) * sizeof *targets->items);
    if (!items) return err_nomem(err, "targets");
    targets->items = items;
    struct module_target target = {.text = strdup(text), .owner = owner};
    if (!target.text) return err_nomem(err, "targets");
    if (strncmp(text, pattern_prefix, prefix_len) == 0) {
        enum status status = regex_compile(&target.pattern, text + prefix_len, what, err);
        if (status) {
            free(target.text);
            return status;
        }
    }
    uint32_t at = targets->count++;
    for (; at && !targets->keeps_order && strcmp(items[at - 1].text, text) > 0; at--) {
        items[at] = items[at - 1];
    }
    items[at] = target;
    return OK;
}

void module_targets_fini(struct module_targets *targets) {
    for (uint32_t i = 0; i < targets->count; i++) {
        free(targets->items[i].text);
        regex_destroy(targets->items[i].pattern);
    }
    free(targets->items);
    *targets = (struct module_targets){0};
}

// Python's re.match: from the first character on, to anywhere.
static enum status matches(bool *is_match, const struct regex *pattern, const char *module,
                           struct err *err) {
    struct regex_scratch scratch = {0};
    struct regex_match match = {0};
    struct effort effort;
    size_t len = strlen(module);
    effort_begin(&effort, len, NULL);
    enum status status = regex_search(pattern, module, len, 0, &scratch, &effort, &match, err);
    *is_match = !status && match.found && match.start == 0;
    regex_scratch_fini(&scratch);
    return status;
}

static bool is_class(const char *text) {
    return strcmp(text, "Linear") == 0 || strcmp(text, "Module") == 0;
}

enum status module_targets_find(enum target_kind *kind, uint32_t *owner,
                                const struct module_targets *targets, const char *module,
                                struct err *err) {
    *kind = TARGET_NONE;
    *owner = 0;
    for (uint32_t i = 0; i < targets->count; i++) {
        const struct module_target *target = &targets->items[i];
        enum target_kind found = TARGET_NONE;
        bool is_match = false;
        if (target->pattern) {
            if (*kind <= TARGET_PATTERN) continue; // an earlier one
            enum status status = matches(&is_match, target->pattern, module, err);
            if (status) return status;
            if (is_match) found = TARGET_PATTERN;
        } else if (strcmp(target->text, module) == 0) {
            found = TARGET_NAME;
        } else if (is_class(target->text)) {
            found = TARGET_CLASS;
        }
        if (found >= *kind) continue;
        *kind = found;
        *owner = target->owner;
    }
    return OK;
}
