"""nano-vllm's behaviour, row by row: Config, SamplingParams, LLM. Where it is a bug of nano-vllm's,
the test has its number and asserts what is right."""

from __future__ import annotations

import inspect
import os
import random
from pathlib import Path

import nanovllm
import pytest
from conftest import ANSWER, EOS, EOS_TOO, MODEL, QUESTION, same_ids, small
from nanovllm import LLM, Config, NanovllmError, SamplingParams

GREEDY = SamplingParams(temperature=0, max_tokens=60)
STORY = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)

# ---- Config ----


def test_the_public_names_are_importable() -> None:
    from nanovllm import LLM, SamplingParams

    assert inspect.isclass(LLM) and inspect.isclass(SamplingParams)


@pytest.mark.parametrize(
    ("name", "default"),
    [
        ("max_num_batched_tokens", 16384),
        ("max_num_seqs", 512),
        ("max_model_len", 4096),
        ("gpu_memory_utilization", 0.9),
        ("tensor_parallel_size", 1),
        ("enforce_eager", False),
        ("kvcache_block_size", 16),  # ours: 256 is what FlashAttention needs
        ("num_kvcache_blocks", -1),
    ],
)
def test_config_defaults(name: str, default: object) -> None:
    assert getattr(Config("x"), name) == default


def test_the_engine_gets_the_defaults() -> None:
    with LLM(MODEL, device="cpu", kv_cache_gib=0.25) as llm:
        stats = llm.stats()
        assert stats["block_size"] == 16
        assert stats["max_model_len"] == 4096
        assert stats["num_kv_blocks"] > 0


def test_a_default_cache_fits_the_memory_of_this_machine() -> None:
    with LLM(MODEL, device="cpu") as llm:
        assert llm.stats()["num_kv_blocks"] * 16 >= 4096


def test_a_model_that_is_no_folder_is_refused() -> None:
    with pytest.raises(OSError, match="Qwen/Qwen3-0.6B is not a folder"):
        LLM("Qwen/Qwen3-0.6B")


def test_max_model_len_is_at_most_the_models() -> None:
    with LLM(MODEL, **small(max_model_len=1 << 20)) as llm:
        assert llm.stats()["max_model_len"] == 4096


def test_max_model_len_may_be_less() -> None:
    with LLM(MODEL, **small(max_model_len=100)) as llm:
        assert llm.stats()["max_model_len"] == 100
        assert (
            llm.generate(["a"], SamplingParams(0, 4000, True), False)[0]["finish_reason"]
            == "length"
        )


def test_tensor_parallel_size_runs_as_many_processes() -> None:
    with LLM(MODEL, **small(device="cpu", tensor_parallel_size=2)) as llm:
        outputs = llm.generate([QUESTION], SamplingParams(temperature=0.0001, max_tokens=32), False)
    assert outputs[0]["text"] == ANSWER


def test_tensor_parallel_size_that_the_heads_forbid() -> None:
    with pytest.raises(NotImplementedError, match="8 attention heads on 4 .* by 3 ranks"):
        LLM(MODEL, **small(device="cpu", tensor_parallel_size=3))


@pytest.mark.parametrize("size", [0, -1, "2", None, 1.5, True, 65])
def test_tensor_parallel_size_wants_an_integer(size: object) -> None:
    with pytest.raises(ValueError, match="tensor_parallel_size is .*"):
        LLM(MODEL, tensor_parallel_size=size)


def test_data_parallel_size_gives_the_same_in_order() -> None:
    prompts = [QUESTION, "Once upon a time", "The sun"] * 3
    params = SamplingParams(temperature=0.8, max_tokens=24)
    outputs = []
    for size in (1, 2):
        with LLM(MODEL, **small(device="cpu", data_parallel_size=size)) as llm:
            outputs.append([o["token_ids"] for o in llm.generate(prompts, params, False)])
    assert outputs[0] == outputs[1]


def test_data_parallel_engines_are_not_traced(tmp_path: Path) -> None:
    with pytest.raises(NotImplementedError, match="data_parallel_size is 2"):
        LLM(MODEL, **small(device="cpu", data_parallel_size=2, trace=tmp_path / "trace.json"))


def test_a_worker_program_that_is_not_there() -> None:
    with pytest.raises(Exception, match="cannot start /nonexistent/nanovllm"):
        LLM(MODEL, **small(device="cpu", tensor_parallel_size=2, worker_program="/nonexistent/nanovllm"))


def test_a_forked_child_leaves_the_ranks_alone() -> None:
    with LLM(MODEL, **small(device="cpu", tensor_parallel_size=2)) as llm:
        child = os.fork()
        if child == 0:
            os._exit(0)
        assert os.waitpid(child, 0) == (child, 0)
        outputs = llm.generate([QUESTION], SamplingParams(temperature=0.0001, max_tokens=32), False)
    assert outputs[0]["text"] == ANSWER


def test_a_block_size_that_is_no_multiple_is_refused() -> None:
    with pytest.raises(ValueError, match="^kvcache_block_size is 100, want a multiple of 16"):
        LLM(MODEL, kvcache_block_size=100)


def test_unknown_options_are_not_dropped_b22() -> None:
    with pytest.raises(TypeError, match='"max_num_seq"; did you mean "max_num_seqs"'):
        LLM(MODEL, max_num_seq=4)


def test_max_num_batched_tokens_may_be_less_than_max_model_len() -> None:
    with LLM(MODEL, **small(max_num_batched_tokens=32)) as llm:
        assert llm.generate([QUESTION * 3], GREEDY, False)[0]["finish_reason"] == "stop"


# ---- SamplingParams ----


def test_sampling_defaults_and_positions() -> None:
    params = SamplingParams()
    assert (params.temperature, params.max_tokens, params.ignore_eos) == (1.0, 64, False)
    params = SamplingParams(0.6, 256, True)
    assert (params.temperature, params.max_tokens, params.ignore_eos) == (0.6, 256, True)


def test_the_models_own_defaults_do_not_apply(own: LLM) -> None:
    # generation_config.json has top_k 20; with a temperature of 100 all tokens are about as likely.
    params = SamplingParams(temperature=100, max_tokens=64, ignore_eos=True, seed=3)
    free = own.generate([[1]], params, False)[0]["token_ids"]
    params.top_k = 20
    assert own.generate([[1]], params, False)[0]["token_ids"] != free


@pytest.mark.parametrize("temperature", [0, 0.0, 1e-11])
def test_temperature_zero_is_greedy(llm: LLM, temperature: float) -> None:
    output = llm.generate([QUESTION], SamplingParams(temperature, 60), False)[0]
    assert output["text"] == ANSWER


@pytest.mark.parametrize("max_tokens", [0, -1, 2.0, "8", None, True, 2**31])
def test_max_tokens_is_checked_b2(max_tokens: object) -> None:
    with pytest.raises(ValueError, match="^max_tokens is"):
        SamplingParams(max_tokens=max_tokens)


# ---- LLM ----


def test_generate_returns_dicts_in_request_order(llm: LLM) -> None:
    prompts = [f"{i} and" for i in range(20)]
    lengths = [random.Random(i).randint(1, 12) for i in range(20)]
    params = [SamplingParams(0, length, True) for length in lengths]
    outputs = llm.generate(prompts, params, use_tqdm=False)
    assert [len(output["token_ids"]) for output in outputs] == lengths
    assert [output["token_ids"] for output in outputs] == [
        llm.generate([prompt], one, False)[0]["token_ids"] for prompt, one in zip(prompts, params)
    ]


def test_the_keys_of_an_output(llm: LLM) -> None:
    output = llm.generate(["a"], STORY, False)[0]
    assert list(output) == ["text", "token_ids", "finish_reason", "num_cached_tokens", "times"]


def test_eos_is_part_of_ids_and_text(llm: LLM) -> None:
    output = llm.generate([QUESTION], GREEDY, False)[0]
    assert output["token_ids"][-1] == EOS
    assert output["text"] == ANSWER
    assert output["finish_reason"] == "stop"


def test_text_is_the_decoding_of_the_ids(llm: LLM) -> None:
    for output in llm.generate([[i] for i in range(40)], SamplingParams(1.5, 30, True), False):
        assert output["text"] == llm.tokenizer.decode(output["token_ids"])


def test_one_params_object_is_for_all_prompts(llm: LLM) -> None:
    outputs = llm.generate(["a", "b", "c"], STORY, False)
    assert [len(output["token_ids"]) for output in outputs] == [8, 8, 8]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_another_number_of_params_drops_no_prompt_b22(llm: LLM, count: int) -> None:
    with pytest.raises(ValueError, match=f"sampling_params has {count} entries for 2 prompts"):
        llm.generate(["a", "b"], [STORY] * count, False)


def test_a_text_alone_is_one_prompt(llm: LLM) -> None:
    assert llm.generate(QUESTION, GREEDY, False)[0]["text"] == ANSWER


def test_prompts_are_texts_ids_or_dicts(llm: LLM) -> None:
    ids = llm.tokenizer.encode(QUESTION)
    prompts = [QUESTION, ids, tuple(ids), {"prompt_token_ids": ids}, {"prompt": QUESTION}]
    outputs = llm.generate(prompts, GREEDY, False)
    assert [output["text"] for output in outputs] == [ANSWER] * 5


def test_no_prompts_are_no_outputs(llm: LLM) -> None:
    assert llm.generate([], STORY) == []


def test_both_eos_ids_end_a_request_b21(llm: LLM) -> None:
    params = SamplingParams(0, 5, logit_bias={EOS_TOO: 100})
    output = llm.generate(["a"], params, False)[0]
    assert output["token_ids"] == [EOS_TOO]
    assert output["finish_reason"] == "stop"


def test_ignore_eos_runs_to_max_tokens(llm: LLM) -> None:
    output = llm.generate([QUESTION], SamplingParams(0, 60, True), False)[0]
    assert len(output["token_ids"]) == 60
    assert output["finish_reason"] == "length"


def test_an_empty_prompt_is_refused_b2(llm: LLM) -> None:
    with pytest.raises(ValueError, match="prompt 1: the prompt is empty"):
        llm.generate(["a", [], "b"], STORY, False)


def test_a_prompt_beyond_max_model_len_is_refused_b3(own: LLM) -> None:
    with pytest.raises(ValueError, match="4096"):
        own.generate([[1] * 4096], STORY, False)


def test_a_request_larger_than_the_cache_is_refused_b1() -> None:
    with LLM(MODEL, **small(num_kvcache_blocks=32)) as llm:
        with pytest.raises(ValueError, match="block"):
            llm.generate([[1] * 600], STORY, False)
        assert llm.generate([QUESTION], GREEDY, False)[0]["text"] == ANSWER


@same_ids
def test_many_requests_in_a_small_cache_are_preempted_and_end() -> None:
    with LLM(MODEL, **small(num_kvcache_blocks=4)) as llm:
        outputs = llm.generate([[i, 2, 3] for i in range(6)], SamplingParams(0, 40, True), False)
        assert llm.stats()["num_preemptions"] > 0
    with LLM(MODEL, **small()) as llm:
        again = llm.generate([[i, 2, 3] for i in range(6)], SamplingParams(0, 40, True), False)
    assert [o["token_ids"] for o in outputs] == [o["token_ids"] for o in again]


# ---- add_request, step, is_finished, exit ----


def test_step_returns_ended_requests_and_tokens(in_step: LLM) -> None:
    first = in_step.add_request([1, 2, 3, 4, 5], SamplingParams(0, 3, True))
    second = in_step.add_request("Once", SamplingParams(0, 1, True))
    assert not in_step.is_finished()
    outputs, num_tokens = in_step.step()
    assert [seq_id for seq_id, _ in outputs] == [second]
    assert num_tokens == 5 + len(in_step.tokenizer.encode("Once"))  # prompts: positive
    outputs, num_tokens = in_step.step()
    assert (outputs, num_tokens) == ([], -1)  # one decode: negative
    outputs, num_tokens = in_step.step()
    assert [seq_id for seq_id, _ in outputs] == [first]
    assert len(outputs[0][1]) == 3
    assert in_step.is_finished()


def test_cached_tokens_are_not_counted_in_a_prefill(in_step: LLM) -> None:
    prompt = list(range(600))
    in_step.generate([prompt], STORY, False)
    in_step.add_request(prompt, STORY)
    assert in_step.step()[1] == 600 - 592  # the last block is always computed


def test_decodes_that_ride_along_with_a_prompt_are_not_counted(in_step: LLM) -> None:
    in_step.add_request([1, 2, 3], SamplingParams(0, 9, True))
    in_step.step()
    in_step.add_request([4, 5, 6, 7], SamplingParams(0, 9, True))
    assert in_step.step()[1] == 4
    assert in_step.step()[1] == -2


def test_prefill_first_never_mixes() -> None:
    with LLM(MODEL, **small(schedule="prefill-first", async_scheduling="off")) as llm:
        llm.add_request([1, 2, 3], SamplingParams(0, 9, True))
        llm.step()
        before = llm.stats()["num_decode_tokens"]
        llm.add_request([4, 5, 6, 7], SamplingParams(0, 9, True))
        assert llm.step()[1] == 4
        assert llm.stats()["num_decode_tokens"] == before


def test_a_step_with_nothing_to_do(own: LLM) -> None:
    assert own.step() == ([], 0)


def test_leftovers_of_add_request_are_not_mixed_into_generate_b22(own: LLM) -> None:
    left = own.add_request("Once", SamplingParams(0, 2, True))
    outputs = own.generate([QUESTION], GREEDY, False)
    assert [output["text"] for output in outputs] == [ANSWER]
    assert not own.is_finished()  # its output waits for step()
    assert [seq_id for seq_id, _ in own.step()[0]] == [left]
    assert own.is_finished()


def test_exit_twice_is_fine_b23() -> None:
    llm = LLM(MODEL, **small())
    llm.exit()
    llm.exit()
    with pytest.raises(NanovllmError, match="has exited"):
        llm.generate(["a"])


def test_two_engines_in_one_process_b10_b11_b23() -> None:
    with LLM(MODEL, **small(kvcache_block_size=256)) as a, LLM(MODEL, **small()) as b:
        for llm in (a, b):
            assert llm.generate([QUESTION], GREEDY, False)[0]["text"] == ANSWER


def test_a_context_manager_exits() -> None:
    with LLM(MODEL, **small()) as llm:
        pass
    with pytest.raises(NanovllmError, match="has exited"):
        llm.is_finished()


def test_the_version_is_the_librarys() -> None:
    from nanovllm import _library

    assert _library.library().nvllm_version().decode() == nanovllm.__version__
