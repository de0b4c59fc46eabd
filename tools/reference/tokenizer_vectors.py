"""Writes encodings by Hugging Face tokenizers, to check other tokenizers against.

The output is a list of {text, ids, decoded, decoded_skip_special}: fixed awkward texts, random characters
of many scripts, and random cuts of the given files. Prints the library's own speed on the files.
"""
import argparse
import json
import random
import time

FIXED = [
    "", " ", "\n\n \n", "Hello, world!", "I'm you'RE he'll WE'D", "   lead  trail   ",
    "tabs\tand\r\nCRLF", "12345 3.14 1,000,000", "你好,世界!谢谢", "naïve café — “quotes” …",
    "e\u0301 vs \u00e9", "\u1e9b\u0323 \u212b Å", "🙂👩‍👩‍👧‍👦🇫🇷", "مرحبا بالعالم", "हिन्दी पाठ",
    "<|im_start|>user\nhi<|im_end|>", "<|im_start|", "<think>\nx\n</think>",
    "<tool_call>{}</tool_call>", "a<|endoftext|>b", "def f(x):\n    return x**2  # sq\n",
    "\u00a0nbsp\u2003em\u3000ideographic", "ZWJ\u200dZWNJ\u200c\ufeffBOM", "\x00\x01\x7f",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 ⅷ ²³ ½", "x" * 300, "ab " * 100, "!?!?!?...", "don't DON'T Don\u2019T \u017ft",
    "\U0010ffff\ue000", "ᄒ\u1161ᆫ 한", "ﬁ ﬀ Ǆ",
]
# ASCII twice, Latin, Greek to Hebrew, Devanagari, kana, CJK, Hangul, emoji, combining marks.
RANGES = [(32, 126), (32, 126), (0xa0, 0x24f), (0x370, 0x5ff), (0x900, 0x97f), (0x3040, 0x30ff),
          (0x4e00, 0x9fff), (0xac00, 0xd7a3), (0x1f300, 0x1f640), (0x300, 0x36f)]
SPACES = [10, 32, 32, 9]


def random_text(r):
    def character():
        return chr(r.choice([r.randint(*pair) for pair in RANGES] + SPACES))

    return "".join(character() for _ in range(r.randint(1, 80)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tokenizer", help="folder with tokenizer.json")
    parser.add_argument("out", help="JSON file to write")
    parser.add_argument("corpus", nargs="+", help="text files")
    parser.add_argument("--seed", type=int, required=True)
    args = parser.parse_args()

    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(args.tokenizer + "/tokenizer.json")
    r = random.Random(args.seed)
    texts = FIXED + [random_text(r) for _ in range(200)]
    whole = []
    for name in args.corpus:
        with open(name, encoding="utf-8", errors="replace") as file:
            whole.append(file.read())
        for _ in range(20):
            i = r.randrange(max(1, len(whole[-1]) - 500))
            texts.append(whole[-1][i:i + r.randint(20, 400)])
    vectors = []
    for text in texts:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        vectors.append({
            "text": text, "ids": ids,
            "decoded": tokenizer.decode(ids, skip_special_tokens=False),
            "decoded_skip_special": tokenizer.decode(ids, skip_special_tokens=True),
        })
    with open(args.out, "w", encoding="utf-8") as file:
        json.dump(vectors, file, ensure_ascii=True, indent=0)

    text = "".join(whole)
    start = time.perf_counter()
    num_tokens = len(tokenizer.encode(text).ids)
    rate = len(text.encode()) / 1e6 / (time.perf_counter() - start)
    print(f"{len(vectors)} texts; {num_tokens} tokens of the corpus at {rate:.1f} MB/s")


if __name__ == "__main__":
    main()
