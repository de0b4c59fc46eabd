#!/usr/bin/env python3
"""Measures drafts where a model of any shape writes what it is told to.

    bench/drafts.py lines TEXT
    bench/drafts.py make CONFIG_FOLDER OUT_FOLDER
    bench/drafts.py run ROUNDS TEXTS PROGRAM MODEL_FOLDER [ARGUMENT...]

`make` writes a checkpoint of that shape (dense Qwen3) whose layers add nothing, and whose last matrix gives each token
one that follows it. It computes as much as any other. The order of its tokens is the text `edit`: a file of Python's
library of 5,000 characters, divided into words and signs, in which two names are changed everywhere. Each word that
is kept is a token of its own, and each changed one another. The prompt is the file. So drafts are right in the kept
parts and wrong where a part begins or ends.

`run` lets the model write, and prints the medians of some rounds, in each of which every value of --drafts has its turn:
tokens a second of all steps, and how many there were. TEXTS are some of these, with commas between:

- edit: as above, greedy, one stream; edit8: 8 streams of it
- random: tokens at random of all the vocabulary, which nothing can guess; random32: 32 streams
- two: tokens at random of the two likeliest, so that the text often seems to repeat itself; two8: 8 streams

The arguments go to `nanovllm generate`.

`lines` prints one of these texts for bench_draft_engine, which lets any model write it: a line for each stream. In this
`random` a token is one of 100,000, and in this `two` each of 64 tokens has two that may follow it.
"""
import difflib
import json
import os
import random
import re
import statistics
import struct
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from make_checkpoint import shapes  # noqa: E402

FIRST_KEPT, FIRST_NEW, START = 1000, 20000, 999


def texts():
    """The tokens of the file, and of its edit."""
    code = Path(textwrap.__file__).read_text()[:5000]
    edited = re.sub(r"\bwidth\b", "max_columns", re.sub(r"\bchunks\b", "pieces", code))
    a, b = (re.findall(r" ?\w+|\s+|[^\w\s]", text) for text in (code, edited))
    old = [FIRST_KEPT + i for i in range(len(a))]
    new = [FIRST_NEW + i for i in range(len(b))]
    for at, to, size in difflib.SequenceMatcher(None, a, b, autojunk=False).get_matching_blocks():
        new[to : to + size] = old[at : at + size]
    return old, new


def print_lines(kind, streams):
    old, new = texts()
    dice = random.Random(1)
    follow = [[dice.randrange(64), dice.randrange(64)] for _ in range(64)]
    for _ in range(streams):
        answer = [7]
        for _ in range(512):
            answer.append(dice.randrange(100000) if kind == "random" else dice.choice(follow[answer[-1]]))
        prompt, answer = ([*old, START], new) if kind == "edit" else ([7], answer[1:])
        print(len(prompt), *prompt, *answer)


def bf16(value):
    return struct.pack("<f", value)[2:]


def make(config_folder, out):
    config = json.loads(Path(config_folder, "config.json").read_text())
    config["tie_word_embeddings"] = False
    os.makedirs(out, exist_ok=True)
    Path(out, "config.json").write_text(json.dumps(config))
    hidden, rng = config["hidden_size"], random.Random(1)
    signs = bf16(1.0), bf16(-1.0)
    embedding = [b"".join(rng.choice(signs) for _ in range(hidden)) for _ in range(64)]

    def row(token):  # different tokens have different rows: 64 random ones, each turned round
        base, turn = embedding[token % 64], 2 * (token // 64 % hidden)
        return base[turn:] + base[:turn]

    chain = [START, *texts()[1]]
    before = dict(zip(chain[1:], chain))
    noise = b"".join(bf16(rng.uniform(-0.05, 0.05)) for _ in range(1 << 20))
    header, end = {}, 0
    for name, shape in shapes(config):
        size = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    with open(Path(out, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, shape in shapes(config):
            size = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
            if "embed" in name:
                for token in range(shape[0]):
                    file.write(row(token))
            elif name == "lm_head.weight":
                for token in range(shape[0]):
                    file.write(row(before[token]) if token in before else bytes(2 * hidden))
            elif "norm" in name:
                fill(file, bf16(1.0) * (1 << 20), size)
            elif "o_proj" in name or "down_proj" in name:
                fill(file, bytes(1 << 20), size)
            else:
                fill(file, noise, size)


def fill(file, chunk, size):
    for at in range(0, size, len(chunk)):
        file.write(chunk[: min(len(chunk), size - at)])


def run_once(program, model, arguments, way, request):
    with tempfile.TemporaryDirectory() as folder:
        source, results, stats = (Path(folder, name) for name in ("in.jsonl", "out.jsonl", "stats.json"))
        source.write_text(json.dumps(request) + "\n")
        subprocess.run([program, "generate", "-m", model, "--drafts", way, "-c", "8192", "--skip-tokenizer-init",
                        "--input", source, "--output", results, "--stats", stats, *arguments], check=True)
        return json.loads(stats.read_text()), json.loads(results.read_text().split("\n")[0])


def split_name(name):
    kind, streams = re.fullmatch(r"(edit|random|two)(\d*)", name).groups()
    return kind, int(streams or 1)


def request_of(name, old, new):
    kind, streams = split_name(name)
    request = {"ignore_eos": True, "seed": 1, "n": streams}
    if kind == "edit":
        return {**request, "prompt_token_ids": [*old, START], "temperature": 0, "max_tokens": len(new)}
    drawn = {"temperature": 2} if kind == "random" else {"temperature": 1, "top_k": 2}
    return {**request, **drawn, "prompt_token_ids": [7], "max_tokens": 512}


def run(rounds, names, program, model, arguments):
    old, new = texts()
    rows = {}
    for name in names.split(","):
        request, is_edit = request_of(name, old, new), name.startswith("edit")
        for way in ("off", "auto", "15") * rounds:
            more = [] if is_edit else ["--load-format", "dummy"]
            stats, result = run_once(program, model, [*more, *arguments], way, request)
            outputs = [output["token_ids"] for output in result.get("outputs", [result])]
            if is_edit and any(ids != new for ids in outputs):
                sys.exit(f"drafts {way}: another text: {outputs[0][:20]}")
            seconds = sum(stats["seconds"][phase] for phase in ("schedule", "forward", "sample", "output"))
            rows.setdefault((name, way), []).append((stats["num_generated_tokens"] / seconds, stats))
    print(f"{'text':10}{'drafts':8}{'tok/s':>10}{'of off':>8}{'steps':>8}{'tokens':>8}{'drafted':>9}{'right':>8}")
    for (name, way), found in rows.items():
        rate, base = (statistics.median(rate for rate, _ in rows[name, which]) for which in (way, "off"))
        stats = found[-1][1]
        counts = [stats[key] for key in ("num_steps", "num_generated_tokens", "num_draft_tokens", "num_accepted_tokens")]
        print(f"{name:10}{way:8}{rate:10.1f}{rate / base:8.3f}" + "{:8}{:8}{:9}{:8}".format(*counts), flush=True)


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "lines":
        print_lines(*split_name(sys.argv[2]))
    elif len(sys.argv) == 4 and sys.argv[1] == "make":
        make(*sys.argv[2:])
    elif len(sys.argv) >= 6 and sys.argv[1] == "run":
        run(int(sys.argv[2]), *sys.argv[3:6], sys.argv[6:])
    else:
        sys.exit(__doc__)
