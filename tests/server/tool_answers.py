"""Asks a scripted model by each of the three chat endpoints, whole and streamed: both must agree."""

import json
import tempfile

from server_fixture import ServerTest

CHAT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
TOOL = {"type": "function", "function": {"name": "add", "description": "adds two numbers", "parameters": {
    "type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}}}}
OTHER = {"type": "function", "function": {"name": "get_time"}}


class Scripted(ServerTest):
    """A server of the model that write_model makes. `start` of a question is what its answer begins with."""

    flags = ("--log", "none")
    call_id = "^call_[A-Za-z0-9]{24}$"

    @classmethod
    def write_model(cls, folder):
        raise NotImplementedError

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.write_model(cls.folder.name)
        cls.model = cls.folder.name
        super().setUpClass()

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.folder.cleanup()

    def body(self, start, **members):
        return {"messages": [{"role": "user", "content": "What is 37 + 58?"}], "temperature": 0, "max_tokens": 300,
                "chat_template_kwargs": {"start": start}, **members}

    def responses_body(self, start, **members):
        return {"input": "What is 37 + 58?", "temperature": 0, "chat_template_kwargs": {"start": start}, **members}

    # ---- chat completions ----

    def ask_chat(self, start, **members):
        """The choice of a whole answer, which its stream must equal."""
        status, body = self.server.post(CHAT, self.body(start, **members))
        self.assertEqual(status, 200, body)
        (choice,) = body["choices"]
        self.assertEqual(self.stream_chat(start, **members), self.without_ids(choice))
        return choice

    @staticmethod
    def without_ids(choice):
        left_out = lambda key, value: key in ("refusal", "role") or (key == "reasoning" and value is None)
        message = {key: value for key, value in choice["message"].items() if not left_out(key, value)}
        calls = message.pop("tool_calls", [])
        return message | {"calls": [call["function"] for call in calls], "finish": choice["finish_reason"]}

    def stream_chat(self, start, **members):
        """A stream's deltas, checked and joined."""
        got, calls, finish = {"content": "", "reasoning": ""}, [], None
        events = self.server.stream(CHAT, self.body(start, **members))
        first, *chunks = [event["choices"][0] for event in events]
        self.assertEqual(first["delta"], {"role": "assistant", "content": ""})
        for chunk in chunks:
            self.assertIsNone(finish)
            delta, finish = chunk["delta"], chunk["finish_reason"]
            for name in ("content", "reasoning"):
                self.assertNotEqual(delta.get(name), "")
                got[name] += delta.get(name, "")
            self.assertEqual(delta.get("reasoning"), delta.get("reasoning_content"))
            for call in delta.get("tool_calls", []):
                if "id" in call:
                    self.assertEqual((call["index"], call["type"]), (len(calls), "function"))
                    self.assertRegex(call["id"], self.call_id)
                    self.assertEqual(call["function"]["arguments"], "")
                    calls.append(dict(call["function"]))
                else:
                    self.assertEqual(set(call), {"index", "function"})
                    self.assertEqual((call["index"], set(call["function"])), (len(calls) - 1, {"arguments"}))
                    calls[-1]["arguments"] += call["function"]["arguments"]
        message = {"content": got["content"] if got["content"] or not calls else None}
        if got["reasoning"]:
            message.update(reasoning=got["reasoning"], reasoning_content=got["reasoning"])
        return message | {"calls": calls, "finish": finish}

    # ---- messages ----

    def ask_messages(self, start, **members):
        """The blocks of a whole answer, which its stream must equal, and why it ended."""
        status, body = self.server.post(MESSAGES, self.body(start, **members))
        self.assertEqual(status, 200, body)
        blocks, reason = self.stream_messages(start, **members)
        plain = [{key: value for key, value in block.items() if key != "id"} for block in body["content"]]
        self.assertEqual((blocks, reason), (plain, body["stop_reason"]))
        return body["content"], reason

    def stream_messages(self, start, **members):
        status, _, text = self.server.request("POST", MESSAGES, {**self.body(start, **members), "stream": True})
        self.assertEqual(status, 200)
        events = [json.loads(event.split("\ndata: ")[1]) for event in text.decode().split("\n\n")[:-1]]
        blocks, is_open = [], False
        for event in events[1:-2]:
            if event["type"] == "content_block_start":
                self.assertEqual((event["index"], is_open), (len(blocks), False))
                blocks.append(event["content_block"])
                is_open, json_text = True, ""
            elif event["type"] == "content_block_stop":
                self.assertEqual((event["index"], is_open), (len(blocks) - 1, True))
                is_open = False
                if blocks[-1]["type"] == "tool_use":
                    try:
                        blocks[-1]["input"] = json.loads(json_text)
                    except ValueError:
                        blocks[-1]["input"] = {"INVALID_JSON": json_text}
                    self.assertRegex(blocks[-1].pop("id"), self.call_id)
            else:
                self.assertEqual((event["type"], event["index"], is_open),
                                 ("content_block_delta", len(blocks) - 1, True))
                kind = event["delta"]["type"]
                if kind == "input_json_delta":
                    json_text += event["delta"]["partial_json"]
                else:
                    name = kind.removesuffix("_delta")
                    blocks[-1][name] += event["delta"][name]
        self.assertFalse(is_open)
        self.assertEqual([event["type"] for event in events[-2:]], ["message_delta", "message_stop"])
        return blocks, events[-2]["delta"]["stop_reason"]

    # ---- responses ----

    def ask_responses(self, start, **members):
        status, body = self.server.post(RESPONSES, self.responses_body(start, **members))
        self.assertEqual(status, 200, body)
        last = self.stream_responses(start, **members)
        strip = lambda items: [{key: value for key, value in item.items() if key not in ("id", "call_id")}
                               for item in items]
        self.assertEqual(strip(last["output"]), strip(body["output"]))
        self.assertEqual(last["status"], body["status"])
        return body

    def stream_responses(self, start, **members):
        """The last response of a stream whose events must add up to it."""
        status, _, text = self.server.request("POST", RESPONSES, {**self.responses_body(start, **members), "stream": True})
        self.assertEqual(status, 200)
        events = [json.loads(event.split("\ndata: ")[1]) for event in text.decode().split("\n\n")[:-1]]
        self.assertEqual([event["sequence_number"] for event in events], list(range(len(events))))
        self.assertEqual([event["type"] for event in events[:2]], ["response.created", "response.in_progress"])
        items, texts = [], {}
        for event in events[2:-1]:
            kind = event["type"]
            if kind == "response.output_item.added":
                self.assertEqual(event["output_index"], len(items))
                items.append(event["item"])
            elif kind.endswith(".delta"):
                self.assertEqual(event["item_id"], items[-1]["id"])
                texts[event["item_id"]] = texts.get(event["item_id"], "") + event["delta"]
            elif kind == "response.output_item.done":
                item = items[event["output_index"]] = event["item"]
                whole = item["arguments"] if item["type"] == "function_call" else item["content"][0]["text"]
                self.assertEqual(texts.get(item["id"], ""), whole)
        self.assertEqual(events[-1]["response"]["output"], items)
        return events[-1]["response"]
