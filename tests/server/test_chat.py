"""POST /v1/chat/completions, /tokenize, /detokenize and /apply-template."""

import os
import tempfile

from server_fixture import ServerTest, main

PATH = "/v1/chat/completions"
QUESTION = {"messages": [{"role": "user", "content": "What is 37 + 58?"}], "temperature": 0,
            "chat_template_kwargs": {"enable_thinking": False}}
TOOL = {"type": "function", "function": {"name": "add", "description": "adds",
                                         "parameters": {"type": "object", "properties": {}}}}


class Chat(ServerTest):
    flags = ("--max-model-len", "400")

    def ask(self, **members):
        status, body = self.server.post(PATH, {**QUESTION, **members})
        self.assertEqual(status, 200, body)
        return body

    def refuse(self, param, members, code=None):
        self.check_error(self.server.post(PATH, {**QUESTION, **members}), 400, param, code)

    def test_answer(self):
        body = self.ask()
        self.assertRegex(body["id"], "^chatcmpl-[0-9a-f]{24}$")
        self.assertEqual(body["object"], "chat.completion")
        (choice,) = body["choices"]
        self.assertEqual(choice["message"]["role"], "assistant")
        self.assertIn("95", choice["message"]["content"])
        self.assertEqual((choice["finish_reason"], choice["logprobs"]), ("stop", None))

    def test_stream(self):
        for members in ({}, {"temperature": 1.1, "seed": 4, "max_tokens": 40}, {"max_tokens": 3}, {"stop": "8"}):
            choice = self.ask(**members)["choices"][0]
            events = self.server.stream(PATH, {**QUESTION, **members})
            self.assertEqual({event["object"] for event in events}, {"chat.completion.chunk"})
            self.assertEqual(len({(event["id"], event["created"], event["model"]) for event in events}), 1)
            first, *middle, last = [event["choices"][0] for event in events]
            self.assertEqual(first["delta"], {"role": "assistant", "content": ""})
            self.assertTrue(all(set(chunk["delta"]) == {"content"} and chunk["delta"]["content"] for chunk in middle))
            self.assertTrue(all(chunk["finish_reason"] is None for chunk in [first, *middle]))
            self.assertEqual((last["delta"], last["finish_reason"]), ({}, choice["finish_reason"]))
            self.assertEqual("".join(chunk["delta"]["content"] for chunk in middle), choice["message"]["content"])

    def test_usage(self):
        events = self.server.stream(PATH, {**QUESTION, "stream_options": {"include_usage": True}})
        self.assertEqual(events[-1]["choices"], [])
        self.assertEqual(events[-1]["usage"], {**self.ask()["usage"],
                                               "prompt_tokens_details": events[-1]["usage"]["prompt_tokens_details"]})

    def test_logprobs(self):
        body = self.ask(logprobs=True, top_logprobs=3)
        content = body["choices"][0]["logprobs"]["content"]
        self.assertEqual(len(content), body["usage"]["completion_tokens"])
        text = body["choices"][0]["message"]["content"]
        self.assertTrue("".join(token["token"] for token in content).startswith(text))
        for token in content:
            self.assertEqual(bytes(token["bytes"]).decode(), token["token"])
            self.assertEqual(len(token["top_logprobs"]), 3)
            self.assertEqual(token["top_logprobs"][0]["logprob"], token["logprob"])
        events = self.server.stream(PATH, {**QUESTION, "logprobs": True, "top_logprobs": 3})
        chunks = [event["choices"][0]["logprobs"] for event in events]
        self.assertEqual(sum((chunk["content"] for chunk in chunks if chunk), []), content)
        self.assertEqual(self.ask(logprobs=True)["choices"][0]["logprobs"]["content"][0]["top_logprobs"], [])
        self.refuse("top_logprobs", {"top_logprobs": 3})
        self.refuse("top_logprobs", {"logprobs": True, "top_logprobs": 21})
        self.refuse("top_logprobs", {"logprobs": True, "top_logprobs": -1}, "unsupported")
        self.refuse("logprobs", {"logprobs": 1})

    def test_rest_of_context(self):
        """Without max_tokens an answer may fill the context."""
        body = self.ask(ignore_eos=True, temperature=0)
        self.assertEqual(body["usage"]["total_tokens"], 400)
        self.assertEqual(body["choices"][0]["finish_reason"], "length")

    def test_max_tokens(self):
        self.assertEqual(self.ask(max_tokens=3)["usage"]["completion_tokens"], 3)
        self.assertEqual(self.ask(max_tokens=3, max_completion_tokens=2)["usage"]["completion_tokens"], 2)
        body = self.ask(max_completion_tokens=0)
        self.assertEqual(body["choices"][0]["message"]["content"], "")
        self.assertEqual((body["choices"][0]["finish_reason"], body["usage"]["completion_tokens"]), ("length", 0))
        self.refuse("max_completion_tokens", {"max_completion_tokens": -1})

    def test_several_outputs(self):
        members = {"n": 3, "temperature": 1.1, "seed": 4, "max_tokens": 20, "logprobs": True}
        body = self.ask(**members)
        self.assertEqual([choice["index"] for choice in body["choices"]], [0, 1, 2])
        alone = [self.ask(**{**members, "n": 1, "seed": 4 + i})["choices"][0] for i in range(3)]
        self.assertEqual([choice["message"] for choice in body["choices"]], [one["message"] for one in alone])
        events = self.server.stream(PATH, {**QUESTION, **members, "stream_options": {"include_usage": True}})
        usage = events.pop()["usage"]
        self.assertEqual((usage["prompt_tokens"], usage["completion_tokens"]),
                         (body["usage"]["prompt_tokens"], body["usage"]["completion_tokens"]))
        for choice in body["choices"]:
            chunks = [event["choices"][0] for event in events if event["choices"][0]["index"] == choice["index"]]
            self.assertEqual(chunks[0]["delta"], {"role": "assistant", "content": ""})
            self.assertEqual("".join(chunk["delta"].get("content", "") for chunk in chunks),
                             choice["message"]["content"])
            self.assertEqual([chunk["finish_reason"] for chunk in chunks].count(choice["finish_reason"]), 1)
            tokens = sum((chunk["logprobs"]["content"] for chunk in chunks if chunk["logprobs"]), [])
            self.assertEqual(tokens, choice["logprobs"]["content"])

    def test_prompt_logprobs(self):
        body = self.ask(prompt_logprobs=0)
        self.assertEqual(len(body["prompt_logprobs"]), body["usage"]["prompt_tokens"])
        self.assertEqual([len(row) for row in body["prompt_logprobs"][1:]], [1] * (len(body["prompt_logprobs"]) - 1))

    def test_token_ids(self):
        prompt_ids = self.server.post("/tokenize", QUESTION)[1]["tokens"]
        for n in (1, 2):
            body = self.ask(return_token_ids=True, n=n, logprobs=True, return_tokens_as_token_ids=True)
            self.assertEqual(body["prompt_token_ids"], prompt_ids)
            events = self.server.stream(PATH, {**QUESTION, "return_token_ids": True, "n": n})
            for index, choice in enumerate(body["choices"]):
                ids = [int(token["token"].split(":")[1]) for token in choice["logprobs"]["content"]]
                self.assertEqual(choice["token_ids"], ids)
                own = [event for event in events if event["choices"][0]["index"] == index]
                self.assertEqual([event.get("prompt_token_ids") for event in own],
                                 [prompt_ids] + [None] * (len(own) - 1))
                self.assertNotIn("token_ids", own[0]["choices"][0])
                self.assertEqual(sum((event["choices"][0]["token_ids"] for event in own[1:]), []), ids)
        body = self.ask()
        self.assertEqual((body["prompt_token_ids"], body["choices"][0]["token_ids"], body["prompt_logprobs"]),
                         (None, None, None))
        self.assertNotIn("token_ids", self.server.stream(PATH, QUESTION)[1]["choices"][0])

    def test_logprob_token_ids(self):
        content = self.ask(logprobs=True, top_logprobs=2, logprob_token_ids=[5, 9, 7], max_tokens=3,
                           return_tokens_as_token_ids=True)["choices"][0]["logprobs"]["content"]
        for token in content:
            self.assertEqual([top["token"] for top in token["top_logprobs"]],
                             ["token_id:5", "token_id:9", "token_id:7"])
        self.refuse("logprob_token_ids", {"logprob_token_ids": [5]})

    def test_timings(self):
        body = self.ask()
        timings, usage = body["timings"], body["usage"]
        self.assertEqual(timings["cache_n"] + timings["prompt_n"], usage["prompt_tokens"])
        self.assertEqual(timings["predicted_n"], usage["completion_tokens"])
        for name in ("prompt", "predicted"):
            self.assertAlmostEqual(timings[name + "_per_token_ms"], timings[name + "_ms"] / timings[name + "_n"], 2)
            self.assertAlmostEqual(timings[name + "_per_token_ms"] * timings[name + "_per_second"], 1000, -1)
        self.assertNotIn("timings", self.ask(n=2))
        have = lambda **members: ["timings" in event for event in self.server.stream(PATH, {**QUESTION, **members})]
        self.assertEqual(have(), [False] * (len(have()) - 1) + [True])
        self.assertEqual(have(timings_per_token=True), [False] + [True] * (len(have()) - 1))

    def test_usage_of_each_chunk(self):
        ask = lambda **options: self.server.stream(PATH, {**QUESTION, "stream_options": options})
        counts = [event["usage"]["completion_tokens"] for event in ask(include_usage=True, continuous_usage_stats=True)]
        self.assertEqual((counts[0], counts), (0, sorted(counts)))
        self.assertEqual(counts[-1], self.ask()["usage"]["completion_tokens"])
        for event in ask(include_usage=False, continuous_usage_stats=True):
            self.assertNotIn("usage", event)

    def test_other_roles(self):
        """Without a generation prompt the answer goes on in the last message's role, whatever it is."""
        members = {"messages": [*QUESTION["messages"], {"role": "system", "content": "A storm."}], "max_tokens": 2,
                   "add_generation_prompt": False}
        self.assertEqual(self.ask(**members)["choices"][0]["message"]["role"], "system")
        events = self.server.stream(PATH, {**QUESTION, **members})
        self.assertEqual(events[0]["choices"][0]["delta"]["role"], "system")

    def test_no_message_is_lost(self):
        """The template prints only roles that it knows."""
        self.refuse("messages", {"messages": [*QUESTION["messages"], {"role": "narrator", "content": "A storm."}]})
        prompt = lambda role: self.server.post("/apply-template", {
            "messages": [{"role": role, "content": "Be brief."}, *QUESTION["messages"]]})[1]["prompt"]
        self.assertIn("Be brief.", prompt("developer"))
        self.assertEqual(prompt("developer"), prompt("system"))

    def test_echo(self):
        begun = QUESTION["messages"] + [{"role": "assistant", "content": "37 + 58 ="}]
        plain = self.ask(messages=begun, continue_final_message=True)["choices"][0]["message"]["content"]
        body = self.ask(messages=begun, continue_final_message=True, echo=True)
        self.assertEqual(body["choices"][0]["message"]["content"], "37 + 58 =" + plain)
        parts = [{"type": "text", "text": "Well,"}, {"type": "text", "text": "37 + 58 ="}]
        body = self.ask(messages=begun[:1] + [{"role": "assistant", "content": parts}], continue_final_message=True,
                        echo=True)
        self.assertTrue(body["choices"][0]["message"]["content"].startswith("Well,\n37 + 58 ="))
        events = self.server.stream(PATH, {**QUESTION, "messages": begun, "continue_final_message": True, "echo": True})
        deltas = [event["choices"][0]["delta"] for event in events]
        self.assertEqual(deltas[:2], [{"role": "assistant", "content": ""}, {"content": "37 + 58 ="}])
        self.assertEqual("".join(delta.get("content", "") for delta in deltas[1:]), "37 + 58 =" + plain)
        # Another role's message is not repeated.
        self.assertEqual(self.ask(echo=True)["choices"], self.ask()["choices"])
        body = self.ask(echo=True, logprobs=True)
        self.assertEqual(len(body["prompt_logprobs"]), body["usage"]["prompt_tokens"])
        self.refuse("echo", {"echo": 1})

    def test_continue(self):
        messages = QUESTION["messages"] + [{"role": "assistant", "content": "37 + 58 ="}]
        body = self.ask(messages=messages, continue_final_message=True)
        self.assertTrue(body["choices"][0]["message"]["content"].startswith(" 95"), body)
        self.refuse("continue_final_message", {"continue_final_message": True, "add_generation_prompt": True})

    def test_template_kwargs(self):
        render = lambda **kwargs: self.server.post("/apply-template", {**QUESTION, "chat_template_kwargs": kwargs})
        self.assertNotEqual(render(enable_thinking=False), render(enable_thinking=True))
        self.refuse("chat_template_kwargs", {"chat_template_kwargs": [1]})
        self.refuse("chat_template_kwargs", {"chat_template_kwargs": {"messages": []}})
        self.refuse("documents", {"documents": [5]})
        self.refuse("documents", {"documents": [{"text": "The template reads none."}]})
        self.ask(documents=[], max_tokens=2)

    def test_param_of_what_the_engine_refuses(self):
        self.refuse("min_tokens", {"min_tokens": 9, "max_tokens": 3})
        self.refuse("logit_bias", {"logit_bias": {"99999": 1}})
        self.refuse("stop_token_ids", {"stop_token_ids": [99999]})

    def test_tools(self):
        self.refuse("tools", {"tools": [TOOL]}, "unsupported")
        self.ask(tools=[TOOL], tool_choice="none", max_tokens=2)
        self.refuse("tools", {"tools": [{"type": "function"}]})
        self.refuse("tools", {"tools": [{**TOOL, "function": {"name": "x", "parameters": 1}}]})
        self.refuse("tool_choice", {"tool_choice": "required"})
        self.refuse("tool_choice", {"tools": [TOOL], "tool_choice": "required"}, "unsupported")
        named = {"type": "function", "function": {"name": "add"}}
        self.refuse("tool_choice", {"tools": [TOOL], "tool_choice": named}, "unsupported")
        self.refuse("tool_choice", {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "x"}}},
                    "invalid_value")
        self.refuse("tool_choice", {"tools": [TOOL], "tool_choice": "x"})

    def test_messages(self):
        for messages in (None, [], "Hi", {}, [1], [{}], [{"role": "", "content": "a"}], [{"role": 1, "content": "a"}],
                         [{"role": "user", "content": 123}], [{"role": "user"}],
                         [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://a/b"}}]}]):
            self.refuse("messages", {"messages": messages})
        parts = [{"role": "user", "content": [{"type": "text", "text": "What is 37 + 58?"}]}]
        self.assertEqual(self.ask(messages=parts)["choices"], self.ask()["choices"])

    def test_not_supported(self):
        for members in ({"chat_template": "x"}, {"functions": [{"name": "add"}]},
                        {"function_call": "auto"}, {"audio": {"voice": "alloy"}}):
            self.refuse(list(members)[0], members, "unsupported")

    def test_n_predict(self):
        self.assertEqual(self.ask(n_predict=2)["usage"]["completion_tokens"], 2)

    def test_context(self):
        messages = [{"role": "user", "content": "word " * 500}]
        self.check_error(self.server.post(PATH, {"messages": messages, "stream": True}), 400, "messages",
                         "context_length_exceeded")


class Template(ServerTest):
    """A template of the server's own; the bundled model's knows no tools."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        path = os.path.join(cls.folder.name, "hidden-name.jinja")
        with open(path, "w", encoding="utf-8") as file:
            file.write("{{ tools | tojson if tools else 'none' }}{% for m in messages %}{{ m.content }}"
                       "{% if m.content == 'fail' %}{{ raise_exception('no such thing') }}{% endif %}{% endfor %}")
        cls.flags = ("--chat-template", path)
        super().setUpClass()

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()
        super().tearDownClass()

    def test_tools_reach_the_template(self):
        chat = {"messages": [{"role": "user", "content": "a"}]}
        self.assertEqual(self.server.post("/apply-template", chat)[1]["prompt"], "nonea")
        self.assertIn("adds", self.server.post("/apply-template", {**chat, "tools": [TOOL]})[1]["prompt"])

    def test_any_role_reaches_the_template(self):
        chat = {"messages": [{"role": "narrator", "content": "A storm."}]}
        self.assertEqual(self.server.post("/apply-template", chat)[1]["prompt"], "noneA storm.")

    def test_faults_name_no_path(self):
        answer = self.server.post(PATH, {"messages": [{"role": "user", "content": "fail"}]})
        self.check_error(answer, 400, "messages")
        self.assertIn("no such thing", answer[1]["error"]["message"])
        self.assertNotIn("hidden-name", answer[1]["error"]["message"])
        self.assertNotIn("/", answer[1]["error"]["message"])


class Tokens(ServerTest):
    def test_round_trip(self):
        text = "Grüße, 世界 😀\n"
        status, body = self.server.post("/tokenize", {"prompt": text})
        self.assertEqual((status, body["count"], body["max_model_len"]), (200, len(body["tokens"]), 4096))
        self.assertEqual(self.server.post("/detokenize", {"tokens": body["tokens"]})[1],
                         {"prompt": text, "content": text})
        self.assertEqual(self.server.post("/tokenize", {"content": text})[1]["tokens"], body["tokens"])

    def test_strings(self):
        """Those of the vocabulary, where a byte is a letter."""
        body = self.server.post("/tokenize", {"prompt": "Hello th\u00e9re", "return_token_strs": True})[1]
        self.assertEqual("".join(body["token_strs"]), "Hello\u0120th\u00c3\u00a9re")
        self.assertIsNone(self.server.post("/tokenize", {"prompt": "Hello"})[1]["token_strs"])

    def test_pieces(self):
        """llama-server's: a piece that is no text is a list of bytes."""
        text = "Hello there \U0001f600"
        ids = self.server.post("/tokenize", {"content": text})[1]["tokens"]
        pieces = self.server.post("/tokenize", {"content": text, "with_pieces": True})[1]["tokens"]
        self.assertEqual([piece["id"] for piece in pieces], ids)
        as_bytes = [bytes(piece["piece"]) if isinstance(piece["piece"], list) else piece["piece"].encode()
                    for piece in pieces]
        self.assertEqual(b"".join(as_bytes).decode(), text)
        self.assertEqual({type(piece["piece"]) for piece in pieces}, {str, list})
        self.check_error(self.server.post("/tokenize", {"content": "a", "prompt": "b"}), 400, "content")
        self.check_error(self.server.post("/tokenize", {**QUESTION, "prompt": "b"}), 400, "messages")
        self.check_error(self.server.post("/tokenize", {}), 400, "prompt")
        self.check_error(self.server.post("/tokenize", {"content": "a", "parse_special": False}), 400, "parse_special",
                         "unsupported")

    def test_chat(self):
        prompt = self.server.post("/apply-template", QUESTION)[1]["prompt"]
        self.assertIn("What is 37 + 58?", prompt)
        chat = self.server.post("/tokenize", QUESTION)[1]["tokens"]
        self.assertEqual(self.server.post("/tokenize", {"prompt": prompt, "add_special_tokens": False})[1]["tokens"],
                         chat)
        usage = self.server.post(PATH, {**QUESTION, "max_tokens": 1})[1]["usage"]
        self.assertEqual(usage["prompt_tokens"], len(chat))

    def test_faults(self):
        for path, param, body in (("/tokenize", "prompt", {}), ("/tokenize", "prompt", {"prompt": 1}),
                                  ("/tokenize", "content", {"content": []}), ("/detokenize", "tokens", {}),
                                  ("/detokenize", "tokens", {"tokens": "a"}),
                                  ("/detokenize", "tokens", {"tokens": [-1]}),
                                  ("/detokenize", "tokens", {"tokens": [999999]}),
                                  ("/detokenize", "tokens", {"tokens": [1.5]}),
                                  ("/apply-template", "messages", {"messages": []})):
            self.check_error(self.server.post(path, body), 400, param)

    def test_empty(self):
        self.assertEqual(self.server.post("/tokenize", {"prompt": ""})[1]["tokens"], [])
        self.assertEqual(self.server.post("/detokenize", {"tokens": []})[1]["prompt"], "")


if __name__ == "__main__":
    main()
