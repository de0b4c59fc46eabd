#include "structured/unique/unique.h"

#include <stdlib.h>
#include <string.h>

#include "base/text/blank.h"
#include "base/text/c_locale.h"
#include "base/text/utf8.h"

enum { FRAMES_MAX = 1 << 20, VALUES_MAX = 1 << 20, NODES_MAX = 1 << 22 };

// ---- the log ----

void unique_log_fini(struct unique_log *log) {
    free(log->frames);
    free(log->values);
    free(log->nodes);
    free(log->table);
    *log = (struct unique_log){0};
}

static void *copy_of(const void *from, uint32_t capacity, size_t size, bool *fails) {
    if (!capacity) return NULL;
    void *to = malloc(capacity * size);
    if (to) memcpy(to, from, capacity * size);
    *fails |= !to;
    return to;
}

enum status unique_log_copy(struct unique_log *out, const struct unique_log *from,
                            struct err *err) {
    bool fails = false;
    *out = *from;
    out->frames = copy_of(from->frames, from->frames_capacity, sizeof *out->frames, &fails);
    out->values = copy_of(from->values, from->values_capacity, sizeof *out->values, &fails);
    out->nodes = copy_of(from->nodes, from->nodes_capacity, sizeof *out->nodes, &fails);
    out->table = copy_of(from->table, from->table_len, sizeof *out->table, &fails);
    if (!fails) return OK;
    unique_log_fini(out);
    return err_nomem(err, "uniqueItems");
}

// Room for one more. False after an error.
static bool grow(struct unique_log *log, void *list, uint32_t *capacity, uint32_t len, size_t size,
                 uint32_t len_max) {
    void **at = list;
    if (log->err.status) return false;
    if (len < *capacity) return true;
    if (len >= len_max) {
        err_set(&log->err, ERR_CAPACITY,
                "arrays with uniqueItems have more items or text than is remembered");
        return false;
    }
    uint32_t more = *capacity ? 2 * *capacity : 64;
    void *grown = realloc(*at, more * size);
    if (!grown) {
        err_nomem(&log->err, "uniqueItems");
        return false;
    }
    *at = grown;
    *capacity = more;
    return true;
}

static uint64_t mix(uint64_t x) { // SplitMix64
    x ^= x >> 30;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 27;
    x *= UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static void add_to(struct unique_hash *hash, uint64_t value) {
    hash->a = mix(hash->a + value + UINT64_C(0x9e3779b97f4a7c15));
    hash->b = mix((hash->b ^ value) + UINT64_C(0xd1b54a32d192ed03));
}

static struct unique_hash hash_of(char kind, const struct unique_hash *what) {
    struct unique_hash hash = {(unsigned char)kind, (unsigned char)kind};
    add_to(&hash, what->a);
    add_to(&hash, what->b);
    return hash;
}

static uint32_t place_of(const struct unique_log *log, const struct unique_value *value) {
    return (uint32_t)mix(value->hash.a + value->set) & (log->table_len - 1);
}

static bool equals(const struct unique_value *a, const struct unique_value *b) {
    return a->set == b->set && a->hash.a == b->hash.a && a->hash.b == b->hash.b;
}

static void put(struct unique_log *log, uint32_t id) {
    uint32_t at = place_of(log, &log->values[id]);
    while (log->table[at]) at = (at + 1) & (log->table_len - 1);
    log->table[at] = id + 1;
}

static bool grow_table(struct unique_log *log) {
    if ((log->num_values + 1) * 2 <= log->table_len) return true;
    uint32_t len = log->table_len ? 2 * log->table_len : 128;
    uint32_t *table = calloc(len, sizeof *table);
    if (!table) {
        err_nomem(&log->err, "uniqueItems");
        return false;
    }
    free(log->table);
    log->table = table;
    log->table_len = len;
    for (uint32_t i = 0; i < log->num_values; i++) put(log, i);
    return true;
}

// The value's index + 1, or the free place of the table for it.
static uint32_t find(const struct unique_log *log, const struct unique_value *value,
                     uint32_t *place) {
    uint32_t at = place_of(log, value);
    for (; log->table[at]; at = (at + 1) & (log->table_len - 1)) {
        if (equals(&log->values[log->table[at] - 1], value)) return log->table[at];
    }
    *place = at;
    return 0;
}

bool unique_has(const struct unique_log *log, uint32_t set, const struct unique_hash *hash) {
    struct unique_value value = {.hash = *hash, .set = set};
    uint32_t place;
    return log->table && find(log, &value, &place) != 0;
}

// False: the set has it.
static bool insert(struct unique_log *log, uint32_t set, struct unique_hash hash) {
    struct unique_value value = {.hash = hash, .set = set};
    uint32_t place = 0;
    if (!grow(log, &log->values, &log->values_capacity, log->num_values, sizeof value,
              VALUES_MAX) ||
        !grow_table(log)) {
        return true;
    }
    if (find(log, &value, &place)) return false;
    log->table[place] = log->num_values + 1;
    log->values[log->num_values++] = value;
    return true;
}

void unique_note_absent(struct unique_log *log, uint32_t set, const struct unique_hash *keys,
                        uint32_t num_keys) {
    struct unique_watch *watch = &log->watch;
    if (set >= watch->first_set) return;
    for (uint32_t i = 0; i < num_keys; i++) {
        bool is_noted = false;
        for (uint32_t k = 0; k < watch->num_absent; k++) {
            is_noted |= watch->absent[k].a == keys[i].a && watch->absent[k].b == keys[i].b;
        }
        if (is_noted) continue;
        if (set != watch->set || watch->num_absent == UNIQUE_ABSENT_MAX) {
            watch->depends = true;
            return;
        }
        watch->absent[watch->num_absent++] = keys[i];
    }
}

void unique_undo(struct unique_log *log, const struct unique_position *position) {
    if (log->err.status) return;
    log->num_frames = position->num_frames;
    while (log->num_values > position->num_values) { // the last one in leaves no gap
        uint32_t at = place_of(log, &log->values[log->num_values - 1]);
        while (log->table[at] != log->num_values) at = (at + 1) & (log->table_len - 1);
        log->table[at] = 0;
        log->num_values--;
    }
    while (log->num_nodes > position->num_nodes) { // each is its parent's newest
        const struct unique_node *node = &log->nodes[--log->num_nodes];
        if (log->num_nodes) log->nodes[node->parent].child = node->next;
    }
}

uint32_t unique_child(const struct unique_log *log, uint32_t node, unsigned char byte) {
    uint32_t at = log->nodes[node].child;
    while (at && log->nodes[at].byte != byte) at = log->nodes[at].next;
    return at;
}

static uint32_t add_node(struct unique_log *log, uint32_t parent, unsigned char byte) {
    if (!grow(log, &log->nodes, &log->nodes_capacity, log->num_nodes, sizeof *log->nodes,
              NODES_MAX)) {
        return 0;
    }
    uint32_t id = log->num_nodes++;
    log->nodes[id] = (struct unique_node){.parent = parent, .byte = byte};
    if (id) { // not the root
        log->nodes[id].next = log->nodes[parent].child;
        log->nodes[parent].child = id;
    }
    return id;
}

// ---- open arrays and objects ----

static void push_frame(struct unique_log *log, struct unique_position *position, bool is_object) {
    if (!grow(log, &log->frames, &log->frames_capacity, log->num_frames, sizeof *log->frames,
              FRAMES_MAX)) {
        return;
    }
    log->frames[log->num_frames] = position->top;
    position->top = (struct unique_frame){.parent = log->num_frames++, .is_object = is_object};
    position->mode = UNIQUE_BETWEEN;
}

static void leave(struct unique_position *position) {
    position->mode = UNIQUE_OUTSIDE;
}

// A value is complete. False: its array has it.
static bool finish_value(struct unique_log *log, struct unique_position *position,
                         struct unique_hash hash, enum unique_origin origin) {
    struct unique_frame *top = &position->top;
    position->mode = UNIQUE_BETWEEN;
    top->expects = UNIQUE_COMMA;
    top->has_any = true;
    add_to(&position->read, hash.a);
    if (top->is_object) { // a sum, so that the order of members does not count
        add_to(&hash, top->key.a);
        add_to(&hash, top->key.b);
        top->sum.a += hash.a;
        top->sum.b += hash.b;
        return true;
    }
    add_to(&top->sum, hash.a);
    add_to(&top->sum, hash.b);
    position->num_items += position->depth == 0;
    if (!top->is_unique && position->depth == 0) leave(position); // an object was watched alone
    if (!top->is_unique) return true;
    log->watch.depends |= top->parent < log->watch.first_set && origin != UNIQUE_OPEN_NEW;
    return insert(log, top->parent, hash);
}

static bool close_frame(struct unique_log *log, struct unique_position *position) {
    if (position->depth == 0) {
        leave(position);
        return true;
    }
    struct unique_hash hash = hash_of(position->top.is_object ? '{' : '[', &position->top.sum);
    log->watch.depends |= position->top.parent < log->watch.first_frame;
    position->top = log->frames[position->top.parent];
    position->depth--;
    return finish_value(log, position, hash, UNIQUE_INSIDE);
}

// ---- strings ----

static void add_byte(struct unique_log *log, struct unique_position *position, unsigned char byte) {
    add_to(&position->hash, byte);
    uint32_t child = position->is_new ? 0 : unique_child(log, position->node, byte);
    position->is_new |= child == 0;
    position->node = child ? child : add_node(log, position->node, byte);
}

static void add_char(struct unique_log *log, struct unique_position *position, uint32_t code) {
    char bytes[4];
    size_t len = utf8_write(code, bytes);
    for (size_t i = 0; i < len; i++) add_byte(log, position, (unsigned char)bytes[i]);
}

static bool finish_string(struct unique_log *log, struct unique_position *position) {
    struct unique_frame *top = &position->top;
    struct unique_hash hash = hash_of('"', &position->hash);
    enum unique_origin origin = position->origin;
    if (top->expects == UNIQUE_VALUE) return finish_value(log, position, hash, origin);
    position->mode = UNIQUE_BETWEEN;
    top->expects = UNIQUE_COLON;
    top->has_any = true;
    add_to(&position->read, hash.a);
    top->key = hash;
    bool is_first = insert(log, top->parent, hash);
    if (origin == UNIQUE_INSIDE && is_first) {
        unique_note_absent(log, top->parent, &hash, 1);
    } else if (origin != UNIQUE_OPEN_NEW) {
        log->watch.depends |= top->parent < log->watch.first_set;
    }
    return is_first;
}

static void step_escape(struct unique_log *log, struct unique_position *position,
                        unsigned char byte) {
    static const char letters[] = "bfnrt", meant[] = "\b\f\n\r\t";
    position->mode = UNIQUE_STRING;
    const char *letter = byte ? strchr(letters, byte) : NULL;
    if (byte == 'u') {
        position->mode = UNIQUE_HEX;
        position->hex_left = 4;
        position->code = 0;
    } else {
        add_byte(log, position, letter ? (unsigned char)meant[letter - letters] : byte);
    }
}

static int hex_digit(unsigned char byte) {
    if (byte >= '0' && byte <= '9') return byte - '0';
    if (byte >= 'a' && byte <= 'f') return byte - 'a' + 10;
    if (byte >= 'A' && byte <= 'F') return byte - 'A' + 10;
    return -1;
}

static void step_hex(struct unique_log *log, struct unique_position *position, unsigned char byte) {
    int digit = hex_digit(byte);
    if (digit < 0) {
        leave(position);
        return;
    }
    position->code = position->code * 16 + (uint32_t)digit;
    if (--position->hex_left) return;
    position->mode = UNIQUE_STRING;
    uint32_t code = position->code;
    if (code >= 0xd800 && code < 0xdc00) { // its second half follows
        position->high = code;
    } else if (code >= 0xdc00 && code < 0xe000) {
        add_char(log, position, 0x10000 + ((position->high & 0x3ff) << 10) + (code & 0x3ff));
    } else {
        add_char(log, position, code);
    }
}

static bool step_string(struct unique_log *log, struct unique_position *position,
                        unsigned char byte) {
    if (byte == '"') return finish_string(log, position);
    if (byte == '\\') {
        position->mode = UNIQUE_ESCAPE;
    } else {
        add_byte(log, position, byte);
    }
    return true;
}

// ---- numbers and words ----

static void add_digit(struct unique_position *position, unsigned digit) {
    enum { EXPONENT_MAX = 1000000000 };
    if (position->in_exponent) {
        if (position->written_exponent < EXPONENT_MAX) {
            position->written_exponent = position->written_exponent * 10 + digit;
        }
        return;
    }
    if (digit) { // a run of zeros counts with the digit that ends it, so none does at the end
        add_to(&position->hash, position->zeros * UINT64_C(16) + digit);
        position->has_digits = true;
        position->zeros = 0;
    } else if (position->has_digits) {
        position->zeros++;
    } else if (position->in_fraction) {
        position->exponent--;
    }
    if (position->has_digits && !position->in_fraction) position->exponent++;
}

static bool finish_number(struct unique_log *log, struct unique_position *position) {
    struct unique_hash hash = {0};
    if (position->has_digits) {
        int64_t written = position->written_exponent;
        hash = position->hash;
        add_to(&hash, (uint64_t)(position->exponent +
                                 (position->exponent_is_negative ? -written : written)));
        add_to(&hash, position->is_negative);
    }
    return finish_value(log, position, hash_of('0', &hash), UNIQUE_INSIDE);
}

// False: the byte is not of the number.
static bool step_number(struct unique_position *position, unsigned char byte) {
    if (c_locale_is_digit(byte)) {
        add_digit(position, byte - '0');
    } else if (byte == '.') {
        position->in_fraction = true;
    } else if (byte == 'e' || byte == 'E') {
        position->in_exponent = true;
    } else if (byte == '-' || byte == '+') {
        if (position->in_exponent) position->exponent_is_negative = byte == '-';
        if (!position->in_exponent) position->is_negative = true;
    } else {
        return false;
    }
    return true;
}

static bool step_word(struct unique_log *log, struct unique_position *position,
                      unsigned char byte) {
    add_to(&position->hash, byte);
    if (--position->letters_left) return true;
    return finish_value(log, position, hash_of('w', &position->hash), UNIQUE_INSIDE);
}

// ---- between ----

static void begin_value(struct unique_log *log, struct unique_position *position,
                        unsigned char byte) {
    position->hash = (struct unique_hash){0};
    position->top.expects = UNIQUE_VALUE;
    if (byte == '"') {
        position->mode = UNIQUE_STRING;
        position->node = 0;
        position->is_new = false;
        position->origin = UNIQUE_INSIDE;
    } else if (byte == '[' || byte == '{') {
        push_frame(log, position, byte == '{');
        position->depth++;
    } else if (byte == 't' || byte == 'f' || byte == 'n') {
        position->mode = UNIQUE_WORD;
        position->letters_left = byte == 'f' ? 4 : 3;
        add_to(&position->hash, byte);
    } else if (byte == '-' || c_locale_is_digit(byte)) {
        position->mode = UNIQUE_NUMBER;
        position->is_negative = position->in_fraction = position->in_exponent = false;
        position->exponent_is_negative = position->has_digits = false;
        position->zeros = 0;
        position->exponent = position->written_exponent = 0;
        step_number(position, byte);
    } else {
        leave(position); // no JSON: what took it for an array has ended
    }
}

static void begin_item(struct unique_log *log, struct unique_position *position, unsigned char byte,
                       unsigned begins) {
    struct unique_frame *top = &position->top;
    bool was_unique = top->is_unique, is_item = begins & UNIQUE_ITEM;
    if (top->expects == UNIQUE_FIRST) top->is_unique = is_item;
    top->is_unique &= is_item;
    if (position->depth == 0 && was_unique && !top->is_unique) {
        leave(position); // of the ways to read the array, the one with unique items has ended
    } else {
        begin_value(log, position, byte);
    }
}

static bool step_object(struct unique_log *log, struct unique_position *position,
                        unsigned char byte) {
    struct unique_frame *top = &position->top;
    bool may_end = top->expects == UNIQUE_FIRST || top->expects == UNIQUE_COMMA;
    if (byte == '}' && may_end) return close_frame(log, position);
    if (byte == '"' && (top->expects == UNIQUE_FIRST || top->expects == UNIQUE_KEY)) {
        begin_value(log, position, byte);
        top->expects = UNIQUE_KEY;
    } else if (byte == ':' && top->expects == UNIQUE_COLON) {
        top->expects = UNIQUE_VALUE;
    } else if (byte == ',' && top->expects == UNIQUE_COMMA) {
        top->expects = UNIQUE_KEY;
    } else if (top->expects == UNIQUE_VALUE) {
        begin_value(log, position, byte);
    } else {
        leave(position);
    }
    return true;
}

static bool step_between(struct unique_log *log, struct unique_position *position,
                         unsigned char byte, unsigned begins) {
    struct unique_frame *top = &position->top;
    if (is_blank((char)byte)) return true;
    if (top->is_object) return step_object(log, position, byte);
    bool may_end = top->expects == UNIQUE_FIRST || top->expects == UNIQUE_COMMA;
    if (byte == ']' && may_end) return close_frame(log, position);
    if (top->expects == UNIQUE_COMMA) {
        if (byte == ',') {
            top->expects = UNIQUE_VALUE;
        } else {
            leave(position);
        }
    } else {
        begin_item(log, position, byte, begins);
    }
    return true;
}

// A value may begin that is watched.
static void enter(struct unique_log *log, struct unique_position *position, unsigned char byte,
                  unsigned begins) {
    bool is_item = begins & UNIQUE_ITEM && byte != ']' && !is_blank((char)byte);
    if (!is_item && !(begins & UNIQUE_KEYS && byte == '{')) return;
    if (!log->num_nodes) add_node(log, 0, 0);
    *position = (struct unique_position){.first_value = log->num_values};
    push_frame(log, position, false);
    position->top.is_unique = is_item;
    begin_value(log, position, byte);
}

static bool step(struct unique_log *log, struct unique_position *position, unsigned char byte,
                 unsigned begins) {
    switch ((enum unique_mode)position->mode) {
    case UNIQUE_OUTSIDE:
        return true;
    case UNIQUE_BETWEEN:
        return step_between(log, position, byte, begins);
    case UNIQUE_STRING:
        return step_string(log, position, byte);
    case UNIQUE_ESCAPE:
        step_escape(log, position, byte);
        return true;
    case UNIQUE_HEX:
        step_hex(log, position, byte);
        return true;
    case UNIQUE_NUMBER:
        if (step_number(position, byte)) return true;
        return finish_number(log, position) && step_between(log, position, byte, begins);
    case UNIQUE_WORD:
        return step_word(log, position, byte);
    }
    return true;
}

bool unique_step(struct unique_log *log, struct unique_position *position, unsigned char byte,
                 unsigned begins) {
    bool is_first = step(log, position, byte, begins);
    if (position->mode == UNIQUE_OUTSIDE) enter(log, position, byte, begins);
    position->num_frames = log->num_frames;
    position->num_values = log->num_values;
    position->num_nodes = log->num_nodes;
    return is_first;
}
