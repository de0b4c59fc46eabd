"""POST /v1/responses and /v1/messages: the same answers in other shapes."""

import json

from server_fixture import ServerTest, main

CHAT = {"messages": [{"role": "system", "content": "Be short."}, {"role": "user", "content": "What is 37 + 58?"}],
        "temperature": 0, "chat_template_kwargs": {"enable_thinking": False}}
RESPONSES = {"instructions": "Be short.", "input": "What is 37 + 58?", "temperature": 0,
             "chat_template_kwargs": {"enable_thinking": False}}
MESSAGES = {"system": "Be short.", "messages": [{"role": "user", "content": "What is 37 + 58?"}], "temperature": 0,
            "max_tokens": 50, "chat_template_kwargs": {"enable_thinking": False}}


class Named(ServerTest):
    """Streams whose events have names."""

    def events(self, path, body):
        status, headers, text = self.server.request("POST", path, {**body, "stream": True})
        self.assertEqual(status, 200, text)
        events = []
        for event in text.decode().split("\n\n")[:-1]:
            name, data = event.split("\n")
            data = json.loads(data.removeprefix("data: "))
            self.assertEqual(name, "event: " + data["type"])
            events.append(data)
        return events

    def chat(self):
        body = self.server.post("/v1/chat/completions", CHAT)[1]
        return body["choices"][0]["message"]["content"], body["usage"]


class Responses(Named):
    def test_answer(self):
        text, usage = self.chat()
        status, body = self.server.post("/v1/responses", RESPONSES)
        self.assertEqual((status, body["object"], body["status"]), (200, "response", "completed"))
        (item,) = body["output"]
        self.assertEqual((item["type"], item["role"]), ("message", "assistant"))
        self.assertEqual(item["content"][0]["text"], text)
        self.assertEqual(body["usage"]["input_tokens"], usage["prompt_tokens"])
        self.assertEqual(body["usage"]["output_tokens"], usage["completion_tokens"])

    def test_items(self):
        items = [{"role": "user", "content": [{"type": "input_text", "text": "What is 37 + 58?"}]}]
        body = self.server.post("/v1/responses", {**RESPONSES, "input": items})[1]
        self.assertEqual(body["output"][0]["content"][0]["text"], self.chat()[0])

    def test_stream(self):
        text, _ = self.chat()
        events = self.events("/v1/responses", RESPONSES)
        kinds = [event["type"] for event in events]
        self.assertEqual(kinds[:4], ["response.created", "response.in_progress", "response.output_item.added",
                                     "response.content_part.added"])
        self.assertEqual(set(kinds[4:-4]), {"response.output_text.delta"})
        self.assertEqual(kinds[-4:], ["response.output_text.done", "response.content_part.done",
                                      "response.output_item.done", "response.completed"])
        self.assertEqual([event["sequence_number"] for event in events], list(range(len(events))))
        self.assertEqual("".join(event["delta"] for event in events[4:-4]), text)
        self.assertEqual(events[-4]["text"], text)
        self.assertEqual(events[-1]["response"]["output"][0]["content"][0]["text"], text)

    def test_cut(self):
        body = self.server.post("/v1/responses", {**RESPONSES, "max_output_tokens": 2})[1]
        self.assertEqual((body["status"], body["incomplete_details"]),
                         ("incomplete", {"reason": "max_output_tokens"}))

    def test_refused(self):
        for param, members in (("input", {"input": None}), ("input", {"input": []}), ("input", {"input": 5}),
                               ("input", {"input": [{"type": "function_call_output"}]}),
                               ("input", {"input": [{"role": "user", "content": [{"type": "input_image"}]}]}),
                               ("previous_response_id", {"previous_response_id": "x"}),
                               ("background", {"background": True}), ("n", {"n": 2}), ("tools", {"tools": [{"type": 5}]}),
                               ("text", {"text": {"format": {"type": "x"}}}), ("text", {"text": 5}),
                               ("text", {"text": {"verbosity": "low"}}), ("reasoning", {"reasoning": 5}),
                               ("reasoning", {"reasoning": {"effort": 5}}), ("reasoning", {"reasoning": {"effort": "some"}}),
                               ("messages", {"messages": [{}]}),
                               ("truncation", {"truncation": "auto"}),
                               ("top_logprobs", {"top_logprobs": 2}), ("include", {"include": "x"}), ("metadata", {"metadata": [1]}),
                               ("include", {"include": ["message.output_text.logprobs"]}),
                               ("previous_input_messages", {"previous_input_messages": [{}]}),
                               ("instructions", {"instructions": 5}), ("temperature", {"temperature": "x"})):
            self.check_error(self.server.post("/v1/responses", {**RESPONSES, **members}), 400, param)
        message = self.server.post("/v1/responses", {**RESPONSES, "input": 5})[1]["error"]["message"]
        self.assertEqual(message, "input is an integer, want a string or a list")

    def test_count(self):
        _, usage = self.chat()
        self.assertEqual(self.server.post("/v1/responses/input_tokens", RESPONSES),
                         (200, {"object": "response.input_tokens", "input_tokens": usage["prompt_tokens"]}))
        self.check_error(self.server.post("/v1/responses/input_tokens", {}), 400, "input")

    def test_metadata(self):
        self.assertEqual(self.server.post("/v1/responses", {**RESPONSES, "metadata": {"a": "b"}})[1]["metadata"],
                         {"a": "b"})
        self.assertEqual(self.server.post("/v1/responses", RESPONSES)[1]["metadata"], {})

    def test_not_refused(self):
        self.assertEqual(self.server.post("/v1/responses", {
            **RESPONSES, "truncation": "disabled", "top_logprobs": 0, "include": ["reasoning.encrypted_content"],
            "text": {"verbosity": "medium", "format": {"type": "text"}},
            "reasoning": {"effort": "low", "summary": "auto", "max_tokens": None}})[0], 200)


class Messages(Named):
    def test_answer(self):
        text, usage = self.chat()
        status, body = self.server.post("/v1/messages", MESSAGES)
        self.assertEqual((status, body["type"], body["role"]), (200, "message", "assistant"))
        self.assertEqual(body["content"], [{"type": "text", "text": text}])
        self.assertEqual((body["stop_reason"], body["stop_sequence"]), ("end_turn", None))
        self.assertEqual(body["usage"]["output_tokens"], usage["completion_tokens"])
        self.assertEqual(body["usage"]["input_tokens"] + body["usage"]["cache_read_input_tokens"],
                         usage["prompt_tokens"])

    def test_count(self):
        _, usage = self.chat()
        self.assertEqual(self.server.post("/v1/messages/count_tokens", MESSAGES),
                         (200, {"input_tokens": usage["prompt_tokens"]}))

    def test_stream(self):
        text, _ = self.chat()
        events = self.events("/v1/messages", MESSAGES)
        kinds = [event["type"] for event in events]
        self.assertEqual(kinds[:2], ["message_start", "content_block_start"])
        self.assertEqual(set(kinds[2:-3]), {"content_block_delta"})
        self.assertEqual(kinds[-3:], ["content_block_stop", "message_delta", "message_stop"])
        self.assertEqual("".join(event["delta"]["text"] for event in events[2:-3]), text)
        self.assertEqual(events[-2]["delta"], {"stop_reason": "end_turn", "stop_sequence": None})

    def test_stop(self):
        body = self.server.post("/v1/messages", {**MESSAGES, "stop_sequences": ["58"]})[1]
        self.assertEqual((body["stop_reason"], body["stop_sequence"]), ("stop_sequence", "58"))
        body = self.server.post("/v1/messages", {**MESSAGES, "max_tokens": 2})[1]
        self.assertEqual(body["stop_reason"], "max_tokens")

    def test_errors_name_the_member_that_was_sent(self):
        for stop in (7, [7], ["x"] * 17, ["x" * 1025]):
            status, body = self.server.post("/v1/messages", {**MESSAGES, "stop_sequences": stop})
            self.assertEqual(status, 400, body)
            self.assertRegex(body["error"]["message"], "^(entry [0-9]+ of )?stop_sequences (is|has) ")

    def test_errors_before_the_endpoint(self):
        """Also what no endpoint has seen yet has Anthropic's form there."""
        text = json.dumps(MESSAGES)
        for path in ("/v1/messages", "/v1/messages/count_tokens"):
            for method, headers, status, kind in (("POST", {"Content-Type": "text/plain"}, 415, "invalid_request_error"),
                                                  ("GET", {}, 405, "invalid_request_error"),
                                                  ("POST", {"Content-Type": "application/json", "Host": "evil.example"},
                                                   403, "permission_error")):
                got, _, body = self.server.request(method, path, text if method == "POST" else None, headers)
                body = json.loads(body)
                self.assertEqual((got, body["type"], body["error"]["type"]), (status, "error", kind))
            answer = self.server.raw(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                                     f"Content-Length: {1 << 40}\r\n\r\n".encode())
            self.assertIn(b" 413 ", answer.split(b"\r\n")[0])
            self.assertEqual(json.loads(answer.split(b"\r\n\r\n")[1])["type"], "error")

    def test_effort(self):
        ask = lambda effort: self.server.post("/v1/messages", {**MESSAGES, "output_config": {"effort": effort}})[0]
        self.assertEqual((ask("high"), ask(None), ask("some")), (200, 200, 400))
        thinking = {"type": "disabled", "budget_tokens": 0}
        self.assertEqual(self.server.post("/v1/messages", {**MESSAGES, "thinking": thinking})[0], 200)

    def test_begun_answer(self):
        messages = MESSAGES["messages"] + [{"role": "assistant", "content": [{"type": "text", "text": "37 + 58 ="}]}]
        body = self.server.post("/v1/messages", {**MESSAGES, "messages": messages})[1]
        self.assertTrue(body["content"][0]["text"].startswith(" 95"), body)

    def test_refused(self):
        for members in ({"max_tokens": None}, {"messages": []}, {"messages": [{"role": "system", "content": "x"}]},
                        {"messages": [{"role": "user", "content": [{"type": "image"}]}]}, {"tools": [{}]},
                        {"messages": [{"role": "user"}]}, {"messages": [1]}, {"system": 5}):
            status, body = self.server.post("/v1/messages", {**MESSAGES, **members})
            self.assertEqual((status, body["type"], body["error"]["type"]), (400, "error", "invalid_request_error"))
            self.assertTrue(body["error"]["message"])
        schema = {"type": "json_schema"}
        for members in ({"output_format": schema}, {"output_config": {"format": schema}}, {"output_config": 5},
                        {"output_config": {"effort": "some"}}, {"mcp_servers": [{}]}, {"container": "x"},
                        {"context_management": {"edits": []}}, {"thinking": {"type": "enabled", "budget_tokens": "x"}},
                        {"thinking": {"type": "enabled", "budget_tokens": -1}}):
            status, body = self.server.post("/v1/messages", {**MESSAGES, **members})
            self.assertEqual((status, body["error"]["type"]), (400, "invalid_request_error"))
            self.assertIn(list(members)[0], body["error"]["message"])
        status, body = self.server.post("/v1/messages", {**MESSAGES, "model": "claude"})
        self.assertEqual((status, body["error"]["type"]), (404, "not_found_error"))


if __name__ == "__main__":
    main()
