"""Each format of tool calls over HTTP: chosen from the template or by its name, in chat completions, messages
and responses, whole and streamed. test_tools.py has all else that there is to say of calls."""

import json
import os

from scripted_model import Script, TEMPLATE
from server_fixture import ROOT, Server, main
from tool_answers import CHAT, OTHER, TOOL, Scripted

ARGUMENTS = {"a": 37, "b": 58}
ANTHROPIC_TOOLS = [{"name": "add", "input_schema": TOOL["function"]["parameters"]},
                   {"name": "get_time", "input_schema": {"type": "object"}}]
FLAT_TOOLS = [{"type": "function", **TOOL["function"]}, {"type": "function", **OTHER["function"]}]
NAMED = {"type": "function", "function": {"name": "add"}}


def published(name):
    """A template of this kind, whose answers begin with what the test says."""
    with open(os.path.join(ROOT, f"tests/reference/data/chat-templates/{name}.jinja"), encoding="utf-8") as file:
        return file.read() + "{{- start or '' if add_generation_prompt }}"


class Format:
    """The tests of a format. `answers` are by their start; `after_mark` is what follows `mark`, a special token;
    `forced` is what a call of add is forced to begin with, and what the model says then. Of two functions it
    would rather call `likes`."""

    template = None
    likes = "get_time"

    @classmethod
    def write_model(cls, folder):
        script = Script(thinks=False)
        for start, answer in cls.answers.items():
            script.start(start)
            script.answer(start, answer)
        script.start("<|special|>")
        script.start(cls.mark)
        script.answer("<|special|>", "I ask. ", end=cls.mark)
        script.answer(cls.mark, cls.after_mark)
        beginning, rest = cls.forced
        script.call(script.last_token(beginning), rest)
        script.ends(beginning)
        before_name = beginning[:beginning.index("add")]
        if before_name not in script.special:
            script.leads(before_name, cls.likes)
        script.write(folder, cls.template)

    def calls_of(self, start, **members):
        """What the three endpoints agree on: the text around the calls, and names and arguments."""
        choice = self.ask_chat(start, tools=[TOOL, OTHER], **members)
        calls = [(call["function"]["name"], json.loads(call["function"]["arguments"]))
                 for call in choice["message"].get("tool_calls", [])]
        text = choice["message"]["content"] or ""
        blocks, reason = self.ask_messages(start, tools=ANTHROPIC_TOOLS)
        self.assertEqual([(block["name"], block["input"]) for block in blocks if block["type"] == "tool_use"], calls)
        self.assertEqual("".join(block["text"] for block in blocks if block["type"] == "text"), text)
        items = self.ask_responses(start, tools=FLAT_TOOLS)["output"]
        self.assertEqual([(item["name"], json.loads(item["arguments"])) for item in items
                          if item["type"] == "function_call"], calls)
        self.assertEqual("".join(item["content"][0]["text"] for item in items if item["type"] == "message"), text)
        self.assertEqual((choice["finish_reason"], reason),
                         ("tool_calls", "tool_use") if calls else ("stop", "end_turn"))
        return text, calls

    def test_auto(self):
        self.assertEqual(self.calls_of("<|call|>"), (self.before, [("add", ARGUMENTS)]))
        self.assertEqual(self.calls_of("<|two|>"), ("", [("add", {"a": 1}), ("get_time", {})]))

    def test_mark_is_a_special_token(self):
        self.assertEqual(self.calls_of("<|special|>"), ("I ask.", [("get_time", {"zone": "UTC"})]))

    def test_text_that_looks_like_a_call(self):
        self.assertEqual(self.calls_of("<|fake|>"), (self.answers["<|fake|>"], []))

    def test_none(self):
        choice = self.ask_chat("<|call|>", tools=[TOOL], tool_choice="none")
        self.assertEqual((choice["message"]["content"], choice["finish_reason"]), (self.answers["<|call|>"], "stop"))
        blocks, _ = self.ask_messages("<|call|>", tools=ANTHROPIC_TOOLS, tool_choice={"type": "none"})
        self.assertEqual(blocks, [{"type": "text", "text": self.answers["<|call|>"]}])
        items = self.ask_responses("<|call|>", tools=FLAT_TOOLS, tool_choice="none")["output"]
        self.assertEqual([item["content"][0]["text"] for item in items], [self.answers["<|call|>"]])

    def test_named(self):
        choice = self.ask_chat("", tools=[TOOL, OTHER], tool_choice=NAMED)
        (call,) = choice["message"]["tool_calls"]
        self.assertEqual((call["function"], choice["message"]["content"]),
                         ({"name": "add", "arguments": '{"a": 1, "b": 99}'}, None))
        blocks, _ = self.ask_messages("", tools=ANTHROPIC_TOOLS, tool_choice={"type": "tool", "name": "add"})
        self.assertEqual([(block["name"], block["input"]) for block in blocks], [("add", {"a": 1, "b": 99})])
        (item,) = self.ask_responses("", tools=FLAT_TOOLS, tool_choice={"type": "function", "name": "add"})["output"]
        self.assertEqual((item["name"], item["arguments"]), ("add", '{"a": 1, "b": 99}'))

    def test_required(self):
        choice = self.ask_chat("", tools=[TOOL, OTHER], tool_choice="required")
        (call,) = choice["message"]["tool_calls"]
        self.assertEqual(call["function"], {"name": self.likes, "arguments": '{"a": 1, "b": 99}'})
        blocks, _ = self.ask_messages("", tools=ANTHROPIC_TOOLS, tool_choice={"type": "any"})
        self.assertEqual([(block["name"], block["input"]) for block in blocks], [(self.likes, {"a": 1, "b": 99})])
        (item,) = self.ask_responses("", tools=FLAT_TOOLS, tool_choice="required")["output"]
        self.assertEqual(item["name"], self.likes)

    def test_forced_where_the_model_says_something_else(self):
        for choice in ("required", NAMED):
            answer = self.ask_chat("<|plain|>", tools=[TOOL], tool_choice=choice)
            self.assertEqual((answer["message"]["content"], answer["finish_reason"]), (None, "tool_calls"))
            self.assertEqual(answer["message"]["tool_calls"][0]["function"]["name"], "add")

    def test_result(self):
        """The template takes the answer's own call back, with its id, and the result."""
        question = self.body("<|call|>", tools=[TOOL])
        message = self.server.post(CHAT, question)[1]["choices"][0]["message"]
        result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "95"}
        messages = question["messages"] + [message, result]
        choice = self.ask_chat("<|plain|>", tools=[TOOL], messages=messages)
        self.assertEqual(choice["message"]["content"], self.answers["<|plain|>"])


class Hermes(Format, Scripted):
    template = published("chatml-tools")
    mark, before = "<tool_call>", "Let me see."
    after_mark = '{"name": "get_time", "arguments": {"zone": "UTC"}}</tool_call>'
    forced = ('<tool_call>\n{"name": "add", "arguments":', ' {"a": 1, "b": 99}}\n</tool_call>')
    answers = {
        "<|plain|>": "Ninety-five it is.",
        "<|call|>": 'Let me see.\n<tool_call>\n{"name": "add", "arguments": {"a": 37, "b": 58}}\n</tool_call>',
        "<|two|>": '<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>\n'
                   '<tool_call>{"name": "get_time"}</tool_call>',
        "<|fake|>": 'A call looks like <tool_call>{"nme": "add"}</tool_call>, as said.',
    }


class Llama(Format, Scripted):
    template = published("llama-headers")
    mark, before = "<|python_tag|>", ""  # without the mark nothing may stand before a call
    after_mark = '{"name": "get_time", "parameters": {"zone": "UTC"}}'
    forced = ('{"name": "add", "parameters":', ' {"a": 1, "b": 99}}')
    answers = {
        "<|plain|>": "Ninety-five it is.",
        "<|call|>": '{"name": "add", "parameters": {"a": 37, "b": 58}}',
        "<|two|>": '{"name": "add", "parameters": {"a": 1}}; {"name": "get_time", "parameters": {}}',
        "<|fake|>": '{"name": "Ada", "born": 1815, "parameters": {}}',
    }


class Mistral(Format, Scripted):
    template = published("mistral-inst")
    call_id = "^[A-Za-z0-9]{9}$"
    mark, before = "[TOOL_CALLS]", "Let me see."
    after_mark = '[{"name": "get_time", "arguments": {"zone": "UTC"}}]'
    forced = ('[TOOL_CALLS][{"name": "add", "arguments":', ' {"a": 1, "b": 99}}]')
    answers = {
        "<|plain|>": "Ninety-five it is.",
        "<|call|>": 'Let me see. [TOOL_CALLS] [{"name": "add", "arguments": {"a": 37, "b": 58}}]',
        "<|two|>": '[TOOL_CALLS][{"name": "add", "arguments": {"a": 1}}, {"name": "get_time", "arguments": {}}]',
        "<|fake|>": "A list: [TOOL_CALLS] [1, 2]",
    }


class MistralArgs(Format, Scripted):
    template = published("mistral-inst") + "{#- Calls of this model are [TOOL_CALLS]name[ARGS]{...}. #}"
    call_id = Mistral.call_id
    mark, before = "[TOOL_CALLS]", "Let me see."
    after_mark = 'get_time[ARGS]{"zone": "UTC"}'
    forced = ("[TOOL_CALLS]add[ARGS]", '{"a": 1, "b": 99}')
    answers = {
        "<|plain|>": "Ninety-five it is.",
        "<|call|>": 'Let me see. [TOOL_CALLS]add[ARGS]{"a": 37, "b": 58}',
        "<|two|>": '[TOOL_CALLS]add[ARGS]{"a": 1}[TOOL_CALLS]get_time[ARGS]{}',
        "<|fake|>": "A mark: [TOOL_CALLS]add[ARG]{}",
    }


# In gpt-oss' form, but that marks are text here: the scripted model's tokens have one successor each.
CHANNELS = """
{{- '<|start|>system<|message|>Reasoning: ' ~ reasoning_effort | default('medium') }}
{%- if tools %} Tools: {{ tools | tojson }}{% endif %}<|end|>
{%- for m in messages %}
{%- if m.thinking and not m.content %}<|start|>assistant<|channel|>analysis<|message|>{{ m.thinking }}<|end|>{% endif %}
{%- for c in m.tool_calls or [] %}<|start|>assistant to=functions.{{ c.function.name }}<|channel|>commentary json<|message|>
    {{- c.function.arguments | tojson }}<|call|>{% endfor %}
{%- if m.content %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|start|>assistant{{ start or '' }}{% endif %}"""


class Harmony(Scripted):
    template = CHANNELS
    thought = "<|channel|>analysis<|message|>They want a sum.<|end|><|start|>assistant"
    call = '<|channel|>commentary to=functions.add <|constrain|>json<|message|>{"a": 37, "b": 58}'
    answers = {
        "<|plain|>": thought + "<|channel|>final<|message|>Ninety-five.",
        "<|call|>": thought + call,
        "<|say|>": "<|channel|>commentary<|message|>Let me see.<|end|><|start|>assistant" + call,
        "<|loose|>": "It is 95.",
    }

    @classmethod
    def write_model(cls, folder):
        script = Script(thinks=False)
        for start, answer in cls.answers.items():
            script.start(start)
            script.answer(start, answer)
        script.write(folder, cls.template)

    def parts(self, start, **members):
        """Reasoning, content and calls, on which the three endpoints agree."""
        choice = self.ask_chat(start, tools=[TOOL, OTHER], **members)
        message = choice["message"]
        calls = [(call["function"]["name"], json.loads(call["function"]["arguments"]))
                 for call in message.get("tool_calls", [])]
        got = (message.get("reasoning") or "", message["content"] or "", calls)
        blocks, _ = self.ask_messages(start, tools=ANTHROPIC_TOOLS)
        join = lambda kind, name: "".join(block[name] for block in blocks if block["type"] == kind)
        self.assertEqual((join("thinking", "thinking"), join("text", "text"),
                          [(block["name"], block["input"]) for block in blocks if block["type"] == "tool_use"]), got)
        items = self.ask_responses(start, tools=FLAT_TOOLS)["output"]
        of = lambda kind: [item for item in items if item["type"] == kind]
        self.assertEqual(("".join(item["content"][0]["text"] for item in of("reasoning")),
                          "".join(item["content"][0]["text"] for item in of("message")),
                          [(item["name"], json.loads(item["arguments"])) for item in of("function_call")]), got)
        return got

    def test_parts(self):
        self.assertEqual(self.parts("<|plain|>"), ("They want a sum.", "Ninety-five.", []))
        self.assertEqual(self.parts("<|call|>"), ("They want a sum.", "", [("add", ARGUMENTS)]))
        self.assertEqual(self.parts("<|say|>"), ("", "Let me see.", [("add", ARGUMENTS)]))
        self.assertEqual(self.parts("<|loose|>"), ("", "It is 95.", []))

    def test_without_tools(self):
        choice = self.ask_chat("<|plain|>")
        self.assertEqual((choice["message"]["reasoning"], choice["message"]["content"], choice["finish_reason"]),
                         ("They want a sum.", "Ninety-five.", "stop"))

    def test_bad_form_is_told_as_that(self):
        form = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "x"}}}
        plain = self.server.post(CHAT, self.body("", response_format=form))
        self.assertEqual(plain[0], 400)
        self.assertNotIn("elements", plain[1]["error"]["message"])
        self.assertNotEqual(plain[1]["error"]["param"], "tools")

    def test_prompt(self):
        """The template gets the effort, and earlier reasoning as `thinking`."""
        call = {"id": "c", "type": "function", "function": {"name": "add", "arguments": "{}"}}
        messages = [{"role": "user", "content": "q"},
                    {"role": "assistant", "content": "", "reasoning": "Hm.", "tool_calls": [call]},
                    {"role": "tool", "tool_call_id": "c", "content": "95"}]
        body = {"messages": messages, "reasoning_effort": "high", "return_token_strs": False}
        status, made = self.server.post("/tokenize", body)
        self.assertEqual(status, 200, made)
        status, text = self.server.post("/detokenize", {"tokens": made["tokens"]})
        self.assertEqual(status, 200, text)
        self.assertIn("Reasoning: high", text["prompt"])
        self.assertIn("<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant to=functions.add", text["prompt"])


class HarmonyTokens(Scripted):
    """Marks are special tokens. The model thinks, and says the same in every channel."""

    marks = ["<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|constrain|>"]

    @classmethod
    def write_model(cls, folder):
        script = Script(thinks=False)
        for mark in cls.marks:
            script.start(mark)
        script.chain[script.last_token("assistant")] = script.special["<|channel|>"]
        script.answer("<|start|>", "assistant", end="<|channel|>")
        script.answer("<|channel|>", "analysis", end="<|message|>")
        script.answer("<|message|>", "They want a sum.", end="<|end|>")
        script.answer("<|end|>", "", end="<|start|>")
        script.write(folder, CHANNELS)

    def test_free(self):
        message = self.ask_chat("", max_tokens=20)["message"]
        self.assertEqual((message["reasoning"][:16], message["content"]), ("They want a sum.", ""))

    def test_choice(self):
        one = {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"], "additionalProperties": False}
        tool = {"type": "function", "function": {"name": "add", "parameters": one}}
        for wanted in ("required", NAMED):
            choice = self.ask_chat("", tools=[tool], tool_choice=wanted)
            (call,) = choice["message"]["tool_calls"]
            self.assertEqual((call["function"]["name"], json.loads(call["function"]["arguments"])), ("add", {"a": 1}))
            self.assertEqual(choice["finish_reason"], "tool_calls")
            self.assertEqual(choice["message"]["reasoning"], "They want a sum.")

    def test_form_holds_for_the_final_channel(self):
        schema = {"type": "object", "properties": {"a": {"const": 7}}, "required": ["a"], "additionalProperties": False}
        form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
        message = self.ask_chat("", response_format=form)["message"]
        self.assertEqual((message["reasoning"], json.loads(message["content"])), ("They want a sum.", {"a": 7}))

    def test_faults_of_the_final_channels_form(self):
        for form, sentence in (({"choice": []}, "choice: the list of choices is empty"), ({"choice": "a"}, "choice is a string")):
            status, body = self.server.post(CHAT, self.body("", structured_outputs=form))
            self.assertEqual((status, body["error"]["param"]), (400, "structured_outputs"), body)
            self.assertTrue(body["error"]["message"].startswith("structured_outputs: " + sentence), body)


class InTags(Scripted):
    """Qwen3-Coder's calls. The parameters decide what a value is."""

    @classmethod
    def write_model(cls, folder):
        script = Script(thinks=False)
        script.start("<|call|>")
        script.answer("<|call|>", "I look.\n<tool_call>\n<function=find>\n<parameter=text>\n37\n</parameter>\n"
                                  "<parameter=most>\n37\n</parameter>\n</function>\n</tool_call>")
        script.write(folder, TEMPLATE + "{#- <tool_call><function= #}")

    def test_call(self):
        properties = {"text": {"type": "string"}, "most": {"type": "integer"}}
        function = {"name": "find", "parameters": {"type": "object", "properties": properties}}
        choice = self.ask_chat("<|call|>", tools=[{"type": "function", "function": function}])
        (call,) = choice["message"]["tool_calls"]
        self.assertEqual((call["function"]["name"], json.loads(call["function"]["arguments"])),
                         ("find", {"text": "37", "most": 37}))
        self.assertEqual((choice["message"]["content"], choice["finish_reason"]), ("I look.", "tool_calls"))

    def test_conditions_that_are_not_enforced(self):
        """Without properties a demanded call of any tool would have no arguments."""
        text = {"properties": {"text": {"type": "string", "pattern": "^a"}}}
        whole = {"$ref": "#/$defs/A", "$defs": {"A": text}}
        for members, wanted, sentence in (
                ({"strict": True, "parameters": text}, {}, '"pattern" of the property "text" of the tool "find" cannot be'),
                ({"parameters": whole}, {"tool_choice": "required"}, '"$ref" of the parameters of the tool "find" cannot be')):
            tools = [{"type": "function", "function": {"name": "find", **members}}]
            status, answer = self.server.post(CHAT, self.body("", tools=tools, **wanted))
            self.assertEqual((status, answer["error"]["param"]), (400, "tools"), answer)
            self.assertIn(sentence, answer["error"]["message"])


class KimiK2(Scripted):
    """The template writes the ids of earlier calls, so they are the model's own."""

    call_id = "^functions[.](add:0|get_time:1)$"
    section = ('<|tool_calls_section_begin|><|tool_call_begin|>functions.add:0<|tool_call_argument_begin|>'
               '{"a": 37, "b": 58}<|tool_call_end|><|tool_call_begin|>functions.get_time:1'
               '<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>')

    @classmethod
    def write_model(cls, folder):
        script = Script(thinks=False)
        script.start("<|call|>")
        script.answer("<|call|>", "I add. " + cls.section)
        script.write(folder, TEMPLATE + "{#- <|tool_calls_section_begin|><|tool_call_argument_begin|> #}")

    def test_calls(self):
        choice = self.ask_chat("<|call|>", tools=[TOOL, OTHER])
        calls = [(call["id"], call["function"]["name"], json.loads(call["function"]["arguments"]))
                 for call in choice["message"]["tool_calls"]]
        self.assertEqual(calls, [("functions.add:0", "add", ARGUMENTS), ("functions.get_time:1", "get_time", {})])
        self.assertEqual((choice["message"]["content"], choice["finish_reason"]), ("I add.", "tool_calls"))


class DeepSeek(Scripted):
    """R1's form of a call, and that of V3.1 by its name. A demanded call is one, whatever the model likes."""

    calls = {
        "deepseek_v3": '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```json\n'
                       '{"a": 37, "b": 58}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
        "deepseek_v31": '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>add<｜tool▁sep｜>'
                        '{"a": 37, "b": 58}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    }

    @classmethod
    def write_model(cls, folder):
        script = Script(thinks=False)
        for name, call in cls.calls.items():
            script.start(f"<|{name}|>")
            script.answer(f"<|{name}|>", "I add. " + call)
        script.write(folder, TEMPLATE + "{#- <｜tool▁calls▁begin｜> ```json #}")

    def check(self, choice):
        (call,) = choice["message"]["tool_calls"]
        self.assertEqual((call["function"]["name"], json.loads(call["function"]["arguments"])), ("add", ARGUMENTS))
        self.assertEqual((choice["message"]["content"], choice["finish_reason"]), ("I add.", "tool_calls"))

    def test_auto(self):
        self.check(self.ask_chat("<|deepseek_v3|>", tools=[TOOL]))

    def test_by_name(self):
        server = Server("--log", "none", "--tool-call-parser", "deepseek_v31", model=self.model)
        self.check(server.post(CHAT, self.body("<|deepseek_v31|>", tools=[TOOL]))[1]["choices"][0])
        self.assertIsNone(server.stop())

    def test_required(self):
        """The schema leaves one text of arguments."""
        one = {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"], "additionalProperties": False}
        tool = {"type": "function", "function": {"name": "add", "parameters": one}}
        for wanted in ("required", NAMED):
            choice = self.ask_chat("", tools=[tool], tool_choice=wanted, parallel_tool_calls=False)
            (call,) = choice["message"]["tool_calls"]
            self.assertEqual((call["function"]["name"], json.loads(call["function"]["arguments"])), ("add", {"a": 1}))
            self.assertEqual(choice["finish_reason"], "tool_calls")


class InPython(Scripted):
    """Calls in Python's notation, of LFM2 by its marks and of Llama 4 without any."""

    template = ("{# <|tool_list_start|> #}{{ tools or '' }}"
                "{% for m in messages %}{{ m.content }}{{ m.tool_calls or '' }}{% endfor %}")
    answers = {
        "<|lfm2|>": "I add. <|tool_call_start|>[add(a=37, b=58), get_time(zone='CET')]<|tool_call_end|>",
        "<|llama|>": "[add(a=37, b=0x3a), get_time(zone='CET')]",
    }

    @classmethod
    def write_model(cls, folder):
        script = Script(thinks=False)
        for start, answer in cls.answers.items():
            script.start(start)
            script.answer(start, answer)
        script.call(script.last_token("[add("), "a=1")
        script.write(folder, cls.template + "{{- start or '' if add_generation_prompt }}")

    def check(self, choice, content):
        message = choice["message"]
        self.assertEqual([(call["function"]["name"], json.loads(call["function"]["arguments"]))
                          for call in message["tool_calls"]],
                         [("add", ARGUMENTS), ("get_time", {"zone": "CET"})])
        self.assertEqual((message["content"], choice["finish_reason"]), (content, "tool_calls"))

    def test_auto(self):
        self.check(self.ask_chat("<|lfm2|>", tools=[TOOL]), "I add.")

    def test_by_name(self):
        for name in ("pythonic", "llama4_pythonic"):
            server = Server("--log", "none", "--tool-call-parser", name, model=self.model)
            self.check(server.post(CHAT, self.body("<|llama|>", tools=[TOOL]))[1]["choices"][0], None)
            self.assertIsNone(server.stop())

    def test_required(self):
        """The schema leaves one text of arguments."""
        one = {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"], "additionalProperties": False}
        tool = {"type": "function", "function": {"name": "add", "parameters": one}}
        for wanted in ("required", NAMED):
            choice = self.ask_chat("", tools=[tool], tool_choice=wanted, parallel_tool_calls=False)
            (call,) = choice["message"]["tool_calls"]
            self.assertEqual((call["function"]["name"], json.loads(call["function"]["arguments"])), ("add", {"a": 1}))

    def test_strict(self):
        """Where a schema cannot be enforced in this notation, a strict tool is refused by the keyword's name."""
        loose = {"type": "object", "properties": {"a b": {}}}
        tool = {"type": "function", "function": {"name": "add", "parameters": loose, "strict": True}}
        status, answer = self.server.post(CHAT, self.body("", tools=[tool]))
        self.assertEqual(status, 400)
        self.assertIn("tool call format lfm2", answer["error"]["message"])


class Cohere(Scripted):
    """Command's calls, and its marks around reasoning and text, which are left out with tools and without."""

    template = ("{# <|START_ACTION|> <|END_THINKING|> #}{{ tools or '' }}"
                "{% for m in messages %}{{ m.content }}{{ m.tool_calls or '' }}{% endfor %}")
    answers = {
        "<|call|>": '<|START_THINKING|>Hm.<|END_THINKING|><|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": '
                    '"add", "parameters": {"a": 37, "b": 58}}\n]<|END_ACTION|>',
        "<|text|>": "<|START_THINKING|>Hm.<|END_THINKING|><|START_RESPONSE|>Hi.<|END_RESPONSE|>",
    }

    @classmethod
    def write_model(cls, folder):
        script = Script(thinks=False)
        for start, answer in cls.answers.items():
            script.start(start)
            script.answer(start, answer)
        script.write(folder, cls.template + "{{- start or '' if add_generation_prompt }}")

    def test_call(self):
        message = self.ask_chat("<|call|>", tools=[TOOL])["message"]
        (call,) = message["tool_calls"]
        self.assertEqual((call["function"]["name"], json.loads(call["function"]["arguments"])), ("add", ARGUMENTS))
        self.assertEqual((message["content"], message["reasoning"]), (None, "Hm."))

    def test_text(self):
        for members in ({}, {"tools": [TOOL]}):
            message = self.ask_chat("<|text|>", **members)["message"]
            self.assertEqual((message["content"], message["reasoning"]), ("Hi.", "Hm."))


class ByName(Scripted):
    """--tool-call-parser against the template, which teaches Hermes."""

    formats = {"hermes": Hermes, "llama3_json": Llama, "mistral": Mistral, "mistral_args": MistralArgs}

    @classmethod
    def write_model(cls, folder):
        script = Script(thinks=False)
        for name, of in cls.formats.items():
            script.start(f"<|{name}|>")
            script.answer(f"<|{name}|>", of.answers["<|call|>"])
        script.write(folder, TEMPLATE)

    def test_names(self):
        reads = {"hermes": ["hermes"], "llama3_json": ["llama3_json"], "mistral": ["mistral", "mistral_args"],
                 "mistral_args": ["mistral", "mistral_args"], "auto": ["hermes"], "none": []}
        for parser, readable in reads.items():
            server = Server("--log", "none", "--tool-call-parser", parser, model=self.model)
            for name in self.formats:
                message = server.post(CHAT, self.body(f"<|{name}|>", tools=[TOOL]))[1]["choices"][0]["message"]
                self.assertEqual("tool_calls" in message, name in readable, (parser, name))
                if name not in readable:
                    self.assertEqual(message["content"], self.formats[name].answers["<|call|>"])
            self.assertIsNone(server.stop())


if __name__ == "__main__":
    main()
