/* An arbitrary constraint over an arbitrary text, with a NUL between them. The first byte says the
 * constraint's form: / is a regular expression, a comma choices, < the beginnings of tags (lines
 * each), { the format of a structural tag, anything else a grammar in GBNF. What compiles follows
 * the text to its end or to a byte that does not fit, within limits of steps and memory. At each
 * place the mask has exactly the tokens that fit, and forced bytes fit. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/json/jread.h"
#include "base/text/buf.h"
#include "structured/automaton/automaton.h"
#include "structured/read/choice.h"
#include "structured/read/expression.h"
#include "structured/read/gbnf.h"
#include "structured/read/tag_format.h"
#include "structured/read/tags.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct vocabulary *vocabulary_once(void) {
    static struct vocabulary *vocabulary;
    static const char *const texts[] = {"a", "b", "ab", "\"", "{\"", "0", "\n", "\xc3", "\xa9"};
    struct vocabulary_token tokens[ARRAY_LEN(texts) + 1] = {{0}};
    int32_t ending = ARRAY_LEN(texts);
    if (vocabulary) return vocabulary;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        tokens[i] = (struct vocabulary_token){.bytes = texts[i], .len = (uint32_t)strlen(texts[i])};
    }
    enum status status =
        vocabulary_create(&vocabulary, tokens, ARRAY_LEN(tokens), &ending, 1, NULL);
    CHECK(status == OK, "%d", (int)status);
    return vocabulary;
}

static void check_place(struct automaton *automaton, uint32_t state) {
    const struct vocabulary *vocabulary = automaton_vocabulary(automaton);
    uint32_t word, next;
    struct buf forced = {0};
    if (automaton_mask(automaton, state, &word, NULL, NULL)) return;
    for (uint32_t i = 0; i + 1 < vocabulary->num_tokens; i++) {
        uint32_t len;
        const char *bytes = vocabulary_text(vocabulary, i, &len);
        if (automaton_advance(automaton, state, bytes, len, &next, NULL)) return;
        CHECK((word >> i & 1) == (next != AUTOMATON_DEAD), "token %u", i);
    }
    if (!automaton_forced(automaton, state, 8, &forced, NULL) && forced.len &&
        !automaton_advance(automaton, state, forced.data, forced.len, &next, NULL)) {
        CHECK(next != AUTOMATON_DEAD, "%zu bytes", forced.len);
    }
    buf_fini(&forced);
}

enum { LINES_MAX = 20 };

static size_t split_lines(const char *text, size_t len, struct expr_text lines[LINES_MAX]) {
    size_t num_lines = 0;
    for (const char *end = text + len; num_lines < LINES_MAX;) {
        size_t left = (size_t)(end - text);
        const char *stop = left ? memchr(text, '\n', left) : NULL;
        size_t line_len = stop ? (size_t)(stop - text) : left;
        lines[num_lines++] = (struct expr_text){.bytes = text, .len = line_len};
        if (!stop) break;
        text = stop + 1;
    }
    return num_lines;
}

static enum status read_format(struct grammar *grammar, const char *text, size_t len,
                               uint32_t *rule, struct err *err) {
    static const struct schema_options options;
    json_t *format = NULL;
    enum status status = jread_request(&format, text, len, "format", err);
    if (!status) status = tag_format_add(grammar, format, &options, NULL, rule, err);
    json_decref(format);
    return status;
}

static enum status read_constraint(struct grammar *grammar, const char *text, size_t len,
                                   uint32_t *rule, struct err *err) {
    char form = len ? *text : '\0';
    struct expr_text lines[LINES_MAX];
    struct tag tags[LINES_MAX];
    if (form == '/') return expression_add(grammar, text + 1, len - 1, rule, err);
    if (form == '{') return read_format(grammar, text, len, rule, err);
    if (form != ',' && form != '<') return gbnf_add(grammar, text, len, rule, err);
    size_t num_lines = split_lines(text + 1, len - 1, lines);
    if (form == ',') return choice_add(grammar, lines, num_lines, rule, err);
    for (size_t i = 0; i < num_lines; i++) {
        uint32_t content = expr_string(grammar_exprs(grammar), "{}");
        tags[i] = (struct tag){
            .begin = lines[i], .special = i == 7, .content = grammar_terminal(grammar, content)};
    }
    struct tags_options options = {.at_least_one = len % 2, .at_most_one = len % 3 == 0};
    return tags_add(grammar, tags, num_lines, &options, rule, err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *end = size ? memchr(data, 0, size) : NULL;
    size_t grammar_len = end ? (size_t)(end - data) : size;
    size_t from = end ? grammar_len + 1 : size;
    struct grammar_limits limits = {.exprs = {.bytes_max = 8 << 20, .steps_max = 200000}};
    struct automaton_limits run = {.steps_max = 50000};
    struct grammar *grammar;
    uint32_t rule;
    CHECK(grammar_create(&grammar, &limits, NULL) == OK, "size=%zu", size);
    struct err err = {0};
    if (read_constraint(grammar, (const char *)data, grammar_len, &rule, &err)) {
        CHECK(err.message[0], "status=%d", (int)err.status);
        grammar_destroy(grammar);
        return 0;
    }
    grammar_start(grammar, rule);
    struct automaton *automaton;
    if (automaton_create(&automaton, grammar, vocabulary_once(), &run, &err)) {
        CHECK(err.message[0], "status=%d", (int)err.status);
        return 0;
    }
    uint32_t state = automaton_start(automaton);
    for (size_t i = from; i <= size && state != AUTOMATON_DEAD; i++) {
        check_place(automaton, state);
        if (i == size) break;
        if (automaton_advance(automaton, state, (const char *)data + i, 1, &state, &err)) break;
    }
    automaton_release(automaton);
    return 0;
}
