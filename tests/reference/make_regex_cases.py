"""Writes data/regex.json: random regular expressions, and random texts after Hugging Face tokenizers
(Oniguruma) has replaced their matches. Usage: pip install tokenizers==0.23.3;
python3 tests/reference/make_regex_cases.py [SEED [COUNT]] (from the source folder)."""
import json
import random
import sys

from tokenizers import Regex, normalizers

SEED = int(sys.argv[1]) if len(sys.argv) > 1 else 1
COUNT = int(sys.argv[2]) if len(sys.argv) > 2 else 400
ATOMS = ["a", "b", "c", "ab", "\u00e9", "\u4e2d", " ", r"\n", ".", r"\w", r"\W", r"\d", r"\s", r"\S",
         r"\h", r"\p{L}", r"\P{L}", r"\p{N}", r"\p{Han}", r"\p{S}", "[ab]", "[^a]", "[a-c]",
         r"[\w&&[^b]]", r"[^\s\p{L}]", "[a-z&&[^aeiou]&&[a-m]]", r"[[a][\d]]", "[^a-c&&b]",
         r"\u0041", "'s", "(?i:s)", "(?i:k|T)"]
PLACES = ["^", "$", r"\b", r"\B", r"\A", r"\z", r"\Z"]
BEHIND = ["a", "ab|c", r"\w", r"\s[ab]", "^", r"b\b"]
PIECES = ["a", "b", "c", "ab", "abc", "A", "B", "1", "12", " ", "  ", "\n", "\n\n", "\u00e9", "e\u0301",
          "\u4e2d", "\u6587", "_", "-", "'s", "\u017f", "\u212a", "\u00df", "\u3002", "\u00a0",
          "\U0001fa77", "T", "t", "k"]


def expression(rnd, depth):
    kind = rnd.random()
    if depth <= 0 or kind < 0.35:
        return rnd.choice(ATOMS)
    if kind < 0.42:
        return rnd.choice(PLACES)
    inner = expression(rnd, depth - 1)
    if kind < 0.62:
        return inner + expression(rnd, depth - 1)
    if kind < 0.72:
        return "(?:%s|%s%s)" % (inner, expression(rnd, depth - 1),
                                rnd.choice(["", "|" + expression(rnd, depth - 2)]))
    if kind < 0.88:
        repeat = rnd.choice(["*", "+", "?", "{2}", "{1,2}", "{,2}", "{1,}"])
        if repeat in "*+?":
            repeat += rnd.choice(["", "", "?", "+"])
        elif repeat != "{2}":
            repeat += rnd.choice(["", "?"])
        return rnd.choice(["(?:%s)", "(%s)", "(?>%s)"]) % inner + repeat
    if kind < 0.94:
        return rnd.choice(["(?=%s)", "(?!%s)"]) % inner
    if kind < 0.97:
        return rnd.choice(["(?<=%s)", "(?<!%s)"]) % rnd.choice(BEHIND)
    return rnd.choice([r"(a|b)%s\1", r"(\w)%s\1"]) % inner


def text(rnd):
    return "".join(rnd.choice(PIECES) for _ in range(rnd.randrange(1, 9)))


def main():
    rnd, cases = random.Random(SEED), []
    while len(cases) < COUNT:
        source = expression(rnd, 4)
        texts = [text(rnd) for _ in range(4)]
        # Group numbers shift when expressions are joined, so a case has at most one reference.
        if source.count(r"\1") > 1 or ("(" in source.split("(a|b)")[0] and r"\1" in source):
            continue
        try:
            replace = normalizers.Replace(Regex(source), "_X_").normalize_str
        except Exception:  # the library refuses to repeat an anchor or a lookaround
            continue
        cases.append({"regex": source, "cases": [[t, replace(t)] for t in texts]})
    with open("tests/reference/data/regex.json", "w") as file:
        file.write("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")


main()
