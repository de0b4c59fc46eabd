#!/usr/bin/env python3
"""Makes tests/reference/data/tokenizer-forms: a small tokenizer in each form that a folder may have in place of
tokenizer.json, and texts with the ids that the form's own package gives. Needs mistral-common, tiktoken and
sentencepiece.

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
    "A\u732bb \u4e2dA\u6587c zzqq zzqqa",
]
UNREACHED = [b" zzqq", "A\u732bb".encode()]  # tokens that no merges make: only a whole word is one


def trained_ranks(pattern, size):
    """Tokens by rank: the 256 bytes, the most frequent pairs of the training text one by one, UNREACHED."""
    import regex

    words = [[bytes([byte]) for byte in word.encode()] for word in regex.findall(pattern, TRAINING)]
    tokens = [bytes([byte]) for byte in range(256)]
    while len(tokens) < size - len(UNREACHED):
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
    return tokens + UNREACHED


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
    tokens = trained_ranks(pattern, 380) + [bytes([65, 66 + i]) for i in range(20)]
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


def make_tiktoken():
    """The ids from 380 to 390 are special: four have names, and the others are reserved."""
    import tiktoken
    from tiktoken.load import load_tiktoken_bpe

    upper, lower = (r"\p{L%s}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]" % kind for kind in "ul")
    lower = lower.replace(r"\p{Lt}", "")
    ending = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    pattern = "|".join(
        [
            r"[\p{Han}]+",
            r"[^\r\n\p{L}\p{N}]?[%s]*[%s]+%s" % (upper, lower, ending),
            r"[^\r\n\p{L}\p{N}]?[%s]+[%s]*%s" % (upper, lower, ending),
            r"\p{N}{1,3}",
            r" ?[^\s\p{L}\p{N}]+[\r\n]*",
            r"\s*[\r\n]+",
            r"\s+(?!\S)",
            r"\s+",
        ]
    )
    # The words of training need no exact pattern.
    tokens = trained_ranks(r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+", 380)
    lines = ["%s %d\n" % (base64.b64encode(token).decode(), rank) for rank, token in enumerate(tokens)]
    write("tiktoken.model", "".join(lines))
    names = {380: "[BOS]", 381: "[EOS]", 384: "<think>", 390: "[PAD]"}
    decoder = {str(id_): {"content": name, "special": name != "<think>"} for id_, name in names.items()}
    config = {"added_tokens_decoder": decoder, "bos_token": "[BOS]", "model_max_length": 10**30}
    write("tiktoken_config.json", json.dumps(config, indent=1) + "\n")
    os.environ["TIKTOKEN_CACHE_DIR"] = ""  # or it reads the file of an earlier run
    ranks = load_tiktoken_bpe(os.path.join(OUT, "tiktoken.model"))
    encoding = tiktoken.Encoding("small", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    return cases(encoding.encode)


def make_sentencepiece():
    """BPE with byte fallback, as Llama 2's."""
    import io

    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TRAINING.split("\n")),
        model_writer=model,
        model_type="bpe",
        vocab_size=380,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        split_digits=True,
        user_defined_symbols=["[CALL]"],
        control_symbols=["[INST]"],
        minloglevel=2,
    )
    with open(os.path.join(OUT, "tokenizer.model"), "wb") as file:
        file.write(model.getvalue())
    tokenizer = sentencepiece.SentencePieceProcessor(os.path.join(OUT, "tokenizer.model"))
    return cases(lambda text: [tokenizer.bos_id()] + tokenizer.encode(text))


def main():
    os.makedirs(OUT, exist_ok=True)
    forms = {
        "tekken.json": make_tekken(),
        "tiktoken.model": make_tiktoken(),
        "tokenizer.model": make_sentencepiece(),
    }
    rows = [
        '"%s": [\n%s\n]' % (name, ",\n".join(json.dumps(case) for case in of_form))
        for name, of_form in forms.items()
    ]
    write("cases.json", "{%s}\n" % ",\n".join(rows))


if __name__ == "__main__":
    main()
