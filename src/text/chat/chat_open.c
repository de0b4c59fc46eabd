/* Finds a checkpoint's chat templates and special tokens, in transformers' order
 * (tokenization_utils_base.py). Files of Jinja source come first: if there is any, even only an
 * additional one, tokenizer_config.json's templates are ignored. chat_template.json, which
 * processors write, comes last. The templates "default" and "tool_use" are parsed here. A broken
 * one fails the chats that need it; opening fails only where no other template is left. */
#include <stdio.h>
#include <string.h>

#include "base/json/jread.h"
#include "base/os/file.h"
#include "checkpoint/checkpoint.h"
#include "text/chat/chat_internal.h"
#include "text/unicode/unicode.h"

enum { NAME_MAX_BYTES = 200, WHAT_MAX = FILE_PATH_MAX + NAME_MAX_BYTES + 64 };

static const char config_name[] = "tokenizer_config.json";
static const char group[] = "additional_chat_templates", jinja_ending[] = ".jinja";

static bool is_open(const struct chat_template *chat_template) {
    return chat_template->names.len > 0;
}

// Notes the name of one of the checkpoint's templates. *variant is where the template belongs, or
// NULL if templates of that name are never used.
static enum status add_name(struct chat_template *chat_template, const char *name,
                            struct chat_variant **variant, struct err *err) {
    struct buf *names = &chat_template->names;
    *variant = strcmp(name, "default") == 0    ? &chat_template->main
               : strcmp(name, "tool_use") == 0 ? &chat_template->tool_use
                                               : NULL;
    return buf_appendf(names, err, names->len ? ", %s" : "%s", name);
}

void chat_variant_fini(struct chat_variant *variant) {
    jinja_template_destroy(variant->template);
    buf_fini(&variant->source);
    *variant = (struct chat_variant){0};
}

// A fault of the source is kept in the variant. Only ERR_NOMEM is returned and ends the opening.
static enum status keep_fault(struct chat_variant *variant, enum status status,
                              const struct err *fault, struct err *err) {
    if (!status) return OK;
    variant->fault = *fault;
    if (status != ERR_NOMEM) return OK;
    if (err) *err = *fault;
    return status;
}

static enum status parse(struct chat_variant *variant, const char *source, size_t len,
                         const char *what, struct err *err) {
    chat_variant_fini(variant);
    size_t valid = utf8_valid_prefix(source, len);
    if (valid < len) {
        return err_set(err, ERR_FORMAT, "%s is not UTF-8 text: byte %zu", what, valid);
    }
    enum status status = jinja_template_parse(&variant->template, source, len, what, err);
    return status ? status : buf_append(&variant->source, source, len, err);
}

static enum status add_template(struct chat_template *chat_template, const char *name,
                                const char *source, size_t len, const char *what, struct err *err) {
    struct chat_variant *variant;
    enum status status = add_name(chat_template, name, &variant, err);
    if (status || !variant) return status;
    struct err fault = {0};
    status = parse(variant, source, len, what, &fault);
    return keep_fault(variant, status, &fault, err);
}

// A file of Jinja source.
struct source {
    const struct checkpoint *checkpoint; // NULL: the caller's file
    const char *document; // of the checkpoint, or the file's path
};

static enum status parse_source(struct chat_variant *variant, const struct source *source,
                                struct err *err) {
    struct document_name what = {""};
    struct buf text = {0};
    bool present = true;
    enum status status = OK;
    const char *name = source->document;
    if (source->checkpoint) {
        status = checkpoint_find(source->checkpoint, source->document, &what, &present, err);
        if (!status) status = checkpoint_read(source->checkpoint, source->document, &text, err);
        name = what.text;
    } else {
        status = file_read(&text, source->document, err);
    }
    if (!status) status = file_check_lfs(text.data, text.len, name, err);
    if (!status) status = parse(variant, text.data, text.len, name, err);
    buf_fini(&text);
    return status;
}

static enum status add_source(struct chat_template *chat_template, const char *name,
                              const struct source *source, struct err *err) {
    struct chat_variant *variant;
    enum status status = add_name(chat_template, name, &variant, err);
    if (status || !variant) return status;
    struct err fault = {0};
    status = parse_source(variant, source, &fault);
    return keep_fault(variant, status, &fault, err);
}

static enum status add_own_if_present(struct chat_template *chat_template,
                                      const struct checkpoint *checkpoint, struct err *err) {
    const struct source source = {checkpoint, "chat_template.jinja"};
    struct document_name what;
    bool present = false;
    enum status status = checkpoint_find(checkpoint, source.document, &what, &present, err);
    if (status || !present) return status;
    return add_source(chat_template, "default", &source, err);
}

static enum status add_entry(struct chat_template *chat_template,
                             const struct checkpoint *checkpoint, const char *entry,
                             struct err *err) {
    size_t len = strlen(entry), ending = sizeof jinja_ending - 1;
    if (len <= ending || strcmp(entry + len - ending, jinja_ending) != 0) return OK;
    char name[256] = "", document[sizeof group + 256]; // a file's name has at most 255 bytes
    memcpy(name, entry, len - ending < sizeof name ? len - ending : sizeof name - 1);
    snprintf(document, sizeof document, "%s/%.255s", group, entry);
    const struct source source = {checkpoint, document};
    return add_source(chat_template, name, &source, err);
}

// additional_chat_templates/NAME.jinja
static enum status add_group(struct chat_template *chat_template,
                             const struct checkpoint *checkpoint, struct err *err) {
    struct buf names = {0};
    enum status status = checkpoint_list(checkpoint, group, &names, err);
    for (size_t at = 0; at < names.len && !status; at += strlen(names.data + at) + 1) {
        status = add_entry(chat_template, checkpoint, names.data + at, err);
    }
    buf_fini(&names);
    return status;
}

static enum status add_named(struct chat_template *chat_template, const json_t *item,
                             const char *path, struct err *err) {
    const json_t *name = json_object_get(item, "name"), *source = json_object_get(item, "template");
    if (!json_is_string(name) || !json_is_string(source)) {
        return err_set(err, ERR_FORMAT,
                       "%s: an entry of \"chat_template\" is not an object with a \"name\" and a "
                       "\"template\"",
                       path);
    }
    char what[WHAT_MAX];
    snprintf(what, sizeof what, "%s: chat_template \"%.*s\"", path, (int)NAME_MAX_BYTES,
             json_string_value(name));
    return add_template(chat_template, json_string_value(name), json_string_value(source),
                        json_string_length(source), what, err);
}

// Adds the member "chat_template" of a JSON file: a string or a list of named templates.
static enum status add_member(struct chat_template *chat_template, const json_t *root,
                              const char *path, struct err *err) {
    const json_t *member = jread_get(root, "chat_template");
    if (!member) return OK;
    if (json_is_string(member)) {
        char what[WHAT_MAX];
        snprintf(what, sizeof what, "%s: chat_template", path);
        return add_template(chat_template, "default", json_string_value(member),
                            json_string_length(member), what, err);
    }
    if (!json_is_array(member)) {
        return err_set(err, ERR_FORMAT, "%s: \"chat_template\" is %s, want a string or a list",
                       path, jread_type_name(member));
    }
    enum status status = OK;
    for (size_t i = 0; i < json_array_size(member) && !status; i++) {
        status = add_named(chat_template, json_array_get(member, i), path, err);
    }
    return status;
}

// *root stays NULL where there is no such document.
static enum status read_json(json_t **root, const struct checkpoint *checkpoint,
                             const char *document, struct document_name *what, struct err *err) {
    enum status status = checkpoint_read_strings(checkpoint, document, what, root, err);
    if (status || !*root || json_is_object(*root)) return status;
    return err_set(err, ERR_FORMAT, "%s is %s, want an object", what->text, jread_type_name(*root));
}

// A special token's text: a string, or the "content" of an object. NULL: it is neither.
static json_t *token_text(json_t *token) {
    if (json_is_object(token)) token = json_object_get(token, "content");
    return json_is_string(token) ? token : NULL;
}

static enum status bad_token(const char *path, const char *name, const json_t *token,
                             struct err *err) {
    return err_set(err, ERR_FORMAT,
                   "%s: a token of \"%s\" is %s, want a string or an object with \"content\"", path,
                   name, jread_type_name(token));
}

static enum status set_token(json_t *tokens, const char *name, json_t *token, const char *path,
                             struct err *err) {
    json_t *text = token_text(token);
    if (!text) return bad_token(path, name, token, err);
    // An empty token counts as none in transformers.
    if (!json_string_length(text)) return OK;
    return json_object_set(tokens, name, text) ? err_nomem(err, path) : OK;
}

// Adds the list's texts to `set`, an object that has each as a key, in the order of arrival.
static enum status collect_texts(json_t *set, const char *name, const json_t *list,
                                 const char *path, struct err *err) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *text = token_text(json_array_get(list, i));
        if (!text) return bad_token(path, name, json_array_get(list, i), err);
        if (json_object_set(set, json_string_value(text), text)) return err_nomem(err, path);
    }
    return OK;
}

// Adds to the texts already there: transformers joins two lists into one without duplicates.
static enum status set_token_list(json_t *tokens, const char *name, json_t *list, const char *path,
                                  struct err *err) {
    if (!json_is_array(list)) {
        return err_set(err, ERR_FORMAT, "%s: \"%s\" is %s, want a list", path, name,
                       jread_type_name(list));
    }
    if (!json_array_size(list)) return OK;
    json_t *set = json_object(), *texts = json_array(), *text;
    enum status status = set && texts ? OK : err_nomem(err, path);
    if (!status) status = collect_texts(set, name, json_object_get(tokens, name), path, err);
    if (!status) status = collect_texts(set, name, list, path, err);
    const char *key;
    json_object_foreach(set, key, text) {
        if (!status && json_array_append(texts, text)) status = err_nomem(err, path);
    }
    if (!status && json_object_set(tokens, name, texts)) status = err_nomem(err, path);
    json_decref(set);
    json_decref(texts);
    return status;
}

// Adds the special tokens that a file names. `only_missing`: tokens already there stay.
static enum status add_tokens(json_t *tokens, const json_t *root, bool only_missing,
                              const char *path, struct err *err) {
    static const char *const names[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                        "pad_token", "cls_token", "mask_token"};
    static const char list_name[] = "additional_special_tokens";
    enum status status = OK;
    for (size_t i = 0; i < ARRAY_LEN(names) && !status; i++) {
        json_t *token = jread_get(root, names[i]);
        if (!token || (only_missing && json_object_get(tokens, names[i]))) continue;
        status = set_token(tokens, names[i], token, path, err);
    }
    json_t *list = jread_get(root, list_name);
    if (!status && list && !(only_missing && json_object_get(tokens, list_name))) {
        status = set_token_list(tokens, list_name, list, path, err);
    }
    // Tokens under names that the model chose: {"image_token": "<image>"}.
    json_t *extra = json_object_get(root, "extra_special_tokens"), *token;
    const char *name;
    if (!json_is_object(extra)) return status;
    json_object_foreach(extra, name, token) {
        if (!status) status = set_token(tokens, name, token, path, err);
    }
    return status;
}

/* In transformers special_tokens_map.json overrides a tokenizer_config.json of the old form, the
 * one without added_tokens_decoder. Beside the new form it is ignored. Here it then still fills in
 * tokens that are missing, because transformers gets the same tokens from the tokenizer's class. */
static enum status add_special_tokens(struct chat_template *chat_template, const json_t *config,
                                      const char *config_what, const struct checkpoint *checkpoint,
                                      struct err *err) {
    struct document_name what;
    json_t *map = NULL, *tokens = chat_template->special_tokens;
    enum status status = OK;
    if (config) status = add_tokens(tokens, config, false, config_what, err);
    if (!status) status = read_json(&map, checkpoint, "special_tokens_map.json", &what, err);
    if (!status && map) {
        bool new_form = json_object_get(config, "added_tokens_decoder") != NULL;
        status = add_tokens(tokens, map, new_form, what.text, err);
    }
    json_decref(map);
    return status;
}

// has_own: the caller gave the template, so the checkpoint has only the tokens.
static enum status open_checkpoint(struct chat_template *chat_template,
                                   const struct checkpoint *checkpoint, bool has_own,
                                   struct err *err) {
    struct document_name config_what, processor_what;
    json_t *config = NULL, *processor = NULL;
    enum status status = OK;
    if (!has_own) status = add_own_if_present(chat_template, checkpoint, err);
    if (!status && !has_own) status = add_group(chat_template, checkpoint, err);
    if (!status) status = read_json(&config, checkpoint, config_name, &config_what, err);
    if (!status) {
        status = add_special_tokens(chat_template, config, config_what.text, checkpoint, err);
    }
    if (!status && !has_own && !is_open(chat_template)) {
        status = add_member(chat_template, config, config_what.text, err);
    }
    if (!status && !has_own && !is_open(chat_template)) {
        status = read_json(&processor, checkpoint, "chat_template.json", &processor_what, err);
        if (!status) status = add_member(chat_template, processor, processor_what.text, err);
    }
    json_decref(config);
    json_decref(processor);
    return status;
}

// Opening fails over a broken template only where there is no other to use.
static enum status check_usable(const struct chat_template *chat_template, struct err *err) {
    const struct chat_variant *main = &chat_template->main, *tool_use = &chat_template->tool_use;
    const struct chat_variant *broken = main->fault.status ? main : tool_use;
    if (main->template || tool_use->template || !broken->fault.status) return OK;
    if (err) *err = broken->fault;
    return broken->fault.status;
}

enum status chat_open_files(struct chat_template *chat_template,
                            const struct checkpoint *checkpoint, const char *path,
                            struct err *err) {
    if (!checkpoint && !path) {
        return err_set(err, ERR_INVALID, "no model and no chat template given");
    }
    chat_template->special_tokens = json_object();
    if (!chat_template->special_tokens) return err_nomem(err, "chat template");
    const struct source source = {NULL, path};
    enum status status = OK;
    if (path) status = add_source(chat_template, "default", &source, err);
    if (!status && checkpoint) {
        status = open_checkpoint(chat_template, checkpoint, path != NULL, err);
    }
    if (!status) status = check_usable(chat_template, err);
    if (status || is_open(chat_template)) return status;
    return err_set(err, ERR_INVALID,
                   "%s has no chat template: no chat_template.jinja, no \"chat_template\" in %s or "
                   "chat_template.json (--chat-template FILE gives one)",
                   checkpoint_path(checkpoint), config_name);
}
