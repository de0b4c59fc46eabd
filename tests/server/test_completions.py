"""POST /v1/completions: answers, streams, and what is refused."""

import threading

from server_fixture import ServerTest, main

PATH = "/v1/completions"
GREEDY = {"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0}


class Completions(ServerTest):
    def complete(self, **members):
        status, body = self.server.post(PATH, {**GREEDY, **members})
        self.assertEqual(status, 200, body)
        return body

    def refuse(self, param, members, status=400, code=None):
        self.check_error(self.server.post(PATH, {**GREEDY, **members}), status, param, code)

    def test_answer(self):
        body = self.complete()
        self.assertRegex(body["id"], "^cmpl-[0-9a-f]{24}$")
        self.assertEqual(body["object"], "text_completion")
        self.assertEqual(body["model"], "tiny-qwen3")
        self.assertIsInstance(body["created"], int)
        (choice,) = body["choices"]
        self.assertEqual((choice["index"], choice["logprobs"], choice["finish_reason"]), (0, None, "length"))
        self.assertTrue(choice["text"])
        usage = body["usage"]
        self.assertEqual((usage["completion_tokens"], usage["total_tokens"]), (8, usage["prompt_tokens"] + 8))

    def test_default_max_tokens(self):
        self.assertEqual(self.complete(max_tokens=None, ignore_eos=True)["usage"]["completion_tokens"], 16)

    def test_several_prompts(self):
        ids = self.server.post("/tokenize", {"prompt": "The capital"})[1]["tokens"]
        alone = [self.complete(prompt=prompt)["choices"][0]["text"] for prompt in ("Once upon", ids)]
        body = self.complete(prompt=["Once upon", ids])
        self.assertEqual([choice["index"] for choice in body["choices"]], [0, 1])
        self.assertEqual([choice["text"] for choice in body["choices"]], alone)

    def test_ids_are_a_prompt(self):
        ids = self.server.post("/tokenize", {"prompt": GREEDY["prompt"]})[1]["tokens"]
        self.assertEqual(self.complete(prompt=ids)["choices"], self.complete()["choices"])

    def test_seed(self):
        hot = {"temperature": 1.0, "max_tokens": 24}
        texts = [self.complete(seed=seed, **hot)["choices"][0]["text"] for seed in (1, 1, 2)]
        self.assertEqual(texts[0], texts[1])
        self.assertNotEqual(texts[0], texts[2])

    def test_stop(self):
        whole = self.complete(max_tokens=40)["choices"][0]["text"]
        stop = whole[10:14]
        choice = self.complete(max_tokens=40, stop=stop)["choices"][0]
        self.assertEqual((choice["finish_reason"], choice["stop_reason"]), ("stop", stop))
        self.assertEqual(choice["text"], whole[:whole.index(stop)])
        text = "".join(event["choices"][0]["text"]
                       for event in self.server.stream(PATH, {**GREEDY, "max_tokens": 40, "stop": [stop]}))
        self.assertEqual(text, choice["text"])

    def test_stream_equals_whole(self):
        for members in ({}, {"temperature": 1.0, "seed": 5, "max_tokens": 60},
                        {"prompt": ["Once", "The", "A 😀"], "seed": 3, "temperature": 1.2, "max_tokens": 30},
                        {"logprobs": 2}):
            whole = self.complete(**members)
            events = self.server.stream(PATH, {**GREEDY, **members})
            self.assertEqual({event["id"] for event in events}, {events[0]["id"]})
            for choice in whole["choices"]:
                chunks = [event["choices"][0] for event in events if event["choices"][0]["index"] == choice["index"]]
                self.assertEqual("".join(chunk["text"] for chunk in chunks), choice["text"])
                self.assertEqual([chunk["finish_reason"] for chunk in chunks],
                                 [None] * (len(chunks) - 1) + [choice["finish_reason"]])
                if choice["logprobs"]:
                    for name, values in choice["logprobs"].items():
                        self.assertEqual(sum((chunk["logprobs"][name] for chunk in chunks), []), values, name)
            self.assertNotIn("usage", events[0])

    def test_stream_usage(self):
        events = self.server.stream(PATH, {**GREEDY, "stream_options": {"include_usage": True}})
        self.assertEqual(events[-1]["choices"], [])
        self.assertEqual(events[-1]["usage"]["completion_tokens"], 8)
        self.assertTrue(all(event["usage"] is None for event in events[:-1]))
        options = {"include_usage": True, "continuous_usage_stats": True}
        events = self.server.stream(PATH, {**GREEDY, "stream_options": options})
        self.assertEqual(events[-1]["usage"]["completion_tokens"], 8)
        self.assertGreaterEqual(events[0]["usage"]["completion_tokens"], 1)
        events = self.server.stream(PATH, {**GREEDY, "echo": True, "stream_options": options})
        self.assertEqual(events[0]["usage"]["completion_tokens"], 0)
        for event in self.server.stream(PATH, {**GREEDY, "stream_options": {"continuous_usage_stats": True}}):
            self.assertNotIn("usage", event)

    def test_token_ids(self):
        prompts = ["Once upon", "The capital"]
        prompt_ids = [self.server.post("/tokenize", {"prompt": prompt})[1]["tokens"] for prompt in prompts]
        for echo in (False, True):
            asked = {"prompt": prompts, "n": 2, "echo": echo, "return_token_ids": True}
            whole = self.complete(**asked, logprobs=0, return_tokens_as_token_ids=True)
            events = self.server.stream(PATH, {**GREEDY, **asked})
            for choice in whole["choices"]:
                want = prompt_ids[choice["index"] // 2]
                ids = [int(token.split(":")[1]) for token in choice["logprobs"]["tokens"]][len(want) if echo else 0:]
                self.assertEqual((choice["token_ids"], choice["prompt_token_ids"]), (ids, want))
                chunks = [event["choices"][0] for event in events if event["choices"][0]["index"] == choice["index"]]
                self.assertEqual(sum((chunk["token_ids"] for chunk in chunks), []), ids)
                self.assertEqual([chunk.get("prompt_token_ids") for chunk in chunks], [want] + [None] * (len(chunks) - 1))
                if echo:
                    self.assertEqual(chunks[0]["token_ids"], [])
        choice = self.complete()["choices"][0]
        self.assertEqual((choice["token_ids"], choice["prompt_token_ids"], choice["prompt_logprobs"]), (None,) * 3)
        chunk = self.server.stream(PATH, GREEDY)[0]["choices"][0]
        self.assertFalse({"token_ids", "prompt_token_ids", "prompt_logprobs"} & set(chunk))
        choice = self.complete(max_tokens=0, echo=True, return_token_ids=True)["choices"][0]
        self.assertEqual(choice["token_ids"], [])

    def test_timings(self):
        body = self.complete()
        self.assertEqual(body["timings"]["predicted_n"], 8)
        self.assertNotIn("timings", self.complete(prompt=["a", "b"]))
        events = self.server.stream(PATH, GREEDY)
        self.assertEqual(["timings" in event for event in events], [False] * (len(events) - 1) + [True])

    def test_logprobs(self):
        body = self.complete(logprobs=2)
        logprobs = body["choices"][0]["logprobs"]
        self.assertEqual("".join(logprobs["tokens"]), body["choices"][0]["text"])
        self.assertEqual(len(logprobs["token_logprobs"]), 8)
        for token, logprob, top in zip(logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"]):
            self.assertLessEqual(logprob, 0)
            self.assertEqual(top[token], logprob)
            self.assertEqual(max(top.values()), logprob)  # greedy
            self.assertEqual(len(top), 2)
        offset = 0
        for token, at in zip(logprobs["tokens"], logprobs["text_offset"]):
            self.assertEqual(at, offset)
            offset += len(token)
        tokens = self.complete(logprobs=0, return_tokens_as_token_ids=True)["choices"][0]["logprobs"]["tokens"]
        self.assertTrue(all(token.startswith("token_id:") for token in tokens), tokens)

    def test_logprob_token_ids(self):
        asked = [17, 300, 17, 4]
        plain = self.complete(logprobs=0)["choices"][0]["logprobs"]
        got = self.complete(logprobs=0, logprob_token_ids=asked, return_tokens_as_token_ids=True)["choices"][0]["logprobs"]
        self.assertEqual(got["token_logprobs"], plain["token_logprobs"])
        for token, top in zip(got["tokens"], got["top_logprobs"]):
            self.assertEqual(set(top), {token, "token_id:17", "token_id:300", "token_id:4"})
        # The sum over the vocabulary is 1, in pieces that are asked for one by one.
        best = self.complete(logprobs=20, max_tokens=1, return_tokens_as_token_ids=True)["choices"][0]["logprobs"]
        ids = [int(token.split(":")[1]) for token in best["top_logprobs"][0]]
        same = self.complete(logprobs=0, logprob_token_ids=ids[:20], max_tokens=1, return_tokens_as_token_ids=True)
        self.assertEqual(same["choices"][0]["logprobs"]["top_logprobs"], best["top_logprobs"])
        echo = self.complete(logprobs=0, logprob_token_ids=asked, echo=True, prompt=[5, 6, 7], max_tokens=1)
        tops = echo["choices"][0]["logprobs"]["top_logprobs"]  # the given ones are not the prompt's
        self.assertEqual([len(top) if top else top for top in tops], [None, 1, 1, 4])
        self.refuse("logprob_token_ids", {"logprob_token_ids": asked})
        for ids in ([], ["a"], 5, [-1], [5] * 21):
            self.refuse("logprob_token_ids", {"logprobs": 0, "logprob_token_ids": ids})
        self.refuse("logprob_token_ids", {"logprobs": 0, "logprob_token_ids": [4096]})

    def test_cached_tokens(self):
        prompt = "word " * 200
        self.complete(prompt=prompt, cache_salt="one")
        cached = lambda salt: self.complete(prompt=prompt, cache_salt=salt)["usage"]["prompt_tokens_details"]
        self.assertGreater(cached("one")["cached_tokens"], 100)
        self.assertEqual(cached("two")["cached_tokens"], 0)

    def test_null_is_absent(self):
        names = ("model", "stream", "stream_options", "n", "best_of", "echo", "logprobs", "suffix", "stop", "seed",
                 "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty",
                 "logit_bias", "user", "response_format", "structured_outputs", "cache_salt", "prompt_logprobs",
                 "allowed_token_ids", "bad_words", "min_tokens", "priority", "add_special_tokens")
        self.assertEqual(self.complete(**dict.fromkeys(names))["choices"], self.complete()["choices"])

    def test_unknown_is_ignored(self):
        self.complete(user="me", metadata={"a": 1}, no_such_member=[1, 2])

    def test_model(self):
        self.complete(model="tiny-qwen3")
        self.refuse("model", {"model": "gpt-4"}, 404, "model_not_found")
        _, body = self.server.post(PATH, {**GREEDY, "model": "tiny-qwen"})
        self.assertIn('there is no model "tiny-qwen" here, want "tiny-qwen3"', body["error"]["message"])
        self.refuse("model", {"model": ""}, 404, "model_not_found")
        self.refuse("model", {"model": 1})

    def test_json(self):
        for text in ("", "{", "[1", '{"prompt": "a"} x', "\ufeff{}", '"text"', "[]", "1", "null", '{"a": NaN}',
                     '{"a": 1e999}', '{"a": 1, "a": 2}', '{"prompt": "\\ud800"}', "[" * 100000, '{"a":' * 100):
            self.check_error(self.server.post(PATH, text.encode()), 400, None, "invalid_json")
        self.check_error(self.server.post(PATH, b'{"prompt": "\xff"}'), 400, None, "invalid_json")

    def test_nul_is_a_byte(self):
        body = self.complete(prompt="a\u0000b")
        self.assertGreaterEqual(body["usage"]["prompt_tokens"], 3)

    def test_types(self):
        for name, values in {
                "temperature": ("1", True, [], -1, 1e30, 101), "top_p": (0, 1.1, "x"), "top_k": (-2, 1.5, 2**31, True),
                "min_p": (2, -0.1), "presence_penalty": (3, -3), "frequency_penalty": (3, "0"),
                "repetition_penalty": (0, 11), "max_tokens": (-1, 2**31, 1.5, "5", True, 2**63, 10**30),
                "seed": (-2, 1.5, 2**63, "1"), "stop": (1, [1], "", ["x"] * 17, "x" * 1025, {}),
                "logprobs": (21, -2, 1.5, True), "prompt_logprobs": (21, -1, "1"), "n": (0, -1, 129, 2**31, 10**18, 1.5), "stream": (1, "true"),
                "echo": (1,), "logit_bias": ({"foo": 1}, {"5": 101}, [], {"999999": 1}), "ignore_eos": (1, "x"),
                "stop_token_ids": (5, ["a"], [-1]), "cache_salt": ("", "x" * 1025, 5), "min_tokens": (-1, 9),
                "response_format": ("text", {}, {"type": "x"})}.items():
            for value in values:
                self.refuse(name, {name: value})

    def test_integers_with_a_point(self):
        """5.0 is an integer in JSON."""
        ids = self.server.post("/tokenize", {"prompt": GREEDY["prompt"]})[1]["tokens"]
        body = self.complete(prompt=[float(i) for i in ids], max_tokens=8.0, top_k=1.0, stop_token_ids=[5.0])
        self.assertEqual(body["choices"][0]["text"], self.complete()["choices"][0]["text"])

    def test_small_temperature_is_greedy(self):
        self.assertEqual(self.complete(temperature=1e-30)["choices"], self.complete()["choices"])

    def test_all_tokens_banned_but_one(self):
        ids = self.server.post("/tokenize", {"prompt": " the"})[1]["tokens"]
        body = self.complete(allowed_token_ids=ids[:1], max_tokens=3, ignore_eos=True)
        self.assertEqual(body["usage"]["completion_tokens"], 3)

    def test_prompts(self):
        for prompt in ("", [], [[]], [""], None, 5, {"a": 1}, [["a"]], [1, "a"], [1.5], [True], [-1], [2**31],
                       [[1], ["a"]], ["a", 1], [None]):
            self.refuse("prompt", {"prompt": prompt})
        for prompt in ([4096], [999999], [[5], [4096]]):
            self.refuse("prompt", {"prompt": prompt})
        self.refuse("prompt", {"prompt": ["a"] * 257})

    def test_far_beyond_the_context(self):
        """Such a text is not encoded to its end, and what is said of it is true."""
        for path, body in (("/v1/completions", {"prompt": "word " * 200000}),
                           ("/v1/chat/completions", {"messages": [{"role": "user", "content": "word " * 200000}]})):
            answer = self.server.post(path, body)
            param = "prompt" if "prompt" in body else "messages"
            self.check_error(answer, 400, param, "context_length_exceeded")
            self.assertIn("more than 4096 tokens", answer[1]["error"]["message"])
        status, body = self.server.post("/tokenize", {"prompt": "word " * 200000})
        self.assertEqual((status, body["count"]), (200, 200002))

    def test_context(self):
        self.refuse("max_tokens", {"max_tokens": 4096}, code="context_length_exceeded")
        answer = self.server.post(PATH, {**GREEDY, "prompt": "word " * 5000, "stream": True})
        self.check_error(answer, 400, "prompt", "context_length_exceeded")
        self.assertIn("4096", answer[1]["error"]["message"])

    def test_not_supported(self):
        for members in ({"best_of": 2}, {"suffix": "x"},
                        {"use_beam_search": True},
                        {"truncate_prompt_tokens": 5}, {"thinking_token_budget": 5}, {"prompt_embeds": "x"},
                        {"logits_processors": ["x"]}):
            (name,) = members
            self.refuse(name, members, code="unsupported")
        self.complete(n=1, best_of=1, echo=False, use_beam_search=False, response_format={"type": "text"}, suffix="")

    def test_other_servers_members(self):
        """What would change the answer is refused, unless its value changes nothing."""
        members = {"stop_regex": ["a"],
                   "no_stop_trim": [True], "repetition_detection": [{}], "return_prompt_text": [True],
                   "typical_p": [0.9], "lora": [[{"id": 0}]], "samplers": [["top_k"]], "parse_special": [False],
                   "repeat_penalty": [1.1], "mirostat": [1, 2], "xtc_probability": [0.5], "top_n_sigma": [1.5],
                   "dry_multiplier": [0.8], "dynatemp_range": [0.5], "verbosity": ["low"], "n_probs": [1],
                   "modalities": [["text", "audio"]], "kv_transfer_params": [{"a": 1}]}
        for name, values in members.items():
            for value in values:
                self.refuse(name, {name: value}, code="unsupported")
        neutral = {"repeat_penalty": 1.0, "mirostat": 0, "mirostat_tau": 5.0, "dry_multiplier": 0.0, "dry_base": 1.75,
                   "xtc_probability": 0, "typical_p": 1.0, "top_n_sigma": -1, "dynatemp_range": 0.0, "grammar": "",
                   "samplers": [], "stop_regex": [], "lora": [], "verbosity": "medium", "modalities": ["text"],
                   "parse_special": True, "kv_transfer_params": {}, "no_stop_trim": False, "repeat_last_n": 64}
        self.assertEqual(self.complete(**neutral)["choices"], self.complete()["choices"])
        self.refuse("repeat_last_n", {"repeat_last_n": 64, "frequency_penalty": 0.5}, code="unsupported")
        self.refuse("repeat_last_n", {"repeat_last_n": 64, "presence_penalty": 0.5}, code="unsupported")
        self.refuse("repeat_last_n", {"repeat_last_n": 64, "repetition_penalty": 1.1}, code="unsupported")
        self.complete(repeat_last_n=64, repetition_penalty=1)

    def test_whole_vocabulary(self):
        for name in ("logprobs", "prompt_logprobs"):
            self.refuse(name, {name: -1}, code="unsupported")

    def test_n_predict(self):
        self.assertEqual(self.complete(n_predict=3, max_tokens=8)["usage"]["completion_tokens"], 3)
        left = self.complete(n_predict=-1, ignore_eos=True, prompt=[5] * 4090)["usage"]["completion_tokens"]
        self.assertEqual(left, 6)
        self.refuse("n_predict", {"n_predict": -2})

    def test_several_outputs(self):
        hot = {"temperature": 1.0, "seed": 7, "max_tokens": 12}
        prompts = ["Once upon", "The capital"]
        body = self.complete(prompt=prompts, n=3, **hot)
        self.assertEqual([choice["index"] for choice in body["choices"]], list(range(6)))
        texts = [choice["text"] for choice in body["choices"]]
        # Output i has the seed that a request of its own would have had.
        alone = [self.complete(prompt=prompt, **{**hot, "seed": 7 + i}) for prompt in prompts for i in range(3)]
        self.assertEqual(texts, [one["choices"][0]["text"] for one in alone])
        self.assertGreater(len(set(texts)), 2)
        usage = body["usage"]
        self.assertEqual(usage["prompt_tokens"], sum(one["usage"]["prompt_tokens"] for one in alone[::3]))
        self.assertEqual(usage["completion_tokens"], sum(one["usage"]["completion_tokens"] for one in alone))
        self.assertEqual(usage["total_tokens"], usage["prompt_tokens"] + usage["completion_tokens"])

    def test_several_outputs_streamed(self):
        members = {"prompt": ["Once upon", "The capital"], "n": 2, "temperature": 1.0, "seed": 7, "logprobs": 1,
                   "echo": True}
        whole = self.complete(**members)
        events = self.server.stream(PATH, {**GREEDY, **members, "stream_options": {"include_usage": True}})
        self.assertEqual(events.pop()["usage"], whole["usage"])
        for choice in whole["choices"]:
            chunks = [event["choices"][0] for event in events if event["choices"][0]["index"] == choice["index"]]
            self.assertEqual("".join(chunk["text"] for chunk in chunks), choice["text"])
            self.assertEqual([chunk["finish_reason"] for chunk in chunks],
                             [None] * (len(chunks) - 1) + [choice["finish_reason"]])
            for name, values in choice["logprobs"].items():
                self.assertEqual(sum((chunk["logprobs"][name] for chunk in chunks), []), values, name)

    def test_number_of_outputs(self):
        self.refuse("prompt", {"prompt": ["a"] * 3, "n": 100})
        self.refuse("best_of", {"n": 2, "best_of": 1}, code="invalid_value")
        self.complete(n=2, best_of=2)

    def test_echo(self):
        text = self.complete()["choices"][0]["text"]
        self.assertEqual(self.complete(echo=True)["choices"][0]["text"], GREEDY["prompt"] + text)
        ids = self.server.post("/tokenize", {"prompt": GREEDY["prompt"]})[1]["tokens"]
        self.assertEqual(self.complete(prompt=ids, echo=True)["choices"][0]["text"], GREEDY["prompt"] + text)
        # Special tokens of a text are part of it.
        marked = self.complete(prompt="<|im_start|>a", echo=True, max_tokens=0)["choices"][0]
        self.assertEqual((marked["text"], marked["finish_reason"]), ("<|im_start|>a", "length"))

    def test_scoring(self):
        """What lm-eval asks: log-probabilities of a prompt and no token more."""
        body = self.complete(echo=True, max_tokens=0, logprobs=2)
        (choice,) = body["choices"]
        logprobs = choice["logprobs"]
        self.assertEqual((choice["text"], choice["finish_reason"]), (GREEDY["prompt"], "length"))
        self.assertEqual(body["usage"]["completion_tokens"], 0)
        self.assertEqual("".join(logprobs["tokens"]), GREEDY["prompt"])
        self.assertEqual(len(logprobs["tokens"]), body["usage"]["prompt_tokens"])
        self.assertEqual((logprobs["token_logprobs"][0], logprobs["top_logprobs"][0]), (None, None))
        self.assertTrue(all(value < 0 for value in logprobs["token_logprobs"][1:]))
        self.assertEqual(logprobs["text_offset"][0], 0)
        self.assertEqual(logprobs["text_offset"][-1], len(GREEDY["prompt"]) - len(logprobs["tokens"][-1]))
        # The model's own continuation is what it thinks the likeliest.
        longer = GREEDY["prompt"] + self.complete(max_tokens=1)["choices"][0]["text"]
        scored = self.complete(prompt=longer, echo=True, max_tokens=0, logprobs=1)["choices"][0]["logprobs"]
        self.assertEqual(scored["token_logprobs"][-1], max(scored["top_logprobs"][-1].values()))
        self.assertEqual(self.complete(max_tokens=0)["choices"][0]["text"], "")

    def test_prompt_logprobs(self):
        body = self.complete(prompt_logprobs=2, n=2)
        rows = body["choices"][0]["prompt_logprobs"]
        self.assertEqual(body["choices"][1]["prompt_logprobs"], rows)
        ids = self.server.post("/tokenize", {"prompt": GREEDY["prompt"]})[1]["tokens"]
        self.assertIsNone(rows[0])
        self.assertEqual(len(rows), len(ids))
        for token_id, row in zip(ids[1:], rows[1:]):
            own = row[str(token_id)]
            self.assertIn(len(row), (2, 3))
            self.assertEqual(own["rank"] is None, len(row) == 3)
            self.assertEqual({value["rank"] for value in row.values()} - {None}, {1, 2})
            self.assertLessEqual(own["logprob"], max(value["logprob"] for value in row.values()))
        self.refuse("prompt_logprobs", {"prompt_logprobs": 1, "stream": True})

    def test_stream_options_without_stream(self):
        self.refuse("stream_options", {"stream_options": {"include_usage": True}})
        self.refuse("stream_options", {"stream": True, "stream_options": {"include_usage": 1}})
        self.refuse("stream_options", {"stream": True, "stream_options": []})

    def test_many_at_once(self):
        want = {prompt: self.complete(prompt=prompt, max_tokens=20)["choices"][0]["text"]
                for prompt in ("Once upon", "The capital", "One two", "def main")}
        got = []

        def run(prompt):
            got.append((prompt, self.complete(prompt=prompt, max_tokens=20)["choices"][0]["text"]))

        threads = [threading.Thread(target=run, args=(prompt,)) for prompt in list(want) * 8]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(got), 32)
        for prompt, text in got:
            self.assertEqual(text, want[prompt])


if __name__ == "__main__":
    main()
