#include "structured/read/tags.h"

#include <stdlib.h>
#include <string.h>

struct tags {
    struct grammar *grammar;
    struct exprs *exprs;
    const struct tag *tags; // [num_tags]
    size_t num_tags;
    const struct tags_options *options;
    struct expr_text *triggers; // [num_triggers]
    size_t num_triggers;
    uint32_t *items; // [num_tags * num_triggers]
};

static bool starts_with(struct expr_text text, struct expr_text start) {
    return text.len >= start.len && memcmp(text.bytes, start.bytes, start.len) == 0;
}

static enum status check(const struct tags *tags, struct err *err) {
    for (size_t i = 0; i < tags->num_tags; i++) {
        const struct tag *tag = &tags->tags[i];
        if (tag->begin.len == 0) return err_set(err, ERR_INVALID, "tag %zu has no beginning", i);
        size_t k = 0;
        while (k < tags->num_triggers && !starts_with(tag->begin, tags->triggers[k])) k++;
        if (k < tags->num_triggers || tag->special || tags->options->only_tags) continue;
        return err_set(err, ERR_INVALID, "tag %zu, \"%.*s\", starts with no trigger", i,
                       (int)(tag->begin.len < 100 ? tag->begin.len : 100), tag->begin.bytes);
    }
    for (size_t k = 0; k < tags->num_triggers; k++) {
        size_t i = 0;
        if (tags->triggers[k].len == 0) return err_set(err, ERR_INVALID, "trigger %zu is empty", k);
        while (i < tags->num_tags && !starts_with(tags->tags[i].begin, tags->triggers[k])) i++;
        if (i == tags->num_tags) {
            return err_set(err, ERR_INVALID, "trigger %zu starts no tag", k);
        }
    }
    return OK;
}

// The triggers that are given, or the tags' beginnings, each once.
static enum status find_triggers(struct tags *tags, struct err *err) {
    const struct tags_options *options = tags->options;
    size_t max = options->triggers ? options->num_triggers : tags->num_tags;
    tags->triggers = calloc(max + 1, sizeof *tags->triggers);
    tags->items = calloc(tags->num_tags * (max + 1), sizeof *tags->items);
    if (!tags->triggers || !tags->items) return err_nomem(err, "structural tags");
    for (size_t i = 0; i < max; i++) {
        if (!options->triggers && tags->tags[i].special) continue;
        struct expr_text text = options->triggers ? options->triggers[i] : tags->tags[i].begin;
        size_t k = 0;
        while (k < tags->num_triggers &&
               (tags->triggers[k].len != text.len || !starts_with(tags->triggers[k], text))) {
            k++;
        }
        if (k == tags->num_triggers) tags->triggers[tags->num_triggers++] = text;
    }
    return check(tags, err);
}

// `lead`, the rest of the tag's beginning behind `skip` bytes, its content and its end.
static uint32_t make_tag(struct tags *tags, const struct tag *tag, uint32_t lead, size_t skip) {
    struct exprs *exprs = tags->exprs;
    uint32_t begin = tag->special
                         ? expr_special_token(exprs, tag->begin.bytes, tag->begin.len)
                         : expr_literal(exprs, tag->begin.bytes + skip, tag->begin.len - skip);
    uint32_t items[] = {
        grammar_terminal(tags->grammar, expr_concat(exprs, lead, begin)), tag->content,
        grammar_terminal(tags->grammar, expr_literal(exprs, tag->end.bytes, tag->end.len))};
    return grammar_sequence(tags->grammar, items, 3);
}

// Text that ends with the trigger; before its end no trigger occurs.
static uint32_t until_trigger(struct tags *tags, struct expr_text trigger, uint32_t any_trigger) {
    struct exprs *exprs = tags->exprs;
    uint32_t literal = expr_literal(exprs, trigger.bytes, trigger.len);
    uint32_t one_byte = expr_byte_range(exprs, 0, 255);
    uint32_t early = expr_concat_all(
        exprs, (uint32_t[]){EXPR_ANYTHING, any_trigger, one_byte, EXPR_ANYTHING}, 4);
    return expr_minus(exprs, expr_concat(exprs, expr_any_text(exprs), literal), early);
}

// One tag, with the free text before it.
static uint32_t any_tag(struct tags *tags, uint32_t free_text) {
    size_t num_items = 0;
    uint32_t any_trigger = expr_one_of(tags->exprs, tags->triggers, tags->num_triggers);
    for (size_t k = 0; k < tags->num_triggers && !tags->options->only_tags; k++) {
        uint32_t lead = until_trigger(tags, tags->triggers[k], any_trigger);
        for (size_t i = 0; i < tags->num_tags; i++) {
            const struct tag *tag = &tags->tags[i];
            if (tag->special || !starts_with(tag->begin, tags->triggers[k])) continue;
            tags->items[num_items++] = make_tag(tags, tag, lead, tags->triggers[k].len);
        }
    }
    for (size_t i = 0; i < tags->num_tags; i++) {
        const struct tag *tag = &tags->tags[i];
        if (!tags->options->only_tags && !tag->special) continue;
        uint32_t lead = tags->options->only_tags ? EXPR_EPSILON : free_text;
        tags->items[num_items++] = make_tag(tags, tag, lead, 0);
    }
    return grammar_choice(tags->grammar, tags->items, num_items);
}

static uint32_t make_text(struct tags *tags) {
    struct grammar *grammar = tags->grammar;
    const struct tags_options *options = tags->options;
    uint32_t free_text = expr_text_without(tags->exprs, tags->triggers, tags->num_triggers);
    uint32_t tag = any_tag(tags, free_text), trailing = grammar_terminal(grammar, free_text);
    if (options->only_tags) {
        struct expr_text separator = options->separator;
        uint32_t next[] = {
            grammar_terminal(grammar, expr_literal(tags->exprs, separator.bytes, separator.len)),
            tag};
        uint32_t more = grammar_repeat(grammar, grammar_sequence(grammar, next, 2), 0,
                                       options->at_most_one ? 0 : EXPR_FOREVER);
        uint32_t all = grammar_sequence(grammar, (uint32_t[]){tag, more}, 2);
        return options->at_least_one ? all : grammar_optional(grammar, all);
    }
    if (!options->at_most_one) {
        uint32_t list[] = {grammar_repeat(grammar, tag, options->at_least_one, EXPR_FOREVER),
                           trailing};
        return grammar_sequence(grammar, list, 2);
    }
    return options->at_least_one ? tag : grammar_choice(grammar, (uint32_t[]){tag, trailing}, 2);
}

enum status tags_add(struct grammar *grammar, const struct tag *tags, size_t num_tags,
                     const struct tags_options *options, uint32_t *rule, struct err *err) {
    if (num_tags == 0) return err_set(err, ERR_INVALID, "there are no structural tags");
    struct tags all = {.grammar = grammar,
                       .exprs = grammar_exprs(grammar),
                       .tags = tags,
                       .num_tags = num_tags,
                       .options = options};
    enum status status = find_triggers(&all, err);
    if (!status) {
        *rule = grammar_rule(grammar, "tags");
        grammar_define(grammar, *rule, make_text(&all));
        status = grammar_status(grammar, err);
    }
    free(all.triggers);
    free(all.items);
    return status;
}
