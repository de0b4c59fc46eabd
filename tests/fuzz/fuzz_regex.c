/* An arbitrary regular expression over an arbitrary text: the first line is the expression, the
 * rest the text. What compiles finds matches that lie in the text, at characters, one behind the
 * other, and ends within its budget. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "text/regex/regex.h"
#include "text/unicode/unicode.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool at_character(const char *text, size_t len, size_t at) {
    return at == len || ((unsigned char)text[at] & 0xc0) != 0x80;
}

static void find_all(const struct regex *regex, const char *text, size_t len) {
    struct regex_scratch scratch = {0};
    struct effort effort;
    effort_begin(&effort, len, NULL);
    effort.pattern_left = 1 << 20;
    for (size_t from = 0; from <= len;) {
        struct regex_match match;
        if (regex_search(regex, text, len, from, &scratch, &effort, &match, NULL)) break;
        if (!match.found) break;
        CHECK(from <= match.start && match.start <= match.end && match.end <= len,
              "from=%zu start=%zu end=%zu", from, match.start, match.end);
        CHECK(at_character(text, len, match.start) && at_character(text, len, match.end),
              "start=%zu end=%zu", match.start, match.end);
        from = match.end;
        if (match.start != match.end) continue;
        do {
            from++;
        } while (from < len && !at_character(text, len, from));
    }
    regex_scratch_fini(&scratch);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *line_end = size ? memchr(data, '\n', size) : NULL;
    if (!line_end || memchr(data, 0, (size_t)(line_end - data))) return 0;
    size_t source_len = (size_t)(line_end - data), len = size - source_len - 1;
    char *source = malloc(source_len + 1), *text = malloc(len + 1);
    CHECK(source && text, "size=%zu", size);
    memcpy(source, data, source_len);
    source[source_len] = '\0';
    memcpy(text, line_end + 1, len);
    struct regex *regex = NULL;
    bool valid = utf8_valid_prefix(source, source_len) == source_len;
    if (valid && !regex_compile(&regex, source, "fuzz", NULL)) {
        find_all(regex, text, utf8_valid_prefix(text, len));
    }
    regex_destroy(regex);
    free(text);
    free(source);
    return 0;
}
