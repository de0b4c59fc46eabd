/* The components of tokenizer.json around the model: the lists of components, pre_tokenizer and
 * post_processor. A component that is not supported is refused by name: a tokenizer that is almost
 * right gives wrong answers that nobody notices. */
#include <stdlib.h>
#include <string.h>

#include "base/json/jread.h"
#include "text/tokenizer/tokenizer_parts.h"

// The "type" of a component, which must be an object.
static enum status component_type(const json_t *component, const char *role, const char **type,
                                  const char *what, struct err *err) {
    *type = NULL;
    if (!json_is_object(component)) {
        return err_set(err, ERR_FORMAT, "%s: %s is %s, want an object", what, role,
                       jread_type_name(component));
    }
    enum status status = jread_string(component, "type", type, what, err);
    if (status) return status;
    return *type ? OK : err_set(err, ERR_FORMAT, "%s: %s has no \"type\"", what, role);
}

enum status component_unsupported(const char *role, const char *type, const char *what,
                                  struct err *err) {
    return err_set(err, ERR_UNSUPPORTED, "%s: %s of type \"%.80s\" is not supported", what, role,
                   type);
}

// A Sequence inside a Sequence is not supported: no published file has one.
enum status component_list_read(const json_t *root, const char *role, const char *key,
                                struct component_list *list, const char *what, struct err *err) {
    *list = (struct component_list){0};
    const json_t *top = jread_get(root, role);
    if (!top) return OK;
    enum status status = component_type(top, role, &list->types[0], what, err);
    if (status) return status;
    if (strcmp(list->types[0], "Sequence") != 0) {
        list->items[0] = top;
        list->len = 1;
        return OK;
    }
    const json_t *items = json_object_get(top, key);
    if (!json_is_array(items)) {
        return err_set(err, ERR_FORMAT, "%s: %s: \"%s\" is %s, want a list", what, role, key,
                       jread_type_name(items));
    }
    if (json_array_size(items) > SPLITS_MAX) {
        return err_set(err, ERR_UNSUPPORTED, "%s: %s has %zu components, at most %d are supported",
                       what, role, json_array_size(items), SPLITS_MAX);
    }
    for (size_t i = 0; i < json_array_size(items); i++) {
        list->items[i] = json_array_get(items, i);
        status = component_type(list->items[i], role, &list->types[i], what, err);
        if (status) return status;
        list->len++;
    }
    return OK;
}

// Reads what happens to the delimiters, by Hugging Face's names. `fallback` is used where the file
// has no "behavior"; NULL: it must have one.
static enum status load_behavior(const json_t *component, const char *fallback,
                                 enum split_behavior *behavior, const char *what, struct err *err) {
    static const char *const names[] = {
        [SPLIT_REMOVED] = "Removed",
        [SPLIT_ISOLATED] = "Isolated",
        [SPLIT_MERGED_WITH_PREVIOUS] = "MergedWithPrevious",
        [SPLIT_MERGED_WITH_NEXT] = "MergedWithNext",
        [SPLIT_CONTIGUOUS] = "Contiguous",
    };
    const char *name = fallback;
    enum status status = jread_string(component, "behavior", &name, what, err);
    if (status) return status;
    for (size_t i = 0; name && i < ARRAY_LEN(names); i++) {
        if (strcmp(name, names[i]) != 0) continue;
        *behavior = (enum split_behavior)i;
        return OK;
    }
    return err_set(err, ERR_FORMAT, "%s: pre_tokenizer: behavior \"%.80s\" is not known", what,
                   name ? name : "(missing)");
}

// The pattern is compiled here, so that a bad one is an error of loading and not of encoding.
static enum status load_split(struct tokenizer *tokenizer, struct split *split,
                              const json_t *component, const char *what, struct err *err) {
    enum status status = load_behavior(component, NULL, &split->behavior, what, err);
    if (!status) status = jread_bool(component, "invert", &split->invert, what, err);
    if (status) return status;
    return tokenizer_load_pattern(&split->pattern, tokenizer->flags, component, "pre_tokenizer",
                                  what, err);
}

// Digits makes each digit a piece, or each row of digits.
static enum status load_digits(struct tokenizer *tokenizer, struct split *split,
                               const json_t *component, const char *what, struct err *err) {
    bool individual = false;
    enum status status = jread_bool(component, "individual_digits", &individual, what, err);
    if (status) return status;
    split->behavior = individual ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS;
    pattern_init_flagged(&split->pattern, tokenizer->flags, UNICODE_NUMBER);
    return OK;
}

// Punctuation cuts at signs: those of ASCII, and the categories P in Hugging Face's Unicode
// version.
static enum status load_punctuation(struct tokenizer *tokenizer, struct split *split,
                                    const json_t *component, const char *what, struct err *err) {
    pattern_init_flagged(&split->pattern, tokenizer->flags, UNICODE_PUNCTUATION);
    return load_behavior(component, "Isolated", &split->behavior, what, err);
}

// Whitespace drops white space and separates words from signs; WhitespaceSplit only drops it.
static void load_whitespace(struct tokenizer *tokenizer, struct split *split, bool words) {
    split->behavior = SPLIT_REMOVED;
    split->invert = words; // matches of the word pattern are kept
    if (words) {
        pattern_init_word(&split->pattern, tokenizer->flags);
    } else {
        pattern_init_flagged(&split->pattern, tokenizer->flags, UNICODE_SPACE);
    }
}

static struct split *next_split(struct tokenizer *tokenizer) {
    return &tokenizer->splits[tokenizer->num_splits++];
}

enum status tokenizer_read_byte_level(const json_t *component, bool *prefix_space, bool *use_regex,
                                      const char *what, struct err *err) {
    bool trim_offsets = true;
    *prefix_space = *use_regex = true; // Hugging Face's defaults; old files have no use_regex
    enum status status = jread_bool(component, "add_prefix_space", prefix_space, what, err);
    if (!status) status = jread_bool(component, "trim_offsets", &trim_offsets, what, err);
    return status ? status : jread_bool(component, "use_regex", use_regex, what, err);
}

static enum status load_byte_level(struct tokenizer *tokenizer, const json_t *component,
                                   const char *what, struct err *err) {
    bool prefix_space, use_regex;
    enum status status = tokenizer_read_byte_level(component, &prefix_space, &use_regex, what, err);
    if (status) return status;
    if (tokenizer->num_splits + 2 > SPLITS_MAX) {
        return err_set(err, ERR_UNSUPPORTED, "%s: pre_tokenizer has too many components", what);
    }
    // ByteLevel is two stages: the space, then GPT-2's pattern. Its alphabet needs no stage: here
    // the model works on bytes.
    if (prefix_space) next_split(tokenizer)->kind = SPLIT_PREFIX_SPACE;
    if (use_regex) {
        struct split *split = next_split(tokenizer);
        split->behavior = SPLIT_ISOLATED;
        pattern_init_gpt2(&split->pattern, tokenizer->flags);
    }
    return OK;
}

// Old files have add_prefix_space instead of a scheme. A file with both must have them agree.
static enum status read_scheme(const json_t *component, const char *role,
                               enum metaspace_scheme *scheme, const char *what, struct err *err) {
    static const char *const names[] = {
        [METASPACE_ALWAYS] = "always", [METASPACE_FIRST] = "first", [METASPACE_NEVER] = "never"};
    const char *name = NULL;
    bool prefix_space = true;
    enum status status = jread_string(component, "prepend_scheme", &name, what, err);
    if (!status) status = jread_bool(component, "add_prefix_space", &prefix_space, what, err);
    if (status) return status;
    size_t i = 0;
    if (name) {
        while (i < ARRAY_LEN(names) && strcmp(name, names[i]) != 0) i++;
    } else {
        i = prefix_space ? METASPACE_ALWAYS : METASPACE_NEVER;
    }
    if (i == ARRAY_LEN(names)) {
        return err_set(err, ERR_FORMAT, "%s: %s: prepend_scheme \"%.40s\" is not known", what, role,
                       name);
    }
    *scheme = (enum metaspace_scheme)i;
    if (prefix_space || *scheme == METASPACE_NEVER) return OK;
    return err_set(err, ERR_FORMAT,
                   "%s: %s: add_prefix_space is false, but prepend_scheme is \"%s\"", what, role,
                   name);
}

enum status tokenizer_read_metaspace(const json_t *component, const char *role,
                                     struct metaspace *out, const char *what, struct err *err) {
    *out = (struct metaspace){.split = true};
    const char *character = NULL;
    enum status status = jread_string(component, "replacement", &character, what, err);
    if (!status) status = read_scheme(component, role, &out->scheme, what, err);
    if (!status) status = jread_bool(component, "split", &out->split, what, err);
    if (status) return status;
    if (character && *character) (void)utf8_decode((const unsigned char *)character, &out->len);
    if (!character || !out->len || strlen(character) != out->len) {
        return err_set(err, ERR_FORMAT, "%s: %s: replacement is not one character", what, role);
    }
    memcpy(out->character, character, out->len);
    return OK;
}

// Metaspace and the prefix space share one buffer of the scratch, so there can be one such stage.
static enum status load_metaspace(struct tokenizer *tokenizer, const json_t *component,
                                  const char *what, struct err *err) {
    for (size_t i = 0; i < tokenizer->num_splits; i++) {
        if (tokenizer->splits[i].kind != SPLIT_METASPACE) continue;
        return err_set(err, ERR_UNSUPPORTED, "%s: pre_tokenizer has two Metaspaces", what);
    }
    struct split *split = next_split(tokenizer);
    split->kind = SPLIT_METASPACE;
    return tokenizer_read_metaspace(component, "pre_tokenizer", &split->metaspace, what, err);
}

static enum status load_stage(struct tokenizer *tokenizer, const json_t *component,
                              const char *type, const char *what, struct err *err) {
    if (strcmp(type, "Split") == 0) {
        return load_split(tokenizer, next_split(tokenizer), component, what, err);
    }
    if (strcmp(type, "Digits") == 0) {
        return load_digits(tokenizer, next_split(tokenizer), component, what, err);
    }
    if (strcmp(type, "Punctuation") == 0) {
        return load_punctuation(tokenizer, next_split(tokenizer), component, what, err);
    }
    if (strcmp(type, "Whitespace") == 0 || strcmp(type, "WhitespaceSplit") == 0) {
        load_whitespace(tokenizer, next_split(tokenizer), strcmp(type, "Whitespace") == 0);
        return OK;
    }
    if (strcmp(type, "Metaspace") == 0 && !tokenizer->bpe.vocab.byte_level) {
        return load_metaspace(tokenizer, component, what, err);
    }
    return component_unsupported("pre_tokenizer", type, what, err);
}

enum status tokenizer_find_byte_level(const json_t *root, bool *byte_level, const char *what,
                                      struct err *err) {
    struct component_list list;
    enum status status =
        component_list_read(root, "pre_tokenizer", "pretokenizers", &list, what, err);
    *byte_level = false;
    for (size_t i = 0; i < list.len && !status; i++) {
        *byte_level = *byte_level || strcmp(list.types[i], "ByteLevel") == 0;
    }
    return status;
}

enum status tokenizer_load_pre_tokenizer(struct tokenizer *tokenizer, const json_t *root,
                                         const char *what, struct err *err) {
    struct component_list list;
    enum status status =
        component_list_read(root, "pre_tokenizer", "pretokenizers", &list, what, err);
    for (size_t i = 0; i < list.len && !status; i++) {
        if (strcmp(list.types[i], "ByteLevel") != 0) {
            status = load_stage(tokenizer, list.items[i], list.types[i], what, err);
        } else if (i + 1 == list.len) {
            status = load_byte_level(tokenizer, list.items[i], what, err);
        } else {
            // In Hugging Face a component after ByteLevel sees text in ByteLevel's alphabet. Here
            // it would see the text itself.
            status = err_set(
                err, ERR_UNSUPPORTED,
                "%s: pre_tokenizer: ByteLevel before other components is not supported", what);
        }
    }
    return status;
}

// Appends the ids of one special token of a template.
static enum status load_template_token(struct tokenizer *tokenizer, const json_t *tokens,
                                       const char *name, bool after, const char *what,
                                       struct err *err) {
    const json_t *ids = json_object_get(json_object_get(tokens, name), "ids");
    if (!json_is_array(ids)) {
        return err_set(err, ERR_FORMAT, "%s: post_processor: special token \"%.80s\" has no ids",
                       what, name);
    }
    int32_t *out = after ? tokenizer->suffix : tokenizer->prefix;
    size_t *len = after ? &tokenizer->num_suffix : &tokenizer->num_prefix;
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const json_t *value = json_array_get(ids, i);
        json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
        if (!vocab_token(&tokenizer->bpe.vocab, id)) {
            return err_set(err, ERR_FORMAT,
                           "%s: post_processor: special token \"%.80s\" has an id without a token",
                           what, name);
        }
        if (*len == TEMPLATE_IDS_MAX) {
            return err_set(err, ERR_UNSUPPORTED, "%s: post_processor adds more than %d tokens",
                           what, TEMPLATE_IDS_MAX);
        }
        out[(*len)++] = (int32_t)id;
    }
    return OK;
}

// A piece of a template: {"SpecialToken": {"id": ...}} or {"Sequence": {"id": "A"}}.
static enum status load_template_piece(struct tokenizer *tokenizer, const json_t *piece,
                                       const json_t *tokens, bool *after, const char *what,
                                       struct err *err) {
    const char *name = NULL, *sequence = NULL;
    enum status status =
        jread_string(json_object_get(piece, "SpecialToken"), "id", &name, what, err);
    if (!status) {
        status = jread_string(json_object_get(piece, "Sequence"), "id", &sequence, what, err);
    }
    if (status) return status;
    if (name) return load_template_token(tokenizer, tokens, name, *after, what, err);
    if (!sequence || strcmp(sequence, "A") != 0 || *after) {
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: post_processor: \"single\" must be special tokens around one text, the "
                       "sequence A",
                       what);
    }
    *after = true;
    return OK;
}

// Reads only the template of a single text: generation never encodes pairs of texts.
static enum status load_template(struct tokenizer *tokenizer, const json_t *component,
                                 const char *what, struct err *err) {
    const json_t *single = json_object_get(component, "single");
    const json_t *tokens = json_object_get(component, "special_tokens");
    bool after = false;
    enum status status = OK;
    for (size_t i = 0; i < json_array_size(single) && !status; i++) {
        status =
            load_template_piece(tokenizer, json_array_get(single, i), tokens, &after, what, err);
    }
    if (!status && !after) {
        return err_set(err, ERR_FORMAT, "%s: post_processor: \"single\" has no sequence", what);
    }
    return status;
}

enum status tokenizer_load_post_processor(struct tokenizer *tokenizer, const json_t *root,
                                          const char *what, struct err *err) {
    struct component_list list;
    enum status status =
        component_list_read(root, "post_processor", "processors", &list, what, err);
    bool templated = false;
    for (size_t i = 0; i < list.len && !status; i++) {
        // ByteLevel changes only offsets, which are not used here.
        if (strcmp(list.types[i], "ByteLevel") == 0) {
            bool unused;
            status = tokenizer_read_byte_level(list.items[i], &unused, &unused, what, err);
            continue;
        }
        if (strcmp(list.types[i], "TemplateProcessing") != 0) {
            return component_unsupported("post_processor", list.types[i], what, err);
        }
        if (templated) {
            return err_set(err, ERR_UNSUPPORTED, "%s: post_processor has two templates", what);
        }
        templated = true;
        status = load_template(tokenizer, list.items[i], what, err);
    }
    return status;
}
