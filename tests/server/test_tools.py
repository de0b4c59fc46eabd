"""Tool calls and reasoning over HTTP: a model whose answers are written here (scripted_model.py)."""

import json

from scripted_model import TEMPLATE, Script
from server_fixture import Server, main
from tool_answers import CHAT, MESSAGES, OTHER, RESPONSES, TOOL, Scripted

FORCED_NAME = '<tool_call>\n{"name": "add", "arguments":'
BEFORE_NAME = '<tool_call>\n{"name": "'
ANSWERS = {
    "<|plain|>": "Ninety-five it is.",
    "<|call|>": 'Let me see.\n<tool_call>\n{"name": "add", "arguments": {"a": 37, "b": 58}}\n</tool_call>',
    "<|two|>": '<tool_call>{"name": "add", "arguments": {"a": 1, "b": [2, "\u00fc\U0001f600"]}}</tool_call>\n'
               '<tool_call>{"name": "get_time"}</tool_call>',
    "<|thought|>": "<think>\nTwo sums, so <tool_call> may help.\n</think>\n\nIt makes 95 in sum.",
    "<|thought-call|>": '<think>I had better ask.</think><tool_call>{"name": "get_time", "arguments": {}}</tool_call>',
    "<think>": "I am inside. </think> Now outside of it.",
    "<|fake|>": 'A call looks like <tool_call>{"nme": "add"}</tool_call>, as said.',
    "<|broken|>": '<tool_call>{"name": "add", "arguments": {"a": twelve}}</tool_call>',
    "<|nothing|>": "",
}


class Tools(Scripted):
    @classmethod
    def write_model(cls, folder):
        script = Script()
        for start, answer in ANSWERS.items():
            if start not in script.special:
                script.start(start)
            script.answer(start, answer)
        script.call(script.last_token(FORCED_NAME), ' {"a": 1, "b": 99}}\n</tool_call>')
        script.ends(FORCED_NAME)
        script.leads(BEFORE_NAME, "get_time")  # of two functions it would rather call this one
        script.start("<|calls|>")
        script.chain[script.special["<|calls|>"]] = script.special["<tool_call>"]
        script.write(folder)

    def refuse(self, param, start, members, code=None):
        self.check_error(self.server.post(CHAT, self.body(start, **members)), 400, param, code)

    def render(self, **members):
        status, body = self.server.post("/apply-template", self.body("", **members))
        self.assertEqual(status, 200, body)
        return body["prompt"]


class Chat(Tools):
    ask = Tools.ask_chat

    def test_plain(self):
        choice = self.ask("<|plain|>", tools=[TOOL])
        self.assertEqual((choice["message"]["content"], choice["finish_reason"]), (ANSWERS["<|plain|>"], "stop"))
        self.assertNotIn("tool_calls", choice["message"])
        self.assertIsNone(choice["message"]["reasoning"])
        self.assertEqual(self.ask("<|nothing|>", tools=[TOOL])["message"]["content"], "")

    def test_call(self):
        choice = self.ask("<|call|>", tools=[TOOL], tool_choice="auto")
        (call,) = choice["message"]["tool_calls"]
        self.assertEqual((choice["message"]["content"], choice["finish_reason"]), ("Let me see.", "tool_calls"))
        self.assertRegex(call["id"], "^call_[A-Za-z0-9]{24}$")
        self.assertEqual((call["type"], call["function"]),
                         ("function", {"name": "add", "arguments": '{"a": 37, "b": 58}'}))

    def test_two_calls(self):
        choice = self.ask("<|two|>", tools=[TOOL, OTHER])
        calls = choice["message"]["tool_calls"]
        self.assertIsNone(choice["message"]["content"])
        self.assertEqual([call["function"]["name"] for call in calls], ["add", "get_time"])
        self.assertEqual([json.loads(call["function"]["arguments"]) for call in calls],
                         [{"a": 1, "b": [2, "\u00fc\U0001f600"]}, {}])
        self.assertNotEqual(calls[0]["id"], calls[1]["id"])
        one = self.ask("<|two|>", tools=[TOOL, OTHER], parallel_tool_calls=False)
        self.assertEqual([call["function"] for call in one["message"]["tool_calls"]], [calls[0]["function"]])

    def test_empty_list_of_tools(self):
        """Agents send one, and tool_choice auto beside it: both mean what leaving them out means."""
        for members in ({"tools": []}, {"tools": [], "tool_choice": "auto"}, {"tool_choice": "auto"}):
            with self.subTest(members):
                self.assertEqual(self.render(**members), self.render())
                self.assertEqual(self.ask_chat("<|call|>", **members)["message"]["content"], ANSWERS["<|call|>"])
                (item,) = self.ask_responses("<|call|>", **members)["output"]
                self.assertEqual(item["content"][0]["text"], ANSWERS["<|call|>"])
                if "tool_choice" in members:
                    members = {**members, "tool_choice": {"type": "auto"}}
                self.assertEqual(self.ask_messages("<|call|>", **members)[0][0]["text"], ANSWERS["<|call|>"])

    def test_no_tools(self):
        """Without tools, or with tool_choice none, text stays text."""
        for members in ({}, {"tools": [TOOL], "tool_choice": "none"}):
            choice = self.ask("<|call|>", **members)
            self.assertEqual((choice["message"]["content"], choice["finish_reason"]), (ANSWERS["<|call|>"], "stop"))

    def test_looks_like_a_call(self):
        choice = self.ask("<|fake|>", tools=[TOOL])
        self.assertEqual((choice["message"]["content"], choice["finish_reason"]), (ANSWERS["<|fake|>"], "stop"))

    def test_broken_arguments(self):
        choice = self.ask("<|broken|>", tools=[TOOL])
        self.assertEqual(choice["message"]["tool_calls"][0]["function"]["arguments"], '{"a": twelve}}')

    def test_forced(self):
        named = {"type": "function", "function": {"name": "add"}}
        want = {"name": "add", "arguments": '{"a": 1, "b": 99}'}
        for start in ("<|calls|>", "<|plain|>", "<|fake|>"):
            for members in ({"tools": [TOOL, OTHER], "tool_choice": named},
                            {"tools": [TOOL], "tool_choice": "required"}):
                choice = self.ask(start, **members)
                self.assertEqual(choice["message"]["tool_calls"][0]["function"], want)
                self.assertEqual((choice["message"]["content"], choice["finish_reason"]), (None, "tool_calls"))
        choice = self.ask("<|calls|>", tools=[TOOL, OTHER], tool_choice="required")
        self.assertEqual(choice["message"]["tool_calls"][0]["function"], {**want, "name": "get_time"})

    def test_forced_behind_the_reasoning(self):
        """Whether the model opens its reasoning or the template did: the call comes behind it."""
        for start in ("", "<think>"):
            choice = self.ask(start, tools=[TOOL], tool_choice="required")
            self.assertEqual((choice["message"]["reasoning"], choice["message"]["content"]), ("I am inside.", None))
            self.assertEqual((choice["message"]["tool_calls"][0]["function"]["name"], choice["finish_reason"]),
                             ("add", "tool_calls"))
        # A template that has closed it leaves no room for more.
        choice = self.ask("<think></think>\n\n", tools=[TOOL], tool_choice="required")
        self.assertIsNone(choice["message"]["reasoning"])
        self.assertEqual(choice["finish_reason"], "tool_calls")

    def test_forced_call_that_does_not_end(self):
        """Never stop: an answer that is no whole call was cut."""
        ask = lambda **members: self.ask("<|calls|>", tools=[TOOL], tool_choice="required", **members)
        for num_tokens in (1, 5, 12, 16):
            self.assertEqual(ask(max_tokens=num_tokens)["finish_reason"], "length", num_tokens)
        for stop in ("name", '"a"', "99"):
            self.assertEqual(ask(stop=stop)["finish_reason"], "length", stop)
        self.assertEqual(ask(stop="}}")["finish_reason"], "length")
        self.assertEqual(ask(stop="</tool_call>")["finish_reason"], "tool_calls")
        body = self.body("<|calls|>", tools=[TOOL], tool_choice="required", allowed_token_ids=[5])
        self.check_error(self.server.post(CHAT, body), 400, "structured_outputs")

    def test_forced_outputs_choose_for_themselves(self):
        body = self.body("<|calls|>", tools=[TOOL, OTHER], tool_choice="required", n=3, temperature=1.0, seed=1,
                         return_token_ids=True)
        status, body = self.server.post(CHAT, body)
        self.assertEqual(status, 200, body)
        for choice in body["choices"]:
            self.assertIn(choice["message"]["tool_calls"][0]["function"]["name"], ("add", "get_time"))
            self.assertGreater(len(choice["token_ids"]), 12)

    def test_several_outputs(self):
        status, body = self.server.post(CHAT, self.body("<|call|>", tools=[TOOL], n=3))
        self.assertEqual(status, 200, body)
        ids = {choice["message"]["tool_calls"][0]["id"] for choice in body["choices"]}
        self.assertEqual(len(ids), 3)

    def test_cut(self):
        choice = self.ask("<|call|>", tools=[TOOL], max_tokens=9)
        self.assertEqual(choice["finish_reason"], "length")

    def test_refused(self):
        for members in ({"tools": "add"}, {"tools": [{}]},
                        {"tools": [{"type": "function", "function": {"name": ""}}]},
                        {"tools": [{"type": "function", "function": {"name": "a\u0000b"}}]},
                        {"tools": [{"type": "function", "function": {"name": "a" * 257}}]},
                        {"tools": [{"type": "function", "function": {"name": "\u00e4"}}]},
                        {"tools": [{"type": "function", "function": {"name": "a", "description": 1}}]},
                        {"tools": [{"type": "function", "function": {"name": "a", "parameters": []}}]}):
            self.refuse("tools", "", members)
        for choice in ("must", 1, {}, {"type": "function", "function": {"name": "sub"}}):
            self.refuse("tool_choice", "", {"tools": [TOOL], "tool_choice": choice}, "invalid_value")
        for members in ({}, {"tools": []}):
            self.refuse("tool_choice", "", {**members, "tool_choice": "required"})
            self.refuse("tool_choice", "", {**members, "tool_choice": "x"})
        self.refuse("tool_choice", "", {"tools": [{"type": "function", "function": {"name": 'a"b'}}],
                                        "tool_choice": "required"})
        self.refuse("parallel_tool_calls", "", {"tools": [TOOL], "parallel_tool_calls": 1})
        self.refuse("include_reasoning", "", {"include_reasoning": "no"})

    def test_history(self):
        question = {"role": "user", "content": "What is 37 + 58?"}
        call = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a": 37, "b": 58}'}}
        prompt = self.render(messages=[question, {"role": "assistant", "reasoning": "hard", "tool_calls": [call]},
                                       {"role": "tool", "tool_call_id": "call_1", "content": "95"}], tools=[TOOL])
        self.assertIn("adds two numbers", prompt)
        self.assertIn('<think>hard</think><tool_call>\n{"name": "add", "arguments": {"a": 37, "b": 58}}', prompt)
        self.assertIn("tool\n95for call_1", prompt)
        self.assertNotIn("adds", self.render(tools=[TOOL], tool_choice="none"))
        text = {**call, "function": {"name": "add", "arguments": "{37"}}
        self.assertIn('"{37"', self.render(messages=[question, {"role": "assistant", "tool_calls": [text]}]))
        for message in ({"role": "tool", "content": "95"}, {"role": "assistant", "tool_calls": "x"},
                        {"role": "assistant", "tool_calls": [{}]},
                        {"role": "assistant", "content": "", "reasoning": {}},
                        {"role": "assistant", "content": "", "reasoning_content": 1},
                        {"role": "assistant", "tool_calls": [{"id": 1, "function": {"name": "a"}}]},
                        {"role": "assistant", "tool_calls": [{"type": "x", "function": {"name": "a"}}]},
                        {"role": "assistant", "tool_calls": [{"function": {"name": "a", "arguments": 1}}]}):
            self.refuse("messages", "", {"messages": [question, message]})



class BegunAnswer(Tools):
    """A template that trims what the answer goes on behind, as those of Llama 3 and Gemma do."""

    BEGUN = "<think>\nI wonder"

    @classmethod
    def write_model(cls, folder):
        script = Script()
        script.answer(script.last_token(cls.BEGUN), ", yes.</think>So it is.")
        script.write(folder, TEMPLATE.replace("{{ m.content or '' }}", "{{ (m.content or '') | trim }}"))

    def test_reasoning(self):
        for blanks in ("", " ", " \n\n"):
            begun = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": self.BEGUN + blanks}]
            status, body = self.server.post(CHAT, self.body("", messages=begun, continue_final_message=True))
            self.assertEqual(status, 200, body)
            message = body["choices"][0]["message"]
            self.assertEqual((message["reasoning"], message["content"]), (", yes.", "So it is."), repr(blanks))


class Unsplit(Tools):
    ask = Tools.ask_chat
    flags = ("--log", "none", "--reasoning-parser", "none")

    def test_in_the_text(self):
        choice = self.ask("<|thought|>")
        self.assertEqual(choice["message"]["content"], ANSWERS["<|thought|>"])
        self.assertIsNone(choice["message"]["reasoning"])


class Split(Tools):
    ask = Tools.ask_chat

    def test_reasoning(self):
        message = self.ask("<|thought|>", tools=[TOOL])["message"]
        self.assertEqual(message["reasoning"], "Two sums, so <tool_call> may help.")
        self.assertEqual(message["reasoning_content"], message["reasoning"])
        self.assertEqual(message["content"], "It makes 95 in sum.")

    def test_tokens_are_counted(self):
        details = lambda start: self.server.post(CHAT, self.body(start))[1]["usage"]
        usage = details("<|thought|>")
        num_reasoning = usage["completion_tokens_details"]["reasoning_tokens"]
        self.assertGreater(num_reasoning, 8)
        self.assertLess(num_reasoning, usage["completion_tokens"] - 2)
        self.assertEqual(details("<|plain|>")["completion_tokens_details"], {"reasoning_tokens": 0})
        events = self.server.stream(CHAT, self.body("<|thought|>", stream_options={"include_usage": True}))
        self.assertEqual(events[-1]["usage"]["completion_tokens_details"]["reasoning_tokens"], num_reasoning)
        body = {"input": "What?", "temperature": 0, "chat_template_kwargs": {"start": "<|thought|>"}}
        usage = self.server.post(RESPONSES, body)[1]["usage"]
        self.assertEqual(usage["output_tokens_details"]["reasoning_tokens"], num_reasoning)

    def test_begun_in_the_prompt(self):
        message = self.ask("<think>")["message"]
        self.assertEqual((message["reasoning"], message["content"]), ("I am inside.", "Now outside of it."))

    def test_left_out(self):
        message = self.ask("<|thought|>", include_reasoning=False)["message"]
        self.assertEqual(message["content"], "It makes 95 in sum.")
        self.assertIsNone(message["reasoning"])

    def test_format(self):
        """llama-server's reasoning_format."""
        self.assertEqual(self.ask("<|thought|>", reasoning_format="none")["message"]["content"], ANSWERS["<|thought|>"])
        self.assertEqual(self.ask("<|thought|>", reasoning_format="deepseek"), self.ask("<|thought|>"))
        self.refuse("reasoning_format", "", {"reasoning_format": "deepseek-legacy"})

    def test_before_a_call(self):
        choice = self.ask("<|thought-call|>", tools=[OTHER])
        self.assertEqual((choice["message"]["reasoning"], choice["message"]["content"]), ("I had better ask.", None))
        self.assertEqual(choice["message"]["tool_calls"][0]["function"], {"name": "get_time", "arguments": "{}"})

    def test_effort(self):
        for effort in ("none", "minimal", "low", "medium", "high", "xhigh", "max"):
            self.ask("<|plain|>", reasoning_effort=effort)
        self.refuse("reasoning_effort", "", {"reasoning_effort": "some"})
        self.refuse("reasoning_effort", "", {"reasoning_effort": 1})


class Messages(Tools):
    ask = Tools.ask_messages
    TOOLS = [{"name": "add", "description": "adds two numbers", "input_schema": TOOL["function"]["parameters"]},
             {"name": "get_time", "input_schema": {"type": "object"}}]

    def test_call(self):
        blocks, reason = self.ask("<|call|>", tools=self.TOOLS)
        self.assertEqual(blocks[0], {"type": "text", "text": "Let me see."})
        self.assertEqual((blocks[1]["type"], blocks[1]["name"], blocks[1]["input"]),
                         ("tool_use", "add", {"a": 37, "b": 58}))
        self.assertEqual((len(blocks), reason), (2, "tool_use"))
        blocks, _ = self.ask("<|two|>", tools=self.TOOLS)
        self.assertEqual([block["name"] for block in blocks], ["add", "get_time"])
        blocks, _ = self.ask("<|two|>", tools=self.TOOLS, tool_choice={"type": "auto",
                                                                        "disable_parallel_tool_use": True})
        self.assertEqual([block["name"] for block in blocks], ["add"])
        blocks, _ = self.ask("<|broken|>", tools=self.TOOLS)
        self.assertEqual(blocks[0]["input"], {"INVALID_JSON": '{"a": twelve}}'})

    def test_forced(self):
        blocks, reason = self.ask("<|calls|>", tools=self.TOOLS, tool_choice={"type": "tool", "name": "add"})
        self.assertEqual((blocks[0]["input"], reason), ({"a": 1, "b": 99}, "tool_use"))
        blocks, _ = self.ask("", tools=self.TOOLS, tool_choice={"type": "any"})
        self.assertEqual([block["type"] for block in blocks], ["thinking", "tool_use"])
        self.assertEqual((blocks[1]["name"], blocks[1]["input"]), ("get_time", {"a": 1, "b": 99}))
        _, reason = self.ask("<|calls|>", tools=self.TOOLS, tool_choice={"type": "any"}, stop_sequences=["99"])
        self.assertEqual(reason, "max_tokens")

    def test_thinking(self):
        blocks, reason = self.ask("<|thought|>")
        self.assertEqual(blocks, [{"type": "thinking", "thinking": "Two sums, so <tool_call> may help.",
                                   "signature": ""}, {"type": "text", "text": "It makes 95 in sum."}])
        self.assertEqual(reason, "end_turn")
        self.assertEqual(self.ask("<|nothing|>")[0], [{"type": "text", "text": ""}])

    def test_history(self):
        """Blocks reach the template as chat completions' members: the prompts have equally many tokens."""
        messages = [{"role": "user", "content": "What?"},
                    {"role": "assistant", "content": [
                        {"type": "thinking", "thinking": "hard", "signature": ""},
                        {"type": "redacted_thinking", "data": "x"}, {"type": "text", "text": "Let me see."},
                        {"type": "tool_use", "id": "1", "name": "add", "input": {"a": 37, "b": 58}}]},
                    {"role": "user", "content": [
                        {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "95"}]},
                        {"type": "tool_result", "tool_use_id": "2"}, {"type": "text", "text": "And"},
                        {"type": "text", "text": "now?"}]}]
        chat = [{"role": "user", "content": "What?"},
                {"role": "assistant", "content": "Let me see.", "reasoning": "hard", "tool_calls": [
                    {"id": "1", "type": "function", "function": {"name": "add", "arguments": {"a": 37, "b": 58}}}]},
                {"role": "tool", "tool_call_id": "1", "content": "95"},
                {"role": "tool", "tool_call_id": "2", "content": ""}, {"role": "user", "content": "And\nnow?"}]
        tools = [TOOL, {"type": "function", "function": {**OTHER["function"], "parameters": {"type": "object"}}}]
        ids = self.server.post("/tokenize", {"messages": chat, "tools": tools})[1]["tokens"]
        count = self.server.post(MESSAGES + "/count_tokens", {"messages": messages, "tools": self.TOOLS})
        self.assertEqual(count, (200, {"input_tokens": len(ids)}))

    def test_a_result_that_is_an_error(self):
        use = {"type": "tool_use", "id": "1", "name": "add", "input": {}}
        part = {"type": "text", "text": "no sum"}
        for result, want in (({"content": "no sum", "is_error": True}, "Error: no sum"),
                             ({"content": [part, part], "is_error": True}, "Error: no sum\nno sum"),
                             ({"is_error": True}, "Error"), ({"content": [], "is_error": True}, "Error"),
                             ({"content": "no sum", "is_error": False}, "no sum")):
            counts = [self.server.post(MESSAGES + "/count_tokens", {"tools": self.TOOLS, "messages": [
                {"role": "user", "content": "What?"}, {"role": "assistant", "content": [use]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", **members}]}]})
                for members in (result, {"content": want})]
            self.assertEqual(counts[0], counts[1], result)

    def test_refused(self):
        question = {"role": "user", "content": "What?"}
        search = {"type": "web_search_20250305", "name": "web_search"}
        for members in ({"tools": [search], "tool_choice": {"type": "any"}}, {"tools": 5},
                        {"tools": [search], "tool_choice": {"type": "tool", "name": "web_search"}},
                        {"tools": [{"input_schema": {}}]}, {"tools": [{"name": "a", "type": {}}]}, {"tools": self.TOOLS, "tool_choice": {"type": "some"}},
                        {"tools": self.TOOLS, "tool_choice": {"type": "tool", "name": "sub"}},
                        {"tools": self.TOOLS, "tool_choice": {"type": "auto", "disable_parallel_tool_use": 1}},
                        {"thinking": 1}, {"thinking": {"type": "some"}}, {"n": 2},
                        {"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]},
                        {"messages": [{"role": "user", "content": [
                            {"type": "tool_result", "tool_use_id": "1", "is_error": "yes"}]}]},
                        {"messages": [question, {"role": "assistant", "content": [{"type": "tool_use"}]}, question]},
                        {"messages": [question, {"role": "assistant", "content": [{"type": "thinking"}]}, question]}):
            status, body = self.server.post(MESSAGES, self.body("", **members))
            self.assertEqual((status, body["error"]["type"]), (400, "invalid_request_error"), members)


class Responses(Tools):
    ask = Tools.ask_responses
    TOOLS = [{"type": "function", **TOOL["function"]}, {"type": "function", "name": "get_time", "parameters": None}]

    def test_call(self):
        body = self.ask("<|call|>", tools=self.TOOLS)
        self.assertEqual([item["type"] for item in body["output"]], ["message", "function_call"])
        call = body["output"][1]
        self.assertEqual((call["name"], call["arguments"], call["status"]), ("add", '{"a": 37, "b": 58}', "completed"))
        self.assertRegex(call["call_id"], "^call_")
        self.assertEqual([tool["name"] for tool in body["tools"]], ["add", "get_time"])
        body = self.ask("<|two|>", tools=self.TOOLS)
        self.assertEqual([item["name"] for item in body["output"]], ["add", "get_time"])
        body = self.ask("<|two|>", tools=self.TOOLS, parallel_tool_calls=False)
        self.assertEqual([item["name"] for item in body["output"]], ["add"])

    def test_forced(self):
        body = self.ask("<|calls|>", tools=self.TOOLS, tool_choice={"type": "function", "name": "add"})
        self.assertEqual(body["output"][0]["arguments"], '{"a": 1, "b": 99}')
        self.assertEqual(body["tool_choice"], {"type": "function", "name": "add"})
        body = self.ask("", tools=self.TOOLS, tool_choice="required")
        self.assertEqual([item["type"] for item in body["output"]], ["reasoning", "function_call"])
        self.assertEqual(body["output"][1]["name"], "get_time")
        body = self.ask("<|calls|>", tools=self.TOOLS, tool_choice="required", stop="99")
        self.assertEqual((body["status"], body["output"][0]["status"]), ("incomplete", "incomplete"))

    def test_reasoning(self):
        body = self.ask("<|thought|>")
        self.assertEqual([item["type"] for item in body["output"]], ["reasoning", "message"])
        self.assertEqual(body["output"][0]["content"], [{"type": "reasoning_text",
                                                         "text": "Two sums, so <tool_call> may help."}])
        self.assertEqual(self.ask("<|nothing|>")["output"][0]["content"][0]["text"], "")
        self.ask("<|plain|>", reasoning={"effort": "low", "summary": "auto"})

    def test_history(self):
        items = [{"role": "user", "content": "What?"},
                 {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hard"}]},
                 {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Let me see."}]},
                 {"type": "function_call", "call_id": "1", "name": "add", "arguments": '{"a": 37, "b": 58}'},
                 {"type": "function_call_output", "call_id": "1", "output": "95"}]
        chat = [{"role": "user", "content": "What?"},
                {"role": "assistant", "content": "Let me see.", "reasoning": "hard", "tool_calls": [
                    {"id": "1", "type": "function", "function": {"name": "add", "arguments": {"a": 37, "b": 58}}}]},
                {"role": "tool", "tool_call_id": "1", "content": "95"}]
        body = self.ask("<|plain|>", input=items)
        ids = self.server.post("/tokenize", {"messages": chat, "chat_template_kwargs": {"start": "<|plain|>"}})[1]
        self.assertEqual(body["usage"]["input_tokens"], ids["count"])

    def test_tools_that_the_server_would_run_are_left_out(self):
        """Agents offer them always. The model does not hear of them, and the answer's head says so."""
        body = self.responses_body("<|call|>", tools=[{"type": "web_search"}, *self.TOOLS, {"type": "custom", "name": "x"},
                                                      {"type": "a, b"}, {"type": "c"}])
        status, headers, text = self.server.request("POST", RESPONSES, body)
        self.assertEqual(status, 200, text)
        self.assertEqual(headers["X-Ignored-Members"], "tools.web_search, tools.custom, tools....")
        without = self.server.post(RESPONSES, {**body, "tools": self.TOOLS})[1]
        answer = json.loads(text)
        self.assertEqual(answer["tools"], without["tools"])
        self.assertEqual(answer["usage"]["input_tokens"], without["usage"]["input_tokens"])
        self.assertEqual(answer["output"][-1]["type"], "function_call")
        body["tools"] = [{"type": "web_search"}]  # nothing else: as without tools
        status, headers, text = self.server.request("POST", RESPONSES, {**body, "tool_choice": "auto"})
        self.assertEqual((status, headers["X-Ignored-Members"]), (200, "tools.web_search"), text)
        self.assertEqual(json.loads(text)["tools"], [])
        body = self.body("<|plain|>", tools=[{"type": "web_search_20250305", "name": "web_search"}])
        status, headers, text = self.server.request("POST", MESSAGES, body)
        self.assertEqual((status, headers["X-Ignored-Members"]), (200, "tools.web_search_20250305"), text)

    def test_refused(self):
        for param, members in (("tools", {"tools": [{"name": "add"}]}), ("tools", {"tools": 5}),
                               ("tool_choice", {"tools": [{"type": "web_search"}], "tool_choice": "required"}),
                               ("tools", {"tools": [{"type": "function"}]}), ("reasoning", {"reasoning": 5}),
                               ("tool_choice", {"tools": self.TOOLS, "tool_choice": {"type": "web_search"}}),
                               ("input", {"input": [{"type": "item_reference", "id": "x"}]}),
                               ("input", {"input": [{"type": 5, "role": "user", "content": "x"}]}),
                               ("input", {"input": [{"type": "function_call", "name": "x"}]}),
                               ("input", {"input": [{"type": "function_call_output", "output": "x"}]})):
            self.check_error(self.server.post(RESPONSES, self.responses_body("", **members)), 400, param)


class Parsers(Tools):
    """Without a format no call is found and none is forced; the template has the tools all the same."""

    flags = ("--log", "none", "--tool-call-parser", "none")

    def test_no_parser(self):
        status, body = self.server.post(CHAT, self.body("<|call|>", tools=[TOOL]))
        self.assertEqual((status, body["choices"][0]["message"]["content"]), (200, ANSWERS["<|call|>"]))
        self.refuse("tool_choice", "", {"tools": [TOOL], "tool_choice": "required"}, "unsupported")

    def test_names(self):
        for name in ("hermes", "llama3_json", "mistral", "mistral_args"):
            self.assertIsNone(Server("--log", "none", "--tool-call-parser", name, model=self.model).stop())
        with self.assertRaisesRegex(RuntimeError, "tool-call-parser"):
            Server("--tool-call-parser", "other")


if __name__ == "__main__":
    main()
