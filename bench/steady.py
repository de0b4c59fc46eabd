#!/usr/bin/env python3
"""Measures how steadily tokens come while long prompts run, for several values of --target-itl.

    bench/steady.py PROGRAM MODEL_FOLDER [--values off,auto,40] [--rounds 3] [--streams 32] [--input-len 128]
        [--long-len 16384] [--every 1] [--longs 10] [-- ARGUMENT...]

For each value in each round it starts `nanovllm serve` with the arguments, and keeps the streams busy with short
prompts. Meanwhile --longs prompts of --long-len tokens come, one in --every seconds, each for one token. Printed are,
of all rounds: the time between two chunks of a stream while long prompts were there, the long prompts' time to the
first token, and the streams' tokens a second. The last columns are ratios to the first value. Only rounds that lie
side by side can be compared, so each round has every value in turn.
"""
import argparse
import asyncio
import json
import random
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from serve import post  # noqa: E402

START_SECONDS = 300


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0], epilog="What follows -- goes to nanovllm serve.")
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("--values", default="off,auto,40")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--input-len", type=int, default=128)
    parser.add_argument("--output-len", type=int, default=256)
    parser.add_argument("--long-len", type=int, default=16384)
    parser.add_argument("--every", type=float, default=1, help="seconds from one long prompt to the next")
    parser.add_argument("--longs", type=int, default=10)
    parser.add_argument("--vocab-size", type=int, default=4000, help="prompts have ids below it")
    at = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    options = parser.parse_args(sys.argv[1:at])
    options.arguments = sys.argv[at + 1 :]
    return options


def start_server(options, value):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options.api_key, options.url = None, f"http://127.0.0.1:{port}"
    server = subprocess.Popen([options.program, "serve", "-m", options.model, "--port", str(port), "--target-itl", value,
                               *options.arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + START_SECONDS
    while server.poll() is None and time.monotonic() < end:
        try:
            urllib.request.urlopen(options.url + "/health", timeout=1).close()
            return server
        except OSError:
            time.sleep(0.1)
    server.kill()
    sys.exit(f"bench/steady.py: no server with --target-itl {value}")


async def generate(options, prompt, num_tokens):
    """The times of an answer's chunks."""
    body = {"prompt": prompt, "max_tokens": num_tokens, "ignore_eos": True, "stream": True, "temperature": 1, "seed": 1}
    times = []
    async for line in post(options, body):
        if line.startswith(b"data: {"):
            if b'"error"' in line:
                raise RuntimeError(json.loads(line[len(b"data: "):])["error"]["message"])
            times.append(time.perf_counter())
    return times


async def measure(options):
    dice = random.Random(1)
    prompt = lambda length: [dice.randrange(options.vocab_size) for _ in range(length)]
    answers, is_over = [], asyncio.Event()

    async def stream():
        while not is_over.is_set():
            answers.append(await generate(options, prompt(options.input_len), options.output_len))

    async def long(seconds):
        await asyncio.sleep(seconds)
        begin = time.perf_counter()
        return begin, (await generate(options, prompt(options.long_len), 1))[0]

    streams = [asyncio.create_task(stream()) for _ in range(options.streams)]
    await long(1)  # not counted: the first one pays for what is lazy, and the engine learns
    longs = await asyncio.gather(*(long(i * options.every) for i in range(options.longs)))
    is_over.set()
    await asyncio.gather(*streams)
    begin, end = longs[0][0], max(first for _, first in longs)
    gaps = [b - a for times in answers for a, b in zip(times, times[1:]) if b > begin and a < end]
    return gaps, [first - start for start, first in longs], len(gaps) / (end - begin)


def at(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))]


def main():
    options = parse()
    values = options.values.split(",")
    found = {value: [] for value in values}
    for _ in range(options.rounds):
        for value in values:
            server = start_server(options, value)
            try:
                found[value].append(asyncio.run(measure(options)))
            finally:
                server.terminate()
                server.wait()
    print(f"{'target-itl':12}{'itl p50':>9}{'p99':>9}{'most':>9}{'long ttft':>11}{'tok/s':>8}{'p99':>8}{'ttft':>7}{'tok/s':>7}")
    rows = {}
    for value, rounds in found.items():
        gaps = [gap * 1e3 for one in rounds for gap in one[0]]
        rows[value] = at(gaps, 0.99), statistics.median(t * 1e3 for one in rounds for t in one[1]), \
            statistics.median(one[2] for one in rounds)
        p99, ttft, rate = rows[value]
        ratios = [mine / base for mine, base in zip(rows[value], rows[values[0]])]
        print(f"{value:12}{at(gaps, 0.5):9.1f}{p99:9.1f}{max(gaps):9.1f}{ttft:11.1f}{rate:8.1f}"
              "{:8.3f}{:7.3f}{:7.3f}".format(*ratios), flush=True)


if __name__ == "__main__":
    main()
