"""SamplingParams: its checks, and its effects in the engine."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
from conftest import ANSWER, EOS, MODEL, QUESTION, SPOKEN, same_ids, small
from nanovllm import LLM, SamplingParams, _library
from nanovllm.sampling_params import _DEFAULTS


def greedy(**fields: Any) -> SamplingParams:
    return SamplingParams(temperature=0, **{"max_tokens": 60, **fields})


def test_every_parameter_of_the_library_is_a_field() -> None:
    assert set(_library.sampling_params()) == set(_DEFAULTS)


@pytest.mark.parametrize("name", sorted(_DEFAULTS))
def test_ranges_are_the_librarys(name: str) -> None:
    param = _library.sampling_params()[name]
    for beyond in (param.min - 1, param.max + 1):
        # A bool's next integer, an integer's, a number's.
        value: Any = beyond if name in ("temperature", "top_p", "min_p") else int(beyond)
        if name in ("stop", "stop_token_ids", "bad_words", "allowed_token_ids", "logprob_token_ids"):
            value = [beyond]
        elif name == "logit_bias":
            value = {1: beyond}
        elif name == "seed":
            value = -2 if beyond < 0 else 2**63
        with pytest.raises(ValueError, match=name):
            SamplingParams(**{name: value})


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": float("nan")},
        {"temperature": float("inf")},
        {"temperature": "hot"},
        {"temperature": None},
        {"temperature": True},
        {"top_p": 0},
        {"top_k": 2.5},
        {"ignore_eos": 2},
        {"ignore_eos": "yes"},
        {"seed": 10**5000},
        {"stop": [""]},
        {"stop": ["a"] * 17},
        {"stop": "a\0b"},
        {"stop": "\ud800"},
        {"stop": 5},
        {"stop_token_ids": [-1]},
        {"stop_token_ids": "12"},
        {"allowed_token_ids": []},
        {"allowed_token_ids": 5},
        {"bad_words": [""]},
        {"bad_words": "x" * 257},
        {"logit_bias": {"x": 1}},
        {"logit_bias": [1]},
        {"logprobs": 21},
        {"n": 0},
        {"n": 1.0},
        {"n": True},
        {"n": 1025},
    ],
)
def test_a_bad_value_names_its_field(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(fields))):
        SamplingParams(**fields)


def test_an_unknown_parameter_suggests_the_nearest() -> None:
    with pytest.raises(TypeError, match='"max_token"; did you mean "max_tokens"'):
        SamplingParams(max_token=5)  # type: ignore[call-arg]


def test_assignment_is_checked_too() -> None:
    params = SamplingParams()
    with pytest.raises(ValueError, match="top_p is 2"):
        params.top_p = 2
    with pytest.raises(AttributeError, match='did you mean "top_p"'):
        params.topp = 0.5  # type: ignore[attr-defined]
    assert params == SamplingParams()


def test_a_list_that_was_changed_later_is_checked_again(llm: LLM) -> None:
    stop: list[Any] = ["x"]
    params = greedy(stop=stop)
    stop.append(5)
    with pytest.raises(ValueError, match="entry 1 of stop"):
        llm.generate([QUESTION], params, False)


def test_copies_are_equal() -> None:
    params = SamplingParams(0.5, stop=["a"], seed=7, n=2)
    assert copy.deepcopy(params) == params
    assert pickle.loads(pickle.dumps(params)) == params
    assert "temperature=0.5" in repr(params)


def test_numbers_of_other_libraries_are_numbers(llm: LLM) -> None:
    class Number:
        def __init__(self, value: float) -> None:
            self.value = value

        def __float__(self) -> float:
            return float(self.value)

    class Whole:
        def __index__(self) -> int:
            return 3

    params = SamplingParams(temperature=Number(0), max_tokens=Whole())  # type: ignore[arg-type]
    assert len(llm.generate([QUESTION], params, False)[0]["token_ids"]) == 3


def test_a_seed_repeats(llm: LLM) -> None:
    params = SamplingParams(2.0, 12, True, seed=11)
    first, again = llm.generate(["a", "a"], params, False)
    assert first["token_ids"] == again["token_ids"]
    params.seed = 12
    assert llm.generate(["a"], params, False)[0]["token_ids"] != first["token_ids"]


def test_stop_strings_end_and_are_left_out(llm: LLM) -> None:
    output = llm.generate([QUESTION], greedy(stop=[" = 9", "zzz"]), False)[0]
    assert output["text"] == "37 + 58"
    assert output["finish_reason"] == "stop"


def test_a_stop_string_alone_is_a_list_of_one(llm: LLM) -> None:
    assert llm.generate([QUESTION], greedy(stop="="), False)[0]["text"] == "37 + 58 "


@pytest.mark.parametrize(
    ("stop", "text"),
    [("<|im_end|>", "37 + 58 = 95."), (" 95.<|im", "37 + 58 ="), ("end", "37 + 58 = 95.<|im_")],
)
def test_a_stop_string_in_the_eos_tokens_text_is_left_out(llm: LLM, stop: str, text: str) -> None:
    output = llm.generate([QUESTION], greedy(stop=stop), False)[0]
    assert output["text"] == text
    assert output["token_ids"][-1] == EOS


def test_stop_strings_that_do_not_come_change_nothing(llm: LLM) -> None:
    assert llm.generate([QUESTION], greedy(stop="zzz"), False)[0]["text"] == ANSWER


def test_stop_token_ids_end_and_are_kept(llm: LLM) -> None:
    (token,) = llm.tokenizer.encode(" =")
    output = llm.generate([QUESTION], greedy(stop_token_ids=[token]), False)[0]
    assert output["token_ids"][-1] == token
    assert output["text"] == "37 + 58 ="


@pytest.mark.parametrize(
    ("fields", "eos", "stop_token", "stop_string"),
    [
        ({}, ANSWER, "37 + 58 =", "37 + 58"),
        ({"skip_special_tokens": False}, ANSWER, "37 + 58 =", "37 + 58"),
        ({"skip_special_tokens": True}, SPOKEN, "37 + 58", "37 + 58"),
        ({"include_stop_str_in_output": True}, ANSWER, "37 + 58 =", "37 + 58 = 9"),
        (
            {"include_stop_str_in_output": True, "skip_special_tokens": True},
            SPOKEN,
            "37 + 58 =",
            "37 + 58 = 9",
        ),
    ],
)
def test_what_a_text_ends_with(
    llm: LLM, fields: dict[str, Any], eos: str, stop_token: str, stop_string: str
) -> None:
    (token,) = llm.tokenizer.encode(" =")
    ends = [greedy(**fields), greedy(stop_token_ids=[token], **fields)]
    ends.append(greedy(stop=" = 9", **fields))
    outputs = llm.generate([QUESTION] * 3, ends, False)
    assert [output["text"] for output in outputs] == [eos, stop_token, stop_string]


@pytest.mark.parametrize("skip", [False, True])
def test_a_chat_may_keep_special_tokens(llm: LLM, skip: bool) -> None:
    chat = [{"role": "user", "content": "What is 37 + 58?"}]
    kwargs = {"enable_thinking": False}
    params = greedy(skip_special_tokens=skip)
    (output,) = llm.chat(chat, params, False, chat_template_kwargs=kwargs)
    assert output["text"] == (SPOKEN if skip else ANSWER)


def test_min_tokens_keep_an_answer_from_ending(llm: LLM) -> None:
    length = len(llm.generate([QUESTION], greedy(), False)[0]["token_ids"])
    output = llm.generate([QUESTION], greedy(min_tokens=length), False)[0]
    assert EOS not in output["token_ids"][:length]
    with pytest.raises(ValueError, match="min_tokens is 61, more than max_tokens 60"):
        llm.generate([QUESTION], greedy(min_tokens=61), False)


def test_a_bias_of_minus_infinity_bans(llm: LLM) -> None:
    params = SamplingParams(0, 12, logit_bias={EOS: float("-inf")})
    output = llm.generate([QUESTION], params, False)[0]
    assert EOS not in output["token_ids"]


def test_allowed_tokens_alone_are_generated(llm: LLM) -> None:
    allowed = llm.tokenizer.encode("0123456789")
    params = greedy(allowed_token_ids=allowed, max_tokens=8)
    (output,) = llm.generate([QUESTION], params, False)
    assert len(output["token_ids"]) == 8
    assert set(output["token_ids"]) <= set(allowed)
    assert output["text"].isdigit()


def test_bad_words_are_not_generated(llm: LLM) -> None:
    """ "95" is two tokens, "=" is one with and without a space before it."""
    (output,) = llm.generate([QUESTION], greedy(bad_words=["95"]), False)
    assert output["text"].startswith("37 + 58 = 9")
    assert "95" not in output["text"]
    (output,) = llm.generate([QUESTION], greedy(bad_words="="), False)
    assert output["text"].startswith("37 + 58")
    assert "=" not in output["text"]


def test_logprobs_are_of_each_token(llm: LLM) -> None:
    output = llm.generate([QUESTION], greedy(logprobs=2), False)[0]
    assert output["text"] == ANSWER
    assert len(output["logprobs"]) == len(output["token_ids"])
    for token, row in zip(output["token_ids"], output["logprobs"]):
        assert len(row) == 3
        assert row[0][0] == row[1][0] == token  # greedy: the chosen one is the best
        assert 0 >= row[1][1] >= row[2][1]


def test_logprobs_of_the_chosen_token_alone(llm: LLM) -> None:
    rows = llm.generate([QUESTION], greedy(logprobs=0), False)[0]["logprobs"]
    assert all(len(row) == 1 for row in rows)


def test_a_lower_priority_runs_first() -> None:
    with LLM(MODEL, **small(max_num_seqs=1)) as llm:
        ids = [
            llm.add_request("a", SamplingParams(0, 2, True, priority=priority))
            for priority in (0, 1, -1, 0)
        ]
        ended = []
        while not llm.is_finished():
            ended += [seq_id for seq_id, _ in llm.step()[0]]
    assert ended == [ids[2], ids[0], ids[3], ids[1]]


@same_ids
def test_prompt_logprobs_are_those_of_generated_tokens(own: LLM) -> None:
    prompt = list(range(300, 340))
    (first,) = own.generate([prompt], SamplingParams(1.2, 30, True, seed=1, logprobs=2), False)
    whole = prompt + first["token_ids"]
    (output,) = own.generate([whole], SamplingParams(0, 1, prompt_logprobs=2), False)
    rows = output["prompt_logprobs"]
    assert len(rows) == len(whole)
    assert rows[0] is None
    assert [row[0][0] for row in rows[1:]] == whole[1:]
    assert rows[len(prompt) :] == first["logprobs"]
    assert output["num_cached_tokens"] == 0
    assert "prompt_logprobs" not in first


def test_prompt_logprobs_of_the_prompts_tokens_alone(llm: LLM) -> None:
    outputs = llm.generate([[5], [5, 6, 7]], greedy(max_tokens=1, prompt_logprobs=0), False)
    assert outputs[0]["prompt_logprobs"] == [None]
    assert [len(row or [0]) for row in outputs[1]["prompt_logprobs"]] == [1, 1, 1]


def test_prompt_logprobs_of_the_whole_vocabulary(llm: LLM) -> None:
    params = SamplingParams(0, 1)
    params.prompt_logprobs = -1
    listed, whole = llm.generate([[5, 6, 7]] * 2, [greedy(max_tokens=1, prompt_logprobs=20), params], False)
    assert whole["prompt_logprobs"][0] is None
    for row, best in zip(whole["prompt_logprobs"][1:], listed["prompt_logprobs"][1:], strict=True):
        assert row[:21] == best
        assert sorted(token for token, _ in row[1:]) == list(range(4096))


def test_an_echo_is_the_prompts_text(llm: LLM) -> None:
    (output,) = llm.generate([QUESTION], greedy(echo=True), False)
    assert output["text"] == QUESTION + ANSWER
    assert llm.tokenizer.decode(output["token_ids"]) == ANSWER
    (output,) = llm.generate([QUESTION], greedy(echo=True, stop=" = 9", n=2), False)
    assert [one.text for one in output.outputs] == [QUESTION + "37 + 58"] * 2


def test_n_outputs_of_a_prompt(own: LLM) -> None:
    params = SamplingParams(2.0, 8, True, n=4, seed=5)
    (output,) = own.generate([list(range(300))], params, False)
    assert [one.index for one in output.outputs] == [0, 1, 2, 3]
    assert len({tuple(one.token_ids) for one in output.outputs}) == 4
    assert all(one.finish_reason == "length" for one in output.outputs)
    assert own.stats()["num_requests_added"] == own.stats()["num_requests_finished"] == 4


def test_an_output_is_nano_vllms_dict_and_vllms_object(llm: LLM) -> None:
    (output,) = llm.generate([QUESTION], greedy(logprobs=0), False)
    (first,) = output.outputs
    assert (first.text, first.token_ids) == (output["text"], output["token_ids"])
    assert (first.finish_reason, first.stop_reason) == (output["finish_reason"], EOS)
    assert (first.logprobs, first.times) == (output["logprobs"], output["times"])
    assert pickle.loads(pickle.dumps(output)).outputs == output.outputs
    (output,) = llm.generate([QUESTION], greedy(stop=" = 9"), False)
    assert output.outputs[0].stop_reason == " = 9"
    (output,) = llm.generate([QUESTION], greedy(max_tokens=1), False)
    assert output.outputs[0].stop_reason is None


@same_ids
def test_output_i_is_the_one_with_the_seed_plus_i(own: LLM) -> None:
    prompt = list(range(300))
    (output,) = own.generate([prompt], SamplingParams(2.0, 8, True, n=4, seed=5), False)
    for index in range(4):
        alone = own.generate([prompt], SamplingParams(2.0, 8, True, seed=5 + index), False)[0]
        assert alone["token_ids"] == output.outputs[index].token_ids


@pytest.mark.parametrize("caching", [False, True])
def test_n_outputs_compute_the_prompt_once(caching: bool) -> None:
    with LLM(MODEL, **small(enable_prefix_caching=caching)) as llm:
        (output,) = llm.generate([list(range(600))], SamplingParams(2.0, 4, True, n=4), False)
        # 37 blocks of 16 are shared, 8 tokens are each output's own.
        assert llm.stats()["num_prefill_tokens"] == 600 + 3 * 8
        assert llm.stats()["num_cached_tokens"] == output["num_cached_tokens"] == 0


def test_n_without_a_seed_differs(own: LLM) -> None:
    (output,) = own.generate(["a"], SamplingParams(2.0, 8, True, n=3), False)
    assert len({tuple(one.token_ids) for one in output.outputs}) == 3


def test_stop_strings_end_each_output_by_itself(llm: LLM) -> None:
    params = SamplingParams(1.5, 40, n=4, seed=1, stop=["e"], logprobs=0)
    (output,) = llm.generate([QUESTION], params, False)
    for one in output.outputs:
        assert one.logprobs is not None
        assert [row[0][0] for row in one.logprobs] == one.token_ids
        assert ("e" in llm.tokenizer.decode(one.token_ids)) == (one.stop_reason == "e")
        assert "e" not in one.text.split("<")[0]


def test_n_is_for_generate_and_chat(llm: LLM) -> None:
    with pytest.raises(ValueError, match="n is 2, but add_request wants 1"):
        llm.add_request("a", SamplingParams(n=2))
