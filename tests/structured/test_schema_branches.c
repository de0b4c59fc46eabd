// JSON schemas whose alternatives must exclude each other early, or be joined, to be few enough;
// and numbers that are no schemas.
#include <string.h>

#include "base/compiler.h"
#include "base/text/buf.h"
#include "structured/schema_fixture.h"
#include "support/cmocka_all.h"

static struct vocabulary *vocabulary;

static void check(struct buf *schema, const char *valid, const char *invalid) {
    schema_check_row(&(struct schema_row){schema->data, valid, invalid}, NULL, vocabulary);
    buf_fini(schema);
}

static void append(struct buf *out, const char *piece, bool is_comma, int number) {
    if (is_comma) assert_int_equal(buf_append_str(out, ",", NULL), OK);
    for (const char *at = piece; *at; at++) {
        if (*at == '#') {
            assert_int_equal(buf_appendf(out, NULL, "%d", number), OK);
        } else {
            assert_int_equal(buf_append(out, at, 1, NULL), OK);
        }
    }
}

// Of 2^40 combinations of conditions that hold and that do not, 42 are possible.
static void conditions(void **state) {
    (void)state;
    struct buf schema = {0};
    append(&schema, "{'type':'object','properties':{'t':{'type':'integer'}},'allOf':[", false, 0);
    for (int i = 0; i < 40; i++) {
        append(&schema,
               "{'if':{'properties':{'t':{'const':#}}},'then':{'properties':{'v#':{'const':#}}}}",
               i, i);
    }
    append(&schema, "]}", false, 0);
    check(&schema, "{}|{'t':3,'v3':3,'v4':9}|{'t':50,'v3':1}|{'v39':39}",
          "{'t':3,'v3':4}|{'v3':4}|{'t':39,'v39':1}|{'t':''}");
}

// "else" and "required" beside it; a condition about the type too; a member that must not be.
static void opposites(void **state) {
    (void)state;
    static const struct schema_row rows[] = {
        {"{'properties':{'a':{},'b':{}},'if':{'properties':{'a':{'const':1}},'required':['a']},"
         "'then':{'required':['b']},'else':{'maxProperties':1}}",
         "{'a':1,'b':2}|{}|{'a':2}|{'b':1}|1|'x'", "{'a':1}|{'a':2,'b':1}"},
        {"{'properties':{'a':{},'b':{}},'if':{'type':'object','required':['a']},"
         "'then':{'required':['b']},'else':{'type':['object','null']}}",
         "{'a':1,'b':2}|{}|{'b':1}|null", "{'a':1}|1|'x'|[]"},
        {"{'properties':{'a':{},'b':{}},'if':{'properties':{'a':{'const':1}}},"
         "'then':{'type':['object','null']},'else':{'required':['b']}}",
         "{'a':1}|{}|{'a':2,'b':1}|null", "{'a':2}|1|'x'"},
        {"{'if':{'enum':[1,'a']},'then':{'type':'string'}}", "'a'|'b'|2|null", "1"},
        {"{'if':{'type':'string','enum':[1,'a']},'then':false}", "1|'b'|2|null", "'a'"},
        {"{'if':{'properties':{'a':false}},'then':{'maxProperties':0},'else':{'maxProperties':1}}",
         "{}|{'a':1}|1", "{'b':1}|{'a':1,'b':2}"},
    };
    schema_check_rows(rows, ARRAY_LEN(rows), vocabulary);
}

// Each of 40 keys needs a type, so 2^40 sets of keys fall into as many parts as there are types.
static void dependencies(void **state) {
    (void)state;
    struct buf schema = {0};
    append(&schema, "{'properties':{'t':{'enum':['a','b','c']}},'dependencies':{", false, 0);
    for (int i = 0; i < 40; i++) {
        append(&schema,
               i % 2 ? "'k#':{'properties':{'t':{'enum':['a','b']}}}"
                     : "'k#':{'properties':{'t':{'const':'a'}},'required':['t']}",
               i, i);
    }
    append(&schema, "}}", false, 0);
    check(&schema, "{'t':'a','k1':1,'k0':1}|{'t':'b','k1':1}|{'t':'c'}|{}|{'k1':1}|1|'x'",
          "{'t':'b','k0':1}|{'t':'c','k1':1}|{'k0':1}|{'t':'d'}");
}

// What a key needs says nothing about values that have no keys.
static void dependent_values(void **state) {
    (void)state;
    static const struct schema_row rows[] = {
        {"{'dependentSchemas':{'a':{'const':5}}}", "5|'s'|{}|{'b':1}", "{'a':1}"},
        {"{'dependentSchemas':{'a':{'enum':['s','t']}}}", "'s'|'u'|{}", "{'a':1}"},
        {"{'dependentSchemas':{'k':{'enum':[1,{'k':1}]}}}", "1|2|{'k':1}|{'b':1}", "{'k':2}"},
    };
    schema_check_rows(rows, ARRAY_LEN(rows), vocabulary);
}

static void several_contains(void **state) {
    (void)state;
    static const struct schema_row rows[] = {
        {"{'allOf':[{'contains':{'const':1}},{'contains':{'type':'string'}}]}",
         "[1,'a']|['a',0,1]|[0,0,1,1,'a',0]|1", "[1]|['a']|[]|[0,'a']"},
        {"{'type':'array','allOf':[{'contains':{'minimum':5}},{'contains':{'maximum':7}}],"
         "'items':{'type':'integer'}}",
         "[6]|[9,1]|[1,9,9]", "[9]|[1]|[]|[6,'a']"},
        // Two tuples that differ in their length alone, and two that overlap.
        {"{'oneOf':[{'type':'array','prefixItems':[true,{'type':'integer'}],'items':false},{'type':"
         "'array','items':[true,{'type':'integer'},{'type':'integer'}],'additionalItems':false,"
         "'minItems':3}]}",
         "[]|[1]|[1,2]|[1,2,3]", "[1,2,'x']|[1,2,3,4]|[1,'x']"},
        {"{'oneOf':[{'type':'array','prefixItems':[true],'items':false},{'type':'array','maxItems':"
         "3}]"
         "}",
         "[1,2]|[1,2,3]", "[]|[1]|[1,2,3,4]"},
        {"{'type':'array','maxItems':3,'not':{'prefixItems':[{'type':'integer'}],'items':false}}",
         "['x']|[1,2]|['x',2,3]", "[]|[1]|[1,2,3,4]"},
        {"{'type':'array','prefixItems':[{'const':1},{'const':2}],'maxItems':3,'minItems':2,"
         "'allOf':[{'contains':{'const':2}},{'contains':{'const':3}}]}",
         "[1,2,3]", "[1,2]|[1,3]|[1,2,4]|[1,2,3,3]|[3,2]"},
        {"{'type':'array','minItems':3,"
         "'allOf':[{'contains':{'const':1}},{'contains':{'const':2}},{'contains':{'const':3}}]}",
         "[1,2,3]|[3,0,2,1]", "[1,2]|[1,2,2]|[0,0,0]"},
        {"{'type':'array','not':{'anyOf':[{'items':{'type':'string'}},{'items':{'const':1}}]}}",
         "[0]|[1,'a']|[null,1]", "[]|['a','b']|[1,1]"},
        {"{'type':'array','items':{'type':'object'},"
         "'allOf':[{'contains':{'required':['a']}},{'contains':{'required':['b']}}]}",
         "[{'a':1,'b':2}]|[{'b':1},{'a':2}]", "[{'a':1}]|[{'b':1}]|[{}]"},
    };
    schema_check_rows(rows, ARRAY_LEN(rows), vocabulary);
}

// The largest number of states, with items that satisfy all or none.
static void many_contained(void **state) {
    (void)state;
    static const struct {
        const char *schema, *bad, *good;
        int num_items;
    } cases[] = {
        {"{'type':'array','minItems':240,'allOf':[{'contains':{'minimum':1}},"
         "{'contains':{'maximum':9}},{'contains':{'multipleOf':2}},{'contains':{'minimum':5}}]}",
         "7", "6", 240},
        {"{'type':'array','maxItems':240,'allOf':[{'contains':{'required':['a']}},"
         "{'contains':{'required':['b']}},{'contains':{'required':['c']}},"
         "{'contains':{'required':['d']}}]}",
         "{'x':1}", "{'a':1,'b':1,'c':1,'d':1}", 240},
        {"{'type':'array','maxItems':240,'allOf':[{'contains':{'required':['a']}},"
         "{'contains':{'required':['b']}},{'contains':{'required':['c']}},"
         "{'contains':{'required':['d']}}]}",
         "{'a':1}", "0", 240},
        {"{'type':'array','contains':{'required':['a']},'minContains':5,'minItems':600}", "{}", "0",
         600},
        {"{'type':'array','contains':{'const':7},'minItems':1900}", "0", "7", 1900},
        {"{'type':'array','contains':{'const':7},'maxContains':2,'maxItems':1000}", "7", "0", 1000},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct buf valid = {0}, invalid = {0};
        for (int k = 0; k < cases[i].num_items; k++) {
            append(&valid, k ? "," : "[", false, 0);
            append(&valid, k == 0 && i == 5 ? "7" : cases[i].good, false, 0);
            append(&invalid, k ? "," : "[", false, 0);
            append(&invalid, cases[i].bad, false, 0);
        }
        append(&valid, "]", false, 0);
        append(&invalid, "]", false, 0);
        const struct schema_row row = {cases[i].schema, valid.data, invalid.data};
        schema_check_row(&row, NULL, vocabulary);
        buf_fini(&valid);
        buf_fini(&invalid);
    }
}

// Objects that several lists of names must not name.
static void open_objects(void **state) {
    (void)state;
    static const struct schema_row rows[] = {
        {"{'type':'object','not':{'anyOf':[{'properties':{'a':{}},'additionalProperties':false},"
         "{'properties':{'b':{}},'additionalProperties':false}]}}",
         "{'c':1}|{'a':1,'b':2}|{'b':1,'c':1}|{'d':1,'c':1}", "{}|{'a':1}|{'b':1}"},
        {"{'type':'object','not':{'anyOf':[{'properties':{'a':{}},'additionalProperties':false},"
         "{'properties':{'b':{}},'additionalProperties':false},{'properties':{'a':{},'b':{}},"
         "'additionalProperties':false}]}}",
         "{'c':1}|{'a':1,'c':1}", "{}|{'a':1}|{'b':1}|{'b':1,'a':2}|{'a':1,'b':2}"},
        {"{'type':'object','not':{'anyOf':[{'additionalProperties':{'type':'string'}},"
         "{'additionalProperties':{'type':'string'}}]}}",
         "{'a':1}|{'b':'x','a':1}", "{}|{'a':'x'}"},
        // A key that another negation needs, or speaks of, may be the one that is not named.
        {"{'type':'object','allOf':[{'not':{'properties':{'b':{'minimum':1},'c':{}},"
         "'additionalProperties':false}},{'not':{'properties':{'c':{}},"
         "'additionalProperties':false}}]}",
         "{'b':0}|{'b':0,'c':1}|{'d':1}|{'b':2,'d':1}", "{}|{'b':2}|{'c':1}|{'b':2,'c':1}"},
        {"{'type':'object','allOf':[{'not':{'properties':{'x':{'type':'integer'}}}},"
         "{'not':{'properties':{'a':{}},'additionalProperties':false}}]}",
         "{'x':'s'}|{'x':'s','a':1}|{'x':'s','b':1}", "{}|{'x':1}|{'a':1}|{'x':1,'b':1}"},
        {"{'type':'object','if':{'properties':{'c':{'type':'integer'}},'required':['c']},"
         "'then':true,'not':{'propertyNames':{'enum':['a']}}}",
         "{'c':'s'}|{'c':1}|{'c':'s','a':1}|{'b':1}", "{}|{'a':1}"},
        {"{'type':'object','not':{'anyOf':[{'properties':{'b':{'type':'string'},'c':{}}},"
         "{'additionalProperties':{'type':'integer'}}]}}",
         "{'b':1,'c':'x'}|{'b':null}|{'b':1,'d':'x'}", "{}|{'b':1}|{'b':'x'}|{'b':1,'d':2}"},
    };
    schema_check_rows(rows, ARRAY_LEN(rows), vocabulary);
}

// Keywords about a type that the negated schema's "type" excludes count for nothing.
static void negated_types(void **state) {
    (void)state;
    static const struct schema_row rows[] = {
        {"{'not':{'type':'string','uniqueItems':true}}", "1|[]|[1,1]|{}", "'a'"},
        {"{'type':['string','array'],'not':{'type':'string','minLength':2,'maxItems':0}}",
         "'a'|''|[]|[1]", "'ab'"},
    };
    schema_check_rows(rows, ARRAY_LEN(rows), vocabulary);
}

// Repeated characters before which an expression is looked for.
static void guarded_repetitions(void **state) {
    (void)state;
    static const struct schema_row rows[] = {
        {"{'type':'string','pattern':'^((?!ab|cd).)*$'}", "''|'a'|'ba'|'acbd'|'aacb'",
         "'ab'|'xab'|'abx'|'cd'|'aab'|'\\n'"},
        {"{'type':'string','pattern':'^(?:(?!a+$)(?!bb)[a-c]){1,4}$'}", "'b'|'ab'|'abcb'|'aac'",
         "''|'a'|'ba'|'bb'|'abb'|'abcbc'|'x'"},
        {"{'type':'string','pattern':'^((?=[ab]+c).)*$'}", "''", "'ab'|'abc'|'c'"},
        {"{'type':'string','pattern':'^x((?!a).)+$'}", "'xb'|'xxb'", "'x'|'xa'|'xba'"},
        {"{'type':'string','pattern':'(^a|,a){2}'}", "'a,a'|',a,a'|'x,a,a,a'", "'aa'|'a'|',a a'"},
    };
    schema_check_rows(rows, ARRAY_LEN(rows), vocabulary);
}

static void lookbehind(void **state) {
    (void)state;
    static const struct schema_row rows[] = {
        {"{'type':'string','pattern':'^(?!-)[a-z-]{1,3}(?<!-)$'}", "'a'|'a-b'|'abc'",
         "''|'-a'|'a-'|'-'|'ab-'|'abcd'"},
        {"{'type':'string','pattern':'^a*b?(?<=aa|b)(?<!aab)c'}", "'bc'|'aac'|'abcx'|'aaac'",
         "'c'|'ac'|'aabc'|'aaabc'"},
        {"{'type':'string','pattern':'[ab]{2}(?<!aa)$'}", "'ab'|'aab'|'xbb'|'aba'", "'aa'|'baa'"},
        {"{'type':'string','pattern':'^(?<!x)a(?<=a)$'}", "'a'", "'xa'|''"},
    };
    schema_check_rows(rows, ARRAY_LEN(rows), vocabulary);
}

// A pointer that finds nothing in the part with its own $id is one of the whole document.
static void pointers(void **state) {
    (void)state;
    static const struct schema_row rows[] = {
        {"{'$id':'http://a/b','$defs':{'n':{'type':'null'}},"
         "'properties':{'p':{'$id':'/properties/p','items':{'$ref':'#/$defs/n'}},"
         "'q':{'$id':'q','$defs':{'n':{'type':'string'}},'items':{'$ref':'#/$defs/n'}}}}",
         "{'p':[null]}|{'q':['a']}", "{'p':['a']}|{'q':[null]}"},
    };
    schema_check_rows(rows, ARRAY_LEN(rows), vocabulary);
}

// One option holds, and each other lacks its key or has a wrong value. Of these 16 * 2^15 ways the
// 16 that differ are read.
static void options_with_own_keys(void **state) {
    (void)state;
    struct buf schema = {0};
    append(&schema, "{'oneOf':[", false, 0);
    for (int i = 0; i < 16; i++) {
        append(&schema,
               "{'type':'object','required':['k#'],'properties':{'k#':{'type':'integer'}}}", i, i);
    }
    append(&schema, "]}", false, 0);
    check(&schema, "{'k0':1}|{'k3':1,'k4':'x'}|{'k15':7,'k0':null}|{'k9':2,'x':1}",
          "{}|{'k0':'a'}|{'k0':1,'k1':2}|{'x':1}|{'k3':1,'k4':4}");
}

// Each option fails in five ways. Eight options would have 5^7 objects beside each of them, but
// each way is a member's, and members come one behind the other.
static void options_with_many_keys(void **state) {
    (void)state;
    struct buf schema = {0};
    append(&schema, "{'oneOf':[", false, 0);
    for (int i = 0; i < 8; i++) {
        append(&schema,
               "{'type':'object','required':['a#'],'properties':{'id':{'type':'integer'},"
               "'a#':{'type':'string'},'b#':{'type':'integer'},'c#':{'maxLength':1},'d#':{'enum':"
               "[1,2]}}}",
               i, i);
    }
    append(&schema, "],'properties':{'z':true},'maxProperties':4}", false, 0);
    check(
        &schema,
        "{'a0':'x'}|{'id':1,'a3':'x','b3':2,'z':0}|{'a0':'x','a1':1}|{'a2':'x','a1':'y','c1':'long'"
        "}|"
        "{'a2':'x','a5':'','d5':3,'o':1}|{'a7':'x','b6':'y'}|{'a1':'x','o':1,'p':2}",
        "{}|{'id':1}|{'a0':1}|{'a0':'x','a1':'y'}|{'id':'x','a0':'x'}|{'a2':'x','a1':'y','c1':'s'}|"
        "{'a2':'x','a5':'','d5':2}|{'a2':'x','a2':1}|{'a2':'x','a5':'','d5':3,'d5':1}|"
        "{'a0':'x','o':1,'p':2,'q':3,'r':4}");
    append(&schema, "{'properties':{", false, 0);
    for (int i = 0; i < 2500; i++) append(&schema, "'p#':true", i, i);
    append(&schema, "},'type':'object','allOf':[", false, 0);
    for (int i = 0; i < 8; i++) {
        append(&schema, "{'not':{'properties':{'a#':{'const':1},'b#':{'const':1}}}}", i, i);
    }
    append(&schema, "]}", false, 0);
    struct grammar *grammar;
    assert_int_equal(schema_fixture_add(&grammar, schema.data, NULL, NULL, NULL), ERR_CAPACITY);
    grammar_destroy(grammar);
    buf_fini(&schema);
    static const struct schema_row rows[] = {
        // A key that is not named, beside so many ways; and values that are listed.
        {"{'type':'object','allOf':[{'not':{'additionalProperties':{'type':'integer'}}},"
         "{'not':{'properties':{'a':{'const':1},'b':{'const':1}}}},"
         "{'not':{'properties':{'c':{'const':1},'d':{'const':1}}}},"
         "{'not':{'properties':{'e':{'const':1},'f':{'const':1}}}},"
         "{'not':{'properties':{'g':{'const':1},'h':{'const':1}}}},"
         "{'not':{'properties':{'i':{'const':1},'j':{'const':1}}}},"
         "{'not':{'properties':{'k':{'const':1},'l':{'const':1}}}},"
         "{'not':{'properties':{'m':{'const':1},'n':{'const':1}}}},"
         "{'not':{'properties':{'p':{'const':1},'q':{'const':1}}}}]}",
         "{'a':2,'c':2,'e':2,'g':2,'i':2,'k':2,'m':2,'p':2,'x':''}|"
         "{'a':'','c':2,'e':2,'g':2,'i':2,'k':2,'m':2,'p':2}",
         "{}|{'a':2,'c':2,'e':2,'g':2,'i':2,'k':2,'m':2,'p':2}|{'x':''}"},
        {"{'enum':[{},{'a':2,'c':2,'e':2,'g':2,'i':2,'k':2,'m':2,'p':2},{'a':2}],'allOf':["
         "{'not':{'properties':{'a':{'const':1},'b':{'const':1}}}},"
         "{'not':{'properties':{'c':{'const':1},'d':{'const':1}}}},"
         "{'not':{'properties':{'e':{'const':1},'f':{'const':1}}}},"
         "{'not':{'properties':{'g':{'const':1},'h':{'const':1}}}},"
         "{'not':{'properties':{'i':{'const':1},'j':{'const':1}}}},"
         "{'not':{'properties':{'k':{'const':1},'l':{'const':1}}}},"
         "{'not':{'properties':{'m':{'const':1},'n':{'const':1}}}},"
         "{'not':{'properties':{'p':{'const':1},'q':{'const':1}}}}]}",
         "{'a':2,'c':2,'e':2,'g':2,'i':2,'k':2,'m':2,'p':2}", "{}|{'a':2}"},
        // One value of a key violates several of the schemas.
        {"{'oneOf':[{'properties':{'a':{'const':1},'b':{'const':0}},'required':['a','b']},"
         "{'properties':{'a':{'const':2},'b':{'const':0}},'required':['a','b']},"
         "{'properties':{'a':{'const':3},'b':{'const':0}},'required':['a','b']},"
         "{'properties':{'a':{'const':4},'b':{'const':0}},'required':['a','b']},"
         "{'properties':{'a':{'const':5},'b':{'const':0}},'required':['a','b']},"
         "{'properties':{'a':{'const':6},'b':{'const':0}},'required':['a','b']},"
         "{'properties':{'a':{'type':'integer'},'b':{'type':'integer'}},'required':['a','b']}]}",
         "{'a':9,'b':0}|{'a':9,'b':1}|{'a':1,'b':1}", "{'a':1,'b':0}|{'a':6,'b':0}|{'a':9}"},
    };
    schema_check_rows(rows, ARRAY_LEN(rows), vocabulary);
}

// A key that the open schema forbids is unknown to the closed ones, so it is chosen first.
static void closed_and_open(void **state) {
    (void)state;
    struct buf schema = {0};
    append(&schema, "{'type':'object','not':{'anyOf':[{'properties':{'t':{'type':'string'}}}",
           false, 0);
    for (int i = 0; i < 9; i++) {
        append(&schema, "{'additionalProperties':false,'properties':{", true, 0);
        for (int k = 0; k < 10; k++) {
            append(&schema, "'k#':", k, k);
            append(&schema, "{'minimum':#}", false, i);
        }
        append(&schema, "}}", false, 0);
    }
    append(&schema, "]}}", false, 0);
    check(&schema, "{'t':1}|{'t':null,'k1':'a'}", "{}|{'t':'a'}|{'k1':'a'}|{'k1':1}");
}

// Of three schemas that must fail, the one in the middle is read first. The others count too.
static void the_easiest_is_in_the_middle(void **state) {
    (void)state;
    static const struct schema_row row = {
        "{'type':'object','not':{'anyOf':["
        "{'properties':{'a':{'type':'integer'},'b':{'type':'integer'}}},"
        "{'properties':{'t':{'type':'string'}}},"
        "{'properties':{'c':{'type':'integer'},'d':{'type':'integer'}}}]}}",
        "{'t':1,'c':'x','a':'x'}|{'t':1,'d':'x','b':'x'}",
        "{}|{'t':1}|{'t':1,'a':'x'}|{'t':1,'c':'x'}|{'c':'x','a':'x'}|{'t':'','c':'x','a':'x'}"};
    schema_check_rows(&row, 1, vocabulary);
}

// Equal references in two documents mean two schemas: that one fails says nothing about the other.
static void equal_references(void **state) {
    (void)state;
    static const struct schema_row row = {
        "{'type':'object','not':{'anyOf':["
        "{'$id':'one','required':['k'],'properties':{'k':{'$ref':'#/$defs/v'}},"
        "'$defs':{'v':{'type':'integer'}}},"
        "{'$id':'two','required':['k'],'properties':{'k':{'$ref':'#/$defs/v'}},"
        "'$defs':{'v':{'type':['string','null']}}}]}}",
        "{}|{'k':true}|{'k':[]}", "{'k':1}|{'k':'x'}|{'k':null}"};
    schema_check_rows(&row, 1, vocabulary);
}

// Eight schemas are combined in all 40,320 orders, which mean the same.
static void orders(void **state) {
    (void)state;
    struct buf schema = {0};
    append(&schema, "{'allOf':[", false, 0);
    for (int i = 0; i < 8; i++) append(&schema, "{'$ref':'d#'}", i, i);
    append(&schema, "],'$defs':{", false, 0);
    for (int i = 0; i < 8; i++) {
        int swapped = i < 2 ? 1 - i : i;
        append(&schema, "'d#':{'$id':'d#','type':'object','properties':{", i, i);
        append(&schema, "'a':{'$ref':'d#'},", false, (i + 1) % 8);
        append(&schema, "'b':{'$ref':'d#'}", false, swapped);
        append(&schema, ",'c#':{'type':'integer'}}}", false, i);
    }
    append(&schema, "}}", false, 0);
    check(&schema, "{}|{'a':{'b':{'a':{},'c3':1}}}|{'b':{},'c0':1}",
          "{'a':1}|{'a':{'c7':''}}|{'b':{'a':2}}");
}

static void opposites_of_containers(void **state) {
    (void)state;
    static const struct schema_row rows[] = {
        // What differs from an object or an array.
        {"{'type':'object','properties':{'a':true,'b':true},'not':{'const':{'a':1,'b':[2]}}}",
         "{}|{'a':1}|{'a':2,'b':[2]}|{'a':1,'b':[]}|{'a':1,'b':[2,2]}|{'a':1,'b':[2],'c':1}",
         "{'a':1,'b':[2]}|{'b':[2],'a':1}|{'a':1,'b':[2.0]}|{'a':1,'b':[2],'b':[3]}"},
        {"{'not':{'enum':[[],[1,'x'],'y',{}]}}", "[1]|[2,'x']|[1,'x',1]|{'a':1}|'x'|1",
         "[]|[1,'x']|[1.0,'x']|'y'|{}"},
        {"{'oneOf':[{'enum':[{'t':'v'}]},{'type':'object','properties':{'t':{'type':'string'}},"
         "'required':['t']}]}",
         "{'t':'w'}|{'t':'v','x':1}", "{'t':'v'}|{}"},
        // Arrays: the items that match are too few, or too many.
        {"{'type':'array','not':{'contains':{'type':'integer'},'minContains':2}}",
         "[]|[1]|['a',1,'a']", "[1,1]|[1,'a',1]"},
        {"{'type':'array','not':{'contains':{'type':'integer'},'minContains':0,'maxContains':1}}",
         "[1,1]|['a',1,1,1]", "[]|[1]|['a']"},
        {"{'type':'array','not':{'contains':{'type':'integer'},'maxContains':1}}", "[]|['a']|[1,1]",
         "[1]|['a',1]"},
        // Equal items matter for no array that the other option has.
        {"{'oneOf':[{'type':'array','items':{'enum':[1,2]},'uniqueItems':true},"
         "{'type':'array','items':{'enum':[1,3]},'uniqueItems':true}]}",
         "[2]|[3]|[1,2]|[3,1]", "[]|[1]|[2,2]|[2,3]"},
        {"{'oneOf':[{'type':'array','items':{'type':'string'},'uniqueItems':true},"
         "{'type':'array','items':{'type':'integer'}}]}",
         "['a']|['a','b']|[1,1]", "[]|['a','a']|['a',1]"},
    };
    schema_check_rows(rows, ARRAY_LEN(rows), vocabulary);
}

// What the schema and those that it applies to the same value do not mention.
static void unevaluated(void **state) {
    (void)state;
    static const struct schema_row rows[] = {
        {"{'type':'object','allOf':[{'$ref':'#/$defs/p'},{'patternProperties':{'^x':true}}],"
         "'properties':{'b':true},'unevaluatedProperties':false,'$defs':{'p':{'properties':"
         "{'a':true}}}}",
         "{}|{'a':1,'b':2}|{'a':1,'b':2,'x':3,'xy':4}", "{'c':1}|{'a':1,'c':2}"},
        {"{'type':'object','anyOf':[{'properties':{'a':{'type':'integer'}},'required':['a']},"
         "{'properties':{'b':true},'required':['b']}],'unevaluatedProperties':false}",
         "{'a':1}|{'b':1}|{'a':1,'b':2}", "{}|{'a':1,'c':2}|{'a':'x','b':1}"},
        {"{'type':'object','oneOf':[{'properties':{'a':true},'required':['a']},"
         "{'properties':{'b':true},'required':['b']}],'unevaluatedProperties':{'type':'null'}}",
         "{'a':1}|{'b':1}|{'a':1,'c':null}", "{}|{'a':1,'b':2}|{'a':1,'c':2}"},
        {"{'type':'object','properties':{'t':true},'if':{'properties':{'t':{'const':1},'a':true},"
         "'required':['t']},'unevaluatedProperties':false}",
         "{'t':1}|{'t':1,'a':2}|{'t':2}|{}", "{'t':2,'a':2}|{'a':2}|{'t':1,'b':2}"},
        {"{'type':'object','properties':{'a':true},'dependentSchemas':{'a':{'properties':{'b':"
         "{'const':1}},'required':['b']}},'unevaluatedProperties':false}",
         "{}|{'a':1,'b':1}", "{'b':1}|{'a':1}|{'a':1,'b':2}"},
        {"{'type':'object','not':{'properties':{'a':{'const':1}},'required':['a']},"
         "'properties':{'b':true},'unevaluatedProperties':false}",
         "{}|{'b':1}", "{'a':2}|{'a':1}"},
        // A schema beside the one with the keyword does not count, one below that has it does.
        {"{'type':'object','allOf':[{'properties':{'a':true}},{'properties':{'b':true},"
         "'unevaluatedProperties':false}]}",
         "{}|{'b':1}", "{'a':1}"},
        {"{'type':'object','allOf':[{'properties':{'a':true},'unevaluatedProperties':{'type':"
         "'integer'}}],'unevaluatedProperties':false}",
         "{'a':'x'}|{'a':'x','b':1}", "{'b':'x'}"},
        {"{'type':'array','allOf':[{'prefixItems':[true,{'type':'integer'}]}],'prefixItems':[true],"
         "'unevaluatedItems':{'type':'null'}}",
         "[]|['a',1]|['a',1,null]", "['a','b']|['a',1,2]"},
        {"{'type':'array','anyOf':[{'items':{'type':'integer'}},{'prefixItems':[true]}],"
         "'unevaluatedItems':false}",
         "[]|[1,2]|['a']", "['a',1]|[1,'a']"},
        // What a schema below says about all that is left is said of it.
        {"{'type':'object','required':['a'],'allOf':[{'unevaluatedProperties':{'type':'integer'}}],"
         "'unevaluatedProperties':false}",
         "{'a':1}|{'a':1,'b':2}", "{}|{'a':'x'}|{'a':1,'b':'x'}"},
        {"{'type':'array','allOf':[{'unevaluatedItems':{'type':'integer'}}],"
         "'unevaluatedItems':false}",
         "[]|[1,2]", "['a']"},
    };
    schema_check_rows(rows, ARRAY_LEN(rows), vocabulary);
}

// An integer beyond 64 bits is an object with a strange key to jansson, but no schema.
static void big_integers(void **state) {
    (void)state;
    static const char *const rows[][2] = {
        {"1000000000000000000000000", "a JSON schema is an object, or true or false"},
        {"{'items':1000000000000000000000000}", "#/items: a schema is an object, or true or false"},
        {"{'not':1000000000000000000000000}", "#/not: a schema is an object, or true or false"},
        {"{'properties':{'a':1000000000000000000000000}}",
         "#/properties/a: a schema is an object, or true or false"},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct grammar *grammar;
        struct err err = {0};
        assert_int_equal(schema_fixture_add(&grammar, rows[i][0], NULL, NULL, &err), ERR_FORMAT);
        assert_string_equal(err.message, rows[i][1]);
        grammar_destroy(grammar);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(big_integers),
        cmocka_unit_test(conditions),
        cmocka_unit_test(opposites),
        cmocka_unit_test(dependencies),
        cmocka_unit_test(several_contains),
        cmocka_unit_test(many_contained),
        cmocka_unit_test(dependent_values),
        cmocka_unit_test(open_objects),
        cmocka_unit_test(negated_types),
        cmocka_unit_test(pointers),
        cmocka_unit_test(guarded_repetitions),
        cmocka_unit_test(lookbehind),
        cmocka_unit_test(options_with_own_keys),
        cmocka_unit_test(options_with_many_keys),
        cmocka_unit_test(closed_and_open),
        cmocka_unit_test(the_easiest_is_in_the_middle),
        cmocka_unit_test(equal_references),
        cmocka_unit_test(orders),
        cmocka_unit_test(opposites_of_containers),
        cmocka_unit_test(unevaluated),
    };
    vocabulary = fixture_json_vocabulary();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    vocabulary_destroy(vocabulary);
    return failed;
}
