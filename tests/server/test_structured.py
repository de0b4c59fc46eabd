"""The form of an answer, in the members of every API."""

import http.client
import json
import math
import re
import select
import unittest

from server_fixture import JSON, Server, main

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
MESSAGES = [{"role": "user", "content": "My name is Dean. Who are you?"}]
SCHEMA = {"type": "object", "properties": {"word": {"enum": ["red", "blue"]}, "even": {"type": "boolean"}},
          "required": ["word", "even"], "additionalProperties": False}
COMPACT = {"disable_any_whitespace": True}


def fits_schema(text):
    value = json.loads(text)
    return list(value) == ["word", "even"] and value["word"] in ("red", "blue") and isinstance(value["even"], bool)


class Structured(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--log", "none")

    @classmethod
    def tearDownClass(cls):
        assert not cls.server.stop()

    def complete(self, **members):
        status, body = self.server.post(COMPLETIONS, {"prompt": "Say", "max_tokens": 200, "temperature": 0, **members})
        self.assertEqual(status, 200, body)
        return [choice["text"] for choice in body["choices"]]

    def chat(self, **members):
        status, body = self.server.post(CHAT, {"messages": MESSAGES, "max_tokens": 200, "temperature": 0, **members})
        self.assertEqual(status, 200, body)
        return body["choices"][0]

    def refuse(self, members, param, *words, path=COMPLETIONS):
        base = {"prompt": "Say"} if path == COMPLETIONS else {"messages": MESSAGES}
        status, body = self.server.post(path, {**base, "max_tokens": 20, **members})
        self.assertEqual((status, body["error"]["param"]), (400, param), body)
        for word in words:
            self.assertIn(word, body["error"]["message"])

    def test_every_member_of_completions(self):
        number = re.compile(r"[1-9][0-9]{2}")
        cases = {"structured_outputs": {"regex": number.pattern}, "guided_regex": number.pattern, "regex": number.pattern,
                 "grammar": "root ::= [1-9] [0-9] [0-9]", "guided_grammar": "root ::= [1-9] [0-9]{2}",
                 "ebnf": "root ::= [1-9] [0-9]{2}", "guided_choice": ["123", "456"],
                 "format": {"type": "integer", "minimum": 100, "maximum": 999},
                 "json_schema": {"type": "integer", "minimum": 100, "maximum": 999},
                 "guided_json": {"type": "integer", "minimum": 100, "maximum": 999},
                 "response_format": {"type": "json_schema", "json_schema": {
                     "name": "n", "schema": {"type": "integer", "minimum": 100, "maximum": 999}}}}
        for name, value in cases.items():
            for text in self.complete(**{name: value}, temperature=1.5, seed=7, n=4):
                self.assertRegex(text, rf"^{number.pattern}$", name)

    def test_format_of_structural_tags(self):
        form = {"type": "sequence", "elements": [{"type": "regex", "pattern": "a+"}, {"type": "const_string", "value": "!"}]}
        for members in ({"response_format": {"type": "structural_tag", "format": form}}, {"structural_tag": {"format": form}}):
            (text,) = self.complete(**members, logit_bias={"0": 9})
            self.assertRegex(text, "^a*!?$")

    def test_tags_in_free_text(self):
        tag = {"structures": [{"begin": "<a>", "schema": {"const": 5}, "end": "</a>"}], "triggers": ["<a>"]}
        for name in ("structured_outputs", "structural_tag", "response_format"):
            value = {"structured_outputs": {"structural_tag": tag}, "structural_tag": tag,
                     "response_format": {"type": "structural_tag", **tag}}[name]
            (text,) = self.complete(**{name: value}, max_tokens=40, logit_bias={"27": 30})
            self.assertRegex(text, r"^([^<]|<(?!a>)|<a>5</a>)*(<a>?5?(</?a?)?)?$")

    def test_a_chat_with_reasoning_in_front(self):
        choice = self.chat(response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}},
                           chat_template_kwargs={"enable_thinking": True})
        self.assertTrue(choice["message"]["reasoning"])
        self.assertEqual(choice["finish_reason"], "stop")
        self.assertTrue(fits_schema(choice["message"]["content"]), choice)

    def test_a_chat_without_reasoning(self):
        choice = self.chat(structured_outputs={"json": SCHEMA, **COMPACT}, temperature=1, seed=3,
                           chat_template_kwargs={"enable_thinking": False})
        self.assertRegex(choice["message"]["content"], r'^{"word":"(red|blue)","even":(true|false)}$')

    def test_keys_in_any_order(self):
        orders = lambda **options: {tuple(json.loads(text)) for text in self.complete(
            structured_outputs={"json": SCHEMA, **COMPACT, **options}, temperature=1, seed=3, n=16)}
        self.assertEqual(orders(), {("word", "even")})
        self.assertEqual(orders(any_key_order=True), {("word", "even"), ("even", "word")})
        self.refuse({"structured_outputs": {"json": SCHEMA, "any_key_order": 1}}, "structured_outputs", "any_key_order")

    def test_json_object(self):
        for members in ({"response_format": {"type": "json_object"}}, {"format": "json"}, {"guided_json_object": True},
                        {"response_format": {"type": "json_object", "schema": None}}):
            choice = self.chat(**members, max_tokens=400)
            if choice["finish_reason"] == "stop":
                self.assertIsInstance(json.loads(choice["message"]["content"]), dict)

    def test_responses_and_messages(self):
        text_format = {"type": "json_schema", "name": "x", "schema": SCHEMA, "strict": True}
        status, body = self.server.post("/v1/responses", {"input": MESSAGES, "temperature": 0, "text": {"format": text_format}})
        self.assertEqual(status, 200, body)
        (message,) = [item for item in body["output"] if item["type"] == "message"]
        self.assertTrue(fits_schema(message["content"][0]["text"]), message)
        output = {"type": "json_schema", "schema": SCHEMA}
        for members in ({"output_config": {"format": output}}, {"output_format": output}):
            status, body = self.server.post("/v1/messages", {"messages": MESSAGES, "max_tokens": 300, "temperature": 0, **members})
            self.assertEqual(status, 200, body)
            self.assertTrue(fits_schema(body["content"][-1]["text"]), body)

    def test_logprobs_list_allowed_tokens_only(self):
        form = {"guided_choice": ["yes", "no"], "max_tokens": 1}
        top = self.chat(**form, logprobs=True, top_logprobs=20, chat_template_kwargs={"enable_thinking": False})["logprobs"]["content"][0]["top_logprobs"]
        self.assertTrue(top and all(one["token"] in ("y", "ye", "yes", "n", "no") for one in top), top)
        self.assertAlmostEqual(sum(math.exp(one["logprob"]) for one in top), 1, places=3)
        status, body = self.server.post(COMPLETIONS, {"prompt": "Say", "logprobs": 20, **form})
        self.assertEqual(status, 200, body)
        self.assertLessEqual(set(body["choices"][0]["logprobs"]["top_logprobs"][0]), {"y", "ye", "yes", "n", "no"})

    def test_a_stream(self):
        body = {"messages": MESSAGES, "stream": True, "max_tokens": 200, "temperature": 0, "structured_outputs": {"regex": "(ab){3}"}}
        text = "".join(chunk["choices"][0]["delta"].get("content") or ""
                       for chunk in self.server.stream(CHAT, body) if chunk["choices"])
        self.assertEqual(text, "ababab")

    def test_two_forms_are_refused(self):
        self.refuse({"guided_regex": "a", "grammar": "root ::= [a]"}, "grammar", "guided_regex")
        self.refuse({"guided_regex": "a", "structured_outputs": {"regex": "b"}}, "guided_regex", "structured_outputs")

    def test_faults_name_the_keyword_and_its_place(self):
        schema = {"type": "object", "properties": {"a": {"$dynamicRef": "#a"}}}
        self.refuse({"guided_json": schema}, "structured_outputs", "$dynamicRef", "#/properties/a")
        self.refuse({"guided_regex": "(a"}, "structured_outputs", "regex")
        self.refuse({"grammar": "root ::= nothing"}, "structured_outputs", "nothing")
        self.refuse({"guided_choice": [1]}, "structured_outputs", "choice")
        self.refuse({"structured_outputs": {}}, "structured_outputs", "no constraint")
        self.refuse({"structured_outputs": {"rex": "a"}}, "structured_outputs", "rex")
        self.refuse({"response_format": {"type": "x"}}, "response_format")
        self.refuse({"response_format": {"type": "json_schema"}}, "response_format", "schema")

    def test_a_form_that_is_too_large_is_the_fault_of_the_request(self):
        schema = {"properties": {f"p{i}": {} for i in range(1000)}, "minProperties": 500}
        self.refuse({"guided_json": schema}, "structured_outputs", "too many")

    def test_a_form_that_takes_long_keeps_no_other_request_waiting(self):
        form = {"type": "string", "pattern": "a.{300}b"}  # 2^300 sets of places
        connections = [http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60) for _ in range(8)]
        for connection in connections:
            connection.request("POST", COMPLETIONS, json.dumps({"prompt": "a", "guided_json": form}), JSON)
        self.complete(max_tokens=1)
        # With one queue the four threads would have ended five of them before.
        ended, _, _ = select.select([connection.sock for connection in connections], [], [], 0)
        self.assertLess(len(ended), 5)
        for connection in connections:
            self.assertEqual(connection.getresponse().status, 400)
            connection.close()

    def test_metrics_count_forms(self):
        names = [f"structured_output_{name}" for name in (
            "requests_total", "cache_hits_total", "refused_total", "compile_time_seconds_count",
            "compile_time_seconds_sum", "mask_time_seconds_count", "mask_time_seconds_sum")]
        before = [self.server.metric("nanovllm:" + name) for name in names]
        num_tokens = 0
        for _ in range(2):
            status, body = self.server.post(COMPLETIONS, {"prompt": "Say", "regex": "[xyz]{9}", "max_tokens": 20})
            self.assertEqual((status, body["choices"][0]["finish_reason"]), (200, "stop"))
            num_tokens += body["usage"]["completion_tokens"]
        self.refuse({"regex": "("}, "structured_outputs")
        wanted, kept, refused, compiled, compile_sum, masks, mask_sum = (
            self.server.metric("nanovllm:" + name) - value for name, value in zip(names, before))
        self.assertEqual((wanted, kept, refused, compiled), (3, 1, 1, 2))
        self.assertEqual(masks, num_tokens)
        self.assertGreater(compile_sum, 0)
        self.assertGreater(mask_sum, 0)

    def test_beside_tools_that_the_template_does_not_hear_of(self):
        tools = [{"type": "function", "function": {"name": "add"}}]
        choice = self.chat(tools=tools, tool_choice="none", guided_choice=["yes", "no"],
                           chat_template_kwargs={"enable_thinking": False})
        self.assertIn(choice["message"]["content"], ("yes", "no"))

    def test_a_form_that_leaves_no_token_ends_with_an_error(self):
        status, body = self.server.post(COMPLETIONS, {
            "prompt": "Say", "max_tokens": 20, "min_tokens": 10, "structured_outputs": {"regex": "ab"}})
        self.assertEqual((status, body["error"]["param"]), (400, "structured_outputs"), body)
        self.assertIn("structured_outputs", body["error"]["message"])


if __name__ == "__main__":
    main()
