#!/usr/bin/env python3
"""Measures a server of OpenAI's form over HTTP: this one, or any other. Standard library only.

    bench/serve.py --url http://127.0.0.1:8000 --concurrency 32 --requests 256
    bench/serve.py --url http://127.0.0.1:8000 --rate 20 --requests 256

Closed loop: --concurrency streams, each sends its next request when the one before has ended. Open
loop: --rate requests a second on average, at Poisson's times, however many are in work. Prompts are
--input-len token ids that differ; each answer has exactly --output-len tokens (ignore_eos). They are sampled
from the whole vocabulary, as by `nanovllm bench`, whatever the server's defaults are. One process of Python
reads some 15,000 chunks a second: --processes shares the streams among several.

Printed as JSON: requests and output tokens a second, and percentiles in milliseconds of the time to the
first token (ttft), between two chunks of a stream (itl), per token after the first (tpot), and of the
whole request (e2e)."""

import argparse
import asyncio
import json
import multiprocessing
import random
import sys
import time
import urllib.parse


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--api-key", help="sent as Authorization: Bearer")
    parser.add_argument("--model", help="default: the server's first")
    parser.add_argument("--requests", type=int, default=256)
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--rate", type=float, help="requests a second; then --concurrency has no effect")
    parser.add_argument("--processes", type=int, default=1, help="of this client")
    parser.add_argument("--input-len", type=int, default=32)
    parser.add_argument("--output-len", type=int, default=128)
    parser.add_argument("--temperature", type=float, default=0.6)
    parser.add_argument("--vocab-size", type=int, default=4000, help="prompts have ids below it")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


async def post(options, body):
    """The lines of the answer's body, as they come."""
    url = urllib.parse.urlsplit(options.url)
    reader, writer = await asyncio.open_connection(url.hostname, url.port or 80, limit=1 << 20)
    try:
        text = json.dumps(body).encode()
        key = f"Authorization: Bearer {options.api_key}\r\n" if options.api_key else ""
        writer.write(f"POST /v1/completions HTTP/1.0\r\nHost: {url.netloc}\r\n{key}"
                     f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n".encode() + text)
        status = (await reader.readline()).decode()
        if " 200 " not in status:
            raise RuntimeError(status.strip() + " " + (await reader.read()).decode()[-400:])
        async for line in reader:
            yield line
    finally:
        writer.close()


async def run_one(options, prompt, results):
    body = {"prompt": prompt, "max_tokens": options.output_len, "ignore_eos": True, "stream": True,
            "stream_options": {"include_usage": True}, "temperature": options.temperature, "top_p": 1, "top_k": 0,
            "min_p": 0}
    if options.model:
        body["model"] = options.model
    begin = time.perf_counter()
    chunks, num_tokens = [], None
    async for line in post(options, body):
        if not line.startswith(b"data: {"):
            continue
        # Only chunks that may have more than a text are taken apart: that takes longer than the rest.
        if b'"usage": {' not in line and b'"usage":{' not in line and b'"error"' not in line:
            chunks.append(time.perf_counter())
            continue
        event = json.loads(line[len(b"data: "):])
        if "error" in event:
            raise RuntimeError(event["error"]["message"])
        if event.get("usage"):
            num_tokens = event["usage"]["completion_tokens"]
        else:
            chunks.append(time.perf_counter())  # a text that looked like more
    if num_tokens != options.output_len:
        raise RuntimeError(f"an answer has {num_tokens} tokens, want {options.output_len}")
    results.append((begin, chunks, num_tokens))


async def closed_loop(options, concurrency, prompts, results):
    waiting = iter(prompts)

    async def worker():
        for prompt in waiting:
            await run_one(options, prompt, results)

    await asyncio.gather(*(worker() for _ in range(concurrency)))


async def open_loop(options, prompts, times, results):
    tasks = []
    began = time.perf_counter()
    for prompt, at in zip(prompts, times):
        await asyncio.sleep(max(0, began + at - time.perf_counter()))
        tasks.append(asyncio.create_task(run_one(options, prompt, results)))
    await asyncio.gather(*tasks)


def run_share(options, number, prompts, times, all_ready, answers):
    """Process `number`: every --processes-th request. Puts its results, or a sentence."""
    own = slice(number, None, options.processes)
    results = []
    all_ready.wait()
    try:
        if options.rate:
            asyncio.run(open_loop(options, prompts[own], times[own], results))
        else:
            concurrency = len(range(options.concurrency)[own])
            asyncio.run(closed_loop(options, concurrency, prompts[own], results))
        answers.put(results)
    except (RuntimeError, OSError) as fault:
        answers.put(str(fault))


def percentiles(seconds):
    values = sorted(seconds)
    if not values:
        return None
    at = lambda share: round(values[min(len(values) - 1, int(share * len(values)))] * 1e3, 3)
    return {"mean": round(sum(values) / len(values) * 1e3, 3), "p50": at(0.5), "p90": at(0.9), "p99": at(0.99)}


def report(results):
    seconds = max(chunks[-1] for _, chunks, _ in results) - min(begin for begin, _, _ in results)
    num_tokens = sum(tokens for _, _, tokens in results)
    print(json.dumps({
        "requests": len(results), "seconds": round(seconds, 3),
        "requests_per_second": round(len(results) / seconds, 2),
        "output_tokens_per_second": round(num_tokens / seconds, 1),
        "ttft_ms": percentiles([chunks[0] - begin for begin, chunks, _ in results]),
        "itl_ms": percentiles([b - a for _, chunks, _ in results for a, b in zip(chunks, chunks[1:])]),
        "tpot_ms": percentiles([(chunks[-1] - chunks[0]) / (tokens - 1)
                                for _, chunks, tokens in results if tokens > 1]),
        "e2e_ms": percentiles([chunks[-1] - begin for begin, chunks, _ in results])}, indent=2))


def run(options):
    dice = random.Random(options.seed)
    prompts = [[dice.randrange(options.vocab_size) for _ in range(options.input_len)]
               for _ in range(options.requests)]
    times = []
    for _ in prompts if options.rate else []:
        times.append((times[-1] if times else 0) + dice.expovariate(options.rate))
    # The first request of a server pays for what is lazy.
    asyncio.run(run_one(options, prompts[0][::-1], []))
    fork = multiprocessing.get_context("fork")
    all_ready, answers = fork.Barrier(options.processes), fork.Queue()
    children = [fork.Process(target=run_share, args=(options, i, prompts, times, all_ready, answers))
                for i in range(options.processes)]
    for child in children:
        child.start()
    shares = [answers.get() for _ in children]
    for child in children:
        child.join()
    for share in shares:
        if isinstance(share, str):
            raise RuntimeError(share)
    report([result for share in shares for result in share])


def main():
    try:
        run(parse())
    except (RuntimeError, OSError) as fault:
        sys.exit(f"bench/serve.py: {fault}")


if __name__ == "__main__":
    main()
