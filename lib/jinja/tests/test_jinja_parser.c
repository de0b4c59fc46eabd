/* The tree that a template becomes (support/ast_text.h), and the sentence when it is none. What is
 * expected of the trees is what Jinja2 3.1.6 parses, written in the same form. */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/text/buf.h"
#include "jinja/jinja.h"
#include "jinja/tests/support/ast_text.h"
#include "support/cmocka_all.h"

struct tree_case {
    const char *source, *tree;
};
struct fault_case {
    const char *source, *message;
};

// A copy of exactly its length, so that reading past the end is seen.
static enum status parse(struct jinja_ast *out, struct arena *arena, const char *source, size_t len,
                         struct err *err) {
    char *copy = malloc(len > 0 ? len : 1);
    assert_non_null(copy);
    memcpy(copy, source, len);
    enum status status = jinja_ast_parse(out, arena, copy, len, "t", err);
    free(copy);
    return status;
}

static void check_trees(const struct tree_case *cases, size_t count) {
    for (size_t i = 0; i < count; ++i) {
        struct arena arena = {0};
        struct jinja_ast ast;
        struct err err = {0};
        struct buf text = {0};
        if (parse(&ast, &arena, cases[i].source, strlen(cases[i].source), &err))
            fail_msg("%s: %s", cases[i].source, err.message);
        assert_int_equal(jinja_ast_text(&ast.root, &text, &err), OK);
        assert_string_equal(text.data ? text.data : "", cases[i].tree);
        buf_fini(&text);
        arena_fini(&arena);
    }
}

static void check_fault(const char *source, size_t len, const char *message) {
    struct arena arena = {0};
    struct jinja_ast ast;
    struct err err = {0};
    if (parse(&ast, &arena, source, len, &err) != ERR_FORMAT) fail_msg("%s was parsed", source);
    assert_string_equal(err.message, message);
    arena_fini(&arena);
}

// `unit` written `count` times between two texts.
static char *repeated(const char *before, const char *unit, size_t count, const char *after) {
    struct buf text = {0};
    assert_int_equal(buf_append_str(&text, before, NULL), OK);
    for (size_t i = 0; i < count; ++i) assert_int_equal(buf_append_str(&text, unit, NULL), OK);
    assert_int_equal(buf_append_str(&text, after, NULL), OK);
    return text.data;
}

static bool is_parsed(const char *before, const char *unit, size_t count, const char *after) {
    char *source = repeated(before, unit, count, after);
    struct arena arena = {0};
    struct jinja_ast ast;
    struct err err = {0};
    enum status status = parse(&ast, &arena, source, strlen(source), &err);
    if (status) assert_non_null(strstr(err.message, "deeper than 200"));
    arena_fini(&arena);
    free(source);
    return !status;
}

static const struct tree_case literals_cases[] = {
    {"{{ [1_000, 0x1_F, 0b101, 0o17, 0_0, 9223372036854775807] }}",
     "(print (list 1000 31 5 15 0 9223372036854775807))"},
    {"{{ [1e5, 1.5e-3, 1_0.5, 1E1_0, 1e400, 0.1] }}",
     "(print (list 100000.0 0.0015 10.5 10000000000.0 inf 0.1))"},
    {"{{ 'a' \"b\" 'c' }}", "(print 'abc')"},
    {"{{ \"\\x41\\u00e9\\n\\t\\\\\\'\\\"\\101\\q\" }}",
     "(print 'A\\xc3\\xa9\\x0a\\x09\\x5c\\x27\"A\\x5cq')"},
    {"{{ 'a\\\nb' }}", "(print 'ab')"},
    {"{{ '\\\303\251\\\360\237\230\200' }}", "(print '\\x5cxe9\\x5cU0001f600')"},
    {"{{ [true, True, false, none, None] }}", "(print (list true true false none none))"},
    {"{{ [[], [1,], {}, {'a': {'b': 1},}] }}",
     "(print (list (list) (list 1) (dict) (dict 'a' (dict 'b' 1))))"},
    {"{{ [(), (1), (1,), (1, 2)] }}", "(print (list (tuple) 1 (tuple 1) (tuple 1 2)))"},
    {"{{ 1, 2 }}", "(print (tuple 1 2))"},
    {"{{ ['}}', '%}'] }}", "(print (list '}}' '%}'))"},
    {"{{ {'a': {}}}}", "(print (dict 'a' (dict)))"},
    {"{{ \303\251 }}", "(print \303\251)"},
};

static void literals_are_pythons(void **state) {
    (void)state;
    check_trees(literals_cases, ARRAY_LEN(literals_cases));
}

static const struct tree_case precedence_cases[] = {
    {"{{ a or b and not c == d + e ~ f * g ** -h }}",
     "(print (or a (and b (not (cmp c == (+ d (~ e (* f (** g (neg h))))))))))"},
    {"{{ 2 ** 3 ** 2 }}", "(print (** (** 2 3) 2))"},
    {"{{ a - b - c }}", "(print (- (- a b) c))"},
    {"{{ a * b // c / d % e }}", "(print (% (/ (// (* a b) c) d) e))"},
    {"{{ -1|abs }}", "(print (filter (neg 1) abs))"},
    {"{{ -a.b[0] ** 2 }}", "(print (** (neg (item (. a b) 0)) 2))"},
    {"{{ a + b ~ c + d }}", "(print (+ (+ a (~ b c)) d))"},
    {"{{ a ~ b ~ (c ~ d) }}", "(print (~ a b c d))"},
    {"{{ not a in b }}", "(print (not (cmp a in b)))"},
    {"{{ a < b <= c != d in e not in f }}", "(print (cmp a < b <= c != d in e notin f))"},
    {"{{ a if b else c if d else e }}", "(print (if b a (if d c e)))"},
    {"{{ a if b }}", "(print (if b a -))"},
    {"{{ a if b if c }}", "(print (if c (if b a -) -))"},
    {"{{ not not a and - + b }}", "(print (and (not (not a)) (neg (pos b))))"},
    {"{{ a or b if c or d else e or f }}", "(print (if (or c d) (or a b) (or e f)))"},
};

static void operators_bind_as_in_jinja(void **state) {
    (void)state;
    check_trees(precedence_cases, ARRAY_LEN(precedence_cases));
}

static const struct tree_case postfix_cases[] = {
    {"{{ a.b.0['c'][d] }}", "(print (item (item (item (. a b) 0) 'c') d))"},
    {"{{ x.1.5 }}", "(print (item (item x 1) 5))"},
    {"{{ x[1,2][] }}", "(print (item (item x (tuple 1 2)) (tuple)))"},
    {"{{ [x[:], x[1:], x[:2], x[::3], x[1:2:3], x[::]] }}",
     "(print (list (slice x - - -) (slice x 1 - -) (slice x - 2 -) (slice x - - 3) (slice x 1 2 3) "
     "(slice x - - -)))"},
    {"{{ f()(1)(a, *b, c=2, **d) }}", "(print (call (call (call f) 1) a c=2 *b **d))"},
    {"{{ f(1,) }}", "(print (call f 1))"},
    {"{{ 'a'.upper() }}", "(print (call (. 'a' upper)))"},
    {"{{ a|trim|join(', ')|default(1, boolean=true) }}",
     "(print (filter (filter (filter a trim) join ', ') default 1 boolean=true))"},
    {"{{ (a|upper)(b) }}", "(print (call (filter a upper) b))"},
};

static void what_follows_an_operand(void **state) {
    (void)state;
    check_trees(postfix_cases, ARRAY_LEN(postfix_cases));
}

static const struct tree_case tests_cases[] = {
    {"{{ x is defined and y is not none }}", "(print (and (test x defined) (not (test y none))))"},
    {"{{ x is divisibleby 3 }}", "(print (test x divisibleby 3))"},
    {"{{ x is eq y.z(1)[2] }}", "(print (test x eq (item (call (. y z) 1) 2)))"},
    {"{{ x is in [1] or x is not in(y) }}",
     "(print (or (test x in (list 1)) (not (test x in y))))"},
    {"{{ x is sameas true }}", "(print (test x sameas true))"},
    {"{{ not x is string }}", "(print (not (test x string)))"},
    {"{{ x is eq 'a' 'b' }}", "(print (test x eq 'ab'))"},
    {"{{ a + 1 is number }}", "(print (+ a (test 1 number)))"},
};

static void tests_take_an_argument_with_or_without_parentheses(void **state) {
    (void)state;
    check_trees(tests_cases, ARRAY_LEN(tests_cases));
}

static const struct tree_case names_cases[] = {
    {"{{ if }}{{ in.is }}", "(print if) (print (. in is))"},
    {"{% for x, in in y %}{% endfor %}", "(for (tuple x in) y - () ())"},
    {"{% for x in 1, recursive %}{% endfor %}", "(for x (tuple 1 recursive) - () ())"},
    {"{% if true.x %}{% endif %}", "(if ((. true x) ()))"},
};

static void keywords_are_names_where_a_name_is_wanted(void **state) {
    (void)state;
    check_trees(names_cases, ARRAY_LEN(names_cases));
}

static const struct tree_case statements_cases[] = {
    {"{% if a %}1{% elif b, c %}2{% elif d %}3{% else %}4{% endif %}",
     "(if (a ('1')) ((tuple b c) ('2')) (d ('3')) (else ('4')))"},
    {"{% if a: %}1{% else: %}2{% endif %}", "(if (a ('1')) (else ('2')))"},
    {"{% for a, (b, (c,)) in d if e recursive %}f{% else %}g{% endfor %}",
     "(for recursive (tuple a (tuple b (tuple c))) d e ('f') ('g'))"},
    {"{% for x in a if b if c else d %}{% endfor %}", "(for x a (if c b d) () ())"},
    {"{% for x in a or b, c %}{% break %}{% continue %}{% endfor %}",
     "(for x (tuple (or a b) c) - ((break) (continue)) ())"},
    {"{% set a = 1 %}{% set b, c = d %}{% set n.a = 1, 2 %}{% set (a, b) = c %}",
     "(set a 1) (set (tuple b c) d) (set (ns n a) (tuple 1 2)) (set (tuple a b) c)"},
    {"{% set a %}b{% endset %}{% set a | trim | upper %}b{% endset %}",
     "(set a - ('b')) (set a (filter (filter - trim) upper) ('b'))"},
    {"{% with a=1, (b, c)=d %}e{% endwith %}{% with %}{% endwith %}",
     "(with (a 1) ((tuple b c) d) ('e')) (with ())"},
    {"{% filter trim|replace('a', 'b') %}c{% endfilter %}",
     "(filterblock (filter (filter - trim) replace 'a' 'b') ('c'))"},
    {"{% generation %}a{% endgeneration %}", "(generation ('a'))"},
    {"{% block a scoped %}b{% endblock a %}{% block c %}{% endblock %}",
     "(block ('b')) (block ())"},
    {"{% print a, b %}{% print %}", "(print a) (print b)"},
    {"{% call m(1) %}a{% endcall %}{% call(a, b=2) m() %}{% endcall %}",
     "(callblock (call m 1) (params) ('a')) (callblock (call m) (params a b=2) ())"},
};

static void statements_of_every_kind(void **state) {
    (void)state;
    check_trees(statements_cases, ARRAY_LEN(statements_cases));
}

static const struct tree_case macros_cases[] = {
    {"{% macro m(a, b=1, c=a) %}d{% endmacro %}", "(macro m (params a b=1 c=a) ('d'))"},
    {"{% macro m() %}{{ caller() ~ varargs ~ kwargs }}{% endmacro %}",
     "(macro m (params) caller kwargs varargs ((print (~ (call caller) varargs kwargs))))"},
    {"{% macro m(varargs, kwargs, caller=1) %}{{ caller() ~ varargs ~ kwargs }}{% endmacro %}",
     "(macro m (params varargs kwargs caller=1) caller ((print (~ (call caller) varargs "
     "kwargs))))"},
    {"{% macro m() %}{% set caller = caller %}{{ kwargs }}{% endmacro %}",
     "(macro m (params) kwargs ((set caller caller) (print kwargs)))"},
    {"{% macro m() %}{% macro n() %}{{ caller() }}{% endmacro %}{% endmacro %}",
     "(macro m (params) caller ((macro n (params) caller ((print (call caller))))))"},
    {"{% macro m() %}{% macro n(caller=1) %}{{ caller() }}{% endmacro %}{% endmacro %}",
     "(macro m (params) ((macro n (params caller=1) caller ((print (call caller))))))"},
    {"{% macro m() %}{% call n() %}{{ varargs }}{% endcall %}{% endmacro %}",
     "(macro m (params) varargs ((callblock (call n) (params) varargs ((print varargs)))))"},
    {"{% macro m() %}{% block b %}{{ caller() }}{% endblock %}{% endmacro %}",
     "(macro m (params) ((block ((print (call caller))))))"},
};

static void macros_note_their_special_variables(void **state) {
    (void)state;
    check_trees(macros_cases, ARRAY_LEN(macros_cases));
}

static const struct tree_case soft_cases[] = {
    {"{{ x|nothing if y }}", "(print (if y (filter x nothing) -))"},
    {"{{ x if y is nothing else z|nothing }}",
     "(print (if (test y nothing) x (filter z nothing)))"},
    {"{% if x|nothing %}{{ x|nothing }}{% elif x is nothing %}{% endif %}",
     "(if ((filter x nothing) ((print (filter x nothing)))) ((test x nothing) ()))"},
    {"{% if x %}{% for a in x|nothing %}{% endfor %}{% endif %}",
     "(if (x ((for a (filter x nothing) - () ()))))"},
    {"{% if x %}{% call m(x|nothing) %}{% endcall %}{% endif %}",
     "(if (x ((callblock (call m (filter x nothing)) (params) ()))))"},
    {"{% if x %}{{ x|a . b }}{% endif %}", "(if (x ((print (filter x a.b)))))"},
};

static void unknown_filters_pass_where_they_may_not_be_reached(void **state) {
    (void)state;
    check_trees(soft_cases, ARRAY_LEN(soft_cases));
}

static const struct tree_case text_cases[] = {
    {"a\n", "'a'"},
    {"a\n\n", "'a\\x0a'"},
    {"a\r\nb\rc\r", "'a\\x0ab\\x0ac'"},
    {"", ""},
    {"x\n  {% if a %}  \n  b {% endif %} \nc", "'x\\x0a' (if (a ('  \\x0a  b '))) ' \\x0ac'"},
    {"  {%+ if a %}\n{% endif +%}\nb", "'  ' (if (a ())) '\\x0ab'"},
    {"a  {%- if b -%}  \n c {%- endif -%} \n d", "'a' (if (b ('c'))) 'd'"},
    {"a \n {{- b -}} \n c", "'a' (print b) 'c'"},
    {"  {{ a }}  {% set b = 1 %}", "'  ' (print a) '  ' (set b 1)"},
    {"  {% set a = 1 %}  {% set b = 2 %}\nc", "(set a 1) '  ' (set b 2) 'c'"},
    {" {# a #} \n {# b #}\nc", "' \\x0ac'"},
    {"a {#- b -#} c {#+ d +#}\ne", "'ac \\x0ae'"},
    {"{% set a = 1 %}\n\nb", "(set a 1) '\\x0ab'"},
    {"\302\240{%- set a = 1 -%}\342\200\203b", "(set a 1) 'b'"},
    {"\302\240{% set a = 1 %}", "(set a 1)"},
    {"{{ {} }}}", "(print (dict)) '}'"},
    {"{ { % } }", "'{ { % } }'"},
    {"a{#", "'a'"},
    {"{##}{#-#}b", "'b'"},
};

static void white_space_around_tags(void **state) {
    (void)state;
    check_trees(text_cases, ARRAY_LEN(text_cases));
}

static const struct tree_case raw_cases[] = {
    {"{% raw %}\n {{ a }} {% b %}\n  {% endraw %}\nc", "'\\x0a {{ a }} {% b %}\\x0ac'"},
    {"a {%- raw -%} b {%- endraw -%} c", "'abc'"},
    {"  {%raw%}a{%endraw+%}\nb", "'a\\x0ab'"},
    {"{% raw %}", ""},
};

static void raw_blocks(void **state) {
    (void)state;
    check_trees(raw_cases, ARRAY_LEN(raw_cases));
}

static const struct fault_case faults[] = {
    {"{{ a", "t: line 1: unexpected end of template, want '}}'"},
    {"{{ a b }}", "t: line 1: unexpected 'b', want '}}'"},
    {"{% if a %}\n{% for b in c %}",
     "t: line 2: unexpected end of template, want 'endfor' for the 'for' of line 2"},
    {"{% if a %}\n{% endfor %}", "t: line 2: unexpected 'endfor' inside the 'if' of line 1"},
    {"{% endif %}", "t: line 1: unexpected 'endif'"},
    {"{% else %}", "t: line 1: unexpected 'else'"},
    {"{% do a %}", "t: line 1: unknown tag 'do'"},
    {"a\n{% autoescape true %}{% endautoescape %}",
     "t: line 2: tag 'autoescape' of Jinja2 is not supported"},
    {"{% %}", "t: line 1: unexpected '%}', want the name of a tag"},
    {"{% include 'a' %}", "t: line 1: 'include' is not supported: there are no other templates"},
    {"{{ }}", "t: line 1: unexpected '}}', want an expression"},
    {"{{ a. }}", "t: line 1: unexpected '}}', want a name or a number"},
    {"{{ (a }}", "t: line 1: unexpected '}', want ')'"},
    {"{{ a) }}", "t: line 1: unexpected ')'"},
    {"{{ [a) }}", "t: line 1: unexpected ')', want ']'"},
    {"{{ a ! b }}", "t: line 1: unexpected character '!'"},
    {"{{ 'a }}", "t: line 1: this string has no end, want '"},
    {"{{ a $ }}", "t: line 1: unexpected character '$'"},
    {"{{ a \001 }}", "t: line 1: unexpected character U+0001"},
    {"{{ '\\x4' }}", "t: line 1: a string holds a \\x, \\u or \\U with too few digits"},
    {"{{ '\\U00110000' }}", "t: line 1: a string holds a \\U beyond U+10FFFF"},
    {"{{ '\\ud800' }}",
     "t: line 1: a string holds half of a surrogate pair, which is no character"},
    {"{{ '\\N{DASH}' }}",
     "t: line 1: a string holds \\N, a character by its name, which is not supported"},
    {"{{ 9223372036854775808 }}",
     "t: line 1: the integer 9223372036854775808 has more than 64 bits"},
    {"{{ \302\262a }}", "t: line 1: a name holds an invalid character"},
    {"{{ f(a=1, b) }}", "t: line 1: a positional argument is not allowed here in a call"},
    {"{{ f(a=1, a=2) }}", "t: line 1: repeated keyword argument 'a'"},
    {"{{ f(**a, *b) }}", "t: line 1: '*' is not allowed here in a call"},
    {"{{ f(**a, b=1) }}", "t: line 1: a keyword argument is not allowed here in a call"},
    {"{{ x is defined is none }}", "t: line 1: tests cannot be chained with 'is'"},
    {"{{ x|nothing }}", "t: line 1: no filter named 'nothing'"},
    {"{{ x is nothing }}", "t: line 1: no test named 'nothing'"},
    {"{{ x[1:2, 3] }}", "t: line 1: unexpected ',', want ']'"},
    {"{% set 1 = 2 %}", "t: line 1: unexpected '1', want the name of a variable"},
    {"{% set true = 1 %}", "t: line 1: cannot assign to 'true'"},
    {"{% set a.b.c = 1 %}", "t: line 1: unexpected '.', want '%}'"},
    {"{% set (n.a) = 1 %}", "t: line 1: unexpected '.', want ')'"},
    {"{% for a.b in c %}{% endfor %}", "t: line 1: unexpected '.', want 'in'"},
    {"{% for loop in a %}{% endfor %}", "t: line 1: cannot assign to 'loop' inside a 'for'"},
    {"{% for a in b %}{% set loop = 1 %}{% endfor %}",
     "t: line 1: cannot assign to 'loop' inside a 'for'"},
    {"{% for a in b %}{% else %}{% break %}{% endfor %}", "t: line 1: 'break' outside of a loop"},
    {"{% continue %}", "t: line 1: 'continue' outside of a loop"},
    {"{% for a in b %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}",
     "t: line 1: 'break' outside of a loop"},
    {"{% for a in b %}{% generation %}{% break %}{% endgeneration %}{% endfor %}",
     "t: line 1: 'break' outside of a loop"},
    {"{% macro m(a, a) %}{% endmacro %}", "t: line 1: repeated parameter 'a'"},
    {"{% macro m(a=1, b) %}{% endmacro %}",
     "t: line 1: a parameter without a default follows one with a default"},
    {"{% macro m(caller) %}{{ caller() }}{% endmacro %}",
     "t: line 1: the parameter 'caller' needs a default"},
    {"{% call m %}{% endcall %}", "t: line 1: 'call' wants a call, as in {% call name() %}"},
    {"{% call m(caller=1) %}{% endcall %}", "t: line 1: repeated keyword argument 'caller'"},
    {"{% block a %}{% endblock %}{% block a %}{% endblock %}",
     "t: line 1: there is a block 'a' before"},
    {"{% block a required %}{% endblock %}",
     "t: line 1: a required block wants another template to fill it"},
    {"a {# b", "t: line 1: this comment has no end, want '#}'"},
    {"{% raw %} a",
     "t: line 1: unexpected end of template, want 'endraw' for the 'raw' of this line"},
    {"{% if a %}{% for b in c %}{{ b|nothing }}{% endfor %}{% endif %}",
     "t: line 1: no filter named 'nothing'"},
    {"{% if a %}{% else %}{% elif b %}{% endif %}",
     "t: line 1: unexpected 'elif' inside the 'if' of line 1"},
    {"{% for a in %}{% endfor %}", "t: line 1: unexpected '%}', want an expression"},
};

static void faults_are_named_with_their_line(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(faults); ++i)
        check_fault(faults[i].source, strlen(faults[i].source), faults[i].message);
}

static void lines_are_counted_over_all_that_is_skipped(void **state) {
    (void)state;
    static const char source[] =
        "a\r\nb\r{# c\n #}\n{% raw %}\n{% endraw %}\n\n{%- if 'a\n' -%}\n\n"
        "{{ 1\n}}{{ $ }}";
    check_fault(source, sizeof source - 1, "t: line 12: unexpected character '$'");
}

static void bytes_that_are_no_text_are_refused(void **state) {
    (void)state;
    check_fault("a\xff", 2, "t: byte 1 is not UTF-8");
    check_fault("\xed\xa0\x80", 3, "t: byte 0 is not UTF-8");
    check_fault("{{ a\0 }}", 8, "t: line 1: unexpected character U+0000");
}

static void a_nul_is_text_like_any_other(void **state) {
    (void)state;
    struct arena arena = {0};
    struct jinja_ast ast;
    struct buf text = {0};
    assert_int_equal(parse(&ast, &arena, "a\0{{ 'b\0' }}", 12, NULL), OK);
    assert_int_equal(jinja_ast_text(&ast.root, &text, NULL), OK);
    assert_string_equal(text.data, "'a\\x00' (print 'b\\x00')");
    buf_fini(&text);
    arena_fini(&arena);
}

static void a_source_may_be_too_long(void **state) {
    (void)state;
    char *source = calloc(1, JINJA_SOURCE_MAX + 1);
    assert_non_null(source);
    memset(source, 'a', JINJA_SOURCE_MAX + 1);
    check_fault(source, JINJA_SOURCE_MAX + 1,
                "t: the template has 1048577 bytes, want at most 1048576");
    free(source);
}

// Whatever walks a tree recurses: nothing that a source can say makes a deep one.
static void depth_is_bounded(void **state) {
    (void)state;
    static const struct {
        const char *before, *unit, *after;
    } cases[] = {
        {"{{ a", " + a", " }}"},         {"{{ a", " or a", " }}"}, {"{{ a", "|trim", " }}"},
        {"{{ a", ".a", " }}"},           {"{{ a", "[0]", " }}"},   {"{{ a", "()", " }}"},
        {"{{ ", "- ", "a }}"},           {"{{ ", "not ", "a }}"},  {"{{ a", " if a", " }}"},
        {"{{ ", "a if a else ", "a }}"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); ++i) {
        assert_true(is_parsed(cases[i].before, cases[i].unit, 90, cases[i].after));
        assert_false(is_parsed(cases[i].before, cases[i].unit, 201, cases[i].after));
    }
    static const char *const nested[] = {"{{ (",  "{{ [",       "{{ {1:",           "{{ a(",
                                         "{{ a[", "{% if a %}", "{% for a in b %}", "{% set a %}"};
    for (size_t i = 0; i < ARRAY_LEN(nested); ++i) {
        bool is_block = nested[i][1] == '%';
        assert_false(is_parsed(is_block ? "" : "{{ ", nested[i] + (is_block ? 0 : 3), 50000, ""));
    }
}

static void a_chain_of_concatenations_has_no_limit(void **state) {
    (void)state;
    assert_true(is_parsed("{{ a", " ~ a", 100000, " }}"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(literals_are_pythons),
        cmocka_unit_test(operators_bind_as_in_jinja),
        cmocka_unit_test(what_follows_an_operand),
        cmocka_unit_test(tests_take_an_argument_with_or_without_parentheses),
        cmocka_unit_test(keywords_are_names_where_a_name_is_wanted),
        cmocka_unit_test(statements_of_every_kind),
        cmocka_unit_test(macros_note_their_special_variables),
        cmocka_unit_test(unknown_filters_pass_where_they_may_not_be_reached),
        cmocka_unit_test(white_space_around_tags),
        cmocka_unit_test(raw_blocks),
        cmocka_unit_test(faults_are_named_with_their_line),
        cmocka_unit_test(lines_are_counted_over_all_that_is_skipped),
        cmocka_unit_test(bytes_that_are_no_text_are_refused),
        cmocka_unit_test(a_nul_is_text_like_any_other),
        cmocka_unit_test(a_source_may_be_too_long),
        cmocka_unit_test(depth_is_bounded),
        cmocka_unit_test(a_chain_of_concatenations_has_no_limit),
    };
    return cmocka_run_group_tests_name("jinja_parser", tests, NULL, NULL);
}
