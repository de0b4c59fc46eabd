#!/usr/bin/env python3
"""Measures what forms of answers cost, and what is gained where they leave no choice.

    bench/forms.py ROUNDS STREAMS FORMS PROGRAM MODEL_FOLDER [ARGUMENT...]

The folder has a config.json and a tokenizer; weights are random. Each stream has a prompt of 32
tokens and writes 512 at temperature 1. In each round every form has its turn. Prints the medians of
the streams' rates together, in tokens a second from the first token on, and as shares of the first
form's. FORMS are some of these, with commas between:

- none: no form
- own: a schema for each stream: lists of objects of six members, of all kinds
- free: the same schemas, and certain text is not skipped: min_tokens is 1
- one: one of these schemas for all streams
- keys: a schema for each stream: six long keys, with the values 1, 2 or 3

The arguments go to `nanovllm generate`.
"""
import json
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

NUM_TOKENS = 512
WORDS = """name user order total price city street country status created updated value label color
size weight width height owner group role email phone item count rate score level kind source target
region zone start end note title body author editor version build branch commit parent child index
offset limit""".split()


def object_of(properties, required):
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def value(r, is_inner):
    kind = r.randrange(8)
    if kind <= 2:
        return {"type": "string", "maxLength": r.randrange(8, 40)}
    if kind == 3:
        return {"type": "integer", "minimum": r.randrange(10), "maximum": r.randrange(100, 100000)}
    if kind == 4:
        return {"enum": r.sample(WORDS, 4)}
    if kind == 5:
        return {"type": "boolean"}
    if kind == 6:
        return {"type": "number", "minimum": 0, "maximum": r.randrange(10, 1000)}
    if not is_inner:
        return members(r, True)
    text = {"type": "string", "maxLength": 12}
    return {"type": "array", "items": text, "minItems": 1, "maxItems": 4}


def members(r, is_inner=False):
    pairs = zip(r.sample(WORDS, 6), r.sample(WORDS, 6))
    names = ["_".join(pair) for pair in pairs]
    return object_of({name: value(r, is_inner) for name in names}, names[:4])


def long_keys(r):
    names = ["_".join(r.sample(WORDS, 5)) for _ in range(6)]
    return object_of({name: {"enum": [1, 2, 3]} for name in names}, names)


def request(stream, form):
    r = random.Random(1000 + stream)
    line = {
        "prompt_token_ids": [r.randrange(1000, 90000) for _ in range(32)],
        "max_tokens": NUM_TOKENS,
        "temperature": 1,
        "seed": stream,
        "ignore_eos": True,
    }
    r = random.Random(0 if form == "one" else stream)
    if form != "none":
        items = long_keys(r) if form == "keys" else members(r)
        schema = {"type": "array", "items": items, "minItems": 1000}
        line["structured_outputs"] = {"json": schema, "disable_any_whitespace": True}
    if form == "free":
        line["min_tokens"] = 1
    return json.dumps(line)


def rate(folder, streams, form, program, model, arguments):
    requests, results = Path(folder, "requests.jsonl"), Path(folder, "results.jsonl")
    requests.write_text("".join(request(i, form) + "\n" for i in range(streams)))
    command = [program, "generate", "-m", model, "--load-format", "dummy", "--times"]
    command += ["--input", requests, "--output", results, *arguments]
    subprocess.run(command, check=True)
    total = 0
    for line in results.read_text().split("\n")[:-1]:  # splitlines() also cuts at U+2028 inside a text
        result = json.loads(line)
        if result["finish_reason"] != "length":
            sys.exit(f"an answer ended: {result['finish_reason']} {result.get('error', '')}")
        times = result["times"]
        total += (NUM_TOKENS - 1) / (times["last_token"] - times["first_token"])
    return total


def main():
    if len(sys.argv) < 6:
        sys.exit(__doc__)
    rounds, streams, forms = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3].split(",")
    rates = {form: [] for form in forms}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(rounds):
            for form in forms:
                rates[form].append(rate(folder, streams, form, *sys.argv[4:6], sys.argv[6:]))
    first = statistics.median(rates[forms[0]])
    for form in forms:
        median = statistics.median(rates[form])
        print(f"{form:5} {median:9.1f} tok/s  {100 * median / first:5.1f} %")


main()
