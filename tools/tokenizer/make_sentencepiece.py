"""Writes small tokenizers in the forms that SentencePiece models are converted to (Llama 2, Mistral),
and how Hugging Face tokenizers encodes and decodes difficult texts with them.

  pip install tokenizers==0.23.3
  python3 tools/tokenizer/make_sentencepiece.py --train    writes tests/reference/data/sentencepiece/*.json
  python3 tools/tokenizer/make_sentencepiece.py            writes only vectors.json there, from the others

Both run in the source folder. Training uses this repository's own text, so the tokenizers change when
that text changes. The vectors depend only on the three tokenizer files.
"""
import copy
import glob
import json
import random
import sys

from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, trainers

FOLDER = "tests/reference/data/sentencepiece/"
SPACE = "\u2581"
BYTES = ["<0x%02X>" % byte for byte in range(256)]
NUM_TEXTS, NUM_LISTS = 220, 120
FIRST_BYTE, VARIANT_TEXTS = 3, 72

REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
PREPEND = {"type": "Prepend", "prepend": SPACE}
STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
SHOW = {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}


def metaspace(scheme, split=False):
    return {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": scheme, "split": split}


def decoders(*members):
    return {"type": "Sequence", "decoders": list(members) + [{"type": "ByteFallback"}, {"type": "Fuse"}]}


def stripped(*members):
    sequence = decoders(*members)
    sequence["decoders"].append(STRIP)
    return sequence


def added(id_, content, **flags):
    token = dict(id=id_, content=content, single_word=False, lstrip=False, rstrip=False,
                 normalized=False, special=True)
    token.update(flags)
    return token


def template():
    bos = {"SpecialToken": {"id": "<s>", "type_id": 0}}
    return {"type": "TemplateProcessing",
            "single": [bos, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [bos, {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}}


def train():
    """Trains the vocabulary. The merges are made as the converter makes them: every way to build a
    token from two others, ordered by the token's place in the vocabulary."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    names = sorted(glob.glob("doc/*.md") + ["README.md"] + glob.glob("src/text/*.c"))
    lines = [line for name in names for line in open(name).read().split("\n")]
    lines += ["\u00e9 \u00fc \u4e2d\u6587 \u65e5\u672c\u8a9e \u041f\u0440\u0438\u0432\u0435\u0442 \u043c\u0438\u0440"] * 3
    trainer = trainers.BpeTrainer(vocab_size=1000, show_progress=False,
                                  special_tokens=["<unk>", "<s>", "</s>"] + BYTES)
    tokenizer.train_from_iterator(lines, trainer)
    base = json.loads(tokenizer.to_str())
    vocab = base["model"]["vocab"]
    merges = []
    for token, _ in sorted(vocab.items(), key=lambda item: item[1])[FIRST_BYTE + 256:]:
        pairs = [(token[:k], token[k:]) for k in range(1, len(token))]
        pairs = [pair for pair in pairs if pair[0] in vocab and pair[1] in vocab]
        merges += sorted(pairs, key=lambda pair: (vocab[pair[0]], vocab[pair[1]]))
    base["added_tokens"] = [added(0, "<unk>"), added(1, "<s>"), added(2, "</s>")]
    base["post_processor"] = template()
    forms = {
        "llama2": dict(normalizer={"type": "Sequence", "normalizers": [PREPEND, REPLACE]},
                       pre_tokenizer=None, decoder=stripped(SHOW)),
        "metaspace_first": dict(normalizer=None, pre_tokenizer=metaspace("first"),
                                decoder=stripped(SHOW)),
        "metaspace_always": dict(normalizer=None, pre_tokenizer=metaspace("always", True),
                                 decoder=metaspace("always", True)),
    }
    for name, change in forms.items():
        form = dict(base, **change)
        # Both ways of writing merges are published.
        form["model"]["merges"] = [" ".join(m) for m in merges] if name == "llama2" else merges
        with open(FOLDER + name + ".json", "w") as file:
            json.dump(form, file, ensure_ascii=False, separators=(",", ":"))
            file.write("\n")


ADDED = [added(0, "<unk>"), added(1, "<s>"), added(2, "</s>"), added(1000, "[INST]", special=False),
         added(1001, "<pad>", lstrip=True, rstrip=True),
         added(1002, "foo", single_word=True, special=False), added(1003, "  ", special=False),
         added(1004, "x y", special=False, normalized=True)]

# name: (tokenizer file, change). tests/support/tokenizer_fixture.h explains what a change does.
VARIANTS = {
    "llama2, added tokens": ("llama2", {"added_tokens": ADDED}),
    "first, added tokens": ("metaspace_first", {"added_tokens": ADDED}),
    "always, added tokens": ("metaspace_always", {"added_tokens": ADDED}),
    "never": ("metaspace_always", {"pre_tokenizer": metaspace("never", True),
                                   "decoder": decoders(metaspace("never"))}),
    "old form of always": ("metaspace_always", {
        "pre_tokenizer": {"type": "Metaspace", "replacement": SPACE, "add_prefix_space": True},
        "decoder": {"type": "Metaspace", "replacement": SPACE, "add_prefix_space": True}}),
    "another character": ("llama2", {
        "normalizer": None, "pre_tokenizer": dict(metaspace("first", True), replacement="_"),
        "decoder": stripped(dict(SHOW, pattern={"String": "_"}))}),
    "replace only": ("llama2", {"normalizer": REPLACE, "decoder": decoders(SHOW)}),
    "regex, NFC": ("llama2", {
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Replace", "pattern": {"Regex": " {2,}|\\n"}, "content": " "}, {"type": "NFC"},
            {"type": "Replace", "pattern": {"Regex": "q*"}, "content": "z"}, REPLACE, PREPEND]},
        "decoder": stripped({"type": "Replace", "pattern": {"Regex": SPACE + "+"}, "content": " "})}),
    "digits, then first": ("metaspace_first", {
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Digits", "individual_digits": True}, metaspace("first", True)]},
        "decoder": stripped(metaspace("first"))}),
    "two spaces stripped": ("llama2", {"decoder": {"type": "Sequence", "decoders": [
        SHOW, {"type": "ByteFallback"}, {"type": "Fuse"}, dict(STRIP, start=2)]}}),
    "ignore_merges": ("llama2", {"model": {"ignore_merges": True}}),
    "ignore_merges by word": ("metaspace_always", {"model": {"ignore_merges": True}}),
    "a merge over a space": ("llama2", {"add_merges": [["e", SPACE], ["\u4e2d", SPACE]]}),
    "byte tokens merged": ("llama2", {"add_merges": [["<0xF0>", "<0x9F>"], [SPACE, "<0x0A>"]]}),
    "unknown bytes": ("llama2", {"drop": ["<0xF0>", "<0x0A>"]}),
    "unknown bytes one by one": ("llama2", {"drop": ["<0xF0>", "<0x0A>"],
                                            "model": {"fuse_unk": False}}),
    "no byte fallback": ("llama2", {"model": {"byte_fallback": False}}),
    "unknown left out": ("llama2", {"model": {"byte_fallback": False, "unk_token": None}}),
}

TEXTS = [
    "", " ", "  ", "   ", "\n", "\t", "a", " a", "  a", "   a", "a ", "a  ", "a   b", " \n x", "\n\na",
    "a\n b\r\n", "\t\tx", "Hello, World! 1234567", "x \u3000y\u00a0z", "<s>", " <s>", "<s> ", " <s> a",
    "<s>a</s>b", "a <s> b </s> c", "<s><s>", "<unk> x", "<0x41>", SPACE, SPACE + "a", " " + SPACE + " b",
    "a" + SPACE, "\U0001f642", "a\U0001f642b", " \U0001f469\u200d\U0001f467 \U0001f642\U0001f642 ",
    "\u0436", "\u4e2d\u6587\u8a66 \u65e5\u672c\u8a9e", "e\u0301 \u00e9 \u212b", "\ufffd", "\x00", "a\x00b",
    "\u05e9\u05dc\u05d5\u05dd \u0915\u094d\u0937\u093f", "[INST] Hi [/INST]", "<pad> a <pad>", "foo food foo",
    "x y x  y", "a" * 300, " " * 70, ("ab " * 50), "\u4e2d" * 90, "\U0001f642" * 30, "the quick_brown fox",
    "\U0001f642\u0436\u4e00\U0001f642\U0001f642a\U0001f642\u0436", "the  e  the   \u4e2d  e ", "12 34 5", "q qq",
]
WORDS = ["the", " ", "  ", "\n", "\r\n", "\t", "I'm", " world", "123", "7", "<s>", "</s>", "<unk>", " <s> ", "[INST]",
         "<pad>", "foo", "x y", SPACE, "\u00e9", "e\u0301", "\u4e2d\u6587", "aaaa", "\u3000", "\u00a0",
         "\U0001f642", "struct", " tokenizer", "    ", "()", "--", "\u041f\u0440\u0438", "\u0436", "b", "x"]
RANGES = [(0x21, 0x5e), (0xa1, 0x15f), (0x370, 0x100), (0x590, 0x100), (0x2000, 0x70), (0x2580, 0x10),
          (0x3040, 0xc0), (0x4e00, 0x5000), (0xac00, 0x2ba4), (0x1f600, 0x50), (0x300, 0x70)]


def random_text(rng):
    pieces = []
    for _ in range(rng.randrange(1, 14)):
        if rng.random() < 0.8:
            pieces.append(rng.choice(WORDS))
        else:
            first, count = rng.choice(RANGES)
            pieces.append("".join(chr(first + rng.randrange(count)) for _ in range(rng.randrange(1, 4))))
    return "".join(pieces)


def random_list(rng):
    """Ids that no text encodes to: rows of byte tokens, whole and broken, between other tokens."""
    ids = []
    for _ in range(rng.randrange(1, 6)):
        kind = rng.random()
        if kind < 0.4:
            row = random_text(rng).encode()[:rng.randrange(9)]
            ids += [FIRST_BYTE + byte for byte in row]
        elif kind < 0.6:
            ids += [FIRST_BYTE + rng.randrange(256) for _ in range(rng.randrange(4))]
        else:
            ids.append(rng.choice([0, 1, 2, FIRST_BYTE + 0x20, rng.randrange(1000), rng.randrange(259, 1000)]))
    return ids


def whole_characters(row):
    """How many bytes of a row of byte tokens are whole characters, before the first fault."""
    for end in range(len(row), 0, -1):
        try:
            row[:end].decode()
            return end
        except UnicodeDecodeError:
            pass
    return 0


def streamed(tokenizer, ids, skip):
    """The decoding as a stream gives it. In a row of byte tokens the whole characters before the first
    fault stay, and each byte from there on is U+FFFD. A token of a private character stands in for it."""
    fault = tokenizer.token_to_id("\ue000")
    out, row = [], b""
    for id_ in [i for i in ids if not (skip and i in (0, 1, 2))] + [None]:
        if id_ is not None and FIRST_BYTE <= id_ < FIRST_BYTE + 256:
            row += bytes([id_ - FIRST_BYTE])
            continue
        whole = whole_characters(row)
        out += [FIRST_BYTE + byte for byte in row[:whole]] + [fault] * (len(row) - whole)
        row = b""
        out += [] if id_ is None else [id_]
    return tokenizer.decode(out, skip_special_tokens=skip).replace("\ue000", "\ufffd")


def changed(name, change):
    whole = json.load(open(FOLDER + name + ".json"))
    model = whole["model"]
    model["vocab"] = {t: i for t, i in model["vocab"].items() if t not in change.get("drop", [])}
    for left, right in change.get("add_merges", []):
        model["vocab"].setdefault(left + right, len(model["vocab"]))
        merge = left + " " + right
        model["merges"].insert(0, merge if isinstance(model["merges"][0], str) else [left, right])
    model.update(change.get("model", {}))
    whole.update({k: v for k, v in change.items() if k not in ("drop", "add_merges", "model")})
    return Tokenizer.from_str(json.dumps(whole))


def vectors():
    rng = random.Random(1)
    texts = TEXTS + [random_text(rng) for _ in range(NUM_TEXTS - len(TEXTS))]
    lists = [random_list(rng) for _ in range(NUM_LISTS)]
    out = {"texts": texts, "lists": lists, "forms": []}
    forms = [(name, name, {}) for name in ("llama2", "metaspace_first", "metaspace_always")]
    forms += [(name, base, change) for name, (base, change) in VARIANTS.items()]
    for name, base, change in forms:
        tokenizer = changed(base, copy.deepcopy(change))
        num_texts = VARIANT_TEXTS if change else NUM_TEXTS
        ids = [tokenizer.encode(text).ids for text in texts[:num_texts]]
        for text, with_bos in zip(texts, ids):
            assert with_bos == [1] + tokenizer.encode(text, add_special_tokens=False).ids
        tokenizer.add_tokens([AddedToken("\ue000", normalized=False)])
        form = {"name": name, "file": base + ".json", "change": change, "ids": ids}
        for key, skip in (("decoded", False), ("skipped", True)):
            decoded = [tokenizer.decode(i, skip_special_tokens=skip) for i in ids]
            # None: the decoding is the text itself.
            form[key] = [None if d == t else d for d, t in zip(decoded, texts)]
            if not change or "decoder" in change:
                whole = [tokenizer.decode(i, skip_special_tokens=skip) for i in lists]
                stream = whole
                if '"ByteFallback"' in tokenizer.to_str():
                    stream = [streamed(tokenizer, i, skip) for i in lists]
                form["list_" + key] = whole
                form["stream_" + key] = [None if s == w else s for s, w in zip(stream, whole)]
        out["forms"].append(form)
    with open(FOLDER + "vectors.json", "w") as file:
        def lines(values):
            return "[\n" + ",\n".join(json.dumps(v, ensure_ascii=False, separators=(",", ":")) for v in values) + "]"
        file.write('{"texts": %s,\n"lists": %s,\n"forms": [\n' % (lines(texts), lines(lists)))
        file.write(",\n".join("{" + ",\n".join(
            "%s: %s" % (json.dumps(k), json.dumps(v, ensure_ascii=False, separators=(",", ":")))
            for k, v in form.items()) + "}" for form in out["forms"]) + "\n]}\n")


if "--train" in sys.argv[1:]:
    train()
vectors()
