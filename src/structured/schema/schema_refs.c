/* Where schemas are: $id, $anchor, $ref and JSON pointers.
 *
 * A walk over the keywords that hold schemas finds every $id and the base of every schema with a
 * $ref. What no keyword reaches, such as a schema in a member that is no keyword, has the root's
 * base. */
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "base/json/jread.h"
#include "base/text/buf.h"
#include "base/text/c_locale.h"
#include "structured/schema/schema_internal.h"

enum { URI_MAX = 2048, TARGETS_MAX = 100000, WALK_DEPTH_MAX = JREAD_DEPTH_MAX + 1 };

// The base of a schema that has a $ref.
struct schema_place {
    const json_t *schema;
    const char *base; // URI without a fragment
    const json_t *resource; // the schema with that URI
    const char *ref; // the reference that was resolved last, NULL: none
    const json_t *target; // of it
};

// ---- URIs ----

static size_t scheme_len(const char *uri) {
    size_t len = 0;
    while (c_locale_is_alnum(uri[len]) || (len && strchr("+-.", uri[len]) && uri[len])) len++;
    return len && uri[len] == ':' ? len + 1 : 0;
}

// Bytes of "scheme://authority" in front of the path.
static size_t authority_end(const char *uri) {
    size_t at = scheme_len(uri);
    if (strncmp(uri + at, "//", 2) != 0) return at;
    return at + 2 + strcspn(uri + at + 2, "/?#");
}

// Takes "." and ".." out of a path, in place.
static void remove_dots(char *path) {
    char *out = path;
    for (const char *in = path; *in;) {
        size_t len = strcspn(in + (*in == '/'), "/") + (*in == '/');
        const char *name = *in == '/' ? in + 1 : in;
        size_t name_len = (size_t)(in + len - name);
        bool is_last = !in[len];
        if (name_len == 2 && memcmp(name, "..", 2) == 0) {
            while (out > path && *--out != '/') continue;
            if (is_last && *in == '/') *out++ = '/';
        } else if (name_len == 1 && *name == '.') {
            if (is_last && *in == '/') *out++ = '/';
        } else {
            memmove(out, in, len);
            out += len;
        }
        in += len;
    }
    *out = '\0';
}

// `ref`, without its fragment, against `base`. False: it is too long.
static bool resolve_uri(const char *base, const char *ref, char out[URI_MAX]) {
    int len = (int)strcspn(ref, "#");
    int written;
    if (!len) {
        written = snprintf(out, URI_MAX, "%s", base);
    } else if (scheme_len(ref)) {
        written = snprintf(out, URI_MAX, "%.*s", len, ref);
    } else if (strncmp(ref, "//", 2) == 0) {
        written = snprintf(out, URI_MAX, "%.*s%.*s", (int)scheme_len(base), base, len, ref);
    } else {
        size_t root = authority_end(base);
        size_t folder = root;
        for (size_t i = root; ref[0] != '/' && base[i] && base[i] != '?'; i++) {
            if (base[i] == '/') folder = i + 1;
        }
        written = snprintf(out, URI_MAX, "%.*s%.*s", (int)folder, base, len, ref);
        if (written < URI_MAX) remove_dots(out + root);
    }
    return written < URI_MAX;
}

// ---- the walk ----

static const char *keep_text(struct schema_reader *reader, const char *text) {
    char *copy = arena_strndup(&reader->arena, text, strlen(text));
    if (!copy) schema_fail(reader, ERR_NOMEM, "out of memory: JSON schema");
    return copy ? copy : "";
}

// The first schema with a name keeps it.
static void add_target(struct schema_reader *reader, const char *name, const json_t *schema) {
    struct schema_refs *refs = &reader->refs;
    uint32_t index;
    if (strmap_get(&refs->resources, name, strlen(name), &index)) return;
    const json_t **targets = schema_grow(reader, refs->targets, refs->num_targets,
                                         &refs->targets_capacity, sizeof *targets);
    if (!targets) return;
    refs->targets = targets;
    refs->targets[refs->num_targets] = schema;
    const char *copy = keep_text(reader, name);
    enum status status = strmap_put(&refs->resources, copy, strlen(copy),
                                    (uint32_t)refs->num_targets++, NULL, reader->err);
    if (status && !reader->status) reader->status = status;
}

static void add_anchor(struct schema_reader *reader, const struct schema_place *place,
                       const char *anchor) {
    char name[2 * URI_MAX];
    if (!anchor || strlen(anchor) >= URI_MAX) return;
    snprintf(name, sizeof name, "%s#%s", place->base, anchor);
    add_target(reader, name, place->schema);
}

static void add_place(struct schema_reader *reader, const struct schema_place *place) {
    struct schema_refs *refs = &reader->refs;
    struct schema_place *places =
        schema_grow(reader, refs->places, refs->num_places, &refs->places_capacity, sizeof *places);
    if (!places) return;
    refs->places = places;
    refs->places[refs->num_places++] = *place;
}

static void count_anchor(struct schema_reader *reader, const char *name) {
    uint32_t count = 0;
    if (!name) return;
    size_t len = strlen(name);
    (void)strmap_get(&reader->refs.dynamic, name, len, &count);
    enum status status = strmap_put(&reader->refs.dynamic, name, len, count + 1, NULL, reader->err);
    if (status && !reader->status) reader->status = status;
}

static void walk(struct schema_reader *reader, struct schema_place place, size_t depth);

static void walk_member(struct schema_reader *reader, const struct schema_place *place,
                        const char *key, const json_t *value, size_t depth) {
    static const char *const maps[] = {"properties",  "patternProperties", "$defs",
                                       "definitions", "dependentSchemas",  "dependencies"};
    static const char *const schemas[] = {"additionalItems",
                                          "additionalProperties",
                                          "allOf",
                                          "anyOf",
                                          "contains",
                                          "contentSchema",
                                          "else",
                                          "if",
                                          "items",
                                          "not",
                                          "oneOf",
                                          "prefixItems",
                                          "propertyNames",
                                          "then",
                                          "unevaluatedItems",
                                          "unevaluatedProperties"};
    bool is_schema = false;
    for (size_t i = 0; i < ARRAY_LEN(schemas); i++) is_schema |= strcmp(key, schemas[i]) == 0;
    struct schema_place inner = *place;
    bool is_map = false;
    for (size_t i = 0; i < ARRAY_LEN(maps); i++) is_map |= strcmp(key, maps[i]) == 0;
    if (!is_map && !is_schema) return;
    if (is_map) {
        const char *name;
        json_t *schema;
        json_object_foreach((json_t *)(uintptr_t)value, name, schema) {
            inner.schema = schema;
            walk(reader, inner, depth + 1);
        }
    } else if (json_is_array(value)) {
        for (size_t i = 0; i < json_array_size(value); i++) {
            inner.schema = json_array_get(value, i);
            walk(reader, inner, depth + 1);
        }
    } else {
        inner.schema = value;
        walk(reader, inner, depth + 1);
    }
}

static void walk(struct schema_reader *reader, struct schema_place place, size_t depth) {
    const json_t *schema = place.schema;
    if (!jread_is_object(schema) || depth > WALK_DEPTH_MAX || reader->status) return;
    const char *id = json_string_value(json_object_get(schema, "$id"));
    bool is_old = reader->draft <= SCHEMA_DRAFT_7;
    const char *ref = json_string_value(json_object_get(schema, "$ref"));
    if (!id && is_old) id = json_string_value(json_object_get(schema, "id"));
    char uri[URI_MAX];
    if (id && id[0] == '#') { // an anchor of older drafts
        add_anchor(reader, &place, id + 1);
    } else if (id && !(ref && is_old) && resolve_uri(place.base, id, uri)) {
        place.base = keep_text(reader, uri);
        place.resource = schema;
        add_target(reader, uri, schema);
    }
    add_anchor(reader, &place, json_string_value(json_object_get(schema, "$anchor")));
    const char *dynamic = json_string_value(json_object_get(schema, "$dynamicAnchor"));
    add_anchor(reader, &place, dynamic);
    count_anchor(reader, dynamic);
    reader->refs.num_recursive += json_is_true(json_object_get(schema, "$recursiveAnchor"));
    if (ref || json_object_get(schema, "$dynamicRef") || json_object_get(schema, "$recursiveRef")) {
        add_place(reader, &place);
    }
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)schema, key, value) {
        walk_member(reader, &place, key, value, depth);
    }
}

static int compare_places(const void *a, const void *b) {
    uintptr_t left = (uintptr_t)((const struct schema_place *)a)->schema;
    uintptr_t right = (uintptr_t)((const struct schema_place *)b)->schema;
    return left < right ? -1 : left > right;
}

enum status schema_refs_init(struct schema_reader *reader, const json_t *root) {
    reader->refs.root = root;
    const struct schema_place place = {.schema = root, .base = "", .resource = root};
    add_target(reader, "", root);
    walk(reader, place, 0);
    struct schema_refs *refs = &reader->refs;
    if (refs->num_places) {
        qsort(refs->places, refs->num_places, sizeof *refs->places, compare_places);
    }
    return reader->status;
}

void schema_refs_fini(struct schema_refs *refs) {
    strmap_fini(&refs->resources);
    strmap_fini(&refs->dynamic);
}

// ---- resolution ----

// One part of a pointer, up to "/": %2F, ~0 and ~1 decoded. Returns its length in `out`.
static size_t decode_part(const char **at, char *out) {
    size_t len = 0;
    const char *in = *at;
    while (*in && *in != '/') {
        if (*in == '%' && c_locale_hex_value(in[1]) >= 0 && c_locale_hex_value(in[2]) >= 0) {
            out[len++] = (char)(c_locale_hex_value(in[1]) * 16 + c_locale_hex_value(in[2]));
            in += 3;
        } else {
            out[len++] = *in++;
        }
    }
    *at = in;
    size_t kept = 0;
    for (size_t i = 0; i < len; i++) {
        bool is_escape = out[i] == '~' && i + 1 < len && (out[i + 1] == '0' || out[i + 1] == '1');
        out[kept++] = is_escape ? (out[i + 1] == '0' ? '~' : '/') : out[i];
        i += is_escape;
    }
    return kept;
}

// `pointer` is "" or begins with "/".
static const json_t *follow_pointer(const json_t *from, const char *pointer) {
    char part[URI_MAX];
    while (from && *pointer == '/') {
        pointer++;
        if (strcspn(pointer, "/") >= sizeof part) return NULL;
        size_t len = decode_part(&pointer, part);
        if (json_is_array(from)) {
            size_t index = 0;
            for (size_t i = 0; i < len; i++) {
                if (!c_locale_is_digit(part[i]) || index > TARGETS_MAX) return NULL;
                index = index * 10 + (size_t)(part[i] - '0');
            }
            from = len ? json_array_get(from, index) : NULL;
        } else {
            from = json_object_getn(from, part, len);
        }
    }
    return *pointer ? NULL : from;
}

static const json_t *resolve(const struct schema_refs *refs, const struct schema_place *place,
                             const char *ref, const char **why) {
    const char *base = place ? place->base : "";
    const json_t *resource = place ? place->resource : refs->root;
    char uri[URI_MAX], name[2 * URI_MAX];
    const char *fragment = strchr(ref, '#');
    fragment = fragment ? fragment + 1 : "";
    *why = "is too long";
    if (strlen(ref) >= URI_MAX || !resolve_uri(base, ref, uri)) return NULL;
    *why = "points to nothing in the schema";
    uint32_t index;
    if (ref[0] && ref[0] != '#') {
        resource = NULL;
        if (strmap_get(&refs->resources, uri, strlen(uri), &index)) {
            resource = refs->targets[index];
        }
        *why = "is in another document, and none is loaded";
        if (!resource) return NULL;
    }
    if (!*fragment || *fragment == '/') {
        const json_t *target = follow_pointer(resource, fragment);
        // Tools give each part an $id, and yet write pointers from the document's root.
        if (!target && ref[0] == '#') target = follow_pointer(refs->root, fragment);
        return target;
    }
    snprintf(name, sizeof name, "%s#%s", uri, fragment);
    return strmap_get(&refs->resources, name, strlen(name), &index) ? refs->targets[index] : NULL;
}

const json_t *schema_refs_resolve(struct schema_reader *reader, const json_t *schema,
                                  const char *ref, const char **why) {
    struct schema_refs *refs = &reader->refs;
    const struct schema_place key = {.schema = schema};
    struct schema_place *place = NULL;
    if (refs->num_places) {
        place = bsearch(&key, refs->places, refs->num_places, sizeof key, compare_places);
    }
    if (place && place->target && place->ref == ref) return place->target;
    const json_t *target = resolve(refs, place, ref, why);
    if (place) {
        place->ref = ref;
        place->target = target;
    }
    return target;
}

const json_t *schema_refs_target(struct schema_reader *reader, const json_t *schema,
                                 const char *key, const char **why) {
    const char *uri = json_string_value(json_object_get(schema, key));
    *why = "is not a string";
    const json_t *target = uri ? schema_refs_resolve(reader, schema, uri, why) : NULL;
    if (!target || strcmp(key, "$ref") == 0) return target;
    // Of several schemas with the anchor it means the outermost one by which it is reached.
    uint32_t count = 0;
    const char *anchor = json_string_value(json_object_get(target, "$dynamicAnchor"));
    const char *fragment = strchr(uri, '#');
    if (strcmp(key, "$recursiveRef") == 0) {
        bool is_anchor = json_is_true(json_object_get(target, "$recursiveAnchor"));
        count = is_anchor ? (uint32_t)reader->refs.num_recursive : 0;
    } else if (anchor && fragment && strcmp(fragment + 1, anchor) == 0) {
        (void)strmap_get(&reader->refs.dynamic, anchor, strlen(anchor), &count);
    }
    if (count <= 1) return target;
    *why = "has several meanings, as several schemas have this anchor";
    return NULL;
}

// ---- pointers in messages ----

struct pointer {
    const json_t *wanted;
    struct buf text;
    enum status status;
};

static void add_key(struct pointer *pointer, const char *key) {
    for (; *key && !pointer->status; key++) {
        const char escaped[] = {'~', *key == '~' ? '0' : '1'};
        bool is_escape = *key == '~' || *key == '/';
        pointer->status =
            buf_append(&pointer->text, is_escape ? escaped : key, is_escape ? 2 : 1, NULL);
    }
}

// Appends the pointer of the wanted schema below `from`. False: it is not there.
static bool find_pointer(struct pointer *pointer, const json_t *from, size_t depth) {
    if (from == pointer->wanted) return true;
    if (depth > WALK_DEPTH_MAX || pointer->status) return false;
    size_t len = pointer->text.len;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)from, key, value) {
        if (!jread_is_object(value) && !json_is_array(value) && value != pointer->wanted) continue;
        pointer->status = buf_append(&pointer->text, "/", 1, NULL);
        add_key(pointer, key);
        if (find_pointer(pointer, value, depth + 1) || pointer->status) return true;
        pointer->text.len = len;
    }
    for (size_t i = 0; i < json_array_size(from); i++) {
        value = json_array_get(from, i);
        if (!jread_is_object(value) && !json_is_array(value) && value != pointer->wanted) continue;
        pointer->status = buf_appendf(&pointer->text, NULL, "/%zu", i);
        if (find_pointer(pointer, value, depth + 1) || pointer->status) return true;
        pointer->text.len = len;
    }
    return false;
}

const char *schema_refs_pointer(struct schema_reader *reader, const json_t *schema) {
    enum { SHOWN_BYTES = 200 };
    struct pointer pointer = {.wanted = schema};
    pointer.status = buf_append(&pointer.text, "#", 1, NULL);
    bool found = find_pointer(&pointer, reader->refs.root, 0);
    size_t len = pointer.text.len < SHOWN_BYTES ? pointer.text.len : SHOWN_BYTES;
    char *copy = NULL;
    if (!pointer.status) {
        copy = arena_strndup(&reader->arena, found ? pointer.text.data : "?", found ? len : 1);
    }
    buf_fini(&pointer.text);
    if (!copy) schema_fail(reader, ERR_NOMEM, "out of memory: JSON schema");
    return copy ? copy : "?";
}
