"""Random expressions and templates from a seed: the language's forms put together in ways nobody
writes by hand. Nothing here can grow large: no power of large numbers, no long repetition."""
import random

VARIABLES = (
    "t f none zero one seven neg half pi whole negf empty word spaces lines quote html uni digits "
    "csv path tag seq nested mixed words nothing numbers obj void deep users messages missing"
).split()
CONSTANTS = [
    "0", "1", "2", "-1", "3", "10", "0.5", "2.5", "1e3", "true", "false", "none", "''", "'a'",
    "'l'", "'Hello'", "', '", "'role'", "'name'", "'é'", "[]", "{}", "()", "[1, 'a']",
    "{'a': 1, 'b': [2]}", "(1, 2)", "range(3)", "['b', 'A', 'c']",
]
NUMBERS = "zero one seven neg half pi whole negf true 65 233 -1 1234567 0.1 1e16 1e-7 99.995 -0.0".split()
FILTERS = [
    "abs", "batch(2)|list", "capitalize", "center(9)", "count", "default('D')", "default('D', true)",
    "dictsort", "first", "float", "float(1)", "indent", "indent(2, true)", "int", "int(7)",
    "items|list", "join", "join('-')", "last", "length", "list", "lower", "map('string')|list",
    "map(attribute='name')|list", "map('upper')|list", "max", "min", "reject|list",
    "reject('none')|list", "rejectattr('name')|list", "replace('l', 'L')", "reverse|list", "round",
    "round(1)", "safe", "select|list", "select('string')|list", "selectattr('role')|list",
    "slice(2)|list", "sort", "sort(reverse=true)", "string", "sum", "title", "tojson",
    "tojson(indent=2)", "trim", "truncate(6)", "unique|list", "upper", "wordcount",
    "groupby('age')|length", "format", "format('a')", "format(1, 2)", "format(a='x')",
]
TESTS = [
    "defined", "undefined", "none", "boolean", "true", "false", "integer", "float", "number",
    "string", "mapping", "sequence", "iterable", "callable", "odd", "even", "divisibleby(2)",
    "lower", "upper", "in(seq)", "eq(1)", "gt(1)", "sameas(none)", "escaped",
]
METHODS = [
    "upper()", "lower()", "strip()", "split()", "split('l')", "split(',', 1)", "rsplit(none, 1)",
    "splitlines()", "startswith('H')", "endswith('o')", "replace('a', 'b')", "title()", "find('l')",
    "count('l')", "join(['x', 'y'])", "items()", "keys()", "values()", "get('a')", "get('zz', 1)",
    "capitalize()", "swapcase()", "partition(',')", "isdigit()", "zfill(5)", "format(1, 'b')",
    "format_map({'a': 1})", "center(8, '*')", "lstrip('H')", "rstrip('o')", "index(1)", "append(1)", "nosuch()",
]
BINARY = ["+", "-", "*", "/", "//", "%", "~", "~", "and", "or", "==", "!=", "<", "<=", ">", ">=", "in", "not in"]
UNARY = ["not ", "-", "+"]
SUBSCRIPTS = ["0", "-1", "1:", ":2", "::-1", "::2", "1:3", "'a'", "'name'", "5", "-2:", "t"]
ATTRIBUTES = ["name", "a", "role", "content", "x", "nosuch", "age", "0"]


def percent_field(rng, name):
    flags = "".join(rng.sample("-+ #0", rng.randrange(3)))
    size = rng.choice(["", "", "6", "12"]) + rng.choice(["", "", ".0", ".2", ".5", "."])
    return "%" + name + flags + size + rng.choice("sssrdddfgexXoacGEiu")


def replacement_field(rng, name):
    conversion = rng.choice(["", "", "", "", "!r", "!s", "!a"])
    align = rng.choice(["", "", "<", ">", "^", "=", "*^", "é>"])
    flags = rng.choice(["", "", "", "+", " ", "-", "z"]) + rng.choice(["", "", "#"]) + rng.choice(["", "", "0"])
    size = rng.choice(["", "", "7", "12"]) + rng.choice(["", "", "", ",", "_"]) + rng.choice(["", "", ".0", ".2", ".9"])
    kind = rng.choice(["", "", "", "s", "d", "f", "e", "g", "x", "b", "%", "G", "n", "c", "o"])
    return "{" + name + conversion + rng.choice(["", ":" + align + flags + size + kind]) + "}"


def format_expression(rng):
    """Formatting by %, by the filter or by the method, of one to three fields."""
    names = rng.choice([["", "", ""], ["", "", ""], ["a", "b", "a"], ["1", "0", "1"], ["a[0]", "b.x", "0"]])
    num_fields = rng.randrange(1, 4)
    values = [rng.choice(NUMBERS if rng.random() < 0.7 else VARIABLES + CONSTANTS) for _ in range(num_fields)]
    is_percent = rng.random() < 0.5
    if is_percent:
        names = ["a", "b", "a"] if names[0] else names
        fields = [percent_field(rng, f"({name})" if name else "") for name in names[:num_fields]]
    else:
        fields = [replacement_field(rng, name) for name in names[:num_fields]]
    text = "'" + rng.choice(["", "<", "%%" if is_percent else "{{"]).join(fields) + "'"
    if rng.random() < 0.1:
        text = f"({text}|safe)"
    given = ", ".join(values)
    named = f"a={values[0]}, b={values[-1]}"
    if not is_percent:
        return f"{text}.format({given if not names[0] else given + ', ' + named})"
    if names[0]:
        return f"{text}|format({named})"
    return f"{text} % ({given},)" if rng.random() < 0.5 else f"{text}|format({given})"


def expression(rng, depth):
    if depth == 0 or rng.random() < 0.1:
        return rng.choice(VARIABLES) if rng.random() < 0.7 else rng.choice(CONSTANTS)

    def sub():
        return expression(rng, depth - 1)

    form = rng.randrange(16)
    if form <= 2:
        return f"{sub()} {rng.choice(BINARY)} {sub()}"
    if form == 3:
        return f"({sub()} {rng.choice(BINARY)} {sub()})"
    if form <= 6:
        return f"{sub()}|{rng.choice(FILTERS)}"
    if form == 7:
        return f"({sub()})|{rng.choice(FILTERS)}"
    if form == 8:
        return f"{sub()} is {'not ' if rng.random() < 0.3 else ''}{rng.choice(TESTS)}"
    if form == 9:
        return f"({sub()}).{rng.choice(METHODS)}"
    if form == 10:
        return f"({sub()})[{rng.choice(SUBSCRIPTS)}]"
    if form == 11:
        return f"({sub()}).{rng.choice(ATTRIBUTES)}"
    if form == 12:
        return f"{sub()} if {sub()}" + (f" else {sub()}" if rng.random() < 0.8 else "")
    if form == 13:
        return f"[{sub()}, {sub()}]" if rng.random() < 0.5 else f"({sub()}, {sub()})"
    if form == 14:
        return f"{{'k': {sub()}, 'l': {sub()}}}"
    return f"{rng.choice(UNARY)}{sub()}"


def tag(rng, inside, kind="%"):
    left = rng.choice(["", "", "-", "+"])
    right = rng.choice(["", "", "-"])
    return "{" + kind + left + " " + inside + " " + right + ("%" if kind == "%" else "}") + "}"


def space(rng):
    return rng.choice(["", "", " ", "\n", "  \n  ", "\t", "x", " word ", "\n\n"])


def body(rng, depth):
    return "".join(space(rng) + statement(rng, depth) for _ in range(rng.randrange(1, 4))) + space(rng)


def statement(rng, depth):
    form = rng.randrange(14) if depth > 0 else 0
    if form <= 3:
        left, right = rng.choice(["", "-"]), rng.choice(["", "-"])
        return "{{" + left + " " + expression(rng, 2) + " " + right + "}}"
    inner = body(rng, depth - 1)
    if form <= 5:
        other = tag(rng, "else") + body(rng, depth - 1) if rng.random() < 0.5 else ""
        return tag(rng, f"if {expression(rng, 2)}") + inner + other + tag(rng, "endif")
    if form <= 8:
        name = rng.choice(["x", "item", "word"])
        source = rng.choice(["seq", "words", "users", "messages", "numbers", "nested", "obj", "range(3)"])
        condition = f" if {expression(rng, 1)}" if rng.random() < 0.2 else ""
        stop = tag(rng, f"if loop.index == 2") + tag(rng, rng.choice(["break", "continue"])) + tag(rng, "endif")
        control = stop if rng.random() < 0.2 else ""
        seen = "{{ loop.index }}{{ " + name + " }}"
        return tag(rng, f"for {name} in {source}{condition}") + control + seen + inner + tag(rng, "endfor")
    if form <= 10:
        return tag(rng, f"set {rng.choice(['x', 'y', 'word'])} = {expression(rng, 2)}") + "{{ y }}{{ x }}"
    if form == 11:
        filters = rng.choice(["", "|upper", "|trim|replace('a', 'b')"])
        return tag(rng, f"set x {filters}") + inner + tag(rng, "endset") + "[{{ x }}]"
    if form == 12:
        call = rng.choice(["m(1)", "m(word, b=2)", "m()", "m(b=seq)"])
        return tag(rng, "macro m(a, b=3)") + "{{ a }}{{ b }}" + inner + tag(rng, "endmacro") + "{{ " + call + " }}"
    return tag(rng, "filter upper") + inner + tag(rng, "endfilter") + tag(rng, "generation") + "g" + tag(rng, "endgeneration")


def sources(seed, num_expressions, num_templates):
    rng = random.Random(seed)
    for _ in range(num_expressions // 2):
        yield "{{ " + format_expression(rng) + " }}"
    for _ in range(num_expressions):
        yield "{{ " + expression(rng, rng.randrange(1, 4)) + " }}"
    for _ in range(num_templates):
        yield body(rng, rng.randrange(1, 4))
