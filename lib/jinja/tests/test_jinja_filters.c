// Filters, each against what Jinja2 gives for it.
#include "jinja/tests/support/cases.h"

static void case_is_changed_by_words_and_by_characters(void **state) {
    (void)state;
    static const struct jinja_case cases[] = {
        {"\"straße ﬁ\"|upper", "STRASSE FI", NULL},
        {"greek|lower", "οδος", NULL},
        {"\"hello (big) world-wide\"|title", "Hello (Big) World-Wide", NULL},
        {"\"ÀB c\"|capitalize", "Àb c", NULL},
        {"none|upper", "NONE", NULL},
        {"html|safe|upper", "<B>IT'S \"X\" & Y</B>", NULL},
    };
    jinja_cases_run(cases, ARRAY_LEN(cases));
}

static void text_is_padded_trimmed_and_cut(void **state) {
    (void)state;
    static const struct jinja_case cases[] = {
        {"\"ab\"|center(7)", "   ab  ", NULL},
        {"\"ab\"|center(-9223372036854775807 - 1)", "ab", NULL},
        {"\"ab\".zfill(-9223372036854775807 - 1)", "ab", NULL},
        {"[1]|batch(-9223372036854775807 - 1, 0)|list", "[[1]]", NULL},
        {"\"ab\"|center",
         "                                       ab                                       ", NULL},
        {"\"  x \"|trim", "x", NULL},
        {"\"xxaxx\"|trim(\"x\")", "a", NULL},
        {"text|truncate(9)", "Hello...", NULL},
        {"text|truncate(9, true)", "Hello ...", NULL},
        {"text|truncate(12, end=\"!\", leeway=0)", "Hello wide!", NULL},
        {"[1,2]|truncate(3)", "[1, 2]", NULL},
        {"\"x\"|truncate(1)", NULL, "truncate wants a length of at least 3, not 1"},
    };
    jinja_cases_run(cases, ARRAY_LEN(cases));
}

static void lines_are_indented(void **state) {
    (void)state;
    static const struct jinja_case cases[] = {
        {"\"a\\nb\\n\\nc\"|indent", "a\n    b\n\n    c", NULL},
        {"\"a\\nb\\n\\nc\\n\"|indent(2, true, true)", "  a\n  b\n  \n  c\n  ", NULL},
        {"\"a\\nb\"|indent(\"> \", first=true)", "> a\n> b", NULL},
        {"\"\"|indent(2, true)", "  ", NULL},
        {"\"a\\n<\"|indent(\"<i>\"|safe)", "a\n<i>&lt;", NULL},
        {"5|indent", NULL, "indent wants a string as its value, not int"},
    };
    jinja_cases_run(cases, ARRAY_LEN(cases));
}

static void text_is_replaced_and_joined(void **state) {
    (void)state;
    static const struct jinja_case cases[] = {
        {"\"aXbX\"|replace(\"X\", \"<\")", "a<b<", NULL},
        {"\"aXbX\"|replace(\"X\", \"\", 1)", "abX", NULL},
        {"\"ab\"|replace(\"\", \"-\")", "-a-b-", NULL},
        {"123|replace(2, \"x\")", "1x3", NULL},
        {"words|join(\", \")", "pear, Apple, fig, apple", NULL},
        {"people|join(\"/\", attribute=\"name\")", "Bo/al/Cy", NULL},
        {"[1, none, 2.5]|join", "1None2.5", NULL},
        {"[]|join", "", NULL},
        {"5|join", NULL, "'int' object is not iterable"},
    };
    jinja_cases_run(cases, ARRAY_LEN(cases));
}

static void what_is_joined_to_safe_text_is_escaped(void **state) {
    (void)state;
    static const struct jinja_case cases[] = {
        {"(\"\"|safe) + html", "&lt;b&gt;it&#39;s &#34;x&#34; &amp; y&lt;/b&gt;", NULL},
        {"(\"\"|safe) + (html|safe)", "<b>it's \"x\" & y</b>", NULL},
        {"\"a<\"|safe|replace(\"a\", \"<\")", "<<", NULL},
    };
    jinja_cases_run(cases, ARRAY_LEN(cases));
}

static void words_are_counted(void **state) {
    (void)state;
    static const struct jinja_case cases[] = {
        {"\"one two_three-four\"|wordcount", "3", NULL},
        {"\"\"|wordcount", "0", NULL},
    };
    jinja_cases_run(cases, ARRAY_LEN(cases));
}

static void ends_and_lengths(void **state) {
    (void)state;
    static const struct jinja_case cases[] = {
        {"words|first", "pear", NULL},
        {"words|last", "apple", NULL},
        {"[]|first", "", NULL},
        {"[]|last is defined", "False", NULL},
        {"\"é1\"|last", "1", NULL},
        {"{\"a\": 1}|first", "a", NULL},
        {"words|length", "4", NULL},
        {"nothing|count", "0", NULL},
        {"5|length", NULL, "object of type 'int' has no len()"},
        {"range(3)|map(\"string\")|last", NULL, "'generator' object is not reversible"},
    };
    jinja_cases_run(cases, ARRAY_LEN(cases));
}

static void items_are_reversed(void **state) {
    (void)state;
    static const struct jinja_case cases[] = {
        {"words|reverse|list", "['apple', 'fig', 'Apple', 'pear']", NULL},
        {"\"añb\"|reverse", "bña", NULL},
        {"{\"a\": 1, \"b\": 2}|reverse|list", "['b', 'a']", NULL},
        {"5|reverse", NULL, "'int' object is not iterable"},
    };
    jinja_cases_run(cases, ARRAY_LEN(cases));
}

static void items_are_dealt_out(void **state) {
    (void)state;
    static const struct jinja_case cases[] = {
        {"range(7)|batch(3)|list", "[[0, 1, 2], [3, 4, 5], [6]]", NULL},
        {"range(7)|batch(3, \"x\")|list", "[[0, 1, 2], [3, 4, 5], [6, 'x', 'x']]", NULL},
        {"range(7)|slice(3)|map(\"length\")|list", "[3, 2, 2]", NULL},
        {"range(5)|slice(3, \"x\")|list", "[[0, 1], [2, 3], [4, 'x']]", NULL},
        {"range(3)|slice(0)|list", NULL, "integer division or modulo by zero"},
    };
    jinja_cases_run(cases, ARRAY_LEN(cases));
}

static void items_are_added_up(void **state) {
    (void)state;
    static const struct jinja_case cases[] = {
        {"[1, 2.5]|sum", "3.5", NULL},
        {"people|sum(\"age\")", "6", NULL},
        {"[[1], [2]]|sum(start=[])", "[1, 2]", NULL},
        {"[\"a\"]|sum(start=\"\")", NULL, "sum() can't sum strings"},
        {"[\"a\"]|sum", NULL, "unsupported operand type(s) for +: 'int' and 'str'"},
    };
    jinja_cases_run(cases, ARRAY_LEN(cases));
}

static void items_are_sorted(void **state) {
    (void)state;
    static const struct jinja_case cases[] = {
        {"words|sort", "['Apple', 'apple', 'fig', 'pear']", NULL},
        {"words|sort(case_sensitive=true)", "['Apple', 'apple', 'fig', 'pear']", NULL},
        {"words|sort(reverse=true)", "['pear', 'fig', 'Apple', 'apple']", NULL},
        {"people|sort(attribute=\"age\")|map(attribute=\"name\")|list", "['al', 'Cy', 'Bo']", NULL},
        {"people|sort(attribute=\"pet.kind,age\")|length", NULL,
         "'dict object' has no attribute 'pet'"},
        {"people|map(attribute=\"name\")|sort", "['al', 'Bo', 'Cy']", NULL},
        {"[[2, 1], [1, 3], [1, 2]]|sort(attribute=\"0,1\")", "[[1, 2], [1, 3], [2, 1]]", NULL},
        {"[1, \"a\"]|sort", NULL, "'<' not supported between instances of 'str' and 'int'"},
        {"[none, none]|sort", "[None, None]", NULL},
    };
    jinja_cases_run(cases, ARRAY_LEN(cases));
}

static void dicts_are_sorted(void **state) {
    (void)state;
    static const struct jinja_case cases[] = {
        {"{\"b\": 1, \"A\": 2}|dictsort", "[('A', 2), ('b', 1)]", NULL},
        {"{\"b\": 1, \"A\": 2}|dictsort(true)", "[('A', 2), ('b', 1)]", NULL},
        {"{\"b\": 1, \"A\": 2}|dictsort(by=\"value\", reverse=true)", "[('A', 2), ('b', 1)]", NULL},
        {"{\"b\": 1}|dictsort(by=\"x\")", NULL, "You can only sort by either \"key\" or \"value\""},
        {"nothing|dictsort", NULL, "'nothing' is undefined"},
    };
    jinja_cases_run(cases, ARRAY_LEN(cases));
}

static void items_are_grouped(void **state) {
    (void)state;
    static const struct jinja_case cases[] = {
        {"people|groupby(\"pet.kind\", default=\"none\")|map(\"first\")|list",
         "['cat', 'dog', 'none']", NULL},
        {"words|groupby(\"0\")|map(attribute=\"grouper\")|list", "['A', 'f', 'p']", NULL},
        {"words|groupby(0)|map(attribute=\"list\")|list", "[['Apple', 'apple'], ['fig'], ['pear']]",
         NULL},
    };
    jinja_cases_run(cases, ARRAY_LEN(cases));
}

static void the_first_of_equals_is_kept(void **state) {
    (void)state;
    static const struct jinja_case cases[] = {
        {"words|unique|list", "['pear', 'Apple', 'fig']", NULL},
        {"words|unique(true)|list", "['pear', 'Apple', 'fig', 'apple']", NULL},
        {"people|unique(attribute=\"age\")|map(attribute=\"name\")|list", "['Bo', 'al', 'Cy']",
         NULL},
        {"[[1], [1]]|unique|list", NULL, "unhashable type: 'list'"},
    };
    jinja_cases_run(cases, ARRAY_LEN(cases));
}

static void least_and_greatest(void **state) {
    (void)state;
    static const struct jinja_case cases[] = {
        {"words|min", "Apple", NULL},
        {"words|max", "pear", NULL},
        {"[3, 1.5, true]|min", "True", NULL},
        {"people|max(attribute=\"age\")", "{'name': 'Bo', 'age': 3, 'pet': {'kind': 'cat'}}", NULL},
        {"[]|min", "", NULL},
        {"[1, \"a\"]|max", NULL, "'<' not supported between instances of 'int' and 'str'"},
    };
    jinja_cases_run(cases, ARRAY_LEN(cases));
}

static void map_takes_an_attribute_or_a_filter(void **state) {
    (void)state;
    static const struct jinja_case cases[] = {
        {"people|map(attribute=\"name\")|list", "['Bo', 'al', 'Cy']", NULL},
        {"people|map(attribute=\"pet.kind\", default=\"-\")|list", "['cat', '-', 'dog']", NULL},
        {"words|map(\"upper\")|join(\" \")", "PEAR APPLE FIG APPLE", NULL},
        {"words|map(\"replace\", \"p\", \"b\")|list", "['bear', 'Abble', 'fig', 'abble']", NULL},
        {"words|map(\"nope\")|list", NULL, "No filter named 'nope' found."},
        {"words|map|list", NULL, "map requires a filter argument"},
        {"nothing|map(\"nope\")|list", "[]", NULL},
    };
    jinja_cases_run(cases, ARRAY_LEN(cases));
}

static void select_takes_a_test(void **state) {
    (void)state;
    static const struct jinja_case cases[] = {
        {"[0, 1, \"\", \"a\"]|select|list", "[1, 'a']", NULL},
        {"range(6)|select(\"odd\")|list", "[1, 3, 5]", NULL},
        {"range(6)|reject(\"divisibleby\", 3)|list", "[1, 2, 4, 5]", NULL},
        {"people|selectattr(\"pet\")|map(attribute=\"name\")|list", "['Bo', 'Cy']", NULL},
        {"people|selectattr(\"age\", \"gt\", 1)|map(attribute=\"name\")|list", "['Bo', 'Cy']",
         NULL},
        {"people|rejectattr(\"pet.kind\", \"eq\", \"cat\")|map(attribute=\"name\")|list", NULL,
         "'dict object' has no attribute 'pet'"},
        {"words|select(\"nope\")|list", NULL, "No test named 'nope' found."},
        {"words|selectattr|list", NULL, "Missing parameter for attribute name"},
    };
    jinja_cases_run(cases, ARRAY_LEN(cases));
}

static void numbers_are_read(void **state) {
    (void)state;
    static const struct jinja_case cases[] = {
        {"\"42\"|int", "42", NULL},
        {"\"42.9\"|int", "42", NULL},
        {"\" 0x1F \"|int(base=16)", "31", NULL},
        {"\"zz\"|int(7)", "7", NULL},
        {"\"1_000\"|int", "1000", NULL},
        {"\"x\"|int(base=37)", "0", NULL},
        {"-7.9|int", "-7", NULL},
        {"none|int(default=5)", "5", NULL},
        {"\"1e3\"|float", "1000.0", NULL},
        {"\"x\"|float(1.5)", "1.5", NULL},
        {"true|float", "1.0", NULL},
        {"\"9223372036854775807\"|int", "9223372036854775807", NULL},
        {"nothing|int", NULL, "'nothing' is undefined"},
    };
    jinja_cases_run(cases, ARRAY_LEN(cases));
}

static void numbers_are_rounded(void **state) {
    (void)state;
    static const struct jinja_case cases[] = {
        {"2.5|round", "2.0", NULL},
        {"3.5|round", "4.0", NULL},
        {"2.675|round(2)", "2.67", NULL},
        {"-0.4|round", "-0.0", NULL},
        {"1234|round(-2)", "1200", NULL},
        {"1250|round(-2)", "1200", NULL},
        {"1250.0|round(-2)", "1200.0", NULL},
        {"1.5|round(method=\"floor\")", "1.0", NULL},
        {"1.21|round(1, \"ceil\")", "1.3", NULL},
        {"7|round(method=\"ceil\")", "7.0", NULL},
        {"2.5|round(none)", "2", NULL},
        {"5|round(method=\"x\")", NULL, "method must be common, ceil or floor"},
        {"\"a\"|round", NULL, "type str doesn't define __round__ method"},
    };
    jinja_cases_run(cases, ARRAY_LEN(cases));
}

static void numbers_lose_their_sign(void **state) {
    (void)state;
    static const struct jinja_case cases[] = {
        {"-5|abs", "5", NULL},
        {"-2.5|abs", "2.5", NULL},
        {"\"a\"|abs", NULL, "bad operand type for abs(): 'str'"},
    };
    jinja_cases_run(cases, ARRAY_LEN(cases));
}

static void defaults_stand_in_for_the_undefined(void **state) {
    (void)state;
    static const struct jinja_case cases[] = {
        {"nothing|default(\"d\")", "d", NULL},
        {"\"\"|default(\"d\")", "", NULL},
        {"\"\"|d(\"d\", true)", "d", NULL},
        {"none|default(\"d\")", "None", NULL},
        {"nothing|d", "", NULL},
    };
    jinja_cases_run(cases, ARRAY_LEN(cases));
}

static void attr_finds_no_items(void **state) {
    (void)state;
    static const struct jinja_case cases[] = {
        {"people[0]|attr(\"name\")", "", NULL},
        {"people[0]|attr(\"keys\") is callable", "True", NULL},
        {"\"a\"|attr(\"upper\") is callable", "True", NULL},
        {"nothing|attr(\"x\")", NULL, "'nothing' is undefined"},
    };
    jinja_cases_run(cases, ARRAY_LEN(cases));
}

static void json_is_that_of_json_dumps(void **state) {
    (void)state;
    static const struct jinja_case cases[] = {
        {"people[0]|tojson", "{\"name\": \"Bo\", \"age\": 3, \"pet\": {\"kind\": \"cat\"}}", NULL},
        {"\"é<&\"|tojson", "\"é<&\"", NULL},
        {"\"é\"|tojson(ensure_ascii=true)", "\"\\u00e9\"", NULL},
        {"{\"b\": [], \"a\": [1]}|tojson(indent=2)", "{\n  \"b\": [],\n  \"a\": [\n    1\n  ]\n}",
         NULL},
        {"[1, 2]|tojson(separators=(\",\", \":\"))", "[1,2]", NULL},
        {"{\"b\": 1, \"a\": 2}|tojson(sort_keys=true)", "{\"a\": 2, \"b\": 1}", NULL},
        {"[1]|tojson(indent=\"\\t\")", "[\n\t1\n]", NULL},
        {"nothing|tojson", NULL, "Object of type Undefined is not JSON serializable"},
        {"html|safe|tojson", "\"<b>it's \\\"x\\\" & y</b>\"", NULL},
    };
    jinja_cases_run(cases, ARRAY_LEN(cases));
}

static void wrong_arguments_are_refused(void **state) {
    (void)state;
    static const struct jinja_case cases[] = {
        {"words|join(1, 2, 3)", NULL, "join takes at most 2 arguments, not 3"},
        {"words|join(x=1)", NULL, "join has no argument 'x'"},
        {"words|join(\"a\", d=\"b\")", NULL, "join got the argument 'd' twice"},
        {"\"a\"|replace(\"b\")", NULL, "replace wants the argument 'new'"},
        {"\"a\"|center(\"b\")", NULL, "center wants an integer as width, not str"},
    };
    jinja_cases_run(cases, ARRAY_LEN(cases));
}

static void filters_without_a_use_are_refused_by_name(void **state) {
    (void)state;
    static const struct jinja_case cases[] = {
        {"html|e", NULL, "filter 'e' of Jinja2 is not supported"},
        {"html|escape", NULL, "filter 'escape' of Jinja2 is not supported"},
        {"5|filesizeformat", NULL, "filter 'filesizeformat' of Jinja2 is not supported"},
        {"html|forceescape", NULL, "filter 'forceescape' of Jinja2 is not supported"},
        {"words|pprint", NULL, "filter 'pprint' of Jinja2 is not supported"},
        {"words|random", NULL, "filter 'random' of Jinja2 is not supported"},
        {"html|striptags", NULL, "filter 'striptags' of Jinja2 is not supported"},
        {"html|urlencode", NULL, "filter 'urlencode' of Jinja2 is not supported"},
        {"html|urlize", NULL, "filter 'urlize' of Jinja2 is not supported"},
        {"text|wordwrap(5)", NULL, "filter 'wordwrap' of Jinja2 is not supported"},
        {"{}|xmlattr", NULL, "filter 'xmlattr' of Jinja2 is not supported"},
        // Where the parser cannot know whether it is reached.
        {"words|map(\"escape\")|list", NULL, "filter 'escape' of Jinja2 is not supported"},
        {"html|escape if true", NULL, "filter 'escape' of Jinja2 is not supported"},
        {"html|escape if false else 1", "1", NULL},
    };
    jinja_cases_run(cases, ARRAY_LEN(cases));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_is_changed_by_words_and_by_characters),
        cmocka_unit_test(text_is_padded_trimmed_and_cut),
        cmocka_unit_test(lines_are_indented),
        cmocka_unit_test(text_is_replaced_and_joined),
        cmocka_unit_test(what_is_joined_to_safe_text_is_escaped),
        cmocka_unit_test(words_are_counted),
        cmocka_unit_test(ends_and_lengths),
        cmocka_unit_test(items_are_reversed),
        cmocka_unit_test(items_are_dealt_out),
        cmocka_unit_test(items_are_added_up),
        cmocka_unit_test(items_are_sorted),
        cmocka_unit_test(dicts_are_sorted),
        cmocka_unit_test(items_are_grouped),
        cmocka_unit_test(the_first_of_equals_is_kept),
        cmocka_unit_test(least_and_greatest),
        cmocka_unit_test(map_takes_an_attribute_or_a_filter),
        cmocka_unit_test(select_takes_a_test),
        cmocka_unit_test(numbers_are_read),
        cmocka_unit_test(numbers_are_rounded),
        cmocka_unit_test(numbers_lose_their_sign),
        cmocka_unit_test(defaults_stand_in_for_the_undefined),
        cmocka_unit_test(attr_finds_no_items),
        cmocka_unit_test(json_is_that_of_json_dumps),
        cmocka_unit_test(wrong_arguments_are_refused),
        cmocka_unit_test(filters_without_a_use_are_refused_by_name),
    };
    return cmocka_run_group_tests_name("jinja_filters", tests, NULL, NULL);
}
