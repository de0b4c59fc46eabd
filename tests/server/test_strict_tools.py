"""Calls that a grammar guarantees: strict tools, demanded calls, and forms of the text beside tools. Most answers
are random, so only the grammar can be why they fit."""

import json

from scripted_model import Script
from server_fixture import main
from tool_answers import CHAT, MESSAGES, OTHER, RESPONSES, Scripted

SCHEMA = {"type": "object", "properties": {"a": {"enum": [1, 22, 333]}, "b": {"type": "boolean"}},
          "required": ["a", "b"], "additionalProperties": False}
STRICT = {"type": "function", "function": {"name": "add", "strict": True, "parameters": SCHEMA}}
LOOSE = {"type": "function", "function": {"name": "add", "parameters": SCHEMA}}
UNENFORCEABLE = {"type": "object", "properties": {"a": {"$dynamicRef": "#a"}}}
YES_OR_NO = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"enum": ["yes", "no"]}}}
RANDOM = {"temperature": 8, "seed": 1, "n": 4, "max_tokens": 400}


class StrictTools(Scripted):
    @classmethod
    def write_model(cls, folder):
        script = Script(thinks=False)  # else random answers begin with reasoning without end
        script.start("<|plain|>")
        script.answer("<|plain|>", "Ninety-five it is.")
        script.start("<|calls|>")
        cls.mark = script.special["<tool_call>"]
        script.chain[script.special["<|calls|>"]] = cls.mark
        script.write(folder)

    def choices(self, start, **members):
        status, body = self.server.post(CHAT, self.body(start, **{**RANDOM, **members}))
        self.assertEqual(status, 200, body)
        return body["choices"]

    def check_calls(self, choice, count=None):
        calls = choice["message"]["tool_calls"]
        if count:
            self.assertEqual(len(calls), count)
        for call in calls:
            arguments = json.loads(call["function"]["arguments"])
            self.assertEqual((call["function"]["name"], list(arguments)), ("add", ["a", "b"]))
            self.assertIn(arguments["a"], (1, 22, 333))
            self.assertIsInstance(arguments["b"], bool)

    def test_demanded(self):
        """With the schema inside, whether the tool is strict or not."""
        for tool in (STRICT, LOOSE):
            for choice in self.choices("<|plain|>", tools=[tool], tool_choice="required", parallel_tool_calls=False):
                self.assertEqual((choice["finish_reason"], choice["message"]["content"]), ("tool_calls", None))
                self.check_calls(choice, 1)

    def test_named_is_one_call(self):
        named = {"type": "function", "function": {"name": "add"}}
        for choice in self.choices("<|plain|>", tools=[OTHER, STRICT], tool_choice=named):
            self.assertEqual(choice["finish_reason"], "tool_calls")
            self.check_calls(choice, 1)

    def test_several_calls(self):
        bias = {str(self.mark): 100}
        body = self.body("<|plain|>", tools=[STRICT], tool_choice="required", **{**RANDOM, "n": 1}, ignore_eos=False,
                         logit_bias={**bias, "2": -100})
        status, body = self.server.post(CHAT, body)
        self.assertEqual(status, 200, body)
        calls = body["choices"][0]["message"]["tool_calls"]
        self.assertGreaterEqual(len(calls), 1)
        whole = calls if body["choices"][0]["finish_reason"] == "tool_calls" else calls[:-1]
        self.check_calls({"message": {"tool_calls": whole}})

    def test_auto(self):
        """The model is free to call; what it calls fits."""
        (plain,) = self.choices("<|plain|>", tools=[STRICT], n=1, temperature=0)
        self.assertEqual((plain["message"]["content"], plain["finish_reason"]), ("Ninety-five it is.", "stop"))
        for choice in self.choices("<|calls|>", tools=[STRICT], logit_bias={str(self.mark): 100},
                                   parallel_tool_calls=False):
            self.assertEqual(choice["finish_reason"], "tool_calls")
            self.check_calls(choice, 1)

    def test_anthropic_and_responses(self):
        tool = {"name": "add", "strict": True, "input_schema": SCHEMA}
        members = {"temperature": 8, "seed": 1, "max_tokens": 400}
        status, body = self.server.post(MESSAGES, self.body("<|plain|>", tools=[tool], **{
            **members, "tool_choice": {"type": "any", "disable_parallel_tool_use": True}}))
        self.assertEqual((status, body["stop_reason"]), (200, "tool_use"), body)
        (block,) = body["content"]
        self.assertEqual(list(block["input"]), ["a", "b"])
        # JSON that the server's own reader of files would refuse.
        values = {"big": 10**25, "nul": "\0"}
        schema = {"type": "object", "properties": {key: {"const": value} for key, value in values.items()},
                  "required": list(values), "additionalProperties": False}
        tool = {"name": "add", "strict": True, "input_schema": schema}
        status, body = self.server.post(MESSAGES, self.body("<|plain|>", tools=[tool], **{
            **members, "tool_choice": {"type": "any", "disable_parallel_tool_use": True}}))
        self.assertEqual((status, body["content"][0]["input"]), (200, values), body)
        body = self.responses_body("<|plain|>", tool_choice={"type": "function", "name": "add"},
                                   tools=[{"type": "function", **STRICT["function"]}])
        status, body = self.server.post(RESPONSES, {**body, "temperature": 8, "seed": 1})
        self.assertEqual((status, [tool["strict"] for tool in body["tools"]]), (200, [True]), body)
        (item,) = body["output"]
        self.assertEqual(list(json.loads(item["arguments"])), ["a", "b"])

    def test_form_beside_tools(self):
        """Text follows the form, calls their format."""
        for choice in self.choices("<|plain|>", tools=[LOOSE], response_format=YES_OR_NO,
                                   logit_bias={str(self.mark): -100}):
            self.assertEqual(choice["finish_reason"], "stop")
            self.assertIn(json.loads(choice["message"]["content"]), ("yes", "no"))
        for choice in self.choices("<|plain|>", tools=[LOOSE], response_format=YES_OR_NO,
                                   logit_bias={str(self.mark): 100}, parallel_tool_calls=False):
            self.assertEqual((choice["finish_reason"], choice["message"]["content"]), ("tool_calls", None))
            self.check_calls(choice, 1)
        for choice in self.choices("<|plain|>", tools=[LOOSE], tool_choice="required", parallel_tool_calls=False,
                                   response_format=YES_OR_NO):
            self.check_calls(choice, 1)

    def test_every_form_beside_tools(self):
        forms = {"regex": "ab", "choice": ["ab"], "grammar": 'root ::= "ab"', "json": "{\"const\": 5}"}
        for key, value in forms.items():
            for choice in self.choices("<|plain|>", tools=[LOOSE], n=1, structured_outputs={key: value},
                                       logit_bias={str(self.mark): -100}):
                self.assertIn(choice["message"]["content"], ("ab", "5"), key)
        for choice in self.choices("<|plain|>", tools=[LOOSE], tool_choice="none", guided_choice=["ab"]):
            self.assertEqual(choice["message"]["content"], "ab")

    def test_keys_in_any_order(self):
        form = {"json": {"const": 5}, "any_key_order": True}
        choices = self.choices("<|plain|>", tools=[LOOSE], tool_choice="required", parallel_tool_calls=False, n=16,
                               structured_outputs=form)
        orders = {tuple(json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"])) for choice in choices}
        self.assertEqual(orders, {("a", "b"), ("b", "a")})

    def test_unenforceable(self):
        """Strict: refused by name. Else any object does."""
        tool = lambda **members: {"type": "function", "function": {"name": "list_all", "parameters": UNENFORCEABLE,
                                                                   **members}}
        status, body = self.server.post(CHAT, self.body("<|plain|>", tools=[tool(strict=True)]))
        self.assertEqual((status, body["error"]["param"]), (400, "tools"), body)
        message = 'tool "list_all": #/properties/a: $dynamicRef "#a" points to nothing in the schema'
        self.assertEqual(body["error"]["message"], message)
        status, body = self.server.post(CHAT, self.body("<|plain|>", tools=[tool()], tool_choice="required", max_tokens=20))
        self.assertEqual((status, body["choices"][0]["finish_reason"]), (200, "length"), body)

    def test_refused(self):
        refuse = lambda param, **members: self.check_error(
            self.server.post(CHAT, self.body("<|plain|>", **members)), 400, param)
        function = lambda **members: [{"type": "function", "function": {"name": "f", **members}}]
        refuse("tools", tools=function(strict=1))
        refuse("tools", tools=function(strict=True, parameters={"type": "string"}))
        refuse("tools", tools=[{"type": "function", "function": {"name": 'a"b', "strict": True}}])
        refuse("structural_tag", tools=[LOOSE], structured_outputs={"structural_tag": {"format": {"type": "any_text"}}})
        refuse("structural_tag", tools=[LOOSE], tool_choice="required", structured_outputs={"structural_tag": {}})
        refuse("structured_outputs", tools=[LOOSE], structured_outputs={"regex": "a", "choice": ["b"]})
        refuse("structured_outputs", tools=[LOOSE], structured_outputs={"regex": "a", "rex": "b"})

    def test_faults_beside_tools_are_blamed_on_what_has_them(self):
        """The sentence is the one of a request without tools."""
        for form in ({"guided_regex": "(a"}, {"guided_grammar": "root ::= x"}, {"guided_json": UNENFORCEABLE},
                     {"structured_outputs": {"choice": []}}, {"structured_outputs": {"regex": 5}},
                     {"structured_outputs": {"json_object": "yes"}}, {"guided_json": 1}):
            alone = self.server.post(CHAT, self.body("<|plain|>", **form))
            self.check_error(alone, 400, "structured_outputs")
            self.assertEqual(self.server.post(CHAT, self.body("<|plain|>", tools=[LOOSE], **form)), alone)
        strict = {"type": "function", "function": {"name": "f", "strict": True, "parameters": UNENFORCEABLE}}
        self.check_error(self.server.post(CHAT, self.body("<|plain|>", tools=[strict], guided_regex="a")), 400, "tools")

    def test_tools_whose_form_is_too_large_are_named(self):
        parameters = {"type": "object", "properties": {"a": {"enum": ["x" * 600000]}}}
        tools = [{"type": "function", "function": {"name": name, "parameters": parameters}} for name in "ab"]
        status, body = self.server.post(CHAT, self.body("<|plain|>", tools=tools, tool_choice="required"))
        self.assertEqual((status, body["error"]["param"]), (400, "tools"), body)
        self.assertRegex(body["error"]["message"], "^the schemas of tools .* has [0-9]+ bytes, want at most 1048576$")


class UnknownFormat(Scripted):
    flags = ("--log", "none", "--tool-call-parser", "none")
    write_model = StrictTools.write_model

    def test_strict_is_named_as_ignored(self):
        status, headers, text = self.server.request("POST", CHAT, self.body("<|plain|>", tools=[STRICT]))
        self.assertEqual((status, headers["X-Ignored-Members"]), (200, "tools.strict"), text)

    def test_a_form_beside_tools_is_refused(self):
        body = self.body("<|plain|>", tools=[STRICT], response_format={"type": "json_object"})
        status, _, text = self.server.request("POST", CHAT, body)
        self.assertEqual(status, 400, text)
        self.assertIn("tools beside a form of the answer are not supported", str(text))


if __name__ == "__main__":
    main()
