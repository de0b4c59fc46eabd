"""AsyncLLM: streams, their ends, and what is left after them."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable
from typing import Any, Callable

import pytest
from conftest import ANSWER, DEVICE, MODEL, QUESTION, ROOT, SPOKEN, complaints, same_ids, small
from nanovllm import LLM, AsyncLLM, CapacityError, ExitedError, SamplingParams

GREEDY = SamplingParams(temperature=0, max_tokens=60)
LONG = SamplingParams(temperature=0, max_tokens=4000, ignore_eos=True)


def run(test: Callable[[AsyncLLM], Awaitable[Any]], **options: Any) -> Any:
    """Runs a coroutine over an engine of its own."""

    async def main() -> Any:
        async with AsyncLLM(MODEL, **small(**options)) as llm:
            return await test(llm)

    return asyncio.run(main())


async def collect(stream: AsyncIterator[dict[str, Any]]) -> list[dict[str, Any]]:
    return [chunk async for chunk in stream]


def text_of(chunks: list[dict[str, Any]]) -> str:
    return "".join(chunk["text"] for chunk in chunks)


def ids_of(chunks: list[dict[str, Any]]) -> list[int]:
    return [token for chunk in chunks for token in chunk["token_ids"]]


REQUESTS = [QUESTION, [1, 2, 3], {"prompt": "Once upon a time"}]
PARAMS = [GREEDY, SamplingParams(1.5, 40, True, seed=3), SamplingParams(0, 9, stop=["a f"])]


async def all_chunks(streaming: AsyncLLM) -> list[list[dict[str, Any]]]:
    streams = [streaming.generate(p, s) for p, s in zip(REQUESTS, PARAMS)]
    return await asyncio.gather(*(collect(stream) for stream in streams))


def test_the_last_chunk_alone_has_a_reason() -> None:
    for chunks in run(all_chunks):
        assert chunks[-1]["finish_reason"] in ("stop", "length")
        assert all(chunk["finish_reason"] is None for chunk in chunks[:-1])


@same_ids
def test_chunks_add_up_to_generates_output(llm: LLM) -> None:
    for chunks, output in zip(run(all_chunks), llm.generate(REQUESTS, PARAMS, False)):
        assert text_of(chunks) == output["text"]
        assert ids_of(chunks) == output["token_ids"]
        assert chunks[-1]["finish_reason"] == output["finish_reason"]


@pytest.mark.parametrize("skip", [None, False, True])
@pytest.mark.parametrize("include", [False, True])
def test_chunks_end_as_generates_output(llm: LLM, skip: bool | None, include: bool) -> None:
    (token,) = llm.tokenizer.encode(" =")
    ends: list[dict[str, Any]] = [{}, {"stop_token_ids": [token]}, {"stop": " = 9"}]
    params = [
        SamplingParams(
            0, 60, skip_special_tokens=skip, include_stop_str_in_output=include, **fields
        )
        for fields in ends
    ]

    async def test(streaming: AsyncLLM) -> list[str]:
        return [text_of(await collect(streaming.generate(QUESTION, one))) for one in params]

    assert run(test) == [output["text"] for output in llm.generate([QUESTION] * 3, params, False)]


def test_tokens_come_one_by_one() -> None:
    chunks = run(lambda llm: collect(llm.generate(QUESTION, GREEDY)))
    assert all(len(chunk["token_ids"]) == 1 for chunk in chunks)
    assert text_of(chunks) == ANSWER


def test_a_chat_streams() -> None:
    chat = [{"role": "user", "content": "What is 37 + 58?"}]
    kwargs = {"enable_thinking": False}
    chunks = run(lambda llm: collect(llm.chat(chat, GREEDY, chat_template_kwargs=kwargs)))
    assert text_of(chunks) == SPOKEN


def test_many_streams_share_the_engine() -> None:
    async def test(llm: AsyncLLM) -> Any:
        streams = [llm.generate([i, 2], SamplingParams(0, 20, True)) for i in range(24)]
        results = await asyncio.gather(*(collect(stream) for stream in streams))
        return results, llm._worker._engine.stats().num_steps

    results, num_steps = run(test)
    assert [len(ids_of(chunks)) for chunks in results] == [20] * 24
    assert num_steps < 24 * 20


def test_n_streams_carry_their_index(llm: LLM) -> None:
    params = SamplingParams(2.0, 8, True, n=3, seed=5)
    chunks = run(lambda streaming: collect(streaming.generate([1, 2], params)))
    outputs = llm.generate([[1, 2]], params, False)[0].outputs
    for index, completion in enumerate(outputs):
        own = [chunk for chunk in chunks if chunk["index"] == index]
        assert ids_of(own) == completion.token_ids
        assert own[-1]["finish_reason"] == "length"


def test_logprobs_stream() -> None:
    params = SamplingParams(0, 60, logprobs=1)
    chunks = run(lambda llm: collect(llm.generate(QUESTION, params)))
    assert [chunk["logprobs"][0][0][0] for chunk in chunks] == ids_of(chunks)


def test_an_echo_and_the_prompts_logprobs_stream(llm: LLM) -> None:
    params = SamplingParams(0, 60, echo=True, prompt_logprobs=1, n=2)
    chunks = run(lambda streaming: collect(streaming.generate(QUESTION, params)))
    (output,) = llm.generate([QUESTION], params, False)
    for index in range(2):
        own = [chunk for chunk in chunks if chunk["index"] == index]
        assert text_of(own) == output["text"] == QUESTION + ANSWER
        assert (own[0]["text"], own[0]["token_ids"]) == (QUESTION, [])
    assert ["prompt_logprobs" in chunk for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert len(chunks[-1]["prompt_logprobs"]) == len(output["prompt_logprobs"])


def test_cached_tokens_come_with_the_end() -> None:
    async def test(llm: AsyncLLM) -> Any:
        params = SamplingParams(0, 2, True)
        await collect(llm.generate(list(range(600)), params))
        return await collect(llm.generate(list(range(600)), params))

    assert [chunk["num_cached_tokens"] for chunk in run(test)] == [0, 592]


def test_leaving_the_loop_aborts() -> None:
    async def test(llm: AsyncLLM) -> Any:
        async for _ in llm.generate("a", LONG):
            break
        gc.collect()
        chunks = await collect(llm.generate(QUESTION, GREEDY))
        await asyncio.sleep(0)
        return text_of(chunks), len(llm._worker._engine.unfinished())

    text, num_unfinished = run(test)
    assert text == ANSWER
    assert num_unfinished == 0


def test_cancelling_the_task_aborts() -> None:
    async def test(llm: AsyncLLM) -> Any:
        started = asyncio.Event()

        async def read() -> None:
            async for _ in llm.generate("a", LONG):
                started.set()

        task = asyncio.create_task(read())
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await collect(llm.generate(QUESTION, GREEDY))
        return len(llm._worker._engine.unfinished())

    assert run(test) == 0


def test_a_request_has_a_stream_and_an_id() -> None:
    async def test(llm: AsyncLLM) -> Any:
        stream = await llm.add_request(QUESTION, GREEDY)
        assert stream.request_id == 1
        chunks = await collect(stream)
        assert await collect(stream) == []  # read to its end
        assert not llm.abort(1)
        return chunks

    chunks = run(test)
    assert text_of(chunks) == ANSWER
    times = chunks[-1]["times"]
    assert list(times.values()) == sorted(times.values())
    assert all("times" not in chunk for chunk in chunks[:-1])


def test_an_aborted_request_ends_with_that_reason() -> None:
    async def test(llm: AsyncLLM) -> Any:
        stream = await llm.add_request("a", LONG)
        await stream.__anext__()
        assert llm.abort(stream.request_id)
        chunks = await collect(stream)
        return chunks[-1]["finish_reason"], llm.abort(stream.request_id)

    assert run(test) == ("abort", False)


def test_a_closed_stream_gives_nothing_more() -> None:
    async def test(llm: AsyncLLM) -> Any:
        stream = await llm.add_request("a", LONG)
        waiting = asyncio.create_task(collect(stream))
        await asyncio.sleep(0)
        stream.close()
        stream.close()
        await waiting  # ends, whatever it got
        assert await collect(stream) == []
        await collect(llm.generate(QUESTION, GREEDY))
        return len(llm._worker._engine.unfinished())

    assert run(test) == 0


def test_what_may_not_wait_is_refused_before_there_is_a_stream() -> None:
    async def test(llm: AsyncLLM) -> None:
        entered, done = threading.Event(), threading.Event()
        engine = llm._worker._engine
        step = engine.step

        def stepping() -> None:
            entered.set()
            assert done.wait(60)
            step()

        engine.step = stepping  # type: ignore[method-assign]
        first = await llm.add_request("a", GREEDY)
        entered.wait()  # nothing is taken in now
        with pytest.raises(CapacityError, match="max_num_waiting"):
            await llm.add_request("b")
        with pytest.raises(CapacityError, match="max_num_waiting"):
            await collect(llm.generate("b"))
        assert llm.stats()["num_waiting"] == 1
        done.set()
        assert (await collect(first))[-1]["finish_reason"]

    run(test, max_num_waiting=1)


def test_a_draining_engine_ends_its_streams_and_takes_no_others() -> None:
    async def test(llm: AsyncLLM) -> Any:
        stream = await llm.add_request(QUESTION, GREEDY)
        llm.drain()
        with pytest.raises(CapacityError, match="draining"):
            await collect(llm.generate("b"))
        return text_of(await collect(stream))

    assert run(test) == ANSWER


def test_requests_are_added_in_the_order_of_their_arrival() -> None:
    async def test(llm: AsyncLLM) -> Any:
        texts = ["a" * 100_000, *"bcdefg"]
        params = SamplingParams(0, 1, True)
        streams = await asyncio.gather(
            *(llm.add_request(text, params) for text in texts), return_exceptions=True
        )
        return [s.request_id for s in streams[1:]], streams[0]

    ids, too_long = run(test)
    assert ids == [1, 2, 3, 4, 5, 6]
    assert isinstance(too_long, ValueError)


def test_a_refused_request_ends_no_other() -> None:
    async def test(llm: AsyncLLM) -> Any:
        return await asyncio.gather(
            collect(llm.generate(QUESTION, GREEDY)),
            collect(llm.generate([10**6], GREEDY)),
            collect(llm.generate("", GREEDY)),
            return_exceptions=True,
        )

    good, outside, empty = run(test)
    assert text_of(good) == ANSWER
    assert isinstance(outside, ValueError) and "vocabulary" in str(outside)
    assert isinstance(empty, ValueError) and "empty" in str(empty)


def test_params_are_those_of_the_call() -> None:
    async def test(llm: AsyncLLM) -> Any:
        params = SamplingParams(0, 5, True)
        stream = llm.generate("a", params)
        params.max_tokens = 2
        return await collect(stream)

    assert len(ids_of(run(test))) == 5


def test_a_bad_argument_is_raised_at_once() -> None:
    async def test(llm: AsyncLLM) -> None:
        with pytest.raises(ValueError, match="the prompt is 5"):
            llm.generate(5)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="sampling_params is 5"):
            llm.generate("a", 5)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="the chat is 5"):
            llm.chat(5)  # type: ignore[arg-type]

    run(test)


def test_exit_ends_streams() -> None:
    async def main() -> None:
        llm = AsyncLLM(MODEL, **small())
        with pytest.raises(ExitedError):
            async for _ in llm.generate("a", LONG):
                llm.exit()
        llm.exit()
        with pytest.raises(ExitedError):
            await collect(llm.generate("a"))

    asyncio.run(main())


def test_event_loops_may_come_and_go() -> None:
    llm = AsyncLLM(MODEL, **small())
    for _ in range(2):
        assert text_of(asyncio.run(collect(llm.generate(QUESTION, GREEDY)))) == ANSWER
    llm.exit()


def test_a_loop_that_is_closed_under_a_stream() -> None:
    llm = AsyncLLM(MODEL, **small())
    loop = asyncio.new_event_loop()
    stream = llm.generate("a", LONG)
    loop.run_until_complete(stream.__anext__())
    loop.close()
    assert text_of(asyncio.run(collect(llm.generate(QUESTION, GREEDY)))) == ANSWER
    llm.exit()


def test_an_engine_that_nobody_holds_is_collected() -> None:
    llm = AsyncLLM(MODEL, **small())
    worker = llm._worker
    del llm
    gc.collect()
    assert not worker._thread.is_alive()
    assert not worker._engine.handle.pointer


def test_a_program_may_end_with_streams_open() -> None:
    program = f"""
import asyncio
from nanovllm import AsyncLLM, SamplingParams
llm = AsyncLLM({MODEL!r}, device={DEVICE!r}, threads=1, num_kvcache_blocks=1024)
async def main():
    async for chunk in llm.generate("a", SamplingParams(0, 4000, True)):
        print("one")
        return
asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, complaints(done.stderr)) == (0, "one\n", "")
