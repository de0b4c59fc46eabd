/* See loop.h. Ranges and iterators are read in place; everything else through its list of items.
 *
 * If the body of a loop walks the loop's own iterator, it takes items away from the loop, as with
 * Python's generators. Items that were taken early for loop.last or loop.nextitem stay with the
 * loop. */
#include "jinja/src/run/loop.h"

#include "jinja/src/library/library.h"
#include "jinja/src/run/eval.h"
#include "jinja/src/run/exec.h"
#include "jinja/src/run/scope.h"

enum status jinja_loop_create(struct jinja_run *run, const struct jinja_for_stmt *stmt,
                              struct jinja_value iterable, struct jinja_loop **out) {
    struct jinja_loop *loop = jinja_run_alloc(run, sizeof(*loop));
    if (!loop) return jinja_run_status(run);
    *loop = (struct jinja_loop){.stmt = stmt,
                                .frame = run->frame,
                                .iterable = iterable,
                                .is_filtered = stmt->filter != NULL};
    *out = loop;
    if (iterable.type == JINJA_ITERATOR) return OK;
    loop->is_length_known = !loop->is_filtered;
    if (iterable.type == JINJA_RANGE) {
        loop->length = iterable.range->len;
        return OK;
    }
    enum status status = jinja_value_items(run, iterable, &loop->items);
    if (status) return status;
    loop->length = loop->items->len;
    return OK;
}

// ---- taking items ----

static bool take_raw(struct jinja_loop *loop, struct jinja_value *out) {
    if (loop->items) {
        if (loop->position == loop->items->len) return false;
        *out = loop->items->items[loop->position++];
        return true;
    }
    if (loop->iterable.type == JINJA_RANGE) {
        if (loop->position == loop->iterable.range->len) return false;
        *out = jinja_value_int(jinja_range_item(loop->iterable.range, loop->position++));
        return true;
    }
    struct jinja_iterator *iterator = loop->iterable.iterator;
    if (iterator->next == iterator->items->len) return false;
    *out = iterator->items->items[iterator->next++];
    return true;
}

// What the targets hold now, as tuples.
static enum status collect(struct jinja_run *run, const struct jinja_target *target,
                           struct jinja_value *out) {
    if (target->type == JINJA_TARGET_NAME) return jinja_scope_get(run, target->name, out);
    struct jinja_list *list;
    enum status status = jinja_list_create(run, target->num_items, &list);
    for (size_t i = 0; i < target->num_items && !status; ++i) {
        struct jinja_value item;
        status = collect(run, target->items[i], &item);
        if (!status) status = jinja_list_append(run, list, item);
    }
    if (!status) *out = jinja_value_of_tuple(list);
    return status;
}

// Whether the loop's `if` accepts the item, in a scope of its own. With several targets the
// accepted item is a new tuple of them, whatever it was before: Jinja's generator packs it again.
static enum status judge(struct jinja_run *run, struct jinja_loop *loop, struct jinja_value *item,
                         bool *passes) {
    static const struct jinja_block no_block = {0};
    const struct jinja_target *target = loop->stmt->target;
    struct jinja_frame *saved = run->frame;
    enum status status = jinja_scope_enter(run, loop->frame, &no_block);
    if (status) return status;
    status = jinja_exec_assign(run, target, *item);
    if (status) return status;
    struct jinja_value result;
    status = jinja_eval(run, loop->stmt->filter, &result);
    if (status) return status;
    *passes = jinja_value_is_true(result);
    if (*passes && target->type == JINJA_TARGET_TUPLE) status = collect(run, target, item);
    jinja_scope_leave(run, saved);
    return status;
}

static enum status take(struct jinja_run *run, struct jinja_loop *loop, bool *found,
                        struct jinja_value *out) {
    bool passes = false;
    for (;;) {
        enum status status = jinja_run_pay(run, 1);
        if (status) return status;
        *found = take_raw(loop, out);
        if (!*found || !loop->is_filtered) return OK;
        status = judge(run, loop, out, &passes);
        if (status || passes) return status;
    }
}

static enum status peek(struct jinja_run *run, struct jinja_loop *loop) {
    if (loop->has_after) return OK;
    return take(run, loop, &loop->has_after, &loop->after);
}

enum status jinja_loop_next(struct jinja_run *run, struct jinja_loop *loop, bool *found) {
    struct jinja_value next;
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

enum status jinja_loop_length(struct jinja_run *run, struct jinja_loop *loop, size_t *length) {
    *length = loop->length;
    if (loop->is_length_known) return OK;
    struct jinja_list *rest;
    enum status status = jinja_list_create(run, 0, &rest);
    if (status) return status;
    for (;;) {
        bool found;
        struct jinja_value item;
        status = take(run, loop, &found, &item);
        if (status) return status;
        if (!found) break;
        status = jinja_list_append(run, rest, item);
        if (status) return status;
    }
    // From here on the loop reads the accepted items, so that its `if` runs once for each item.
    loop->items = rest;
    loop->position = 0;
    loop->is_filtered = false;
    loop->is_length_known = true;
    loop->length = loop->num_taken + loop->has_after + rest->len;
    *length = loop->length;
    return OK;
}

// ---- what `loop` has ----

static enum status call_cycle(struct jinja_run *run, struct jinja_value self,
                              const struct jinja_call_args *args, struct jinja_value *out) {
    if (args->num_names) return jinja_run_fail(run, "cycle() takes no keyword arguments");
    if (!args->num_values) return jinja_run_fail(run, "no items for cycling given");
    size_t turn = self.loop->num_taken ? self.loop->num_taken - 1 : 0;
    *out = args->values[turn % args->num_values];
    return OK;
}

static enum status call_changed(struct jinja_run *run, struct jinja_value self,
                                const struct jinja_call_args *args, struct jinja_value *out) {
    if (args->num_names) return jinja_run_fail(run, "changed() takes no keyword arguments");
    struct jinja_list *values;
    enum status status = jinja_list_create(run, args->num_values, &values);
    for (size_t i = 0; i < args->num_values && !status; ++i)
        status = jinja_list_append(run, values, args->values[i]);
    if (status) return status;
    struct jinja_value now = jinja_value_of_tuple(values);
    bool is_equal = false;
    if (self.loop->changed.type == JINJA_TUPLE) {
        status = jinja_value_equal(run, self.loop->changed, now, &is_equal);
        if (status) return status;
    }
    self.loop->changed = now;
    *out = jinja_value_bool(!is_equal);
    return OK;
}

static enum status bind(struct jinja_run *run, struct jinja_loop *loop, const char *name,
                        jinja_method_fn function, struct jinja_value *out) {
    struct jinja_method *method = jinja_run_alloc(run, sizeof(*method));
    if (!method) return jinja_run_status(run);
    *method = (struct jinja_method){
        .name = name, .run = function, .self = {.type = JINJA_LOOP, .loop = loop}};
    *out = (struct jinja_value){.type = JINJA_METHOD, .method = method};
    return OK;
}

static enum status get_index0(struct jinja_run *run, struct jinja_loop *loop,
                              struct jinja_value *out) {
    (void)run;
    *out = jinja_value_int((int64_t)loop->num_taken - 1);
    return OK;
}

static enum status get_index(struct jinja_run *run, struct jinja_loop *loop,
                             struct jinja_value *out) {
    (void)run;
    *out = jinja_value_int((int64_t)loop->num_taken);
    return OK;
}

static enum status get_length(struct jinja_run *run, struct jinja_loop *loop,
                              struct jinja_value *out) {
    size_t length;
    enum status status = jinja_loop_length(run, loop, &length);
    if (!status) *out = jinja_value_int((int64_t)length);
    return status;
}

static enum status get_revindex0(struct jinja_run *run, struct jinja_loop *loop,
                                 struct jinja_value *out) {
    enum status status = get_length(run, loop, out);
    if (!status) out->integer -= (int64_t)loop->num_taken;
    return status;
}

static enum status get_revindex(struct jinja_run *run, struct jinja_loop *loop,
                                struct jinja_value *out) {
    enum status status = get_revindex0(run, loop, out);
    if (!status) out->integer++;
    return status;
}

static enum status get_first(struct jinja_run *run, struct jinja_loop *loop,
                             struct jinja_value *out) {
    (void)run;
    *out = jinja_value_bool(loop->num_taken == 1);
    return OK;
}

static enum status get_last(struct jinja_run *run, struct jinja_loop *loop,
                            struct jinja_value *out) {
    enum status status = peek(run, loop);
    if (!status) *out = jinja_value_bool(!loop->has_after);
    return status;
}

static enum status get_previtem(struct jinja_run *run, struct jinja_loop *loop,
                                struct jinja_value *out) {
    if (loop->num_taken <= 1) return jinja_value_undefined(run, out, "there is no previous item");
    *out = loop->before;
    return OK;
}

static enum status get_nextitem(struct jinja_run *run, struct jinja_loop *loop,
                                struct jinja_value *out) {
    enum status status = peek(run, loop);
    if (status) return status;
    if (!loop->has_after) return jinja_value_undefined(run, out, "there is no next item");
    *out = loop->after;
    return OK;
}

static enum status get_depth0(struct jinja_run *run, struct jinja_loop *loop,
                              struct jinja_value *out) {
    (void)run;
    *out = jinja_value_int((int64_t)loop->depth0);
    return OK;
}

static enum status get_depth(struct jinja_run *run, struct jinja_loop *loop,
                             struct jinja_value *out) {
    (void)run;
    *out = jinja_value_int((int64_t)loop->depth0 + 1);
    return OK;
}

static enum status get_cycle(struct jinja_run *run, struct jinja_loop *loop,
                             struct jinja_value *out) {
    return bind(run, loop, "cycle", call_cycle, out);
}

static enum status get_changed(struct jinja_run *run, struct jinja_loop *loop,
                               struct jinja_value *out) {
    return bind(run, loop, "changed", call_changed, out);
}

enum status jinja_loop_attribute(struct jinja_run *run, struct jinja_loop *loop,
                                 const struct jinja_string *name, bool *found,
                                 struct jinja_value *out) {
    static const struct {
        const char *name;
        enum status (*get)(struct jinja_run *run, struct jinja_loop *loop, struct jinja_value *out);
    } attributes[] = {
        {"index0", get_index0},       {"index", get_index},       {"first", get_first},
        {"last", get_last},           {"length", get_length},     {"previtem", get_previtem},
        {"cycle", get_cycle},         {"nextitem", get_nextitem}, {"changed", get_changed},
        {"depth", get_depth},         {"depth0", get_depth0},     {"revindex", get_revindex},
        {"revindex0", get_revindex0},
    };
    *found = true;
    for (size_t i = 0; i < ARRAY_LEN(attributes); ++i)
        if (jinja_string_is(name, attributes[i].name)) return attributes[i].get(run, loop, out);
    *found = false;
    return OK;
}

enum status jinja_loop_call(struct jinja_run *run, struct jinja_loop *loop,
                            const struct jinja_call_args *args, struct jinja_value *out) {
    static const char *const params[] = {"iterable"};
    struct jinja_value iterable = {0};
    enum status status = jinja_args_bind(run, "loop", args, params, 1, 1, &iterable);
    if (status) return status;
    if (!loop->stmt->is_recursive) {
        return jinja_run_fail(
            run, "The loop must have the 'recursive' marker to be called recursively.");
    }
    struct jinja_frame *saved_frame = run->frame;
    struct jinja_text *saved_out = run->out;
    struct jinja_text text = {0};
    struct jinja_loop *inner;
    run->frame = loop->frame;
    status = jinja_loop_create(run, loop->stmt, iterable, &inner);
    if (status) return status;
    inner->depth0 = loop->depth0 + 1;
    run->out = &text;
    enum jinja_flow flow;
    status = jinja_exec_loop(run, inner, &flow);
    if (status) return status;
    run->frame = saved_frame;
    run->out = saved_out;
    return jinja_text_finish(run, &text, out);
}
