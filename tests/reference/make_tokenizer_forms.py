#!/usr/bin/env python3
"""Makes tests/reference/data/tokenizer-forms: a small tokenizer in each form that a folder may have in place of
tokenizer.json, and texts with the ids that the form's own package gives. Needs mistral-common.

usage: tests/reference/make_tokenizer_forms.py
"""

import base64
import json
import os

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data/tokenizer-forms")
TRAINING = (
    "The cat sat on the mat; the other cat ran. It's what we'll do: 1234 cats, 56 hats! "
    "Die Katze saß auf der Matte. Кот сидел на коврике. 猫坐在垫子上。猫は敷物の上に座った。"
    "for (int i = 0; i < 10; i++) {\n    cats[i] += hats[i]; // more\n}\n\n" * 3
)
TEXTS = [
    "",
    "The cat sat on the mat.",
    "the other cats' hats, it's what WE'LL do\n\n  1234567  ",
    "Die Straße; Кот 猫坐在 abc猫def \u3000 e\u0301\U0001f642",
    "for (int j = 0; j < 99; j++) {\n\t cats[j]++;\n}/*x*/\r\n",
    "aaaaaaaaaaaa the the  the   the \u0001\u007f \u00a0\u00ad",
    "unknownwordsandtttthehehethe",
]


def trained_ranks(pattern, size):
    """Tokens by rank: the 256 bytes, then the most frequent pairs of the training text, one by one."""
    import regex

    words = [[bytes([byte]) for byte in word.encode()] for word in regex.findall(pattern, TRAINING)]
    tokens = [bytes([byte]) for byte in range(256)]
    while len(tokens) < size:
        counts = {}
        for word in words:
            for pair in zip(word, word[1:]):
                counts[pair] = counts.get(pair, 0) + 1
        best = max(counts, key=lambda pair: (counts[pair], pair))
        tokens.append(b"".join(best))
        for word in words:
            i = 0
            while i + 1 < len(word):
                if (word[i], word[i + 1]) == best:
                    word[i : i + 2] = [tokens[-1]]
                i += 1
    return tokens


def write(name, text):
    with open(os.path.join(OUT, name), "w", encoding="utf-8") as file:
        file.write(text)


def cases(encode):
    return [{"text": text, "ids": encode(text)} for text in TEXTS]


def make_tekken():
    """20 tokens of the list are beyond default_vocab_size; of the special tokens three have no name."""
    from mistral_common.tokens.tokenizers.tekken import Tekkenizer

    pattern = (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|"
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}|"
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    names = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[THINK]", "<pad>"]
    tokens = trained_ranks(pattern, 400)
    vocab = []
    for rank, token in enumerate(tokens):
        try:
            text = token.decode()
        except UnicodeDecodeError:
            text = None
        vocab.append({"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": text})
    special = [
        {"rank": rank, "token_str": name, "is_control": name != "[THINK]"} for rank, name in enumerate(names)
    ]
    config = {
        "pattern": pattern,
        "num_vocab_tokens": len(tokens),
        "default_vocab_size": 390,
        "default_num_special_tokens": 10,
        "version": "v11",
    }
    lines = ",\n".join(json.dumps(token) for token in vocab)
    write(
        "tekken.json",
        '{"config": %s,\n"vocab": [\n%s\n],\n"special_tokens": %s}\n'
        % (json.dumps(config), lines, json.dumps(special)),
    )
    tokenizer = Tekkenizer.from_file(os.path.join(OUT, "tekken.json"))
    return cases(lambda text: tokenizer.encode(text, bos=True, eos=False))


def main():
    os.makedirs(OUT, exist_ok=True)
    forms = {"tekken.json": make_tekken()}
    rows = [
        '"%s": [\n%s\n]' % (name, ",\n".join(json.dumps(case) for case in of_form))
        for name, of_form in forms.items()
    ]
    write("cases.json", "{%s}\n" % ",\n".join(rows))


if __name__ == "__main__":
    main()
