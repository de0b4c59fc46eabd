/* Writes a JSON value member by member and asks the automaton behind each part. Of the members that
 * may come next, it takes one behind which each of the others may still come. */
#include "cmd/schema_order.h"

#include <stdlib.h>
#include <string.h>

#include "base/text/blank.h"
#include "structured/matcher.h"

enum { STEPS_MAX = 1 << 18, GUESSES_MAX = 1000, DEPTH_MAX = 200, OPEN_MAX = 5000 };
enum { LOST_MAX = 1024, MASK_BITS = 64 };

struct span {
    const char *text;
    size_t len;
};

struct member {
    struct span key, value;
    bool is_written, may_come;
};

// The members that are left cannot all be written from this state on. Another order of the same
// members before leads to the same state.
struct lost {
    uint32_t state;
    uint64_t left; // bits
};

struct members {
    struct member *list; // [len]
    size_t len, depth;
    struct lost *lost; // [num_lost]; NULL: none
    size_t num_lost;
};

struct order {
    struct matcher matcher;
    struct buf *out;
    size_t num_open; // members that are written for now: calls inside of each other
    size_t steps_left; // bytes that the automaton may still take
    size_t guesses_left; // members that may still be tried though others seem lost
    bool is_changed; // some member came before one that stands in front of it in the text
    enum status status; // of what has nothing to do with the text
    struct err *err;
};

struct mark {
    uint32_t num_tokens;
    size_t len;
};

static struct mark mark_of(const struct order *order) {
    return (struct mark){order->matcher.num_tokens, order->out->len};
}

static void go_back(struct order *order, struct mark mark) {
    matcher_rewind(&order->matcher, mark.num_tokens);
    order->out->len = mark.len;
}

// Appends bytes where they fit.
static bool put(struct order *order, const char *bytes, size_t len) {
    if (order->status || order->steps_left < len) return false;
    order->steps_left -= len;
    enum status status = matcher_take_bytes(&order->matcher, bytes, len, order->err);
    if (status == ERR_INVALID) return false;
    if (!status) status = buf_append(order->out, bytes, len, order->err);
    order->status = status;
    return !status;
}

// ---- spans of a JSON text ----

static const char *skip_blanks(const char *at, const char *end) {
    while (at < end && is_blank(*at)) at++;
    return at;
}

// Behind the string that begins at `at`; NULL: it does not end.
static const char *string_end(const char *at, const char *end) {
    for (at++; at < end; at++) {
        if (*at == '"') return at + 1;
        if (*at == '\\') at++;
    }
    return NULL;
}

// Behind the value that begins at `at`. What is no JSON ends somewhere, and does not fit later.
static const char *value_end(const char *at, const char *end) {
    size_t depth = 0;
    while (at < end) {
        if (*at == '"') {
            at = string_end(at, end);
            if (!at) return NULL;
        } else if (strchr(",:]}", *at) && depth == 0) {
            return at;
        } else {
            depth += *at == '{' || *at == '[';
            depth -= *at == '}' || *at == ']';
            at++;
        }
        if (depth == 0 && (at[-1] == '"' || at[-1] == '}' || at[-1] == ']')) return at;
    }
    return depth ? NULL : at;
}

// The next value at *at, which moves behind it and the blanks there. False: there is none.
static bool next_value(const char **at, const char *end, struct span *value) {
    const char *begin = skip_blanks(*at, end), *stop = value_end(begin, end);
    if (!stop || stop == begin) return false;
    *at = skip_blanks(stop, end);
    while (is_blank(stop[-1])) stop--;
    *value = (struct span){begin, (size_t)(stop - begin)};
    return true;
}

// Whether a value of a list ends the list, or another one follows.
static bool goes_on(const char *at, const char *end) {
    return at == end || (*at == ',' && at + 1 < end);
}

static bool next_member(const char **at, const char *end, struct member *member) {
    *member = (struct member){.is_written = false};
    if (!next_value(at, end, &member->key) || *at == end || **at != ':') return false;
    ++*at;
    return next_value(at, end, &member->value);
}

// ---- values ----

static bool put_value(struct order *order, struct span value, size_t depth);

static bool put_key(struct order *order, const struct member *member, bool is_first) {
    return (is_first || put(order, ",", 1)) && put(order, member->key.text, member->key.len) &&
           put(order, ":", 1);
}

// Whether the key may come next.
static bool may_come(struct order *order, const struct member *member, bool is_first) {
    struct mark mark = mark_of(order);
    bool may = put_key(order, member, is_first);
    go_back(order, mark);
    return may;
}

// Whether each key that might have come in place of the last one may follow it.
static bool may_follow(struct order *order, const struct members *members) {
    for (size_t i = 0; i < members->len; i++) {
        const struct member *member = &members->list[i];
        bool is_left = member->may_come && !member->is_written;
        if (is_left && !may_come(order, member, false)) return false;
    }
    return true;
}

static bool put_members(struct order *order, struct members *members, size_t num_written);

// The member comes next, and the others behind it.
static bool put_member(struct order *order, struct members *members, size_t index,
                       size_t num_written, bool loses_some) {
    struct member *member = &members->list[index];
    struct mark mark = mark_of(order);
    bool was_changed = order->is_changed;
    for (size_t i = 0; i < index; i++) order->is_changed |= !members->list[i].is_written;
    member->is_written = true;
    if (put_key(order, member, num_written == 0) &&
        put_value(order, member->value, members->depth) &&
        (loses_some || may_follow(order, members)) &&
        put_members(order, members, num_written + 1)) {
        return true;
    }
    member->is_written = false;
    order->is_changed = was_changed;
    go_back(order, mark);
    return false;
}

static struct lost lost_here(const struct order *order, const struct members *members) {
    struct lost here = {.state = order->matcher.states[order->matcher.num_tokens]};
    for (size_t i = 0; i < members->len; i++) {
        here.left |= (uint64_t)!members->list[i].is_written << i;
    }
    return here;
}

static bool is_lost(const struct order *order, const struct members *members) {
    if (!members->num_lost) return false;
    struct lost here = lost_here(order, members);
    for (size_t i = 0; i < members->num_lost; i++) {
        if (members->lost[i].state == here.state && members->lost[i].left == here.left) return true;
    }
    return false;
}

static void note_lost(struct order *order, struct members *members) {
    if (members->len > MASK_BITS || members->num_lost == LOST_MAX || order->status) return;
    if (!members->lost) members->lost = malloc(LOST_MAX * sizeof *members->lost);
    if (members->lost) members->lost[members->num_lost++] = lost_here(order, members);
}

// The members that are left, and the end of the object. First those are tried behind which no other
// is lost. It may only seem lost, where one key requires others.
static bool put_members(struct order *order, struct members *members, size_t num_written) {
    if (num_written == members->len) return put(order, "}", 1);
    if (order->num_open == OPEN_MAX || is_lost(order, members)) return false;
    order->num_open++;
    bool *may = calloc(members->len, sizeof *may), fits = false;
    if (!may) order->status = err_nomem(order->err, "a text");
    for (size_t i = 0; i < members->len && may; i++) {
        struct member *member = &members->list[i];
        may[i] = !member->is_written && may_come(order, member, num_written == 0);
    }
    for (int loses_some = 0; loses_some <= 1 && may; loses_some++) {
        for (size_t i = 0; i < members->len && !fits && !order->status; i++) {
            if (!may[i] || (loses_some && !order->guesses_left)) continue;
            order->guesses_left -= loses_some != 0;
            for (size_t k = 0; k < members->len; k++) members->list[k].may_come = may[k];
            fits = put_member(order, members, i, num_written, loses_some != 0);
        }
    }
    if (!fits) note_lost(order, members);
    free(may);
    order->num_open--;
    return fits;
}

static bool put_object(struct order *order, struct span value, size_t depth) {
    const char *at = value.text + 1, *end = value.text + value.len - 1;
    struct members members = {.depth = depth};
    size_t capacity = 0;
    bool fits = put(order, "{", 1);
    for (at = skip_blanks(at, end); fits && at < end; at++) {
        if (members.len == capacity) {
            capacity = capacity ? capacity * 2 : 16;
            struct member *list = realloc(members.list, capacity * sizeof *list);
            if (!list) order->status = err_nomem(order->err, "a text");
            if (!list) break;
            members.list = list;
        }
        fits = next_member(&at, end, &members.list[members.len++]) && goes_on(at, end);
    }
    fits = fits && !order->status && put_members(order, &members, 0);
    free(members.lost);
    free(members.list);
    return fits;
}

static bool put_array(struct order *order, struct span value, size_t depth) {
    const char *at = value.text + 1, *end = value.text + value.len - 1;
    bool fits = put(order, "[", 1), is_first = true;
    for (at = skip_blanks(at, end); fits && at < end; at++) {
        struct span item;
        fits = next_value(&at, end, &item) && goes_on(at, end) &&
               (is_first || put(order, ",", 1)) && put_value(order, item, depth);
        is_first = false;
    }
    return fits && put(order, "]", 1);
}

static bool put_value(struct order *order, struct span value, size_t depth) {
    char last = value.text[value.len - 1];
    if (depth == DEPTH_MAX) return false;
    if (value.text[0] == '{' && last == '}') return put_object(order, value, depth + 1);
    if (value.text[0] == '[' && last == ']') return put_array(order, value, depth + 1);
    return put(order, value.text, value.len);
}

enum status schema_order_text(struct automaton *automaton, const char *text, size_t len,
                              struct buf *out, bool *fits, struct err *err) {
    struct order order = {
        .out = out, .steps_left = STEPS_MAX, .guesses_left = GUESSES_MAX, .err = err};
    const char *at = text;
    struct span value;
    *fits = false;
    if (!next_value(&at, text + len, &value) || at != text + len) return OK;
    enum status status = matcher_init(&order.matcher, automaton, err);
    if (status) return status;
    *fits = put_value(&order, value, 0) && matcher_can_end(&order.matcher) && order.is_changed;
    matcher_fini(&order.matcher);
    return order.status;
}
