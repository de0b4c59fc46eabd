/* "format": each name of the standard as an ECMA-262 expression, made of named parts.
 *
 * All are exact or stricter than the standard: host names have no "--" in their third and fourth
 * place (which would have to be valid Punycode), times no leap second, and expressions no
 * assertions but ^, $ and \\b, no references, and groups of at most four levels. */
#include <string.h>

#include "base/compiler.h"
#include "base/text/buf.h"
#include "structured/schema/schema_internal.h"

enum { PARTS_DEPTH_MAX = 12 };

struct part {
    const char *name, *pattern; // <x> stands for the part x
};

static const struct part parts[] = {
    {"hm", "([01][0-9]|2[0-3]):[0-5][0-9]"},
    {"time", "<hm>:[0-5][0-9](\\.[0-9]+)?([Zz]|[+-]<hm>)"},
    {"leap", "([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)"},
    {"date", "([0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|"
             "30)|02-(0[1-9]|1[0-9]|2[0-8]))|<leap>-02-29)"},
    {"hms", "T([0-9]+H([0-9]+M([0-9]+S)?)?|[0-9]+M([0-9]+S)?|[0-9]+S)"},
    {"ymd", "([0-9]+Y([0-9]+M([0-9]+D)?)?|[0-9]+M([0-9]+D)?|[0-9]+D)"},
    {"label", "[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"},
    {"a", "[a-zA-Z0-9]"},
    {"b", "[a-zA-Z0-9-]"},
    {"host", "<a>(|<a>|<b><a>|<b><b><a>|<b>(<a><b>|-<a>)<b>{0,58}<a>)"},
    {"octet", "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"},
    {"ipv4", "<octet>(\\.<octet>){3}"},
    {"h", "[0-9a-fA-F]{1,4}"},
    {"ls", "(<h>:<h>|<ipv4>)"},
    {"ipv6",
     "((<h>:){6}<ls>|::(<h>:){5}<ls>|(<h>)?::(<h>:){4}<ls>|((<h>:){0,1}<h>)?::(<h>:){3}<ls>|"
     "((<h>:){0,2}<h>)?::(<h>:){2}<ls>|((<h>:){0,3}<h>)?::<h>:<ls>|((<h>:){0,4}<h>)?::<ls>|"
     "((<h>:){0,5}<h>)?::<h>|((<h>:){0,6}<h>)?::)"},
    // RFC 5321
    {"atom", "[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]+"},
    {"local", "(<atom>(\\.<atom>)*|\"([ !#-\\[\\]-~]|\\\\[ -~])*\")"},
    {"domain", "(<label>(\\.<label>)*|\\[(<ipv4>|IPv6:<ipv6>)\\])"},
    // RFC 3986 and 3987: "i" is for IRIs
    {"ucs",
     "\\u{A0}-\\u{D7FF}\\u{F900}-\\u{FDCF}\\u{FDF0}-\\u{FFEF}\\u{10000}-\\u{1FFFD}\\u{20000}-"
     "\\u{2FFFD}\\u{30000}-\\u{3FFFD}\\u{40000}-\\u{4FFFD}\\u{50000}-\\u{5FFFD}\\u{60000}-"
     "\\u{6FFFD}\\u{70000}-\\u{7FFFD}\\u{80000}-\\u{8FFFD}\\u{90000}-\\u{9FFFD}\\u{A0000}-"
     "\\u{AFFFD}\\u{B0000}-\\u{BFFFD}\\u{C0000}-\\u{CFFFD}\\u{D0000}-\\u{DFFFD}\\u{E1000}-"
     "\\u{EFFFD}"},
    {"private", "\\u{E000}-\\u{F8FF}\\u{F0000}-\\u{FFFFD}\\u{100000}-\\u{10FFFD}"},
    {"pct", "%[0-9a-fA-F]{2}"},
    {"un", "a-zA-Z0-9._~!$&'()*+,;=-"}, // unreserved and sub-delims
    {"literal", "\\[(<ipv6>|[vV][0-9a-fA-F]+\\.[:<un>]+)\\]"},
    {"pchar", "([:@<un>]|<pct>)"},
    {"tail", "(/<pchar>*)*"},
    {"auth", "(([:<un>]|<pct>)*@)?(<literal>|([<un>]|<pct>)*)(:[0-9]*)?"},
    {"end", "(\\?([:@/?<un>]|<pct>)*)?(#([:@/?<un>]|<pct>)*)?"},
    {"uri", "[a-zA-Z][a-zA-Z0-9+.-]*:(//<auth><tail>|/(<pchar>+<tail>)?|<pchar>+<tail>)?<end>"},
    {"relative", "(//<auth><tail>|/(<pchar>+<tail>)?|([@<un>]|<pct>)+<tail>)?<end>"},
    {"ipchar", "([:@<ucs><un>]|<pct>)"},
    {"itail", "(/<ipchar>*)*"},
    {"iauth", "(([:<ucs><un>]|<pct>)*@)?(<literal>|([<ucs><un>]|<pct>)*)(:[0-9]*)?"},
    {"iend", "(\\?([:@/?<ucs><private><un>]|<pct>)*)?(#([:@/?<ucs><un>]|<pct>)*)?"},
    {"iri",
     "[a-zA-Z][a-zA-Z0-9+.-]*:(//<iauth><itail>|/(<ipchar>+<itail>)?|<ipchar>+<itail>)?<iend>"},
    {"irelative", "(//<iauth><itail>|/(<ipchar>+<itail>)?|([@<ucs><un>]|<pct>)+<itail>)?<iend>"},
    // RFC 6570 and 6901
    {"var", "([a-zA-Z0-9_]|<pct>)(\\.?([a-zA-Z0-9_]|<pct>))*(:[1-9][0-9]{0,3}|\\*)?"},
    {"plain", "[!#$&(-;=?-\\[\\]_a-z~<ucs><private>]"},
    {"pointer", "(/([^/~]|~[01])*)*"},
    // Expressions that ECMA-262, with a u flag and without, and Python read. re4: groups of four
    // levels.
    {"range", "0-[0-9]|1-[1-9]|2-[2-9]|3-[3-9]|4-[4-9]|5-[5-9]|6-[6-9]|7-[7-9]|8-[8-9]|9-[9-9]|A-[A"
              "-Z]|B-[B-Z]|C-[C-Z]|D-[D-Z]|E-[E-Z]|F-[F-Z]|G-[G-Z]|H-[H-Z]|I-[I-Z]|J-[J-Z]|K-[K-Z]|"
              "L-[L-Z]|M-[M-Z]|N-[N-Z]|O-[O-Z]|P-[P-Z]|Q-[Q-Z]|R-[R-Z]|S-[S-Z]|T-[T-Z]|U-[U-Z]|V-[V"
              "-Z]|W-[W-Z]|X-[X-Z]|Y-[Y-Z]|Z-[Z-Z]|a-[a-z]|b-[b-z]|c-[c-z]|d-[d-z]|e-[e-z]|f-[f-z]|"
              "g-[g-z]|h-[h-z]|i-[i-z]|j-[j-z]|k-[k-z]|l-[l-z]|m-[m-z]|n-[n-z]|o-[o-z]|p-[p-z]|q-[q"
              "-z]|r-[r-z]|s-[s-z]|t-[t-z]|u-[u-z]|v-[v-z]|w-[w-z]|x-[x-z]|y-[y-z]|z-[z-z]"},
    {"esc", "\\\\[dDwWsStnrfv\\\\^$.|?*+()[\\]{}/]"},
    {"set", "\\[\\^?-?([^\\\\\\]\\[^&~|-]|<range>|<esc>|\\\\-)+-?\\]"},
    {"counts",
     "0,[0-9]{1,3}|1,[1-9]|1,[1-9][0-9]{1,2}|2,[2-9]|2,[1-9][0-9]{1,2}|3,[3-9]|3,[1-9][0-9"
     "]{1,2}|4,[4-9]|4,[1-9][0-9]{1,2}|5,[5-9]|5,[1-9][0-9]{1,2}|6,[6-9]|6,[1-9][0-9]{1,2}"
     "|7,[7-9]|7,[1-9][0-9]{1,2}|8,[8-9]|8,[1-9][0-9]{1,2}|9,[9-9]|9,[1-9][0-9]{1,2}|[1-9]"
     "[0-9],[1-9][0-9]{2}"},
    {"quant", "([*+?]|\\{([0-9]{1,3},?|<counts>)\\})\\??"},
    {"one", "([^\\\\^$.|?*+()[\\]{}]|\\.|<esc>|<set>)"},
    {"edge", "[|^$]|\\\\[bB]"},
    {"re0", "(<edge>|<one>(<quant>)?)*"},
    {"re1", "(<edge>|(<one>|\\((\\?:)?<re0>\\))(<quant>)?)*"},
    {"re2", "(<edge>|(<one>|\\((\\?:)?<re1>\\))(<quant>)?)*"},
    {"re3", "(<edge>|(<one>|\\((\\?:)?<re2>\\))(<quant>)?)*"},
    {"re4", "(<edge>|(<one>|\\((\\?:)?<re3>\\))(<quant>)?)*"},
};

static const struct format {
    const char *name, *pattern; // NULL: refused
    bool is_raw; // no character needs an escape in JSON
    const char *wide; // for what is not of the format: surely all of it; NULL: the pattern is exact
} formats[] = {
    {"date", "<date>", true, NULL},
    {"time", "<time>", true, "[^]*:[^]*"},
    {"date-time", "<date>[Tt]<time>", true, "[^]*:[^]*"},
    {"duration", "P([0-9]+W|<ymd>(<hms>)?|<hms>)", true, NULL},
    {"email", "(?=[^@]{1,64}@|\")<local>@<domain>", false, "[^]*@[^]*"},
    {"hostname", "(?=.{1,253}$)<host>(\\.<host>)*", true, "[^\\s/:@]*"},
    {"ipv4", "<ipv4>", true, NULL},
    {"ipv6", "<ipv6>", true, NULL},
    {"uri", "<uri>", true, "[^]*:[^]*"},
    {"uri-reference", "(<uri>|<relative>)", true, "[^]*"},
    {"iri", "<iri>", false, "[^]*:[^]*"},
    {"iri-reference", "(<iri>|<irelative>)", false, "[^]*"},
    {"uuid", "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", true, NULL},
    {"uri-template", "(<plain>|<pct>|\\{[+#./;?&=,!@|]?<var>(,<var>)*\\})*", false, "[^]*"},
    {"json-pointer", "<pointer>", false, NULL},
    {"relative-json-pointer", "(0|[1-9][0-9]*)(#|<pointer>)", false, NULL},
    {"idn-email", NULL, false, NULL},
    {"idn-hostname", NULL, false, NULL},
    {"regex", "<re4>", false, "[^]*"},
};

// Writes a pattern with its parts in place.
static enum status write_parts(struct buf *out, const char *pattern, size_t depth) {
    for (; *pattern && depth < PARTS_DEPTH_MAX; pattern++) {
        const char *end = *pattern == '<' ? strchr(pattern, '>') : NULL;
        enum status status = OK;
        if (!end) status = buf_append(out, pattern, 1, NULL);
        for (size_t i = 0; end && i < ARRAY_LEN(parts); i++) {
            size_t len = (size_t)(end - pattern - 1);
            if (strlen(parts[i].name) != len || memcmp(parts[i].name, pattern + 1, len) != 0) {
                continue;
            }
            status = write_parts(out, parts[i].pattern, depth + 1);
        }
        if (status) return status;
        if (end) pattern = end;
    }
    return OK;
}

static uint32_t format_expr(struct schema_reader *reader, const struct format *format, bool wide) {
    // The memo of patterns has formats behind a NUL, which no pattern begins with.
    char name[32] = {0};
    const char *source = wide ? format->wide : format->pattern;
    size_t len = strlen(format->name) + 2;
    name[1] = wide ? 'w' : '=';
    memcpy(name + 2, format->name, len - 2);
    uint32_t expr = EXPR_NOTHING;
    if (strmap_get(&reader->pattern_of, name, len, &expr)) return expr;
    struct buf pattern = {0};
    enum status status = buf_append_str(&pattern, "^(?:", NULL);
    if (!status) status = write_parts(&pattern, source, 0);
    if (!status) status = buf_append_str(&pattern, ")$", NULL);
    const char *key = arena_strndup(&reader->arena, name, len);
    if (status || !key) {
        schema_fail(reader, ERR_NOMEM, "out of memory: JSON schema");
    } else {
        status = schema_pattern(reader->exprs, pattern.data, pattern.len, &expr, reader->err);
        if (!status) status = strmap_put(&reader->pattern_of, key, len, expr, NULL, reader->err);
        if (status && !reader->status) reader->status = status;
    }
    buf_fini(&pattern);
    return expr;
}

enum schema_format schema_format_expr(struct schema_reader *reader, const char *name, bool wide,
                                      uint32_t *expr, bool *is_raw) {
    for (size_t i = 0; i < ARRAY_LEN(formats); i++) {
        if (strcmp(name, formats[i].name) != 0) continue;
        if (!formats[i].pattern) return SCHEMA_FORMAT_REFUSED;
        *is_raw = formats[i].is_raw;
        *expr = format_expr(reader, &formats[i], wide && formats[i].wide);
        return SCHEMA_FORMAT_KNOWN;
    }
    return SCHEMA_FORMAT_UNKNOWN;
}
