/* Oniguruma's syntax to PCRE2's. The two agree on most of what tokenizers use; where they do not
 * (\s, \w, \b, \h, \u, scripts, "{,n}") the other spelling is written, and what would mean
 * something else without a way to say it is refused: a pattern is either run as meant or named in
 * an error. */
#include <ctype.h>
#include <string.h>

#include "text/tokenizer_pattern.h"

// Oniguruma's \w, as the inside of a class.
#define WORD_SET                                                                                   \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}\\x{24b6}-\\x{24e9}"     \
    "\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}"
#define WORD "[" WORD_SET "]"

struct translator {
    const char *regex; // the whole expression, for errors
    const char *p; // what comes next
    const char *what; // the source, for errors
    struct buf *out;
    struct err *err;
};

static enum status put(struct translator *t, const char *text) {
    return buf_append_str(t->out, text, t->err);
}

// Copies `len` bytes of the expression.
static enum status copy(struct translator *t, size_t len) {
    enum status status = buf_append(t->out, t->p, len, t->err);
    t->p += len;
    return status;
}

// Names the construct: someone who meets this has a tokenizer that we ought to know of.
static enum status refuse(struct translator *t, const char *detail, size_t len) {
    return err_set(t->err, ERR_UNSUPPORTED,
                   "%s: the pattern %.160s uses \"%.*s\", which is not supported", t->what,
                   t->regex, (int)len, detail);
}

// \p{...} at the 'p'. Names of one or two letters are general categories, others scripts.
static enum status translate_property(struct translator *t) {
    bool negated = *t->p == 'P';
    const char *name = t->p + 1;
    if (*name != '{') return refuse(t, t->p, 1);
    name++;
    if (*name == '^') {
        negated = !negated;
        name++;
    }
    size_t len = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_");
    if (len == 0 || name[len] != '}') return refuse(t, t->p, strcspn(t->p, "}") + 1);
    t->p = name + len + 1;
    return buf_appendf(t->out, t->err, "\\%c{%s%.*s}", negated ? 'P' : 'p', len > 2 ? "sc:" : "",
                       (int)len, name);
}

// \xHH, \x{H...} and \uHHHH at the 'x' or 'u'.
static enum status translate_code_point(struct translator *t) {
    bool braces = t->p[0] == 'x' && t->p[1] == '{';
    const char *digits = t->p + (braces ? 2 : 1);
    size_t len = strspn(digits, "0123456789abcdefABCDEF");
    size_t want = t->p[0] == 'u' ? 4 : 2;
    if (!braces && len > want) len = want;
    if (braces ? len == 0 || len > 6 || digits[len] != '}' : len != want) return refuse(t, t->p, 1);
    // In Oniguruma \x80 and above is a byte of UTF-8, not a character.
    if (!braces && want == 2 && digits[0] > '7') return refuse(t, t->p, 3);
    t->p = digits + len + (braces ? 1 : 0);
    return buf_appendf(t->out, t->err, "\\x{%.*s}", (int)len, digits);
}

// An escape that means the same inside and outside a class; *done tells whether it was one.
static enum status translate_common_escape(struct translator *t, bool *done) {
    static const struct {
        char letter;
        const char *text;
    } same[] = {{'s', "\\p{wspace}"}, {'S', "\\P{wspace}"}, {'d', "\\p{Nd}"}, {'D', "\\P{Nd}"},
                {'v', "\\x{0b}"},     {'n', "\\n"},         {'r', "\\r"},     {'t', "\\t"},
                {'f', "\\f"},         {'a', "\\a"},         {'e', "\\e"}};
    *done = true;
    char c = *t->p;
    if (c == 'p' || c == 'P') return translate_property(t);
    if (c == 'x' || c == 'u') return translate_code_point(t);
    for (size_t i = 0; i < ARRAY_LEN(same); i++) {
        if (c != same[i].letter) continue;
        t->p++;
        return put(t, same[i].text);
    }
    // A sign stands for itself in both.
    if (c && (unsigned char)c < 0x80 && !isalnum((unsigned char)c)) {
        enum status status = put(t, "\\");
        return status ? status : copy(t, 1);
    }
    *done = false;
    return OK;
}

// After a backslash outside a class.
static enum status translate_escape(struct translator *t) {
    static const struct {
        char letter;
        const char *text;
    } outside[] = {
        {'w', WORD},
        {'W', "[^" WORD_SET "]"},
        {'h', "[0-9a-fA-F]"},
        {'H', "[^0-9a-fA-F]"},
        {'b', "(?:(?<=" WORD ")(?!" WORD ")|(?<!" WORD ")(?=" WORD "))"},
        {'B', "(?:(?<=" WORD ")(?=" WORD ")|(?<!" WORD ")(?!" WORD "))"},
        {'A', "\\A"},
        {'z', "\\z"},
        {'Z', "\\Z"},
        {'K', "\\K"},
    };
    bool done;
    enum status status = translate_common_escape(t, &done);
    if (status || done) return status;
    for (size_t i = 0; i < ARRAY_LEN(outside); i++) {
        if (*t->p != outside[i].letter) continue;
        t->p++;
        return put(t, outside[i].text);
    }
    if (*t->p >= '1' && *t->p <= '9') {
        status = put(t, "\\");
        return status ? status : copy(t, 1);
    }
    return refuse(t, t->p - 1, 2);
}

// "[...]" at the bracket.
static enum status translate_class(struct translator *t) {
    enum status status = copy(t, t->p[1] == '^' ? 2 : 1);
    if (!status && *t->p == ']') return refuse(t, "[]", 2);
    while (!status && *t->p != ']') {
        if (*t->p == '\0') {
            return err_set(t->err, ERR_FORMAT, "%s: the pattern %.160s has an unclosed \"[\"",
                           t->what, t->regex);
        }
        // To Oniguruma a class within the class, to PCRE2 a bracket.
        if (*t->p == '[') return refuse(t, "[ inside []", 11);
        if (t->p[0] == '&' && t->p[1] == '&') return refuse(t, "&&", 2);
        if (*t->p != '\\') {
            status = copy(t, 1);
            continue;
        }
        t->p++;
        bool done;
        status = translate_common_escape(t, &done);
        if (status || done) continue;
        const char *text = *t->p == 'w'   ? WORD_SET
                           : *t->p == 'h' ? "0-9a-fA-F"
                           : *t->p == 'b' ? "\\x{08}"
                                          : NULL;
        if (!text) return refuse(t, t->p - 1, 2);
        t->p++;
        status = put(t, text);
    }
    return status ? status : copy(t, 1);
}

// "(?im-im:" or "(?im-im)" after "(?". Oniguruma's m lets "." match line ends.
static enum status translate_options(struct translator *t) {
    size_t len = strspn(t->p, "im-");
    char closing = t->p[len];
    // Options that stand alone reach to the end of the group in both, but only at its beginning do
    // they reach over its alternatives alike.
    bool at_start = t->p == t->regex + 2;
    if (len == 0 || (closing != ':' && !(closing == ')' && at_start)))
        return refuse(t, t->p - 2, 3);
    enum status status = put(t, "(?");
    for (size_t i = 0; i < len && !status; i++) {
        char option[2] = {t->p[i] == 'm' ? 's' : t->p[i], '\0'};
        status = put(t, option);
    }
    t->p += len;
    return status ? status : copy(t, 1);
}

// "(" and what makes it special.
static enum status translate_group(struct translator *t) {
    if (t->p[1] == '*') return refuse(t, t->p, 2);
    if (t->p[1] != '?') return copy(t, 1);
    static const char *const same[] = {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!"};
    for (size_t i = 0; i < ARRAY_LEN(same); i++) {
        size_t len = strlen(same[i]);
        if (strncmp(t->p, same[i], len) == 0) return copy(t, len);
    }
    if (t->p[2] == '<' && (isalpha((unsigned char)t->p[3]) || t->p[3] == '_')) return copy(t, 3);
    t->p += 2;
    return translate_options(t);
}

// "{": an interval, or the character itself.
static enum status translate_brace(struct translator *t) {
    size_t low = strspn(t->p + 1, "0123456789");
    const char *q = t->p + 1 + low;
    size_t high = 0;
    bool comma = *q == ',';
    if (comma) {
        high = strspn(q + 1, "0123456789");
        q += 1 + high;
    }
    if (*q != '}' || low + high == 0) {
        t->p++;
        return put(t, "\\{");
    }
    // What would be possessive or lazy in PCRE2 repeats the whole once more in Oniguruma.
    if (q[1] == '+' || (q[1] == '?' && !comma)) return refuse(t, t->p, (size_t)(q - t->p) + 2);
    enum status status = put(t, low ? "{" : "{0");
    t->p++;
    return status ? status : copy(t, (size_t)(q - t->p) + 1);
}

enum status pattern_translate(const char *regex, const char *what, struct buf *out,
                              struct err *err) {
    struct translator t = {.regex = regex, .p = regex, .what = what, .out = out, .err = err};
    enum status status = OK;
    while (*t.p && !status) {
        switch (*t.p) {
        case '\\':
            t.p++;
            status = translate_escape(&t);
            break;
        case '[':
            status = translate_class(&t);
            break;
        case '(':
            status = translate_group(&t);
            break;
        case '{':
            status = translate_brace(&t);
            break;
        default:
            status = copy(&t, 1);
            break;
        }
    }
    return status;
}
