// JSON schemas: which texts fit, what is refused, with which sentence. ' stands for " in the rows.
#include <stdlib.h>
#include <string.h>

#include "base/json/jread.h"
#include "structured/schema/schema.h"
#include "structured/schema_fixture.h"
#include "structured/structured_fixture.h"
#include "support/cmocka_all.h"

static struct vocabulary *vocabulary;

static void check_rows(const struct schema_row *rows, size_t num_rows) {
    schema_check_rows(rows, num_rows, vocabulary);
}

static void types(void **state) {
    (void)state;
    static const struct schema_row rows[] = {
        {"{'type':'null'}", "null", "nul|0|''"},
        {"{'type':'boolean'}", "true|false", "null|1"},
        {"{'type':'integer'}", "0|-12|12345678901234567890", "1.5|01|1e3|'1'"},
        {"{'type':'number'}", "0|-1.25|1e5|2.5E-7|-0.0|12345e-2|-5627.5E+10|123e305",
         "01|1.|.5|+1|1e999|1234e305|1e|01e1"},
        {"{'type':'string'}", "''|'a'|'\\n'|'\\u00e9'|'\xc3\xa9'|'\\ud83d\\ude00'",
         "'\n'|'\\x'|'\\ud83d'|'a|1"},
        {"{'type':['string','null']}", "'a'|null", "1|[]"},
        {"true", "1|[{'a':[null]}]|{}|'x'", "|{'a'}|[1,]"},
        {"{}", "1|{'a':{'b':[]}}", "{,}|[,1]"},
        {"{'const':{'a':[1,'b']}}", "{'a':[1,'b']}|{ 'a': [ 1 , 'b' ] }", "{'a':[1]}|{}"},
        {"{'enum':['a','ab',1,null]}", "'a'|'ab'|1|null", "'b'|'abc'|2"},
        {"{'const':1.0}", "1|1.0", "1.5|1.00"},
        {"{'type':'string','enum':['a',1,'bb'],'maxLength':1}", "'a'", "1|'bb'"},
    };
    check_rows(rows, ARRAY_LEN(rows));
}

static void numbers(void **state) {
    (void)state;
    static const struct schema_row rows[] = {
        {"{'type':'integer','minimum':-5,'maximum':120}", "-5|0|9|120|99|-0", "-6|121|1000"},
        {"{'type':'integer','exclusiveMinimum':1.5,'exclusiveMaximum':4}", "2|3", "1|4|0|-3"},
        {"{'minimum':0}", "0|0.5|1e5|3e-7|'a'", "-1|-0.5|-1e5"},
        {"{'type':'number','exclusiveMinimum':0}", "0.001|1|1e-5|2e5", "0|0.0|-1"},
        {"{'type':'number','minimum':-1.5,'maximum':10.25}", "-1.5|-1.49|10.25|10.2|10|0|1e-3|-0.0",
         "-1.51|-2|10.26|11|100|1e2"},
        {"{'type':'number','exclusiveMaximum':1}", "0.99|-5|5e-3|-1e5", "1|1.0|1.5"},
        {"{'minimum':5,'exclusiveMinimum':true}", "6|5.5", "5|5.0"},
        {"{'type':'integer','multipleOf':7}", "0|7|-14|700|49", "1|8|-13"},
        {"{'type':'integer','multipleOf':60}", "0|60|120|-180", "6|10|70|1"},
        {"{'type':'integer','multipleOf':4}", "0|4|12|100|-1236|99999999999999999996",
         "2|6|10|102"},
        {"{'type':'number','multipleOf':0.25}", "0|0.25|1.5|2.750|-3", "0.3|1.26|0.251"},
        {"{'type':'number','multipleOf':3}", "0|3|9.0|-12", "1|3.5|10.0"},
        {"{'type':'number','multipleOf':1e-9}", "0|1|-3.000000001|0.5", "0.0000000001"},
        {"{'type':'integer','minimum':10,'multipleOf':5}", "10|15|100", "5|0|12"},
        {"{'type':'integer','not':{'multipleOf':3}}", "1|2|10", "0|3|12"},
        {"{'type':'number','not':{'type':'integer'}}", "0.5|-1.25", "1|1.0|1.00000000000000000001"},
        {"{'type':'integer','not':{'const':7}}", "6|8|77", "7"},
        {"{'minimum':100000000000000000000}", "100000000000000000000", "99999999999999999999"},
    };
    check_rows(rows, ARRAY_LEN(rows));
}

static void strings(void **state) {
    (void)state;
    static const struct schema_row rows[] = {
        {"{'type':'string','minLength':2,'maxLength':3}",
         "'ab'|'abc'|'\xc3\xa9\xc3\xa9'|'\\n\\u0061'|'\xf0\x9f\x98\x80x'", "'a'|'abcd'|''|'\\n'"},
        {"{'pattern':'b+c'}", "'bc'|'abbbcd'|1", "'b'|'ac'|''"},
        {"{'type':'string','pattern':'^a|z$'}", "'a'|'abc'|'xz'", "'ba'|'zb'"},
        {"{'type':'string','pattern':'^(?!foo)[a-z]+$'}", "'bar'|'fo'", "'foo'|'food'|'1'"},
        {"{'type':'string','pattern':'^(\\\\/?([a-z]+|\\\\.{2})($|\\\\/))*$'}",
         "''|'a'|'/a'|'a/'|'a/b'|'../b/c'", "'/'|'a///b'|'.'|'A'|'a/b.'"},
        {"{'type':'string','pattern':'^(^a|b|c$)+$'}", "'a'|'ab'|'bbc'|'abbc'|'c'|'ac'",
         "''|'ba'|'aa'|'cb'|'cc'"},
        {"{'type':'string','pattern':'^(?=.*[0-9])(?=.*[a-z]).{3,}$'}", "'ab1'|'1xx'",
         "'abc'|'a1'"},
        {"{'type':'string','pattern':'\\\\bcat\\\\b'}", "'cat'|'a cat!'", "'cats'|'concat'"},
        {"{'type':'string','pattern':'^[a-]{1,2}\\\\b-?a*$'}", "'a'|'--a'|'a-aa'|'a-'",
         "'-'|'--'|'aaaa'"},
        {"{'type':'string','pattern':'^-?a?\\\\B$'}", "''|'-'", "'a'|'-a'"},
        {"{'type':'string','pattern':'^\\\\d{2}[^x-z\\\\s]$'}", "'12a'|'00\xc3\xa9'",
         "'12x'|'12 '|'1a'"},
        {"{'type':'string','pattern':'^\\\\p{Lu}$'}", "'A'|'\xc3\x89'", "'a'|'1'"},
        {"{'type':'string','pattern':'^[\\\\p{Letter}\\\\p{Decimal_Number}]$'}",
         "'a'|'\xc3\x89'|'1'", "'-'|'+'"},
        {"{'type':'string','pattern':'^[\\\\p{Private_Use}\\\\p{Combining_Mark}]$'}",
         "'\xee\x80\x80'|'\xcc\x81'", "'a'|'1'"},
        {"{'type':'string','pattern':'^\\\\P{gc=Uppercase_Letter}$'}", "'a'|'1'", "'A'|'\xc3\x89'"},
        {"{'type':'string','pattern':'^\\\\\\\\$'}", "'\\\\'|'\\u005c'", "'a'|''"},
        {"{'type':'string','pattern':'^[a-z]+$','maxLength':2}", "'a'|'ab'", "''|'abc'|'A'"},
        {"{'format':'date'}", "'2024-02-29'|'2023-12-31'|1",
         "'2023-02-29'|'2023-13-01'|'2023-1-1'"},
        {"{'format':'date-time'}", "'2024-02-29T23:59:59.5Z'|'2024-01-01t00:00:00+05:30'",
         "'2024-01-01'|'2024-01-01T24:00:00Z'"},
        {"{'format':'duration'}", "'P1Y2M3DT4H5M6S'|'PT1M'|'P2W'", "'P'|'PT'|'P1D1Y'|'P1YT'"},
        {"{'format':'email'}", "'a.b@c.de'|'x@[127.0.0.1]'", "'a'|'a@'|'@b'|'a b@c.d'|'a..b@c'"},
        {"{'format':'hostname'}", "'a'|'a-b.c'|'abc--d'", "'-a'|'a-'|'a..b'|''|'xn--a'"},
        {"{'format':'ipv4'}", "'1.2.3.255'", "'1.2.3'|'1.2.3.256'|'01.2.3.4'"},
        {"{'format':'ipv6'}", "'::'|'::1'|'1:2:3:4:5:6:7:8'|'::ffff:1.2.3.4'|'1::8'",
         "':'|'1:2:3:4:5:6:7'|'1::2::3'|'12345::'"},
        {"{'format':'uri'}", "'http://a.b/c?d=e#f'|'urn:x:y'|'mailto:a@b'",
         "'/a'|'a'|'http://a b'"},
        {"{'format':'uri-reference'}", "'/a'|'a/b'|'#x'|''|'http://a'", "'a b'|'\\\\\\\\a'"},
        {"{'format':'uuid'}", "'2eb8aa08-aa98-11ea-b4aa-73b441d16380'",
         "'2eb8aa08aa9811eab4aa73b441d16380'"},
        {"{'format':'regex'}",
         "''|'^[a-f0-9_-]+$'|'a(b(?:c(d(e))))*?'|'[^/]{2,5}[.]'|'\\\\d{10,200}\\\\/'",
         "'(a'|'a)'|'*a'|'[z-a]'|'a{5,2}'|'a**'|'\\\\'|'[a'|'(?<=a)b'|'^*'|'(((((a)))))'"},
        {"{'format':'json-pointer'}", "''|'/a~0b/~1'", "'a'|'/~2'"},
        {"{'format':'int64'}", "1|'a'", ""},
        {"{'type':'string','not':{'enum':['a','b']}}", "'c'|''|'ab'", "'a'|'\\u0061'|'b'"},
        {"{'type':'string','not':{'pattern':'^x'}}", "'a'|'ax'", "'x'|'xa'"},
    };
    check_rows(rows, ARRAY_LEN(rows));
}

static void objects(void **state) {
    (void)state;
    static const struct schema_row rows[] = {
        {"{'type':'object','properties':{'a':{'type':'integer'},'b':{'type':'string'}},"
         "'required':['b'],'additionalProperties':false}",
         "{'b':'x'}|{'a':1,'b':'x'}|{ 'a' : 1,\n  'b': 'x'\n}",
         "{}|{'a':1}|{'b':'x','a':1}|{'b':'x','c':1}|{'b':1}|{'b':'x','b':'y'}|{'b':'x',}"},
        {"{'properties':{'a':{'type':'integer'}},'required':['z','a']}",
         "{'a':1,'z':2}|{'a':1,'z':2,'q':null}",
         "{'a':1}|{'z':2,'a':1}|{'a':1,'z':1,'\\u0061':'x'}"},
        {"{'type':'object','additionalProperties':{'type':'integer'}}", "{}|{'a':1,'b':2}",
         "{'a':'x'}"},
        {"{'type':'object','patternProperties':{'^a':{'type':'integer'},'b$':{'minimum':5}},"
         "'additionalProperties':false}",
         "{'a':1}|{'ab':5}|{'xb':7}|{'xb':'s'}", "{'ab':4}|{'ab':'s'}|{'c':1}|{'a':'s'}"},
        {"{'type':'object','properties':{'ab':true},'patternProperties':{'^a':{'type':'integer'}}}",
         "{'ab':1}|{'x':'s'}", "{'ab':'s'}|{'ac':'s'}"},
        {"{'type':'object','propertyNames':{'pattern':'^[a-c]$'}}", "{'a':1}|{}",
         "{'d':1}|{'aa':1}"},
        {"{'type':'object','properties':{'a':true,'b':true,'c':true},'additionalProperties':false,"
         "'minProperties':2}",
         "{'a':1,'c':1}|{'a':1,'b':1,'c':1}", "{}|{'b':1}"},
        {"{'type':'object','properties':{'a':true,'b':true},'maxProperties':2}",
         "{}|{'a':1,'x':1}|{'x':1,'y':2}", "{'a':1,'b':1,'x':1}"},
        {"{'type':'object','minProperties':1}", "{'a':1}|{'a':1,'b':2}", "{}"},
        {"{'type':'object','minProperties':3}", "{'a':1,'b':2,'c':3}|{'a':1,'b':2,'c':3,'d':4}",
         "{}|{'a':1}|{'a':1,'b':2}|{'a':1,'b':2,'b':3}|{'a':1,'b':2,'b':3,'c':1}"},
        {"{'type':'object','properties':{'a':true,'b':true},'required':['b'],'minProperties':3}",
         "{'a':1,'b':2,'c':3}|{'b':2,'c':3,'d':4}", "{'a':1,'b':2}|{'b':2,'c':3,'c':4}"},
        {"{'type':'object','minProperties':2,'propertyNames':{'pattern':'^[ab]$'}}",
         "{'a':1,'b':2}|{'b':1,'a':2}", "{'a':1}|{'a':1,'a':2}|{'b':1,'c':2}"},
        {"{'type':'object','minProperties':2,'propertyNames':{'pattern':'^x-'}}",
         "{'x-':1,'x-a':2}", "{'x-a':1}|{'x-a':1,'x-a':2}|{'x-a':1,'y-b':2}"},
        {"{'type':'object','properties':{'a':true,'b':true},'dependentRequired':{'a':['b']}}",
         "{}|{'b':1}|{'a':1,'b':1}", "{'a':1}|{'a':1,'x':1}"},
        {"{'type':'object','properties':{'a':true},'dependencies':{'a':{'properties':{'b':"
         "{'type':'integer'}},'required':['b']}}}",
         "{}|{'a':1,'b':1}", "{'a':1}|{'a':1,'b':'x'}"},
        {"{'type':'object','properties':{'a':false}}", "{}|{'b':1}", "{'a':1}"},
        {"{'properties':{'a':{'type':'integer'}},'unevaluatedProperties':false}", "{'a':1}|{}",
         "{'b':1}"},
    };
    check_rows(rows, ARRAY_LEN(rows));
}

static void arrays(void **state) {
    (void)state;
    static const struct schema_row rows[] = {
        {"{'type':'array','items':{'type':'integer'},'minItems':1,'maxItems':3}",
         "[1]|[1,2,3]|[ 1 , 2 ]", "[]|[1,2,3,4]|['a']|[1,]"},
        {"{'type':'array','prefixItems':[{'type':'integer'},{'type':'string'}],'items':false}",
         "[]|[1]|[1,'a']", "['a']|[1,'a',2]"},
        {"{'type':'array','items':[{'type':'integer'}],'additionalItems':{'type':'null'}}",
         "[]|[1]|[1,null,null]", "[null]|[1,2]"},
        {"{'type':'array','contains':{'const':7}}", "[7]|[1,7,2]|[7,7]", "[]|[1,2]"},
        {"{'type':'array','items':{'type':'integer'},'contains':{'minimum':5},'minContains':2,"
         "'maxContains':3,'maxItems':5}",
         "[5,6]|[1,5,6,7,2]", "[5]|[5,6,7,8]|[5,6,1,1,1,1]|[5,'a',6]"},
        {"{'type':'array','contains':{'const':1},'minItems':3}", "[1,2,3]|[2,3,1]|[2,2,2,1]",
         "[1,2]|[2,3,4]"},
        {"{'type':'array','uniqueItems':true,'items':{'enum':['a','b',',']}}",
         "[]|['a']|['b','a']|['a',',','b']", "['a','a']|['a','b','a']|[',',',']"},
        {"{'type':'array','uniqueItems':true,'items':{'type':'boolean'}}", "[true,false]|[]",
         "[true,true]|[true,false,true]"},
        {"{'type':'array','uniqueItems':true,'items':{'enum':[1,12,2,[1,1]]}}",
         "[1,12]|[12,1,2]|[[1,1],1, 2]", "[1,1]|[1,12,1]|[1, 1 ]|[12,1,12]|[[1,1],[1,1]]"},
        {"{'type':'array','uniqueItems':true,'items':{'type':'integer','minimum':-1,'maximum':3}}",
         "[]|[-1,0,1,2,3]|[3, 1]", "[1,1]|[4]|[-2]|[0,1,0]"},
        {"{'type':'array','uniqueItems':true,'minItems':2,'items':{'type':'integer',"
         "'exclusiveMinimum':1.5,'exclusiveMaximum':10,'multipleOf':3}}",
         "[3,6,9]|[9,3]", "[3]|[3,3]|[10,12]|[0,3]|[2,3]"},
        // As many as are read. A list is known to be wrong without a look at all ways to go on.
        {"{'type':'array','uniqueItems':true,'minItems':1,'items':{'enum':"
         "['a0','a1','a2','a3','a4','a5','a6','a7','a8','a9','b0','b1','b2','b3','b4','b5','b6',"
         "'b7','b8','b9','c0','c1','c2','c3','c4','c5','c6','c7','c8','c9','d0','d1','d2','d3',"
         "'d4','d5','d6','d7','d8','d9']}}",
         "['a0']|['d9','a3', 'b7']", "[]|['a0','a0']|['d9','a3','d9']|['c3','c4', 'c3','c5']"},
        {"{'type':'array','maxItems':100000}", "[1,2]|[]", "[1,2"},
        {"{'type':'array','not':{'items':{'type':'integer'}}}", "['a']|[1,'a']", "[]|[1]"},
    };
    check_rows(rows, ARRAY_LEN(rows));
}

static void combinations(void **state) {
    (void)state;
    static const struct schema_row rows[] = {
        {"{'anyOf':[{'type':'integer'},{'type':'string','maxLength':1}]}", "1|'a'", "'ab'|1.5"},
        {"{'allOf':[{'minimum':3},{'maximum':5,'type':'integer'}]}", "3|5", "2|6"},
        {"{'oneOf':[{'type':'integer'},{'minimum':2,'type':'number'}]}", "1|2.5|-7", "3|1.5"},
        {"{'oneOf':[{'properties':{'k':{'const':'a'},'x':{'type':'integer'}},'required':['k','x']},"
         "{'properties':{'k':{'const':'b'},'y':true},'required':['k','y']}],'type':'object'}",
         "{'k':'a','x':1}|{'k':'b','y':1}", "{'k':'a','y':1}|{'k':'c','x':1}"},
        {"{'type':'object','properties':{'a':true,'b':true},'oneOf':[{'required':['a']},"
         "{'required':['b']}]}",
         "{'a':1}|{'b':1}", "{}|{'a':1,'b':1}"},
        {"{'type':'object','properties':{'a':true,'b':true},'not':{'required':['a','b']}}",
         "{}|{'a':1}|{'b':1}", "{'a':1,'b':1}"},
        {"{'not':{'type':['object','array']}}", "1|'a'|null", "{}|[]"},
        {"{'properties':{'t':{'enum':['i','s']},'v':true},'required':['t','v'],"
         "'if':{'properties':{'t':{'const':'i'}}},'then':{'properties':{'v':{'type':'integer'}}},"
         "'else':{'properties':{'v':{'type':'string'}}},'type':'object'}",
         "{'t':'i','v':1}|{'t':'s','v':'x'}", "{'t':'i','v':'x'}|{'t':'s','v':1}"},
        {"{'type':'object','not':{'patternProperties':{'^a':{'type':'null'}}}}",
         "{'a':1}|{'ab':null,'b':2,'ac':0}", "{}|{'a':null}|{'b':1}|{'a':1,'a':null}"},
        {"{'type':'object','not':{'propertyNames':{'maxLength':1}}}", "{'ab':1}|{'ab':1,'c':2}",
         "{}|{'a':1}"},
        {"{'type':'object','properties':{'p':true},'not':{'additionalProperties':{'type':'string'}}"
         "}",
         "{'p':1}|{'x':1}|{'p':'s','x':1}|{'x':'s','y':2}",
         "{}|{'p':'s'}|{'x':'s'}|{'x':1,'x':'s'}"},
        {"{'type':'string','oneOf':[{'format':'ipv4'},{'format':'ipv6'}]}", "'1.2.3.4'|'::1'",
         "'x'|'1.2.3'"},
        {"{'type':'string','oneOf':[{'format':'date'},{'format':'date-time'},{'format':'email'}]}",
         "'2024-01-01'|'2024-01-01T00:00:00Z'|'a@b.c'", "'x'|'2024-01-01T00:00:60Z'"},
        {"{'oneOf':[{'type':'object','properties':{'a':true},'required':['a'],"
         "'additionalProperties':false},{'type':'object','properties':{'a':true,'b':true},"
         "'required':['a']}]}",
         "{'a':1,'b':1}|{'a':1,'c':1}", "{'a':1}|{'b':1}"},
    };
    check_rows(rows, ARRAY_LEN(rows));
}

static void references(void **state) {
    (void)state;
    static const struct schema_row rows[] = {
        {"{'$ref':'#/$defs/tree','$defs':{'tree':{'type':'object','properties':{'v':{'type':"
         "'integer'},'next':{'type':'array','items':{'$ref':'#/$defs/tree'}}},'required':['v'],"
         "'additionalProperties':false}}}",
         "{'v':1}|{'v':1,'next':[{'v':2,'next':[]},{'v':3}]}", "{'next':[]}|{'v':1,'next':[{}]}"},
        {"{'properties':{'a':{'$ref':'#/definitions/x~1y%20z'}},'definitions':{'x/y z':{'type':"
         "'null'}}}",
         "{'a':null}", "{'a':1}"},
        {"{'$id':'http://x.y/root.json','items':{'$ref':'root.json#/$defs/n'},'$defs':{'n':{'type':"
         "'null'}},'type':'array'}",
         "[null]", "[1]"},
        {"{'items':{'$ref':'#n'},'$defs':{'x':{'$anchor':'n','type':'null'}},'type':'array'}",
         "[null]", "[1]"},
        {"{'$ref':'#/$defs/n','type':'integer','$defs':{'n':{'minimum':3}}}", "3", "2|3.5"},
        {"{'$dynamicAnchor':'n','type':['array','null'],'items':{'$dynamicRef':'#n'}}",
         "null|[null,[]]", "1|[1]|[[1]]"},
        {"{'$recursiveAnchor':true,'type':['array','null'],'items':{'$recursiveRef':'#'}}",
         "null|[null,[]]", "1|[1]|[[1]]"},
        {"{'type':['array','null'],'not':{'$dynamicRef':'#a'},'$defs':{'a':{'$anchor':'a','type':"
         "'null'}}}",
         "[]", "null"},
        {"{'$schema':'http://json-schema.org/draft-07/schema#','$ref':'#/definitions/n','type':"
         "'integer','definitions':{'n':{'minimum':3}}}",
         "3|3.5", "2"},
        // No draft has this name, so validators read it as the newest.
        {"{'$schema':'https://json-schema.org/draft-07/schema','$ref':'#/definitions/n','type':"
         "'integer','definitions':{'n':{'minimum':3}}}",
         "3", "2|3.5"},
        {"{'$schema':'http://json-schema.org/draft-07/schema/x','$ref':'#/definitions/n','type':"
         "'integer','definitions':{'n':{'minimum':3}}}",
         "3", "2|3.5"},
        {"{'allOf':[{'$ref':'#/$defs/a'},{'$ref':'#/$defs/b'}],'$defs':{'a':{'type':'object',"
         "'properties':{'n':{'$ref':'#/$defs/a'},'i':{'type':'integer'}}},'b':{'properties':{'n':"
         "{'$ref':'#/$defs/b'},'i':{'minimum':0}}}}}",
         "{'n':{'n':{'i':1}}}", "{'n':{'i':-1}}|{'i':'x'}"},
    };
    check_rows(rows, ARRAY_LEN(rows));
}

// Keys come in the order in which a reader of the schema meets them.
static void key_order(void **state) {
    (void)state;
    static const struct schema_row rows[] = {
        {"{'allOf':[{'properties':{'b':true}}],'properties':{'a':true},'required':['a','b']}",
         "{'b':1,'a':1}", "{'a':1,'b':1}"},
        {"{'properties':{'a':true},'required':['a','b'],'allOf':[{'properties':{'b':true}}]}",
         "{'a':1,'b':1}", "{'b':1,'a':1}"},
        {"{'$ref':'#/$defs/x','properties':{'a':true},'$defs':{'x':{'properties':{'b':true}}},"
         "'required':['a','b']}",
         "{'b':1,'a':1}", "{'a':1,'b':1}"},
    };
    check_rows(rows, ARRAY_LEN(rows));
}

static void space(void **state) {
    (void)state;
    const struct schema_options none = {.space = SCHEMA_SPACE_NONE};
    const struct schema_row compact = {"{'type':'array','items':{'type':'object'}}", "[]|[{'a':1}]",
                                       "[ ]|[{'a': 1}]"};
    schema_check_row(&compact, &none, vocabulary);
    const struct schema_options one = {.space_pattern = "^ ?$"};
    const struct schema_row blank = {"{'type':'array','items':{'type':'integer'}}",
                                     "[]|[ 1, 2 ]|[1,2]", "[  1]|[1,\n2]"};
    schema_check_row(&blank, &one, vocabulary);
    const struct schema_row usual = {"{'type':'array'}", "[1,\n  2]|[ 1 ]",
                                     "[\n\n1]|[   1]| [1]|[1] "};
    schema_check_row(&usual, NULL, vocabulary);
    const struct schema_options closed = {.no_additional_properties = true};
    const struct schema_row named = {"{'properties':{'a':{'type':'object'}}}", "{'a':{'b':1}}|{}",
                                     "{'b':1}"};
    schema_check_row(&named, &closed, vocabulary);
    struct grammar *grammar;
    struct err err = {0};
    const struct schema_options letters = {.space_pattern = "^[ a]$"};
    assert_int_equal(schema_fixture_add(&grammar, "true", &letters, NULL, &err), ERR_INVALID);
    grammar_destroy(grammar);
}

struct refused_row {
    const char *schema;
    enum status status;
    const char *sentence;
};

static void check_refused(const struct refused_row *rows, size_t num_rows) {
    for (size_t i = 0; i < num_rows; i++) {
        struct grammar *grammar;
        struct err err = {0};
        char *sentence = schema_with_quotes(rows[i].sentence);
        if (schema_fixture_add(&grammar, rows[i].schema, NULL, NULL, &err) != rows[i].status) {
            fail_msg("%s: %s", rows[i].schema, err.message);
        }
        assert_string_equal(err.message, sentence);
        free(sentence);
        grammar_destroy(grammar);
    }
}

static void refused(void **state) {
    (void)state;
    static const char too_few_items[] =
        "#: keyword 'uniqueItems' cannot be enforced beside 'minItems': too few different items "
        "are known to exist";
    static const struct refused_row rows[] = {
        {"{'properties':{'a':{'type':'array','uniqueItems':true,'minItems':3,"
         "'items':{'type':'boolean'}}}}",
         ERR_UNSUPPORTED,
         "#/properties/a: keyword 'uniqueItems' cannot be enforced beside 'minItems': too few "
         "different items are known to exist"},
        // There are five such arrays.
        {"{'uniqueItems':true,'minItems':6,'items':{'type':'array','uniqueItems':true,'items':{"
         "'type':'boolean'}}}",
         ERR_UNSUPPORTED, too_few_items},
        // 1.0 is 1, and an object without members is one value.
        {"{'type':'array','uniqueItems':true,'minItems':2,"
         "'items':{'type':'number','minimum':1,'maximum':1}}",
         ERR_UNSUPPORTED, too_few_items},
        {"{'type':'array','uniqueItems':true,'minItems':2,'items':{'type':'object','properties':{"
         "'a':{'type':'string'}},'maxProperties':0}}",
         ERR_UNSUPPORTED, too_few_items},
        {"{'type':'array','uniqueItems':true,'minItems':2,'items':{'type':'object','properties':{"
         "'a':{'type':'string'}},'propertyNames':{'const':'b'},'additionalProperties':false}}",
         ERR_UNSUPPORTED, too_few_items},
        {"{'type':'array','uniqueItems':true,'minItems':2,'items':{'type':'object','properties':{"
         "'a':{'type':'string'}},'dependentRequired':{'a':['b']},'additionalProperties':false}}",
         ERR_UNSUPPORTED, too_few_items},
        {"{'uniqueItems':true,'contains':{'const':1},'minContains':2}", ERR_UNSUPPORTED,
         "#: keyword 'uniqueItems' cannot be enforced beside 'minContains' or 'maxContains'"},
        {"{'uniqueItems':true,'allOf':[{'contains':{'const':1}},{'contains':{'const':2}}]}",
         ERR_UNSUPPORTED,
         "#: keyword 'contains' cannot be enforced: there are several, and unique items"},
        {"{'properties':{'a/b':{'$ref':'http://x.y/z'}}}", ERR_UNSUPPORTED,
         "#/properties/a~1b: $ref 'http://x.y/z' is in another document, and none is loaded"},
        {"{'$ref':'#/$defs/a'}", ERR_UNSUPPORTED,
         "#: $ref '#/$defs/a' points to nothing in the schema"},
        {"{'$ref':'#'}", ERR_UNSUPPORTED, "#: $ref '#' refers to itself without a value between"},
        {"{'items':{'$dynamicRef':'#a'}}", ERR_UNSUPPORTED,
         "#/items: $dynamicRef '#a' points to nothing in the schema"},
        {"{'format':'idn-email'}", ERR_UNSUPPORTED,
         "#: keyword 'format' cannot be enforced: 'idn-email'"},
        {"{'pattern':'(a)\\\\1'}", ERR_UNSUPPORTED,
         "#: pattern '(a)\\1' cannot be enforced: a backward reference in an expression"},
        {"{'pattern':'^((?!a).)*b$'}", ERR_UNSUPPORTED,
         "#: pattern '^((?!a).)*b$' cannot be enforced: a repeated assertion in an expression"},
        {"{'pattern':'a(?<!b?a)'}", ERR_UNSUPPORTED,
         "#: pattern 'a(?<!b?a)' cannot be enforced: lookbehind further than the parts before it "
         "in "
         "an expression"},
        {"{'pattern':'a('}", ERR_FORMAT,
         "#: pattern 'a(' is not an expression of ECMA-262: a '(' without its ')' at byte 2 of an "
         "expression"},
        {"{'type':'object','propertyNames':{'pattern':'^[ab]$'},'minProperties':3}",
         ERR_UNSUPPORTED,
         "#: keyword 'minProperties' cannot be enforced: too few different keys are known to "
         "exist"},
        {"{'anyOf':[{},{},{},{},{},{}],'unevaluatedProperties':false}", ERR_UNSUPPORTED,
         "#: keyword 'unevaluatedProperties' or 'unevaluatedItems' cannot be enforced above an "
         "'anyOf' of more than 5 options"},
        {"{'contains':{},'minContains':0,'minItems':1,'unevaluatedItems':false}", ERR_UNSUPPORTED,
         "#: keyword 'unevaluatedItems' cannot be enforced beside 'contains'"},
        {"{'$id':'http://x.y/a','$dynamicAnchor':'n','items':{'$ref':'b'},'$defs':{'b':{'$id':'b',"
         "'$dynamicAnchor':'n','items':{'$dynamicRef':'#n'}}}}",
         ERR_UNSUPPORTED,
         "#/$defs/b/items: $dynamicRef '#n' has several meanings, as several schemas have this "
         "anchor"},
        {"{'type':'array','not':{'uniqueItems':true}}", ERR_UNSUPPORTED,
         "#/not: keyword 'uniqueItems' cannot be negated, as 'not', 'oneOf' or 'if' above it "
         "needs"},
        {"{'properties':{'a':{'required':true}}}", ERR_UNSUPPORTED,
         "#/properties/a: 'required' is a boolean, as in draft 3; want a list of keys"},
    };
    check_refused(rows, ARRAY_LEN(rows));
}

static void no_schemas(void **state) {
    (void)state;
    static const struct refused_row rows[] = {
        {"{'type':'integr'}", ERR_FORMAT, "#: 'type' is not a JSON type or a list of them"},
        // Beside a list of values, a rule that is none does not count as one without any value.
        {"{'required':['a'],'properties':{'a':{'enum':[1,'s']}},'anyOf':["
         "{'properties':{'a':{'const':'s'}}},{'properties':{'a':{'type':'any'}}}]}",
         ERR_FORMAT, "#/anyOf/1/properties/a: 'type' is not a JSON type or a list of them"},
        {"{'required':['a'],'properties':{'a':{'const':1}},"
         "'not':{'properties':{'a':{'type':'any'}},'required':['a']}}",
         ERR_FORMAT, "#/not/properties/a: 'type' is not a JSON type or a list of them"},
        {"{'allOf':[{'properties':{'a':{'const':1}},'required':['a']},{'properties':{'a':'x'}}]}",
         ERR_FORMAT, "#/allOf/1/properties/a: a schema is an object, or true or false"},
        {"{'items':[1]}", ERR_FORMAT, "#/items/0: a schema is an object, or true or false"},
        {"{'minLength':-1}", ERR_FORMAT, "#: 'minLength' is not a whole number from 0 on"},
        {"{'anyOf':[]}", ERR_FORMAT, "#: 'anyOf' is not a list of schemas"},
        {"[]", ERR_FORMAT, "a JSON schema is an object, or true or false"},
    };
    check_refused(rows, ARRAY_LEN(rows));
}

// The report has all refused places, and what says nothing.
static void report(void **state) {
    (void)state;
    struct schema_report found = {0};
    struct grammar *grammar;
    struct err err = {0};
    const char *schema = "{'properties':{'a':{'format':'idn-email','type':'string'},'b':{"
                         "'$dynamicRef':'#b'},'c':{'format':'color','order':1}}}";
    assert_int_equal(schema_fixture_add(&grammar, schema, NULL, &found, &err), ERR_UNSUPPORTED);
    assert_int_equal(found.num_findings, 4);
    static const char *const texts[] = {
        "#/properties/a: keyword \"format\" cannot be enforced: \"idn-email\"",
        "#/properties/b: $dynamicRef \"#b\" points to nothing in the schema",
        "#/properties/c: format \"color\" is not of the standard and says nothing",
        "#/properties/c: \"order\" is no keyword and says nothing"};
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        assert_string_equal(found.findings[i].text, texts[i]);
        assert_int_equal(found.findings[i].refused, i < 2);
    }
    schema_report_fini(&found);
    grammar_destroy(grammar);
}

// A schema without any text is refused when the grammar is compiled.
static void empty(void **state) {
    (void)state;
    static const char *const schemas[] = {
        "false", "{'type':'integer','minimum':5,'maximum':4}", "{'enum':['a'],'type':'integer'}",
        "{'type':'object','properties':{'a':{'$ref':'#'}},'required':['a']}",
        "{'type':'string','pattern':'^a$','minLength':2}"};
    for (size_t i = 0; i < ARRAY_LEN(schemas); i++) {
        struct grammar *grammar;
        struct automaton *automaton;
        struct err err = {0};
        assert_int_equal(schema_fixture_add(&grammar, schemas[i], NULL, NULL, &err), OK);
        assert_int_equal(automaton_create(&automaton, grammar, vocabulary, NULL, &err),
                         ERR_INVALID);
        assert_string_equal(err.message, "no text fits the constraint");
    }
}

// Appends `count` times `piece`.
static void append(struct buf *out, const char *piece, size_t count) {
    for (size_t i = 0; i < count; i++) assert_int_equal(buf_append_str(out, piece, NULL), OK);
}

// Large and hostile schemas: read, or refused with a sentence.
static void large(void **state) {
    (void)state;
    struct buf text = {0};
    struct grammar *grammar;
    struct err err = {0};
    append(&text, "{'properties':{", 1);
    for (int i = 0; i < 3000; i++) {
        assert_int_equal(
            buf_appendf(&text, NULL, "%s'k%d':{'items':{'$ref':'#'}}", i ? "," : "", i), OK);
    }
    append(&text, "}}", 1);
    assert_int_equal(schema_fixture_add(&grammar, text.data, NULL, NULL, &err), OK);
    struct automaton *automaton = fixture_run(grammar, vocabulary);
    fixture_check(automaton, "{\"k7\":[{\"k2999\":1}],\"k9\":null}", true);
    fixture_check(automaton, "{\"k9\":1,\"k7\":1}", false);
    automaton_release(automaton);

    buf_clear(&text); // 2^40 alternatives
    append(&text, "{'type':'object','allOf':[true", 1);
    for (int i = 0; i < 40; i++) {
        assert_int_equal(buf_appendf(&text, NULL,
                                     ",{'anyOf':[{'required':['a%d']},"
                                     "{'required':['b%d']}]}",
                                     i, i),
                         OK);
    }
    append(&text, "]}", 1);
    assert_int_equal(schema_fixture_add(&grammar, text.data, NULL, NULL, &err), ERR_CAPACITY);
    grammar_destroy(grammar);

    buf_clear(&text); // a chain of references
    append(&text, "{'$ref':'#/$defs/0','$defs':{", 1);
    for (int i = 0; i < 2000; i++) {
        assert_int_equal(
            buf_appendf(&text, NULL, "'%d':{'items':{'$ref':'#/$defs/%d'}},", i, i + 1), OK);
    }
    append(&text, "'2000':{'type':'null'}}}", 1);
    assert_int_equal(schema_fixture_add(&grammar, text.data, NULL, NULL, &err), OK);
    automaton = fixture_run(grammar, vocabulary);
    fixture_check(automaton, "[[[[1]]]]", true);
    automaton_release(automaton);
    buf_fini(&text);
}

// Of 30^4 combinations of alternatives 30 do not exclude each other, and the object has 60 more
// members. So the others must not count.
static void exclusive(void **state) {
    (void)state;
    struct buf text = {0};
    struct grammar *grammar;
    struct err err = {0};
    append(&text, "{'type':'object','required':['p0'],'properties':{", 1);
    for (int i = 0; i < 60; i++) {
        assert_int_equal(buf_appendf(&text, NULL, "%s'p%d':{'type':'integer'}", i ? "," : "", i),
                         OK);
    }
    append(&text, "},'allOf':[", 1);
    for (int i = 0; i < 120; i++) {
        const char *before = i == 0 ? "{'anyOf':[" : i % 30 == 0 ? "]},{'anyOf':[" : ",";
        assert_int_equal(buf_appendf(&text, NULL,
                                     "%s{'properties':{'t':{'const':%d}},'required':['t']}", before,
                                     i % 30),
                         OK);
    }
    append(&text, "]}]}", 1);
    if (schema_fixture_add(&grammar, text.data, NULL, NULL, &err)) fail_msg("%s", err.message);
    struct automaton *automaton = fixture_run(grammar, vocabulary);
    schema_check_list(automaton, "{'p0':1,'t':29}|{'p0':1,'p59':2,'t':0}", true);
    schema_check_list(automaton, "{'p0':1}|{'p0':1,'t':30}|{'p0':1,'p59':'','t':0}", false);
    automaton_release(automaton);
    buf_fini(&text);
}

// Reading may take too much memory at any place. NANOVLLM_TEST_ALL=1 tries more of them.
static void memory(void **state) {
    (void)state;
    static const char schema[] =
        "{'type':'object','properties':{'a':{'$ref':'#/$defs/t'},'b':{'pattern':'^(?!x)[a-z]{2}'},"
        "'c':{'oneOf':[{'multipleOf':3},{'enum':[1,'z']},{'format':'date'}]}},'required':['a'],"
        "'patternProperties':{'^p':{'minLength':2},'q$':true},'propertyNames':{'maxLength':5},"
        "'dependentSchemas':{'a':{'properties':{'d':{'uniqueItems':true,'items':{'enum':[1,2]}}}}},"
        "'maxProperties':6,"
        "'not':{'properties':{'a':{'maxItems':1}},'required':['e']},'if':{'minProperties':2},"
        "'then':{'properties':{'f':{'const':{'g':[1]}}}},"
        "'$defs':{'t':{'items':{'$ref':'#/$defs/t'},'contains':{'type':'null'},'unknown':1}}}";
    enum status status = ERR_CAPACITY;
    size_t num_refused = 0;
    size_t step = getenv("NANOVLLM_TEST_ALL") ? 16 : 72;
    for (size_t bytes_max = 1; status == ERR_CAPACITY; bytes_max += step, num_refused++) {
        const struct schema_options options = {.bytes_max = bytes_max};
        struct schema_report report = {0};
        struct grammar *grammar;
        struct err err = {0};
        status = schema_fixture_add(&grammar, schema, &options, &report, &err);
        if (status && !strstr(err.message, "too much memory")) fail_msg("%s", err.message);
        schema_report_fini(&report);
        grammar_destroy(grammar);
    }
    assert_int_equal(status, OK);
    assert_in_range(num_refused, 100, 5000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(types),      cmocka_unit_test(numbers),    cmocka_unit_test(strings),
        cmocka_unit_test(objects),    cmocka_unit_test(arrays),     cmocka_unit_test(combinations),
        cmocka_unit_test(references), cmocka_unit_test(key_order),  cmocka_unit_test(space),
        cmocka_unit_test(refused),    cmocka_unit_test(no_schemas), cmocka_unit_test(report),
        cmocka_unit_test(empty),      cmocka_unit_test(large),      cmocka_unit_test(memory),
        cmocka_unit_test(exclusive),
    };
    vocabulary = fixture_json_vocabulary();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    vocabulary_destroy(vocabulary);
    return failed;
}
