/* An arbitrary JSON schema, and an arbitrary text behind the first NUL byte. What is read runs. In
 * each state some byte may follow, or the text may end. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/json/jread.h"
#include "structured/automaton/automaton.h"
#include "structured/schema/schema.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct vocabulary *make_vocabulary(void) {
    struct vocabulary_token tokens[257];
    char bytes[256];
    struct vocabulary *vocabulary = NULL;
    for (int i = 0; i < 256; i++) {
        bytes[i] = (char)i;
        tokens[i] = (struct vocabulary_token){.bytes = &bytes[i], .len = 1};
    }
    tokens[256] = (struct vocabulary_token){.bytes = ""};
    enum status status = vocabulary_create(&vocabulary, tokens, 257, &(int32_t){256}, 1, NULL);
    CHECK(!status, "status=%d", status);
    return vocabulary;
}

// A byte that may follow is never the last one: something follows, or the text may end.
static void run(struct automaton *automaton, const char *text, size_t len) {
    uint32_t state = automaton_start(automaton), next;
    for (size_t i = 0; i < len && i < 64; i++) {
        if (automaton_advance(automaton, state, text + i, 1, &next, NULL)) return;
        if (next == AUTOMATON_DEAD) break;
        state = next;
    }
    if (automaton_can_end(automaton, state)) return;
    bool lives = false;
    for (int byte = 0; byte < 256 && !lives; byte++) {
        char c = (char)byte;
        if (automaton_advance(automaton, state, &c, 1, &next, NULL)) return;
        lives = next != AUTOMATON_DEAD;
    }
    CHECK(lives, "state=%u", state);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct vocabulary *vocabulary;
    if (!vocabulary) vocabulary = make_vocabulary();
    const uint8_t *end = size ? memchr(data, 0, size) : NULL;
    size_t len = end ? (size_t)(end - data) : size;
    json_t *schema;
    if (jread_request(&schema, (const char *)data, len, "fuzz", NULL)) return 0;
    struct grammar *grammar;
    struct schema_report report = {0};
    uint32_t rule;
    struct grammar_limits limits = {.exprs = {.bytes_max = 16 << 20, .steps_max = 1000000}};
    enum status status = grammar_create(&grammar, &limits, NULL);
    if (!status) {
        struct automaton *automaton = NULL;
        struct err err = {0};
        status = schema_add(grammar, schema, NULL, &rule, &report, &err);
        CHECK(!status || err.message[0], "status=%d", status);
        if (status) {
            grammar_destroy(grammar);
        } else {
            grammar_start(grammar, rule);
            status = automaton_create(&automaton, grammar, vocabulary, NULL, NULL);
        }
        if (!status) run(automaton, end ? (const char *)end + 1 : "", end ? size - len - 1 : 0);
        automaton_release(automaton);
    }
    schema_report_fini(&report);
    json_decref(schema);
    return 0;
}
