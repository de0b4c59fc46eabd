"""generate, chat, add_request, abort, and what LLM gives beside them."""

from __future__ import annotations

import copy
import gc
import json
import os
import pickle
import time
import weakref
from pathlib import Path
from typing import Any

import pytest
from conftest import ANSWER, EOS, MODEL, QUESTION, SPOKEN, small
from nanovllm import (
    LLM,
    CapacityError,
    Config,
    InvalidArgumentError,
    SamplingParams,
    Tokenizer,
    UnsupportedError,
)
from nanovllm.config import ConfigArgs

GREEDY = SamplingParams(temperature=0, max_tokens=60)
CHAT = [{"role": "user", "content": "What is 37 + 58?"}]
NO_THINKING = {"enable_thinking": False}


def test_a_chat_is_answered(llm: LLM) -> None:
    (output,) = llm.chat(CHAT, GREEDY, False, chat_template_kwargs=NO_THINKING)
    assert output["text"] == SPOKEN
    assert output["token_ids"][-1] == EOS


def test_chats_are_answered_in_order(llm: LLM) -> None:
    chats = [[{"role": "user", "content": f"What is {i} + 58?"}] for i in (37, 12, 40)]
    outputs = llm.chat(chats, GREEDY, False, chat_template_kwargs=NO_THINKING)
    assert [o["text"] for o in outputs] == [
        "37 + 58 = 95.",
        "12 + 58 = 70.",
        "40 + 58 = 98.",
    ]


def test_content_may_be_parts(llm: LLM) -> None:
    parts = [{"role": "user", "content": [{"type": "text", "text": "What is 37 + 58?"}]}]
    assert llm.chat(parts, GREEDY, False, chat_template_kwargs=NO_THINKING)[0]["text"] == SPOKEN


def test_the_last_message_is_continued(llm: LLM) -> None:
    chat = [*CHAT, {"role": "assistant", "content": "37 + 58 ="}]
    (output,) = llm.chat(chat, GREEDY, False, continue_final_message=True)
    assert output["text"].strip().startswith("95")


@pytest.mark.parametrize(
    "messages",
    ["hello", None, 5, {"role": "user"}, [5], [{"role": "user", "content": object()}], [[1]]],
)
def test_what_is_no_chat_is_refused(llm: LLM, messages: Any) -> None:
    with pytest.raises(ValueError, match=r"chat|message"):
        llm.chat(messages, GREEDY, False)


def test_a_refused_chat_has_its_number(llm: LLM) -> None:
    with pytest.raises(ValueError, match="^chat 1: "):
        llm.chat([CHAT, [{"role": "user", "content": 5}]], GREEDY, False)


def test_a_prompt_that_is_refused_leaves_nothing_behind(own: LLM) -> None:
    with pytest.raises(ValueError, match="prompt 2: "):
        own.generate(["a", "b", [10**6], "c"], GREEDY, False)
    stats = own.stats()
    assert json.loads(json.dumps(stats)) == stats  # numbers alone
    assert stats["num_running"] == stats["num_waiting"] == 0
    assert own.generate([QUESTION], GREEDY, False)[0]["text"] == ANSWER


@pytest.mark.parametrize(
    "prompts",
    [
        5,
        None,
        [None],
        [["a"]],
        [[1.5]],
        [[2**40]],
        [[-1]],
        b"ab",
        [b"ab"],
        [{"prompt": 5}],
        [{"prompt": "a", "prompt_token_ids": [1]}],
        [{}],
        [{"promt": "a"}],
        [{"prompt": "a", "cache_salt": 5}],
        ["\ud800"],
        [{1, 2}],
    ],
)
def test_what_is_no_prompt_is_refused(llm: LLM, prompts: Any) -> None:
    with pytest.raises(ValueError, match="prompt"):
        llm.generate(prompts, GREEDY, False)


def test_a_nul_in_a_prompt_is_a_character(llm: LLM) -> None:
    cut = llm.generate(["ab"], SamplingParams(0, 4, True, logprobs=0), False)[0]["logprobs"]
    whole = llm.generate(["ab\0cd"], SamplingParams(0, 4, True, logprobs=0), False)[0]["logprobs"]
    assert cut != whole


def test_cached_prompt_tokens_are_counted(own: LLM) -> None:
    prompt = list(range(600))
    params = SamplingParams(0, 2, True)
    assert own.generate([prompt], params, False)[0]["num_cached_tokens"] == 0
    assert own.generate([prompt], params, False)[0]["num_cached_tokens"] == 592


def test_prefixes_are_shared_within_a_salt(own: LLM) -> None:
    params = SamplingParams(0, 2, True)

    def cached(salt: str | None) -> int:
        prompt = {"prompt_token_ids": list(range(600)), "cache_salt": salt}
        return own.generate([prompt], params, False)[0]["num_cached_tokens"]

    assert [cached("x"), cached("y"), cached(None), cached("x")] == [0, 0, 0, 592]


def test_a_chat_may_fill_the_context() -> None:
    endless = SamplingParams(0, ignore_eos=True)
    with LLM(MODEL, **small(max_model_len=128)) as llm:
        (answer,) = llm.chat(CHAT, endless, False)
        assert answer["finish_reason"] == "length" and len(answer["token_ids"]) > 64
        again = pickle.loads(pickle.dumps(copy.deepcopy(endless)))
        (copied,) = llm.chat(CHAT, again, False)
        assert copied["token_ids"] == answer["token_ids"] and again.max_tokens == 64
        # 64 that is given counts, and generate has 64 in any case.
        (cut,) = llm.chat(CHAT, SamplingParams(0, 64, True), False)
        (text,) = llm.generate(["Once"], endless, False)
        assert [len(output["token_ids"]) for output in (cut, text)] == [64, 64]


def test_a_short_chat_that_is_repeated_is_found(own: LLM) -> None:
    chat = [{"role": "user", "content": "What is 37 + 58?"}]
    first, again = (own.chat(chat, SamplingParams(0, 2), False)[0] for _ in range(2))
    assert first["num_cached_tokens"] == 0
    assert again["num_cached_tokens"] >= 16


def test_prefix_caching_can_be_off() -> None:
    with LLM(MODEL, **small(enable_prefix_caching=False)) as llm:
        llm.generate([list(range(600))], GREEDY, False)
        output = llm.generate([list(range(600))], GREEDY, False)[0]
        assert output["num_cached_tokens"] == 0


def test_an_aborted_request_has_no_output(own: LLM) -> None:
    gone = own.add_request("a", SamplingParams(0, 50, True))
    kept = own.add_request("b", SamplingParams(0, 2, True))
    own.step()
    assert own.abort(gone)
    assert not own.abort(gone)
    ended = [seq_id for _ in range(3) for seq_id, _ in own.step()[0]]
    assert ended == [kept]
    assert own.is_finished()


@pytest.mark.parametrize("request_id", [-1, 0, 12345, 2**70, "a", None, 1.5])
def test_aborting_what_is_not_there_is_false(llm: LLM, request_id: Any) -> None:
    assert llm.abort(request_id) is False


def test_an_aborted_request_that_did_not_run_finishes(own: LLM) -> None:
    own.abort(own.add_request("a"))
    assert own.is_finished()


def test_without_a_tokenizer_prompts_are_ids() -> None:
    with LLM(MODEL, **small(skip_tokenizer_init=True)) as llm:
        output = llm.generate([[1, 2, 3]], SamplingParams(0, 4, True), False)[0]
        assert len(output["token_ids"]) == 4
        assert output["text"] == ""
        with pytest.raises(ValueError, match="tokenizer"):
            llm.generate(["a"], GREEDY, False)


def test_random_weights_need_only_a_config(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes((Path(MODEL) / "config.json").read_bytes())
    options = small(load_format="dummy", skip_tokenizer_init=True)
    with LLM(tmp_path, **options) as llm:
        output = llm.generate([[1]], SamplingParams(0, 4, True), False)[0]
        assert len(output["token_ids"]) == 4


def test_ids_that_the_tokenizer_does_not_know_have_no_text(tmp_path: Path) -> None:
    # A padded vocabulary: the model can sample ids beyond the tokenizer's.
    config = (Path(MODEL) / "config.json").read_text()
    (tmp_path / "config.json").write_text(
        config.replace('"vocab_size": 4096', '"vocab_size": 9000')
    )
    (tmp_path / "tokenizer.json").symlink_to(Path(MODEL) / "tokenizer.json")
    with LLM(tmp_path, **small(load_format="dummy")) as llm:
        output = llm.generate([[1]], SamplingParams(5.0, 64, True, seed=1), False)[0]
        assert max(output["token_ids"]) >= 4096
        assert output["text"] == llm.tokenizer.decode(output["token_ids"])


def test_an_unknown_quantization_is_refused_with_a_sentence() -> None:
    with pytest.raises(InvalidArgumentError, match="quantization is int3, want none, int8 or int4"):
        LLM(MODEL, quantization="int3")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"device": "tpu"}, "device is tpu, want auto, cuda, cuda:N or cpu"),
        ({"device": 5}, "device is 5, want a string"),
        ({"device": None}, "device is None"),
        ({"threads": -1}, "threads is -1"),
        ({"threads": "4"}, "threads is"),
        ({"threads": None}, "threads is None"),
        ({"max_num_seqs": 0}, "max_num_seqs is 0"),
        ({"max_num_batched_tokens": 2.0}, "max_num_batched_tokens is"),
        ({"max_model_len": 0}, "max_model_len is 0"),
        ({"num_kvcache_blocks": 0}, "num_kvcache_blocks is 0"),
        ({"num_kvcache_blocks": -2}, "num_kvcache_blocks is -2, want -1 for as many as fit"),
        ({"max_model_len": -1}, "max_model_len is -1, want at least 2"),
        ({"kvcache_block_size": 0}, "kvcache_block_size is 0"),
        ({"gpu_memory_utilization": 1.5}, "gpu_memory_utilization is 1.5"),
        ({"gpu_memory_utilization": float("nan")}, "gpu_memory_utilization is NaN"),
        ({"enforce_eager": "no"}, "enforce_eager is"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 2**64}, "seed is an integer of 65 bits"),
        ({"chat_template": "a\0b"}, "chat_template has a NUL character"),
        ({"cache_dir": 5}, "cache_dir is 5, want a string"),
        ({"schedule": "fifo"}, "schedule is fifo, want mixed or prefill-first"),
    ],
)
def test_a_bad_option_is_named(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{sentence}"):
        LLM(MODEL, **options)


@pytest.mark.parametrize("model", [5, None, b"\xff\0", "a\0b", ""])
def test_a_bad_model_is_named(model: Any) -> None:
    with pytest.raises(ValueError, match="^model"):
        LLM(model)


def test_a_model_may_be_a_path() -> None:
    with LLM(Path(MODEL), **small()) as llm:
        assert llm.config.model == Path(MODEL)


def test_the_typed_options_are_the_configs() -> None:
    assert list(ConfigArgs.__annotations__) == list(Config.__annotations__)[1:]


def test_times_are_in_order_and_of_the_monotonic_clock(llm: LLM) -> None:
    before = time.monotonic()
    times = llm.generate(["a"], SamplingParams(0, 3, True), False)[0]["times"]
    assert list(times) == ["arrival", "first_scheduled", "first_token", "last_token"]
    moments = [before, *times.values(), time.monotonic()]
    assert moments == sorted(moments)


@pytest.mark.parametrize("bound", [{"max_num_waiting": 2}, {"max_waiting_tokens": 5}])
def test_prompts_that_may_not_wait_are_held_back(bound: dict[str, int]) -> None:
    with LLM(MODEL, **small(max_num_seqs=2, **bound)) as llm:
        outputs = llm.generate([[i, 2, 3] for i in range(20)], SamplingParams(0, 4, True), False)
        assert [len(output["token_ids"]) for output in outputs] == [4] * 20


def test_more_requests_than_may_wait_are_an_error() -> None:
    with LLM(MODEL, **small(max_num_waiting=1)) as llm:
        llm.add_request("a", SamplingParams(0, 2, True))
        with pytest.raises(CapacityError, match="1 requests are waiting, as many as max_num"):
            llm.add_request("b")
        llm.step()
        llm.add_request("b", SamplingParams(0, 2, True))


def test_a_draining_engine_finishes_what_it_has(own: LLM) -> None:
    seq_id = own.add_request("a", SamplingParams(0, 3, True))
    own.drain()
    with pytest.raises(CapacityError, match="draining"):
        own.add_request("b")
    with pytest.raises(CapacityError, match="^prompt 0: the engine is draining"):
        own.generate(["b", "c"], use_tqdm=False)
    ended: list[int] = []
    while not own.is_finished():
        ended += [seq_id for seq_id, _ in own.step()[0]]
    # generate stepped as long as that could have made room.
    assert ended == [seq_id]


def test_an_engine_that_nobody_holds_is_collected() -> None:
    llm = LLM(MODEL, **small())
    llm.add_request("a")
    handle, gone = llm._engine.handle, weakref.ref(llm)
    del llm
    gc.collect()
    assert gone() is None
    assert not handle.pointer


def test_a_forked_child_cannot_use_the_engine(own: LLM) -> None:
    child = os.fork()
    if not child:
        try:
            own.generate(["a"], use_tqdm=False)
        except RuntimeError as error:
            own.exit()  # harmless there
            os._exit(0 if "fork" in str(error) else 2)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert own.generate([QUESTION], GREEDY, False)[0]["text"] == ANSWER


# ---- Tokenizer ----


def test_the_tokenizer_is_the_models(llm: LLM) -> None:
    ids = llm.tokenizer.encode(QUESTION)
    assert llm.tokenizer.decode(ids) == QUESTION
    assert "<|im_start|>" not in llm.tokenizer.decode(ids, skip_special_tokens=True)


def test_a_tokenizer_alone() -> None:
    tokenizer = Tokenizer(Path(MODEL) / "tokenizer.json")
    assert tokenizer.decode(tokenizer.encode("héllo\0 wörld")) == "héllo\0 wörld"
    assert tokenizer.encode("") == []
    assert tokenizer.decode([]) == ""
    with pytest.raises(ValueError, match="no chat template"):
        tokenizer.apply_chat_template(CHAT)


def test_a_chat_becomes_a_prompt() -> None:
    tokenizer = Tokenizer(MODEL)
    text = tokenizer.apply_chat_template(
        CHAT, tokenize=False, add_generation_prompt=True, enable_thinking=False
    )
    assert text == QUESTION
    ids = tokenizer.apply_chat_template(CHAT, add_generation_prompt=True, enable_thinking=False)
    assert ids == tokenizer.encode(QUESTION)


def test_a_chat_template_of_ones_own(tmp_path: Path) -> None:
    template = tmp_path / "mine.jinja"
    template.write_text("{{ messages[0].content }}!")
    tokenizer = Tokenizer(MODEL, chat_template=template)
    assert tokenizer.apply_chat_template(CHAT, tokenize=False) == "What is 37 + 58?!"
    with LLM(MODEL, **small(chat_template=template)) as llm:
        by_chat = llm.chat(CHAT, GREEDY, False)[0]["token_ids"]
        assert by_chat == llm.generate(["What is 37 + 58?!"], GREEDY, False)[0]["token_ids"]


def test_a_template_that_raises_says_where(tmp_path: Path) -> None:
    template = tmp_path / "mine.jinja"
    template.write_text("{{ raise_exception('no') }}")
    with pytest.raises(ValueError, match="mine.jinja.*no"):
        Tokenizer(MODEL, chat_template=template).apply_chat_template(CHAT)
