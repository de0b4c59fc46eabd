"""Writes data/tokenizer_variants.json: small changes of the bundled model's tokenizer.json, and how
Hugging Face tokenizers encodes difficult texts with each. Usage: pip install tokenizers==0.23.3;
python3 tests/reference/make_tokenizer_variants.py (from the source folder)."""
import copy
import json

from tokenizers import Tokenizer

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*"
          r"|\s*[\r\n]|\s+(?!\S)|\s+")
DEEPSEEK = [
    r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"]
UPPER, LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
NOT_HAN = r"&&[^\p{Han}]"
KIMI = (r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[%s]*[%s]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|[^\r\n\p{L}\p{N}]?[%s]+[%s]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+") % (
            UPPER + NOT_HAN, LOWER + NOT_HAN, UPPER + NOT_HAN, LOWER + NOT_HAN)
TEXTS = [
    "", " ", "a", "   a", "a   ", "a\n", " \n \n x", "\r\n\r\n", "\t\tx", "Hello, World! 1234567",
    "I'm you'RE he'LL 'S 's'' don't\u017f '\u017fx 'ſ", "x  \u3000y\u00a0\u0085z\u2028",
    "\u180e\u180ea", "e\u0301 \u212b \u1e9b\u0323 \u00e9\u0328\u0301 \u1100\u1161\u11a8 a\u0345\u0323\u0301",
    "\u4e2d\u6587\u8bd5 \u65e5\u672c", "\u0663\u0664\u00bd\u2167\u00b2 7", "<think>x</think> <|im_start|>a<|im_end|><|im",
    "ab cab ab abab", "a << b >> c", "....<<>>", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "abcabc" * 20, "the quick brown fox", "!!!???...\n\n--", "\U0001f469\u200d\U0001f467 \u200b",
    "\u0915\u094d\u0937\u093f \u05e9\u05dc\u05d5\u05dd", "x\u0001y\u0007",
    # Characters added after Unicode 14; kinds of letters; signs that are not punctuation; characters
    # with compatibility decompositions.
    "\U0001fa77 \U0001faf8\U00010d4a\U00010d40 \u0cf3x \U0001f6dc!", "camelCase HTTPServer'S \u01c5a \u02b0",
    "a$b+c~d `e` \u20ac\u3002\u2e52\u00ab<", "\ufb01 \u00bd \u2460 \uff21\u0301 \u3131\u314f \u304b\uff9e \ufdfa",
    "\u00a0\u00b5\u2126 \u3392\u32ff \u1e9b\u0323",
]


def added(id_, content, **flags):
    token = dict(id=id_, content=content, single_word=False, lstrip=False, rstrip=False,
                 normalized=False, special=False)
    token.update(flags)
    return token


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def byte_level(prefix=False, regex=False):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}


def sequence(*members):
    return {"type": "Sequence", "pretokenizers": list(members)}


def template(token, id_, first):
    text = {"Sequence": {"id": "A", "type_id": 0}}
    special = {"SpecialToken": {"id": token, "type_id": 0}}
    return {"type": "TemplateProcessing", "single": [special, text] if first else [text, special],
            "pair": [text, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {token: {"id": token, "ids": [id_], "tokens": [token]}}}


def main():
    base = json.load(open("models/tiny-qwen3/tokenizer.json"))
    vocab = base["model"]["vocab"]
    variants = {
        "gpt2": {"pre_tokenizer": byte_level(False, True), "normalizer": None},
        "gpt2 with prefix space": {"pre_tokenizer": byte_level(True, True)},
        "no regex, prefix space": {"pre_tokenizer": byte_level(True, False)},
        "llama3": {"pre_tokenizer": sequence(split(LLAMA3), byte_level()), "normalizer": None,
                   "model": {"ignore_merges": True},
                   "post_processor": {"type": "Sequence", "processors": [
                       byte_level(), template("<|endoftext|>", 4089, True)]}},
        "cl100k, removed and inverted": {
            "pre_tokenizer": sequence(split(CL100K, "Removed", True), byte_level()),
            "post_processor": template("<|im_end|>", 4091, False)},
        "digits": {"pre_tokenizer": sequence({"type": "Digits", "individual_digits": True},
                                             byte_level(False, True))},
        "rows of digits": {"pre_tokenizer": sequence({"type": "Digits", "individual_digits": False},
                                                     byte_level(False, True))},
        "deepseek v3": {"pre_tokenizer": sequence(*map(split, DEEPSEEK), byte_level())},
        "kimi k2": {"pre_tokenizer": sequence(split(KIMI), byte_level())},
        "truncation and padding": {
            "truncation": {"direction": "Right", "max_length": 2, "strategy": "LongestFirst",
                           "stride": 0},
            "padding": {"strategy": {"Fixed": 8}, "direction": "Right", "pad_to_multiple_of": None,
                        "pad_id": 0, "pad_type_id": 0, "pad_token": "!"}},
        "nfkc": {"normalizer": {"type": "NFKC"}},
        "white space": {"pre_tokenizer": sequence({"type": "Whitespace"}, byte_level())},
        "white space only": {"pre_tokenizer": sequence({"type": "WhitespaceSplit"}, byte_level())},
        "punctuation": {"pre_tokenizer": sequence({"type": "Punctuation"}, byte_level())},
        "rows of punctuation": {"pre_tokenizer": sequence(
            {"type": "Punctuation", "behavior": "Contiguous"}, byte_level())},
        "empty matches": {"pre_tokenizer": sequence(split(r"x*|\b"), byte_level())},
        "unknown bytes": {"drop": ["a"], "model": {"unk_token": "!"}, "added_tokens": []},
        "fused unknown bytes": {"drop": ["a", "b"], "model": {"unk_token": "!", "fuse_unk": True},
                                "added_tokens": []},
        "missing bytes": {"drop": ["a"], "added_tokens": []},
        "added tokens": {"added_tokens": base["added_tokens"] + [
            added(vocab["ab"], "ab", single_word=True), added(4096, "<<", lstrip=True),
            added(4097, ">>", rstrip=True), added(4098, "  ", special=True, rstrip=True),
            added(4099, "\u4e2d\u6587", normalized=True), added(4100, "<|im_start|>a"),
            added(4101, "\u212b", normalized=True, lstrip=True, rstrip=True),
            added(4102, "e\u0301"), added(4103, "...")]},
    }
    for behavior in ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        for invert in (False, True):
            name = behavior + (" inverted" if invert else "")
            variants[name] = {"pre_tokenizer": sequence(
                split("ab", behavior, invert, "String"), split(r"\s|[\p{P}\d]", behavior, invert),
                byte_level())}
    out = []
    for name, change in variants.items():
        whole = copy.deepcopy(base)
        for letter in change.get("drop", []):
            model = whole["model"]
            model["vocab"] = {t: i for t, i in model["vocab"].items() if letter not in t}
            model["merges"] = [m for m in model["merges"] if letter not in m[0] + m[1]]
        whole["model"].update(change.get("model", {}))
        whole.update({k: v for k, v in change.items() if k not in ("drop", "model")})
        tokenizer = Tokenizer.from_str(json.dumps(whole))
        tokenizer.no_truncation()  # transformers sets both anew for each call
        tokenizer.no_padding()
        cases = []
        for text in TEXTS:
            ids = tokenizer.encode(text).ids
            cases.append({
                "text": text, "ids": ids,
                "plain_ids": tokenizer.encode(text, add_special_tokens=False).ids,
                "decoded": tokenizer.decode(ids, skip_special_tokens=False),
                "decoded_skip_special": tokenizer.decode(ids)})
        out.append({"name": name, "change": change, "cases": cases})
    with open("tests/reference/data/tokenizer_variants.json", "w") as file:
        file.write("[\n" + ",\n".join(
            '{"name": %s,\n "change": %s,\n "cases": [\n%s]}' % (
                json.dumps(v["name"]), json.dumps(v["change"]),
                ",\n".join("  " + json.dumps(c) for c in v["cases"])) for v in out) + "\n]\n")


main()
