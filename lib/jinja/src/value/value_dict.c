/* Dicts: entries in the order of insertion; from DICT_INDEXED entries on an index over them, open
 * addressing with linear probing, at most half full. Every probe is paid, so that keys chosen to
 * collide cost their template's own steps. */
#include <string.h>
#include <xxhash.h>

#include "jinja/src/run/run.h"
#include "jinja/src/value/value.h"

enum { DICT_INDEXED = 9 };
#define NO_ENTRY SIZE_MAX

// ---- hashing ----

static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static uint64_t hash_int(int64_t integer) {
    return mix((uint64_t)integer + 0x9e3779b97f4a7c15u);
}

// A float that is an integer is the integer's key.
static uint64_t hash_float(double number) {
    if (number >= -0x1p63 && number < 0x1p63) {
        int64_t integer = (int64_t)number;
        if ((double)integer == number) return hash_int(integer);
    }
    uint64_t bits;
    memcpy(&bits, &number, sizeof bits);
    return mix(bits ^ 0x5bd1e9955bd1e995u);
}

static uint64_t hash_string(const struct jinja_string *string) {
    return string->len > 0 ? XXH3_64bits(string->data, string->len) : 1;
}

static uint64_t hash_range(const struct jinja_range *range) {
    uint64_t hash = mix(range->len + 3);
    if (range->len > 0) hash = mix(hash ^ (uint64_t)range->start);
    if (range->len > 1) hash = mix(hash ^ (uint64_t)range->step);
    return hash;
}

static enum status hash_value(struct jinja_run *run, struct jinja_value value, uint64_t *out);

static enum status hash_tuple(struct jinja_run *run, const struct jinja_list *tuple,
                              uint64_t *out) {
    enum status status = jinja_run_enter(run);
    if (status) return status;
    uint64_t hash = tuple->len + 7;
    for (size_t i = 0; i < tuple->len && !status; i++) {
        uint64_t item = 0;
        status = hash_value(run, tuple->items[i], &item);
        hash = mix(hash * 31 + item);
    }
    *out = hash;
    jinja_run_leave(run);
    return status;
}

static enum status hash_value(struct jinja_run *run, struct jinja_value value, uint64_t *out) {
    enum status status = jinja_run_pay(run, 1);
    if (status) return status;
    switch (value.type) {
    case JINJA_UNDEFINED: // all undefined values are one key
    case JINJA_NONE:
        *out = mix(value.type + 11);
        return OK;
    case JINJA_BOOL:
        *out = hash_int(value.boolean);
        return OK;
    case JINJA_INT:
        *out = hash_int(value.integer);
        return OK;
    case JINJA_BIG_INT: // an equal float is the same key
        *out = hash_float(jinja_number_of_big(value.string));
        return jinja_run_pay(run, 1 + value.string->len / 16);
    case JINJA_FLOAT:
        *out = hash_float(value.number);
        return OK;
    case JINJA_STRING:
        *out = hash_string(value.string);
        return jinja_run_pay(run, value.string->len / 64);
    case JINJA_TUPLE:
        return hash_tuple(run, value.list, out);
    case JINJA_RANGE:
        *out = hash_range(value.range);
        return OK;
    case JINJA_METHOD: // made anew at each look: equal ones are not the same object
        *out = mix(13);
        return OK;
    case JINJA_LIST:
    case JINJA_DICT:
        return jinja_run_fail(run, "unhashable type: '%s'", jinja_value_type_name(value));
    case JINJA_VIEW:
        if (value.view->type != JINJA_VIEW_VALUES) {
            return jinja_run_fail(run, "unhashable type: '%s'", jinja_value_type_name(value));
        }
        break;
    default:
        break;
    }
    *out = mix((uint64_t)(uintptr_t)value.list);
    return OK;
}

// ---- finding ----

// Goes through the entries whose hash is the one looked for. All-zero before the first.
struct probe {
    size_t num_looks;
};

static size_t probe_next(const struct jinja_dict *dict, uint64_t hash, struct probe *probe) {
    if (!dict->index) {
        while (probe->num_looks < dict->len) {
            size_t i = probe->num_looks++;
            if (dict->entries[i].hash == hash) return i;
        }
        return NO_ENTRY;
    }
    for (;;) {
        uint32_t slot = dict->index[(hash + probe->num_looks++) & (dict->index_capacity - 1)];
        if (slot == 0) return NO_ENTRY;
        if (dict->entries[slot - 1].hash == hash) return slot - 1;
    }
}

static enum status find(struct jinja_run *run, const struct jinja_dict *dict,
                        struct jinja_value key, uint64_t hash, size_t *out) {
    struct probe probe = {0};
    bool is_equal = false;
    enum status status = OK;
    do {
        *out = probe_next(dict, hash, &probe);
        if (*out == NO_ENTRY) break;
        struct jinja_value other = dict->entries[*out].key;
        is_equal = jinja_value_is_same(other, key);
        if (!is_equal) status = jinja_value_equal(run, other, key, &is_equal);
    } while (!status && !is_equal);
    return status ? status : jinja_run_pay(run, probe.num_looks / 4);
}

enum status jinja_dict_get(struct jinja_run *run, const struct jinja_dict *dict,
                           struct jinja_value key, bool *found, struct jinja_value *out) {
    uint64_t hash = 0;
    size_t entry = NO_ENTRY;
    enum status status = hash_value(run, key, &hash);
    if (!status) status = find(run, dict, key, hash, &entry);
    if (status) return status;
    *found = entry != NO_ENTRY;
    if (*found) *out = dict->entries[entry].value;
    return OK;
}

// ---- filling ----

static void index_entry(struct jinja_dict *dict, size_t entry) {
    size_t at = dict->entries[entry].hash & (dict->index_capacity - 1);
    while (dict->index[at] != 0) at = (at + 1) & (dict->index_capacity - 1);
    dict->index[at] = (uint32_t)entry + 1;
}

static enum status index_entries(struct jinja_run *run, struct jinja_dict *dict) {
    size_t slots = 16;
    while (slots < 2 * dict->capacity) slots *= 2;
    uint32_t *index = jinja_run_alloc_array(run, slots, sizeof *index);
    if (!index) return jinja_run_status(run);
    memset(index, 0, slots * sizeof *index);
    dict->index = index;
    dict->index_capacity = slots;
    for (size_t i = 0; i < dict->len; i++) index_entry(dict, i);
    return OK;
}

static enum status reserve(struct jinja_run *run, struct jinja_dict *dict, size_t capacity) {
    if (capacity > UINT32_MAX / 4)
        return jinja_run_fail(run, "a dict of %zu items is too large", capacity);
    enum status status = jinja_run_pay(run, capacity / 4);
    if (status) return status;
    struct jinja_dict_entry *entries = jinja_run_alloc_array(run, capacity, sizeof *entries);
    if (!entries) return jinja_run_status(run);
    if (dict->len > 0) memcpy(entries, dict->entries, dict->len * sizeof *entries);
    dict->entries = entries;
    dict->capacity = capacity;
    return capacity >= DICT_INDEXED ? index_entries(run, dict) : OK;
}

enum status jinja_dict_create(struct jinja_run *run, size_t capacity, struct jinja_dict **out) {
    struct jinja_dict *dict = jinja_run_alloc(run, sizeof *dict);
    if (!dict) return jinja_run_status(run);
    *dict = (struct jinja_dict){0};
    *out = dict;
    return capacity > 0 ? reserve(run, dict, capacity) : OK;
}

enum status jinja_dict_set(struct jinja_run *run, struct jinja_dict *dict, struct jinja_value key,
                           struct jinja_value value) {
    uint64_t hash = 0;
    size_t entry = NO_ENTRY;
    enum status status = hash_value(run, key, &hash);
    if (!status) status = find(run, dict, key, hash, &entry);
    if (status) return status;
    if (entry != NO_ENTRY) {
        dict->entries[entry].value = value;
        return OK;
    }
    if (dict->len == dict->capacity) {
        status = reserve(run, dict, dict->capacity < 4 ? 4 : 2 * dict->capacity);
        if (status) return status;
    }
    dict->entries[dict->len] = (struct jinja_dict_entry){.key = key, .value = value, .hash = hash};
    if (dict->index) index_entry(dict, dict->len);
    dict->len++;
    return OK;
}
