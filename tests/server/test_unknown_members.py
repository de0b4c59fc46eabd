"""Members of a request that the server does not know: they are named, or refused by a flag."""

import json
import tempfile

from server_fixture import ServerTest, main

HELLO = [{"role": "user", "content": "Hi"}]
REQUESTS = {
    "/v1/completions": {"prompt": "Once", "max_tokens": 1},
    "/v1/chat/completions": {"messages": HELLO, "max_tokens": 1},
    "/v1/responses": {"input": "Hi", "max_output_tokens": 1},
    "/v1/messages": {"messages": HELLO, "max_tokens": 1},
}
# What clients send for other servers, and what changes no answer.
HARMLESS = {"user": "u", "metadata": {"a": "b"}, "store": True, "service_tier": "auto", "safety_identifier": "s",
            "prompt_cache_key": "k", "request_id": "r", "cache_prompt": True}
# What each endpoint reads.
KNOWN = {"model": "tiny-qwen3", "stream": False, "temperature": 0, "top_p": 0.9, "top_k": 5, "min_p": 0.1, "seed": 1,
         "stop": "x", "logit_bias": {"5": 1}, "cache_salt": "salt", "ignore_eos": True, "n": 1,
         "return_tokens_as_token_ids": False, "response_format": {"type": "text"}}
CHAT = {"parallel_tool_calls": True, "reasoning_effort": "none",
        "chat_template_kwargs": {"enable_thinking": False, "a": None}, "include_reasoning": True}
MORE = {
    "/v1/completions": {"suffix": "", "echo": False, "logprobs": 1, "best_of": 1, "add_special_tokens": True},
    "/v1/chat/completions": {**CHAT, "logprobs": True, "top_logprobs": 1, "max_completion_tokens": 1},
    "/v1/responses": {"instructions": "Be kind.", "tools": [], "reasoning": {"effort": "none"},
                      "text": {"format": {"type": "text"}}, "background": False},
    "/v1/messages": {"system": "Be kind.", "stop_sequences": ["y"], "thinking": {"type": "disabled"}},
}


class Warned(ServerTest):
    flags = ("--log", "json")

    def ignored(self, path, members):
        body = {**REQUESTS[path], **members}
        status, headers, text = self.server.request("POST", path, body)
        self.assertEqual(status, 200, text)
        return headers["X-Ignored-Members"]

    def test_is_named(self):
        for path in REQUESTS:
            self.assertEqual(self.ignored(path, {"temprature": 0}), "temprature", path)
            self.assertEqual(self.ignored(path, {"temprature": 0, "stream": True}), "temprature", path)

    def test_known_and_harmless_are_not(self):
        for path in REQUESTS:
            self.assertIsNone(self.ignored(path, {**KNOWN, **MORE[path], **HARMLESS}), path)

    def test_null_is_absent(self):
        self.assertIsNone(self.ignored("/v1/completions", {"temprature": None}))

    def test_another_endpoints_member(self):
        self.assertEqual(self.ignored("/v1/completions", {"messages": HELLO}), "messages")
        self.assertEqual(self.ignored("/v1/responses", {"max_tokens": 2, "logprobs": True}), "max_tokens, logprobs")
        self.assertEqual(self.ignored("/v1/messages", {"logprobs": True}), "logprobs")

    def test_what_the_template_does_not_read(self):
        path = "/v1/chat/completions"
        self.assertEqual(self.ignored(path, {"chat_template_kwargs": {"enable_thinkng": False}}),
                         "chat_template_kwargs.enable_thinkng")
        many = {f"x{i}": 0 for i in range(100)}
        names = ", ".join(f"chat_template_kwargs.{name}" for name in ("x0", "x1", "x2", "..."))
        self.assertEqual(self.ignored(path, {"chat_template_kwargs": many}), names)
        self.assertEqual(self.ignored(path, {"reasoning_effort": "low"}), "reasoning_effort")
        self.assertEqual(self.ignored("/v1/responses", {"reasoning": {"effort": "low"}}), "reasoning.effort")
        self.assertEqual(self.ignored("/v1/messages", {"output_config": {"effort": "low"}}), "output_config.effort")

    def test_parts_of_members(self):
        options = {"include_usage": True, "include_obfuscation": False, "incl_usage": True, "x": None}
        self.assertEqual(self.ignored("/v1/completions", {"stream": True, "stream_options": options}),
                         "stream_options.incl_usage")
        for path, member, known in (("/v1/responses", "text", {"verbosity": "medium"}),
                                    ("/v1/responses", "reasoning", {"summary": "auto", "effort": "none"}),
                                    ("/v1/messages", "output_config", {"effort": "none"}),
                                    ("/v1/messages", "thinking", {"type": "disabled"})):
            self.assertEqual(self.ignored(path, {member: {**known, "fromat": {}, "x": None}}), f"{member}.fromat")

    def test_is_in_the_log(self):
        self.ignored("/v1/completions", {"temprature": 0, "minp": 1})
        lines = [json.loads(line) for line in self.server.output().splitlines() if '"id":' in line]
        self.assertEqual(lines[-1]["ignored"], "temprature, minp")
        self.ignored("/v1/completions", {})
        lines = [json.loads(line) for line in self.server.output().splitlines() if '"id":' in line]
        self.assertNotIn("ignored", lines[-1])

    def test_hostile_names(self):
        self.assertEqual(self.ignored("/v1/completions", {"a\r\nX-Evil: 1,é\x7f": 0}), "a??X-Evil:?1????")
        many = {f"x{i}": 0 for i in range(100)}
        self.assertEqual(self.ignored("/v1/completions", many), "x0, x1, x2, x3, x4, x5, x6, x7, ...")
        self.assertEqual(self.ignored("/v1/completions", {"y" * 5000: 0}), "y" * 40 + "...")
        # A character of several bytes is whole or not there.
        self.assertEqual(self.ignored("/v1/completions", {"y" * 39 + "é": 0}), "y" * 39 + "...")
        self.assertEqual(self.ignored("/v1/completions", {"y" * 38 + "é": 0}), "y" * 38 + "??")

    def test_what_does_not_generate_takes_whole_requests(self):
        for path in ("/tokenize", "/apply-template", "/v1/messages/count_tokens"):
            status, headers, _ = self.server.request("POST", path, {"messages": HELLO, "max_tokens": 1, "wrong": 1})
            self.assertEqual((status, headers["X-Ignored-Members"]), (200, None), path)


class WarnedText(ServerTest):
    def test_is_in_the_log(self):
        self.server.post("/v1/completions", {**REQUESTS["/v1/completions"], "temprature": 0})
        self.assertRegex(self.server.output(), r"POST /v1/completions 200 .* warning: ignored temprature\n")


class Refused(ServerTest):
    flags = ("--unknown-members", "refuse")

    def test_is_refused(self):
        for path in ("/v1/completions", "/v1/chat/completions", "/v1/responses"):
            answer = self.server.post(path, {**REQUESTS[path], "temprature": 0})
            self.check_error(answer, 400, "temprature", "unknown_member")
            self.assertIn("did you mean temperature?", answer[1]["error"]["message"])

    def test_known_elsewhere(self):
        answer = self.server.post("/v1/responses", {**REQUESTS["/v1/responses"], "max_tokens": 2})
        self.check_error(answer, 400, "max_tokens", "unknown_member")
        self.assertEqual(answer[1]["error"]["message"], 'the member "max_tokens" is not known here')

    def test_what_the_template_does_not_read(self):
        path = "/v1/chat/completions"
        for members in ({"chat_template_kwargs": {"enable_thinkng": False}}, {"reasoning_effort": "low"}):
            self.check_error(self.server.post(path, {**REQUESTS[path], **members}), 400, list(members)[0],
                             "unknown_member")

    def test_parts_of_members(self):
        for path, member in (("/v1/responses", "text"), ("/v1/responses", "reasoning"),
                             ("/v1/messages", "output_config")):
            answer = self.server.post(path, {**REQUESTS[path], member: {"fromat": {}}})
            self.assertEqual((answer[0], answer[1]["error"]["message"]), (400, f"{member}.fromat has no effect here"))

    def test_long_names_are_cut_between_characters(self):
        path = "/v1/completions"
        for name in ("y" * 39 + "é" * 3, "y" * 37 + "€€"):
            shown = name[:39] if name[38] == "y" else name[:38]
            options = {"stream": True, "stream_options": {name: 1}}
            message = self.server.post(path, {**REQUESTS[path], **options})[1]["error"]["message"]
            self.assertEqual(message, f"stream_options.{shown}... has no effect here")
            message = self.server.post(path, {**REQUESTS[path], name: 1})[1]["error"]["message"]
            self.assertEqual(message, f'the member "{shown}..." is not known here')

    def test_tools_that_the_server_would_run(self):
        answer = self.server.post("/v1/responses", {**REQUESTS["/v1/responses"], "tools": [{"type": "web_search"}]})
        self.check_error(answer, 400, "tools", "unsupported")

    def test_known_and_harmless_are_not(self):
        for path, body in REQUESTS.items():
            status, answer = self.server.post(path, {**body, **KNOWN, **MORE[path], **HARMLESS, "wrong": None})
            self.assertEqual(status, 200, answer)


class RefusedByAPlainTemplate(ServerTest):
    @classmethod
    def setUpClass(cls):
        file = tempfile.NamedTemporaryFile("w", suffix=".jinja")
        cls.addClassCleanup(file.close)
        file.write("{{ messages[0].content }}")
        file.flush()
        cls.flags = ("--unknown-members", "refuse", "--chat-template", file.name)
        super().setUpClass()

    def test_the_member_that_was_sent_is_blamed(self):
        for path, members, name in (("/v1/messages", {"thinking": {"type": "disabled"}}, "thinking"),
                                    ("/v1/messages", {"output_config": {"effort": "low"}}, "output_config.effort"),
                                    ("/v1/responses", {"reasoning": {"effort": "low"}}, "reasoning.effort"),
                                    ("/v1/chat/completions", {"reasoning_effort": "low"}, "reasoning_effort")):
            status, body = self.server.post(path, {**REQUESTS[path], **members})
            self.assertEqual((status, body["error"]["message"]), (400, f"{name} has no effect here"))


if __name__ == "__main__":
    main()
