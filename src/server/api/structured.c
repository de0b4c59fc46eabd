#include "server/api/structured.h"

#include <string.h>

#include "base/json/jread.h"
#include "server/api/convert.h"
#include "server/api/request_params.h"
#include "server/loop/body.h"

// The constraint that was found, for structured_outputs.
struct found {
    const char *member; // of the request; NULL: none
    const char *key; // of structured_outputs
    json_t *value; // a reference of its own
};

// Takes the reference to `value`.
static bool set_found(struct api_request *request, struct found *found, const char *member,
                      const char *key, json_t *value) {
    if (!value) return api_error_nomem(&request->error);
    if (!found->member) {
        *found = (struct found){member, key, value};
        return true;
    }
    json_decref(value);
    return api_error_invalid(&request->error, member,
                             "%s and %s each give the answer a form: want one of them",
                             found->member, member);
}

// response_format's {"type": "json_schema", "json_schema": {"name": ..., "schema": {...}}}.
static bool find_schema(struct api_request *request, const json_t *format, struct found *found) {
    json_t *wrapper = json_object_get(format, "json_schema");
    json_t *schema = json_object_get(jread_is_object(wrapper) ? wrapper : format, "schema");
    if (!schema || json_is_null(schema)) {
        return api_error_invalid(&request->error, "response_format",
                                 "response_format has no json_schema.schema");
    }
    return set_found(request, found, "response_format", "json", json_incref(schema));
}

static bool find_response_format(struct api_request *request, struct found *found) {
    json_t *format = body_get(request, "response_format");
    if (!format) return true;
    if (!jread_is_object(format)) {
        return body_wrong_type(request, "response_format", format, "an object");
    }
    const json_t *type = json_object_get(format, "type");
    if (body_is_word(type, "text")) return true;
    if (body_is_word(type, "json_object")) {
        // llama-server's form has a schema here.
        json_t *schema = jread_get(format, "schema");
        if (schema)
            return set_found(request, found, "response_format", "json", json_incref(schema));
        return set_found(request, found, "response_format", "json_object", json_true());
    }
    if (body_is_word(type, "json_schema")) return find_schema(request, format, found);
    if (body_is_word(type, "structural_tag")) {
        return set_found(request, found, "response_format", "structural_tag", json_incref(format));
    }
    return api_error_invalid(&request->error, "response_format",
                             "response_format has no known type, want text, json_object, "
                             "json_schema or structural_tag");
}

// Ollama's: "json" or a schema.
static bool find_format(struct api_request *request, struct found *found) {
    json_t *format = body_get(request, "format");
    if (body_is_nothing(format)) return true;
    if (body_is_word(format, "json")) {
        return set_found(request, found, "format", "json_object", json_true());
    }
    if (!jread_is_object(format)) {
        return body_wrong_type(request, "format", format, "\"json\" or a schema");
    }
    return set_found(request, found, "format", "json", json_incref(format));
}

static bool find_others(struct api_request *request, struct found *found) {
    static const struct {
        const char *member, *key;
    } others[] = {
        {"guided_json", "json"},       {"guided_json_object", "json_object"},
        {"guided_regex", "regex"},     {"guided_choice", "choice"},
        {"guided_grammar", "grammar"}, {"grammar", "grammar"},
        {"json_schema", "json"},       {"regex", "regex"},
        {"ebnf", "grammar"},           {"structural_tag", "structural_tag"},
    };
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        json_t *value = body_get(request, others[i].member);
        if (body_is_nothing(value)) continue;
        if (!set_found(request, found, others[i].member, others[i].key, json_incref(value))) {
            return false;
        }
    }
    return true;
}

static bool set_form(struct api_request *request, const struct found *found) {
    json_t *given = body_get(request, "structured_outputs");
    if (!found->member) {
        request->chat.form = given ? json_incref(given) : NULL;
        return true;
    }
    if (given) {
        return api_error_invalid(&request->error, found->member,
                                 "structured_outputs and %s each give the answer a form: want one "
                                 "of them",
                                 found->member);
    }
    json_t *space = body_get(request, "guided_whitespace_pattern");
    json_t *form = json_object();
    bool is_good = form && json_object_set(form, found->key, found->value) == 0 &&
                   (!space || json_object_set(form, "whitespace_pattern", space) == 0);
    is_good = is_good ? request_params_set(request, "structured_outputs", form)
                      : api_error_nomem(&request->error);
    request->chat.form = form;
    return is_good;
}

bool structured_read(struct api_request *request) {
    struct found found = {0};
    bool is_good = find_response_format(request, &found) && find_format(request, &found) &&
                   find_others(request, &found) && set_form(request, &found);
    json_decref(found.value);
    return is_good;
}

bool structured_convert(struct api_request *request, const char *member, const json_t *format) {
    const json_t *type = jread_get(format, "type");
    if (!format || json_is_null(format) || body_is_word(type, "text")) return true;
    if (body_is_word(type, "json_object")) {
        return convert_set(request, "response_format", json_pack("{s:s}", "type", "json_object"));
    }
    json_t *schema = json_object_get(format, "schema");
    if (!body_is_word(type, "json_schema") || !schema) {
        return api_error_invalid(&request->error, member,
                                 "%s has no known format, want {\"type\": \"json_schema\", "
                                 "\"schema\": {...}}",
                                 member);
    }
    json_t *out =
        json_pack("{s:s,s:{s:O}}", "type", "json_schema", "json_schema", "schema", schema);
    return convert_set(request, "response_format", out);
}
