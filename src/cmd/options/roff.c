#include "cmd/options/roff.h"

#include <stdbool.h>
#include <string.h>

void roff_text(FILE *out, const char *text, size_t len) {
    // A line that starts with one of these would be a roff request.
    if (len && (text[0] == '.' || text[0] == '\'')) fputs("\\&", out);
    for (size_t i = 0; i < len; i++) {
        switch (text[i]) {
        case '\\':
            fputs("\\e", out);
            break;
        case '-':
            fputs("\\-", out);
            break;
        case '\'':
            fputs("\\(aq", out); // a plain ' is printed as a right quote
            break;
        case '`':
            fputs("\\(ga", out);
            break;
        case '^':
            fputs("\\(ha", out);
            break;
        case '~':
            fputs("\\(ti", out);
            break;
        case '|':
            fputs("|\\:", out); // a line may end between the choices of a list
            break;
        default:
            fputc(text[i], out);
        }
    }
}

static bool has_columns(const char *text, size_t len) {
    for (size_t i = 0; i + 1 < len; i++) {
        bool starts_line = i == 0 || text[i - 1] == '\n';
        if (text[i] == ' ' && (text[i + 1] == ' ' || starts_line)) return true;
    }
    return false;
}

static void print_lines(FILE *out, const char *text, size_t len) {
    for (size_t at = 0; at < len;) {
        const char *end = memchr(text + at, '\n', len - at);
        size_t line_len = end ? (size_t)(end - text) - at : len - at;
        roff_text(out, text + at, line_len);
        fputc('\n', out);
        at += line_len + 1;
    }
}

void roff_paragraphs(FILE *out, const char *text) {
    bool is_first = true;
    while (*text) {
        const char *blank = strstr(text, "\n\n");
        size_t len = blank ? (size_t)(blank - text) + 1 : strlen(text);
        if (!is_first) fputs(".PP\n", out);
        bool as_it_is = has_columns(text, len);
        if (as_it_is) fputs(".nf\n", out);
        print_lines(out, text, len);
        if (as_it_is) fputs(".fi\n", out);
        is_first = false;
        text += len;
        text += strspn(text, "\n");
    }
}
