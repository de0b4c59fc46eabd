/* A frame is an array that is searched from its beginning. Scopes are small, and a 32-bit key
 * decides nearly every comparison. Long searches cost steps, so that a template of many names
 * cannot make few steps take long. Frames that no macro keeps are used again. */
#include "jinja/src/run/scope.h"

#include <string.h>

#include "jinja/src/library/library.h"

enum {
    ENTRIES_MIN = 8,
    ENTRIES_PER_STEP = 32,
};

// Length, first and last bytes: names that share these are compared as a whole.
static uint32_t name_key(const struct jinja_string *name) {
    uint64_t first = 0, last = 0;
    size_t len = name->len < sizeof(first) ? name->len : sizeof(first);
    memcpy(&first, name->data, len);
    memcpy(&last, name->data + name->len - len, len);
    uint64_t mixed = (first ^ name->len) * 0x9e3779b97f4a7c15u + last * 0xc2b2ae3d27d4eb4fu;
    return (uint32_t)(mixed >> 32);
}

static struct jinja_frame_entry *find(const struct jinja_frame *frame,
                                      const struct jinja_string *name, uint32_t key) {
    for (size_t i = 0; i < frame->len; ++i) {
        struct jinja_frame_entry *entry = &frame->entries[i];
        if (entry->key == key && jinja_string_equal(entry->name, name)) return entry;
    }
    return NULL;
}

static enum status grow(struct jinja_run *run, struct jinja_frame *frame) {
    size_t capacity = frame->capacity ? frame->capacity * 2 : ENTRIES_MIN;
    struct jinja_frame_entry *entries = jinja_run_alloc_array(run, capacity, sizeof(*entries));
    if (!entries) return jinja_run_status(run);
    if (frame->len) memcpy(entries, frame->entries, frame->len * sizeof(*entries));
    frame->entries = entries;
    frame->capacity = capacity;
    return OK;
}

// The entry of `name` in the innermost frame, made if there is none.
static enum status provide(struct jinja_run *run, const struct jinja_string *name,
                           struct jinja_frame_entry **out) {
    struct jinja_frame *frame = run->frame;
    uint32_t key = name_key(name);
    enum status status = jinja_run_pay(run, frame->len / ENTRIES_PER_STEP);
    if (status) return status;
    *out = find(frame, name, key);
    if (*out) return OK;
    if (frame->len == frame->capacity) {
        status = grow(run, frame);
        if (status) return status;
    }
    *out = &frame->entries[frame->len++];
    **out = (struct jinja_frame_entry){.name = name, .key = key, .is_unset = true};
    return OK;
}

enum status jinja_scope_reset(struct jinja_run *run, const struct jinja_block *block) {
    struct jinja_frame *frame = run->frame;
    frame->len = 0;
    for (size_t i = 0; i < block->num_unset; ++i) { // each once: no search
        if (frame->len == frame->capacity) {
            enum status status = grow(run, frame);
            if (status) return status;
        }
        const struct jinja_string *name = block->unset[i];
        frame->entries[frame->len++] =
            (struct jinja_frame_entry){.name = name, .key = name_key(name), .is_unset = true};
    }
    return jinja_run_pay(run, block->num_unset / ENTRIES_PER_STEP);
}

enum status jinja_scope_enter(struct jinja_run *run, struct jinja_frame *parent,
                              const struct jinja_block *block) {
    struct jinja_frame *frame = run->spare_frames;
    if (frame) {
        run->spare_frames = frame->parent;
    } else {
        frame = jinja_run_alloc(run, sizeof(*frame));
        if (!frame) return jinja_run_status(run);
        *frame = (struct jinja_frame){0};
    }
    frame->parent = parent;
    frame->is_isolated = false;
    run->frame = frame;
    return jinja_scope_reset(run, block);
}

void jinja_scope_leave(struct jinja_run *run, struct jinja_frame *outer) {
    struct jinja_frame *frame = run->frame;
    run->frame = outer;
    if (frame->is_captured) return;
    frame->parent = run->spare_frames;
    run->spare_frames = frame;
}

void jinja_scope_capture(struct jinja_run *run) {
    for (struct jinja_frame *frame = run->frame; frame && !frame->is_captured;
         frame = frame->parent)
        frame->is_captured = true;
}

enum status jinja_scope_set(struct jinja_run *run, const struct jinja_string *name,
                            struct jinja_value value) {
    struct jinja_frame_entry *entry;
    enum status status = provide(run, name, &entry);
    if (status) return status;
    entry->value = value;
    entry->is_unset = false;
    return OK;
}

enum status jinja_scope_set_unset(struct jinja_run *run, const struct jinja_string *name) {
    struct jinja_frame_entry *entry;
    enum status status = provide(run, name, &entry);
    if (status) return status;
    entry->is_unset = true;
    return OK;
}

static enum status undefined_name(struct jinja_run *run, const struct jinja_string *name,
                                  struct jinja_value *out) {
    return jinja_value_undefined(run, out, "'%.*s' is undefined", jinja_name_shown_len(name),
                                 name->data);
}

static enum status get_global(struct jinja_run *run, const struct jinja_string *name,
                              struct jinja_value *out) {
    bool found;
    enum status status =
        jinja_dict_get(run, run->variables.dict, jinja_value_of_string(name), &found, out);
    if (status || found) return status;
    const struct jinja_function *function = jinja_library_function(name);
    if (!function) return undefined_name(run, name, out);
    if (!function->run)
        return jinja_run_fail(run, "function '%s' of Jinja2 is not supported", function->name);
    *out = (struct jinja_value){.type = JINJA_FUNCTION, .function = function};
    return OK;
}

enum status jinja_scope_get(struct jinja_run *run, const struct jinja_string *name,
                            struct jinja_value *out) {
    uint32_t key = name_key(name);
    bool is_isolated = false;
    size_t num_searched = 0;
    const struct jinja_frame_entry *entry = NULL;
    for (const struct jinja_frame *frame = run->frame; frame && !entry; frame = frame->parent) {
        entry = find(frame, name, key);
        // Inside a block tag Jinja looks names up in the context, which has only names with a
        // value.
        if (entry && entry->is_unset && is_isolated) entry = NULL;
        is_isolated |= frame->is_isolated;
        num_searched += frame->len;
    }
    enum status status = jinja_run_pay(run, num_searched / ENTRIES_PER_STEP);
    if (status) return status;
    if (!entry) return get_global(run, name, out);
    if (entry->is_unset) return undefined_name(run, name, out);
    *out = entry->value;
    return OK;
}
