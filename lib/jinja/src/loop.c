/* See loop.h. Ranges and iterators are read in place; everything else through its list of items.
 *
 * An iterator that the body of its own loop walks, too, loses items to it, as Python's generators
 * do. What was taken ahead for loop.last or loop.nextitem stays with the loop. */
#include "jinja/src/loop.h"

#include "jinja/src/eval.h"
#include "jinja/src/exec.h"
#include "jinja/src/library.h"
#include "jinja/src/scope.h"

enum status loop_create(struct run *run, const struct for_stmt *stmt, struct value iterable,
                        struct loop **out) {
    struct loop *loop = run_alloc(run, sizeof(*loop));
    if (!loop) return run_status(run);
    *loop = (struct loop){.stmt = stmt,
                          .frame = run->frame,
                          .iterable = iterable,
                          .is_filtered = stmt->filter != NULL};
    *out = loop;
    if (iterable.type == VALUE_ITERATOR) return OK;
    loop->is_length_known = !loop->is_filtered;
    if (iterable.type == VALUE_RANGE) {
        loop->length = iterable.range->len;
        return OK;
    }
    enum status status = value_items(run, iterable, &loop->items);
    if (status) return status;
    loop->length = loop->items->len;
    return OK;
}

// ---- taking items ----

static bool take_raw(struct loop *loop, struct value *out) {
    if (loop->items) {
        if (loop->position == loop->items->len) return false;
        *out = loop->items->items[loop->position++];
        return true;
    }
    if (loop->iterable.type == VALUE_RANGE) {
        if (loop->position == loop->iterable.range->len) return false;
        *out = value_int(range_item(loop->iterable.range, loop->position++));
        return true;
    }
    struct iterator *iterator = loop->iterable.iterator;
    if (iterator->next == iterator->items->len) return false;
    *out = iterator->items->items[iterator->next++];
    return true;
}

// What the targets hold now, as tuples.
static enum status collect(struct run *run, const struct target *target, struct value *out) {
    if (target->type == TARGET_NAME) return scope_get(run, target->name, out);
    struct list *list;
    enum status status = list_create(run, target->num_items, &list);
    for (size_t i = 0; i < target->num_items && !status; ++i) {
        struct value item;
        status = collect(run, target->items[i], &item);
        if (!status) status = list_append(run, list, item);
    }
    if (!status) *out = value_of_tuple(list);
    return status;
}

// Whether the loop's `if` lets the item in, judged in a scope beside the body's. Behind it an item
// of several targets is their tuple, whatever it was before: Jinja's generator packs it anew.
static enum status judge(struct run *run, struct loop *loop, struct value *item, bool *passes) {
    static const struct block no_block = {0};
    const struct target *target = loop->stmt->target;
    struct frame *saved = run->frame;
    enum status status = scope_enter(run, loop->frame, &no_block);
    if (status) return status;
    status = exec_assign(run, target, *item);
    if (status) return status;
    struct value result;
    status = eval(run, loop->stmt->filter, &result);
    if (status) return status;
    *passes = value_is_true(result);
    if (*passes && target->type == TARGET_TUPLE) status = collect(run, target, item);
    scope_leave(run, saved);
    return status;
}

static enum status take(struct run *run, struct loop *loop, bool *found, struct value *out) {
    bool passes = false;
    for (;;) {
        enum status status = run_pay(run, 1);
        if (status) return status;
        *found = take_raw(loop, out);
        if (!*found || !loop->is_filtered) return OK;
        status = judge(run, loop, out, &passes);
        if (status || passes) return status;
    }
}

static enum status peek(struct run *run, struct loop *loop) {
    if (loop->has_after) return OK;
    return take(run, loop, &loop->has_after, &loop->after);
}

enum status loop_next(struct run *run, struct loop *loop, bool *found) {
    struct value next;
    if (loop->has_after) {
        next = loop->after;
        loop->has_after = false;
        *found = true;
    } else {
        enum status status = take(run, loop, found, &next);
        if (status || !*found) return status;
    }
    loop->before = loop->current;
    loop->current = next;
    loop->num_taken++;
    return OK;
}

enum status loop_length(struct run *run, struct loop *loop, size_t *length) {
    *length = loop->length;
    if (loop->is_length_known) return OK;
    struct list *rest;
    enum status status = list_create(run, 0, &rest);
    if (status) return status;
    for (;;) {
        bool found;
        struct value item;
        status = take(run, loop, &found, &item);
        if (status) return status;
        if (!found) break;
        status = list_append(run, rest, item);
        if (status) return status;
    }
    // From here on the loop reads what was let in, so that its `if` is asked once per item.
    loop->items = rest;
    loop->position = 0;
    loop->is_filtered = false;
    loop->is_length_known = true;
    loop->length = loop->num_taken + loop->has_after + rest->len;
    *length = loop->length;
    return OK;
}

// ---- what `loop` has ----

static enum status call_cycle(struct run *run, struct value self, const struct call_args *args,
                              struct value *out) {
    if (args->num_names) return run_fail(run, "cycle() takes no keyword arguments");
    if (!args->num_values) return run_fail(run, "no items for cycling given");
    size_t turn = self.loop->num_taken ? self.loop->num_taken - 1 : 0;
    *out = args->values[turn % args->num_values];
    return OK;
}

static enum status call_changed(struct run *run, struct value self, const struct call_args *args,
                                struct value *out) {
    if (args->num_names) return run_fail(run, "changed() takes no keyword arguments");
    struct list *values;
    enum status status = list_create(run, args->num_values, &values);
    for (size_t i = 0; i < args->num_values && !status; ++i)
        status = list_append(run, values, args->values[i]);
    if (status) return status;
    struct value now = value_of_tuple(values);
    bool is_equal = false;
    if (self.loop->changed.type == VALUE_TUPLE) {
        status = value_equal(run, self.loop->changed, now, &is_equal);
        if (status) return status;
    }
    self.loop->changed = now;
    *out = value_bool(!is_equal);
    return OK;
}

static enum status bind(struct run *run, struct loop *loop, const char *name, method_fn function,
                        struct value *out) {
    struct method *method = run_alloc(run, sizeof(*method));
    if (!method) return run_status(run);
    *method =
        (struct method){.name = name, .run = function, .self = {.type = VALUE_LOOP, .loop = loop}};
    *out = (struct value){.type = VALUE_METHOD, .method = method};
    return OK;
}

static enum status get_index0(struct run *run, struct loop *loop, struct value *out) {
    (void)run;
    *out = value_int((int64_t)loop->num_taken - 1);
    return OK;
}

static enum status get_index(struct run *run, struct loop *loop, struct value *out) {
    (void)run;
    *out = value_int((int64_t)loop->num_taken);
    return OK;
}

static enum status get_length(struct run *run, struct loop *loop, struct value *out) {
    size_t length;
    enum status status = loop_length(run, loop, &length);
    if (!status) *out = value_int((int64_t)length);
    return status;
}

static enum status get_revindex0(struct run *run, struct loop *loop, struct value *out) {
    enum status status = get_length(run, loop, out);
    if (!status) out->integer -= (int64_t)loop->num_taken;
    return status;
}

static enum status get_revindex(struct run *run, struct loop *loop, struct value *out) {
    enum status status = get_revindex0(run, loop, out);
    if (!status) out->integer++;
    return status;
}

static enum status get_first(struct run *run, struct loop *loop, struct value *out) {
    (void)run;
    *out = value_bool(loop->num_taken == 1);
    return OK;
}

static enum status get_last(struct run *run, struct loop *loop, struct value *out) {
    enum status status = peek(run, loop);
    if (!status) *out = value_bool(!loop->has_after);
    return status;
}

static enum status get_previtem(struct run *run, struct loop *loop, struct value *out) {
    if (loop->num_taken <= 1) return value_undefined(run, out, "there is no previous item");
    *out = loop->before;
    return OK;
}

static enum status get_nextitem(struct run *run, struct loop *loop, struct value *out) {
    enum status status = peek(run, loop);
    if (status) return status;
    if (!loop->has_after) return value_undefined(run, out, "there is no next item");
    *out = loop->after;
    return OK;
}

static enum status get_depth0(struct run *run, struct loop *loop, struct value *out) {
    (void)run;
    *out = value_int((int64_t)loop->depth0);
    return OK;
}

static enum status get_depth(struct run *run, struct loop *loop, struct value *out) {
    (void)run;
    *out = value_int((int64_t)loop->depth0 + 1);
    return OK;
}

static enum status get_cycle(struct run *run, struct loop *loop, struct value *out) {
    return bind(run, loop, "cycle", call_cycle, out);
}

static enum status get_changed(struct run *run, struct loop *loop, struct value *out) {
    return bind(run, loop, "changed", call_changed, out);
}

enum status loop_attribute(struct run *run, struct loop *loop, const struct string *name,
                           bool *found, struct value *out) {
    static const struct {
        const char *name;
        enum status (*get)(struct run *run, struct loop *loop, struct value *out);
    } attributes[] = {
        {"index0", get_index0},       {"index", get_index},       {"first", get_first},
        {"last", get_last},           {"length", get_length},     {"previtem", get_previtem},
        {"cycle", get_cycle},         {"nextitem", get_nextitem}, {"changed", get_changed},
        {"depth", get_depth},         {"depth0", get_depth0},     {"revindex", get_revindex},
        {"revindex0", get_revindex0},
    };
    *found = true;
    for (size_t i = 0; i < ARRAY_LEN(attributes); ++i)
        if (string_is(name, attributes[i].name)) return attributes[i].get(run, loop, out);
    *found = false;
    return OK;
}

enum status loop_call(struct run *run, struct loop *loop, const struct call_args *args,
                      struct value *out) {
    static const char *const params[] = {"iterable"};
    struct value iterable = {0};
    enum status status = args_bind(run, "loop", args, params, 1, 1, &iterable);
    if (status) return status;
    if (!loop->stmt->is_recursive) {
        return run_fail(run, "The loop must have the 'recursive' marker to be called recursively.");
    }
    struct frame *saved_frame = run->frame;
    struct text *saved_out = run->out;
    struct text text = {0};
    struct loop *inner;
    run->frame = loop->frame;
    status = loop_create(run, loop->stmt, iterable, &inner);
    if (status) return status;
    inner->depth0 = loop->depth0 + 1;
    run->out = &text;
    enum flow flow;
    status = exec_loop(run, inner, &flow);
    if (status) return status;
    run->frame = saved_frame;
    run->out = saved_out;
    return text_finish(run, &text, out);
}
