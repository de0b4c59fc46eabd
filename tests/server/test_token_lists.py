"""Events of several tokens: a program that gets three tokens an event (support/merged_events.c) answers as
the program that gets one, in fewer chunks."""

import json
import os
import unittest.mock

import server_fixture
from scripted_model import Script
from server_fixture import Server, main
from tool_answers import CHAT, MESSAGES, RESPONSES, TOOL, Scripted

COMPLETIONS = "/v1/completions"
ANSWERS = {
    "<|plain|>": "Ninety-five it is, Gr\u00fc\u00dfe und \U0001f642 dazu, und so weiter.",
    "<|thought|>": "<think>\nTwo sums, so it takes a while.\n</think>\n\nIt makes 95 in sum.",
    "<|smiles|>": "\U0001f642\U0001f600\U0001f601\U0001f602 it is.",
    "<think>": "\U0001f643\U0001f604 in</think>\U0001f605\U0001f606 out",
    "<|call|>": '<think>I had better ask.</think>Let me see.\n'
                '<tool_call>{"name": "add", "arguments": {"a": 37, "b": [5, 8]}}</tool_call>',
}
VOLATILE = {"id", "created", "timings", "call_id", "item_id", "sequence_number", "created_at", "completed_at"}


def stable(value):
    """Without what differs from request to request."""
    if isinstance(value, dict):
        return {key: stable(one) for key, one in value.items() if key not in VOLATILE}
    return [stable(one) for one in value] if isinstance(value, list) else value


def join(total, part):
    """Adds a chunk: texts and lists grow, the rest is the last that was not null."""
    for key, value in part.items():
        if value is None:
            continue
        if key == "tool_calls":
            calls = total.setdefault(key, {})
            for call in value:
                join(calls.setdefault(call["index"], {}), call)
        elif isinstance(value, dict):
            join(total.setdefault(key, {}), value)
        elif isinstance(value, list) and key not in ("prompt_token_ids", "annotations"):
            total.setdefault(key, []).extend(value)
        elif isinstance(value, str) and key in ("text", "content", "reasoning", "reasoning_content", "arguments"):
            total[key] = total.get(key, "") + value
        else:
            total[key] = value


class TokenLists(Scripted):
    @classmethod
    def write_model(cls, folder):
        script = Script()
        for start, answer in ANSWERS.items():
            script.start(start)
            script.answer(start, answer)
        script.write(folder)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        program = os.path.abspath(os.environ["NANOVLLM_MERGED"])
        with unittest.mock.patch.object(server_fixture, "PROGRAM", program):
            cls.merged = Server(*cls.flags, model=cls.model)

    @classmethod
    def tearDownClass(cls):
        fault = cls.merged.stop()
        super().tearDownClass()
        if fault:
            raise AssertionError(fault)

    def compare_whole(self, path, body):
        one, several = (server.post(path, body) for server in (self.server, self.merged))
        self.assertEqual(one[0], 200, one)
        self.assertEqual(stable(several[1]), stable(one[1]))
        return one[1]

    def compare_stream(self, path, body):
        """OpenAI's: chunks by choice, and the usage of the last one."""
        totals, counts = [], []
        for server in (self.server, self.merged):
            choices, usage = {}, None
            chunks = server.stream(path, body)
            for chunk in chunks:
                usage = chunk.get("usage") or usage
                for choice in chunk["choices"]:
                    join(choices.setdefault(choice["index"], {}), stable(choice))
            totals.append((choices, usage))
            counts.append(len(chunks))
        self.assertEqual(totals[1], totals[0])
        self.assertLessEqual(counts[1], counts[0])
        return totals[0][0], counts[1]

    def compare_events(self, path, body, last):
        """Anthropic's and Responses' named events: the texts of all deltas, and what the last says."""
        totals, counts = [], []
        for server in (self.server, self.merged):
            events = self.events_of(server, path, body)
            deltas = {}
            for event in events:
                delta = event.get("delta")
                kind = (event["type"], event.get("index", event.get("output_index")))
                if isinstance(delta, dict):
                    join(deltas.setdefault(kind, {}), {"content": delta.get("text") or delta.get("thinking")
                                                       or delta.get("partial_json") or ""})
                elif delta is not None:
                    join(deltas.setdefault(kind, {}), {"content": delta})
            (end,) = [event for event in events if event["type"] == last]
            totals.append((deltas, stable(end)))
            counts.append(len(events))
        self.assertEqual(totals[1], totals[0])
        self.assertLessEqual(counts[1], counts[0])

    def events_of(self, server, path, body):
        status, _, text = server.request("POST", path, {**body, "stream": True})
        self.assertEqual(status, 200, text)
        return [json.loads(line[len("data: "):]) for line in text.decode().split("\n")
                if line.startswith("data: ")]

    def body_of(self, path, start):
        return self.responses_body(start) if path == RESPONSES else self.body(start)

    def compare_chat(self, start, **members):
        body = self.body(start, logprobs=True, top_logprobs=2, return_token_ids=True, **members)
        whole = self.compare_whole(CHAT, body)
        for more in ({"include_usage": True}, {"include_usage": True, "continuous_usage_stats": True}):
            choices, num_chunks = self.compare_stream(CHAT, {**body, "stream_options": more})
        (choice,) = whole["choices"]
        self.assertEqual(choices[0]["token_ids"], choice["token_ids"])
        self.assertEqual(choices[0]["logprobs"]["content"], choice["logprobs"]["content"])
        self.assertEqual(len(choice["token_ids"]), whole["usage"]["completion_tokens"])
        return whole, num_chunks

    def test_chat(self):
        whole, num_chunks = self.compare_chat("<|plain|>")
        self.assertEqual(whole["choices"][0]["message"]["content"], ANSWERS["<|plain|>"])
        # The role, each three tokens, the end and the usage.
        self.assertLessEqual(num_chunks, whole["usage"]["completion_tokens"] // 3 + 4)

    def test_reasoning_is_counted_by_the_token(self):
        for max_tokens in range(4, 24):
            whole, _ = self.compare_chat("<|thought|>", max_tokens=max_tokens)
        details = whole["usage"]["completion_tokens_details"]
        self.assertGreater(details["reasoning_tokens"], 3)
        self.assertLess(details["reasoning_tokens"], whole["usage"]["completion_tokens"])

    def test_token_without_a_character(self):
        """It has a chunk without text, so what lies between two chunks is the time of a token."""
        body = {"prompt": "Once <|smiles|>", "temperature": 0, "return_token_ids": True, "logprobs": 0}
        chunks = [event["choices"][0] for event in self.server.stream(COMPLETIONS, body)]
        self.assertEqual("".join(chunk["text"] for chunk in chunks), ANSWERS["<|smiles|>"])
        self.assertIn("", [chunk["text"] for chunk in chunks[:-1]])
        self.assertEqual({len(chunk["token_ids"]) for chunk in chunks}, {1})
        self.assertEqual({len(chunk["logprobs"]["tokens"]) for chunk in chunks}, {1})
        body = self.body("<|smiles|>", return_token_ids=True, logprobs=True)
        _, *chunks = [event["choices"][0] for event in self.server.stream(CHAT, body)]
        self.assertIn({"content": ""}, [chunk["delta"] for chunk in chunks])
        self.assertEqual({len(chunk["token_ids"]) for chunk in chunks}, {1})
        self.assertEqual({len(chunk["logprobs"]["content"]) for chunk in chunks}, {1})

    def test_token_without_a_character_of_reasoning(self):
        deltas = lambda **members: [event["choices"][0]["delta"] for event in
                                    self.server.stream(CHAT, self.body("<think>", **members))][1:]
        empty = {"reasoning": "", "reasoning_content": ""}
        shown = deltas()
        self.assertIn(empty, shown)
        # Nothing is told of what is left out.
        self.assertEqual(deltas(include_reasoning=False), [delta for delta in shown if "reasoning" not in delta])

    def test_token_without_a_character_of_other_forms(self):
        """It has an event with an empty delta too, in the block that is open: one for each token."""
        for path, kind, member in ((RESPONSES, "response.output_text.delta", lambda event: event["delta"]),
                                   (MESSAGES, "content_block_delta", lambda event: event["delta"].get("text"))):
            with self.subTest(path=path):
                events = self.events_of(self.server, path, self.body_of(path, "<|smiles|>"))
                texts = [member(event) for event in events if event["type"] == kind]
                self.assertEqual("".join(texts), ANSWERS["<|smiles|>"])
                # The first character's own bytes come before its block is open.
                self.assertIn("", texts)
                self.assertNotIn("", [texts[0], texts[-1]])

    def test_token_without_a_character_of_reasoning_of_other_forms(self):
        for path, kind, member in ((RESPONSES, "response.reasoning_text.delta", lambda event: event["delta"]),
                                   (MESSAGES, "content_block_delta", lambda event: event["delta"].get("thinking"))):
            with self.subTest(path=path):
                events = self.events_of(self.server, path, self.body_of(path, "<think>"))
                texts = [member(event) for event in events if event["type"] == kind]
                self.assertIn("", texts)
                self.assertEqual("".join(text for text in texts if text is not None), "\U0001f643\U0001f604 in")

    def test_calls(self):
        whole, _ = self.compare_chat("<|call|>", tools=[TOOL])
        self.assertEqual(whole["choices"][0]["finish_reason"], "tool_calls")

    def test_nothing_behind_a_stop_string(self):
        """At each place of the answer."""
        answer = ANSWERS["<|plain|>"]
        for at in range(2, 28):
            whole = self.compare_whole(CHAT, self.body("<|plain|>", stop=[answer[at:at + 3]], logprobs=True))
            (choice,) = whole["choices"]
            self.assertEqual(choice["message"]["content"], answer[:answer.index(answer[at:at + 3])])
            self.assertEqual(choice["stop_reason"], answer[at:at + 3])

    def test_completions(self):
        body = {"prompt": ["Once <|plain|>", "Twice <|thought|>"], "temperature": 0, "max_tokens": 20, "n": 2,
                "logprobs": 2, "return_token_ids": True}
        for more in ({}, {"echo": True}, {"max_tokens": 4}, {"stop": ["it i"]}, {"min_tokens": 5, "stop": ["i"]}):
            whole = self.compare_whole(COMPLETIONS, {**body, **more})
            choices, _ = self.compare_stream(COMPLETIONS, {**body, **more, "stream_options": {"include_usage": True}})
            for choice in whole["choices"]:
                self.assertEqual(choices[choice["index"]]["text"], choice["text"])
                self.assertEqual(choices[choice["index"]]["logprobs"], choice["logprobs"])
                self.assertEqual(choices[choice["index"]]["token_ids"], choice["token_ids"])

    def test_other_shapes(self):
        for start in ANSWERS:
            body = self.body(start, tools=[{"name": "add", "input_schema": TOOL["function"]["parameters"]}])
            self.compare_whole(MESSAGES, body)
            self.compare_events(MESSAGES, body, "message_delta")
            body = self.responses_body(start, tools=[{"type": "function", **TOOL["function"]}])
            self.compare_whole(RESPONSES, body)
            self.compare_events(RESPONSES, body, "response.completed")

    def test_metrics_count_tokens(self):
        name, before = "vllm:generation_tokens_total", []
        for server in (self.server, self.merged):
            start = server.metric(name)
            server.post(CHAT, self.body("<|plain|>"))
            before.append(server.metric(name) - start)
        self.assertEqual(before[0], before[1])


if __name__ == "__main__":
    main()
