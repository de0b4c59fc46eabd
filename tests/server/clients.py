"""Published clients, unchanged: openai, anthropic, langchain-openai, litellm. Those that are not installed
are skipped; the first lines say which versions run. Not part of the test suite, which needs no network:

    python3 -m venv /tmp/clients && /tmp/clients/bin/pip install openai anthropic langchain-openai litellm mcp
    NANOVLLM_PROGRAM=build/release/nanovllm /tmp/clients/bin/python tests/server/clients.py
"""

import asyncio
import importlib.metadata
import json
import os
import unittest

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # litellm fetches a table otherwise

from server_fixture import Server, ServerTest, main
from test_tools import ANSWERS, Tools

QUESTION = [{"role": "user", "content": "What is 37 + 58?"}]
NO_THINKING = {"chat_template_kwargs": {"enable_thinking": False}}
PARAMETERS = {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}}
TOOL = {"type": "function", "function": {"name": "add", "description": "adds", "parameters": PARAMETERS}}
ARGUMENTS = {"a": 37, "b": 58}


def needs(package):
    """The module, or the test is skipped."""
    try:
        return __import__(package.replace("-", "_"))
    except ImportError:
        raise unittest.SkipTest(package + " is not installed") from None


def url(server, path="/v1"):
    return f"http://127.0.0.1:{server.port}{path}"


class OpenAi(ServerTest):
    flags = ("--log", "none", "--api-key", "secret")

    @classmethod
    def setUpClass(cls):
        cls.openai = needs("openai")
        super().setUpClass()
        cls.client = cls.openai.OpenAI(base_url=url(cls.server), api_key="secret", max_retries=0)

    def test_chat(self):
        answer = self.client.chat.completions.create(model="tiny-qwen3", messages=QUESTION, temperature=0,
                                                     extra_body=NO_THINKING)
        self.assertIn("95", answer.choices[0].message.content)
        self.assertEqual(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens)
        chunks = list(self.client.chat.completions.create(
            model="tiny-qwen3", messages=QUESTION, temperature=0, stream=True, stream_options={"include_usage": True},
            extra_body=NO_THINKING))
        self.assertEqual(chunks[-1].usage.completion_tokens, answer.usage.completion_tokens)
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        self.assertEqual(text, answer.choices[0].message.content)
        with self.client.chat.completions.stream(model="tiny-qwen3", messages=QUESTION, temperature=0,
                                                 extra_body=NO_THINKING) as stream:
            self.assertEqual(stream.get_final_completion().choices[0].message.content, text)

    def test_completions(self):
        answer = self.client.completions.create(model="tiny-qwen3", prompt=["Once", "The"], n=2, logprobs=2, seed=1,
                                                max_tokens=5, echo=True)
        self.assertEqual([choice.index for choice in answer.choices], [0, 1, 2, 3])
        self.assertTrue(all(choice.text.startswith(("Once", "The")) for choice in answer.choices))
        self.assertIsNone(answer.choices[0].logprobs.token_logprobs[0])

    def test_logprobs(self):
        answer = self.client.chat.completions.create(model="tiny-qwen3", messages=QUESTION, logprobs=True,
                                                     top_logprobs=3, max_tokens=4, n=2)
        for choice in answer.choices:
            self.assertEqual([len(token.top_logprobs) for token in choice.logprobs.content], [3] * 4)

    def test_responses(self):
        answer = self.client.responses.create(model="tiny-qwen3", input="What is 37 + 58?", temperature=0,
                                              extra_body=NO_THINKING)
        self.assertIn("95", answer.output_text)
        with self.client.responses.stream(model="tiny-qwen3", input="What is 37 + 58?", temperature=0,
                                          extra_body=NO_THINKING) as stream:
            self.assertEqual(stream.get_final_response().output_text, answer.output_text)

        count = self.client.responses.input_tokens.count(model="tiny-qwen3", input="What is 37 + 58?")
        self.assertGreater(count.input_tokens, 8)
        with self.assertRaises(self.openai.BadRequestError) as caught:
            self.client.responses.create(model="tiny-qwen3", input="a", top_logprobs=3)
        self.assertEqual((caught.exception.param, caught.exception.code), ("top_logprobs", "unsupported"))

    def test_token_ids_and_timings(self):
        answer = self.client.chat.completions.create(model="tiny-qwen3", messages=QUESTION, max_tokens=4,
                                                     extra_body={**NO_THINKING, "return_token_ids": True})
        self.assertEqual(len(answer.choices[0].token_ids), answer.timings["predicted_n"])
        self.assertEqual(len(answer.prompt_token_ids), answer.usage.prompt_tokens)

    def test_short_paths(self):
        client = self.openai.OpenAI(base_url=url(self.server, ""), api_key="secret", max_retries=0)
        answer = client.chat.completions.create(model="tiny-qwen3", messages=QUESTION, max_tokens=2)
        self.assertEqual(answer.object, "chat.completion")
        self.assertEqual([model.id for model in client.models.list()], ["tiny-qwen3"])

    def test_models(self):
        self.assertEqual([model.id for model in self.client.models.list()], ["tiny-qwen3"])
        self.assertEqual(self.client.models.retrieve("tiny-qwen3").id, "tiny-qwen3")

    def test_errors(self):
        ask = self.client.chat.completions.create
        with self.assertRaises(self.openai.BadRequestError) as caught:
            ask(model="tiny-qwen3", messages=QUESTION, temperature=-1)
        self.assertEqual(caught.exception.param, "temperature")
        with self.assertRaises(self.openai.NotFoundError) as caught:
            ask(model="other", messages=QUESTION)
        self.assertEqual(caught.exception.code, "model_not_found")
        with self.assertRaises(self.openai.AuthenticationError):
            self.client.with_options(api_key="wrong").models.list()
        with self.assertRaises(self.openai.BadRequestError) as caught:
            ask(model="tiny-qwen3", messages=QUESTION, max_tokens=10**6, stream=True)
        self.assertEqual(caught.exception.code, "context_length_exceeded")
        with self.assertRaises(self.openai.APITimeoutError):
            self.client.with_options(timeout=0.05).completions.create(
                model="tiny-qwen3", prompt="a", max_tokens=4000, extra_body={"ignore_eos": True})
        self.server.wait_metric("nanovllm:calls_in_flight", 0, headers={"X-Api-Key": "secret"})

    def test_retries(self):
        """A full queue is 503 with Retry-After, which the client waits for and asks again."""
        server = Server("--log", "none", "--max-num-seqs", "1", "--max-num-waiting", "1")
        client = self.openai.AsyncOpenAI(base_url=url(server), api_key="none", max_retries=60)

        async def ask_all():
            body = {"model": "tiny-qwen3", "prompt": "a", "max_tokens": 100, "extra_body": {"ignore_eos": True}}
            async with client:
                return await asyncio.gather(*(client.completions.create(**body) for _ in range(6)))

        answers = asyncio.run(ask_all())
        self.assertEqual([answer.usage.completion_tokens for answer in answers], [100] * 6)
        self.assertIsNone(server.stop())

    def test_async(self):
        client = self.openai.AsyncOpenAI(base_url=url(self.server), api_key="secret")

        async def stream(number):
            text = ""
            async for chunk in await client.chat.completions.create(
                    model="tiny-qwen3", messages=QUESTION, temperature=0, seed=number, stream=True,
                    extra_body=NO_THINKING):
                text += chunk.choices[0].delta.content or ""
            return text

        async def all_of_them():
            async with client:
                return await asyncio.gather(*(stream(number) for number in range(20)))

        texts = asyncio.run(all_of_them())
        self.assertEqual(len(set(texts)), 1)
        self.assertIn("95", texts[0])


class OpenAiTools(Tools):
    @classmethod
    def setUpClass(cls):
        cls.openai = needs("openai")
        super().setUpClass()
        cls.client = cls.openai.OpenAI(base_url=url(cls.server), api_key="none", max_retries=0)
        cls.name = cls.client.models.list().data[0].id

    def ask(self, start, **members):
        return {"model": self.name, "messages": QUESTION, "temperature": 0,
                "extra_body": {"chat_template_kwargs": {"start": start}}, **members}

    def test_tools(self):
        answer = self.client.chat.completions.create(**self.ask("<|call|>", tools=[TOOL]))
        (call,) = answer.choices[0].message.tool_calls
        self.assertEqual((call.function.name, json.loads(call.function.arguments)), ("add", ARGUMENTS))
        self.assertEqual(answer.choices[0].finish_reason, "tool_calls")
        with self.client.chat.completions.stream(**self.ask("<|call|>", tools=[TOOL])) as stream:
            final = stream.get_final_completion().choices[0].message
        self.assertEqual(json.loads(final.tool_calls[0].function.arguments), ARGUMENTS)
        # The answer goes back as it came, with the tool's result.
        history = QUESTION + [answer.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "95"}]
        last = self.client.chat.completions.create(**self.ask("<|plain|>", messages=history, tools=[TOOL]))
        self.assertEqual(last.choices[0].message.content, ANSWERS["<|plain|>"])
        named = {"type": "function", "function": {"name": "add"}}
        forced = self.client.chat.completions.create(**self.ask("<|calls|>", tools=[TOOL], tool_choice=named))
        self.assertEqual(json.loads(forced.choices[0].message.tool_calls[0].function.arguments), {"a": 1, "b": 99})

    def test_responses(self):
        body = {"model": self.name, "input": "What is 37 + 58?", "temperature": 0,
                "tools": [{"type": "function", "name": "add", "parameters": PARAMETERS, "strict": False}],
                "extra_body": {"chat_template_kwargs": {"start": "<|call|>"}}}
        answer = self.client.responses.create(**body)
        (call,) = [item for item in answer.output if item.type == "function_call"]
        self.assertEqual(json.loads(call.arguments), ARGUMENTS)
        with self.client.responses.stream(**body) as stream:
            final = stream.get_final_response()
        self.assertEqual([item.type for item in final.output], ["message", "function_call"])
        items = [{"role": "user", "content": "What is 37 + 58?"}, *answer.output,
                 {"type": "function_call_output", "call_id": call.call_id, "output": "95"}]
        body["extra_body"] = {"chat_template_kwargs": {"start": "<|plain|>"}}
        self.assertEqual(self.client.responses.create(**{**body, "input": items}).output_text, ANSWERS["<|plain|>"])
        body["extra_body"] = {"chat_template_kwargs": {"start": "<|thought|>"}}
        self.assertEqual([item.type for item in self.client.responses.create(**body).output], ["reasoning", "message"])


class Anthropic(Tools):
    @classmethod
    def setUpClass(cls):
        cls.anthropic = needs("anthropic")
        super().setUpClass()
        cls.client = cls.anthropic.Anthropic(base_url=url(cls.server, ""), api_key="none", max_retries=0)
        cls.name = cls.server.get("/v1/models")[1]["data"][0]["id"]

    def ask(self, start, **members):
        return {"model": self.name, "max_tokens": 200, "messages": QUESTION,
                "extra_body": {"chat_template_kwargs": {"start": start}, "temperature": 0}, **members}

    def test_tools(self):
        tools = [{"name": "add", "description": "adds", "input_schema": PARAMETERS}]
        answer = self.client.messages.create(**self.ask("<|call|>", tools=tools))
        self.assertEqual(([block.type for block in answer.content], answer.stop_reason),
                         (["text", "tool_use"], "tool_use"))
        self.assertEqual(answer.content[1].input, ARGUMENTS)
        with self.client.messages.stream(**self.ask("<|call|>", tools=tools)) as stream:
            final = stream.get_final_message()
        self.assertEqual((final.content[0].text, final.content[1].input), ("Let me see.", ARGUMENTS))
        history = QUESTION + [{"role": "assistant", "content": answer.content}, {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": answer.content[1].id, "content": "95"}]}]
        last = self.client.messages.create(**self.ask("<|plain|>", messages=history, tools=tools))
        self.assertEqual(last.content[0].text, ANSWERS["<|plain|>"])
        for choice in ({"type": "tool", "name": "add"}, {"type": "any"}):
            forced = self.client.messages.create(**self.ask("<|calls|>", tools=tools, tool_choice=choice))
            self.assertEqual((forced.content[0].input, forced.stop_reason), ({"a": 1, "b": 99}, "tool_use"))
        with self.client.messages.stream(**{**self.ask("<|calls|>", tools=tools, tool_choice=choice),
                                            "max_tokens": 12}) as stream:
            self.assertEqual(stream.get_final_message().stop_reason, "max_tokens")

    def test_thinking(self):
        answer = self.client.messages.create(**self.ask("<|thought|>"))
        self.assertEqual([block.type for block in answer.content], ["thinking", "text"])
        with self.client.messages.stream(**self.ask("<|thought|>")) as stream:
            final = stream.get_final_message()
        self.assertEqual([block.type for block in final.content], ["thinking", "text"])
        self.assertEqual(final.content[0].thinking, answer.content[0].thinking)

    def test_count(self):
        count = self.client.messages.count_tokens(model=self.name, messages=QUESTION).input_tokens
        self.assertGreater(count, 5)

    def test_errors(self):
        with self.assertRaises(self.anthropic.BadRequestError):
            self.client.messages.create(**self.ask("", max_tokens=0))
        with self.assertRaises(self.anthropic.NotFoundError):
            self.client.messages.create(**self.ask("", model="claude"))

    def test_async(self):
        client = self.anthropic.AsyncAnthropic(base_url=url(self.server, ""), api_key="none")

        async def run():
            async with client, client.messages.stream(**self.ask("<|plain|>")) as stream:
                return await stream.get_final_text()

        self.assertEqual(asyncio.run(run()), ANSWERS["<|plain|>"])


class LangChain(Tools):
    @classmethod
    def setUpClass(cls):
        needs("langchain-openai")
        super().setUpClass()
        cls.name = cls.server.get("/v1/models")[1]["data"][0]["id"]

    def chat_model(self, start):
        from langchain_openai import ChatOpenAI
        return ChatOpenAI(base_url=url(self.server), api_key="none", model=self.name, temperature=0, max_retries=0,
                          extra_body={"chat_template_kwargs": {"start": start}})

    def test_chat(self):
        model = self.chat_model("<|plain|>")
        self.assertEqual(model.invoke("What is 37 + 58?").content, ANSWERS["<|plain|>"])
        self.assertEqual("".join(chunk.content for chunk in model.stream("What?")), ANSWERS["<|plain|>"])
        self.assertEqual(asyncio.run(model.ainvoke("What?")).content, ANSWERS["<|plain|>"])
        self.assertEqual([answer.content for answer in model.batch(["What?"] * 4)], [ANSWERS["<|plain|>"]] * 4)

    def test_tools(self):
        from langchain_core.messages import HumanMessage, ToolMessage
        bound = self.chat_model("<|call|>").bind_tools([TOOL])
        answer = bound.invoke("What is 37 + 58?")
        (call,) = answer.tool_calls
        self.assertEqual((call["name"], call["args"]), ("add", ARGUMENTS))
        streamed = None
        for chunk in bound.stream("What is 37 + 58?"):
            streamed = chunk if streamed is None else streamed + chunk
        self.assertEqual(streamed.tool_calls[0]["args"], ARGUMENTS)
        history = [HumanMessage("What is 37 + 58?"), answer, ToolMessage("95", tool_call_id=call["id"])]
        self.assertEqual(self.chat_model("<|plain|>").bind_tools([TOOL]).invoke(history).content, ANSWERS["<|plain|>"])
        forced = self.chat_model("").bind_tools([TOOL], tool_choice="add").invoke("What is 37 + 58?")
        self.assertEqual(forced.tool_calls[0]["args"], {"a": 1, "b": 99})


class LiteLlm(Tools):
    @classmethod
    def setUpClass(cls):
        cls.litellm = needs("litellm")
        super().setUpClass()
        cls.name = cls.server.get("/v1/models")[1]["data"][0]["id"]

    def ask(self, start, **members):
        return {"model": "openai/" + self.name, "api_base": url(self.server), "api_key": "none", "messages": QUESTION,
                "temperature": 0, "extra_body": {"chat_template_kwargs": {"start": start}}, **members}

    def test_chat(self):
        answer = self.litellm.completion(**self.ask("<|plain|>"))
        self.assertEqual(answer.choices[0].message.content, ANSWERS["<|plain|>"])
        chunks = self.litellm.completion(**self.ask("<|plain|>", stream=True))
        self.assertEqual("".join(chunk.choices[0].delta.content or "" for chunk in chunks), ANSWERS["<|plain|>"])
        answer = asyncio.run(self.litellm.acompletion(**self.ask("<|thought|>")))
        self.assertEqual(answer.choices[0].message.reasoning_content, "Two sums, so <tool_call> may help.")

    def test_tools(self):
        answer = self.litellm.completion(**self.ask("<|call|>", tools=[TOOL]))
        self.assertEqual(json.loads(answer.choices[0].message.tool_calls[0].function.arguments), ARGUMENTS)
        chunks = list(self.litellm.completion(**self.ask("<|call|>", tools=[TOOL], stream=True)))
        whole = self.litellm.stream_chunk_builder(chunks, messages=QUESTION)
        self.assertEqual(json.loads(whole.choices[0].message.tool_calls[0].function.arguments), ARGUMENTS)

    def test_errors(self):
        with self.assertRaises(self.litellm.BadRequestError):
            self.litellm.completion(**self.ask("<|plain|>", top_p=7))
        with self.assertRaises(self.litellm.NotFoundError):
            self.litellm.completion(**self.ask("<|plain|>", model="openai/other"))


if __name__ == "__main__":
    for package in ("openai", "anthropic", "langchain-openai", "litellm"):
        try:
            print(package, importlib.metadata.version(package))
        except importlib.metadata.PackageNotFoundError:
            print(package, "is not installed")
    main()
