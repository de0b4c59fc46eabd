"""The programs of examples/structured: published clients ask this server for answers of a form, by the calls of
their own documentation. Debian has no packages of them. What is not installed is skipped:

    python3 -m venv /tmp/clients && /tmp/clients/bin/pip install openai instructor langchain-openai "pydantic-ai-slim[openai]"
    NANOVLLM_PROGRAM=build/release/nanovllm /tmp/clients/bin/python tests/server/test_structured_clients.py
"""

import importlib.util
import os
import subprocess
import sys
import unittest

from server_fixture import ROOT, ServerTest, main

SKIPPED = 77  # as CTest is told
EXAMPLES = {"openai": "with_openai.py", "instructor": "with_instructor.py",
            "pydantic_ai": "with_pydantic_ai.py", "langchain_openai": "with_langchain.py"}


def needs(package):
    if not importlib.util.find_spec(package):
        raise unittest.SkipTest(package + " is not installed")


class Clients(ServerTest):
    flags = ("--log", "none")

    def run_example(self, package):
        needs(package)
        done = subprocess.run([sys.executable, "-B", f"examples/structured/{EXAMPLES[package]}",
                               f"http://127.0.0.1:{self.server.port}/v1"],
                              cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        lines = done.stdout.splitlines()
        self.assertTrue(lines)
        for line in lines:
            self.assertRegex(line, r"^(Person\()?name='Rosa',? age=62,? place='mountain'\)?$")

    def test_openai(self):
        self.run_example("openai")

    def test_instructor(self):
        self.run_example("instructor")

    def test_pydantic_ai(self):
        self.run_example("pydantic_ai")

    def test_langchain(self):
        self.run_example("langchain_openai")

    def test_every_example_is_here(self):
        self.assertEqual(sorted(os.listdir(os.path.join(ROOT, "examples/structured"))), sorted(EXAMPLES.values()))


class Calls(ServerTest):
    """The ways in which the same clients ask for an answer by a tool call."""

    flags = ("--log", "none", "--chat-template",
             os.path.join(ROOT, "tests/reference/data/chat-templates/chatml-tools.jinja"))
    question = "Write JSON for a person: name Rosa, age 62, place mountain."

    def setUp(self):
        self.url = f"http://127.0.0.1:{self.server.port}/v1"
        self.messages = [{"role": "user", "content": self.question}]

    def person(self):
        """A class that a weak model cannot fill for ever."""
        from pydantic import BaseModel, Field

        class Person(BaseModel, extra="forbid"):
            name: str = Field(max_length=10)
            age: int = Field(ge=0, le=150)

        return Person

    def test_openai(self):
        needs("openai")
        import openai
        client = openai.OpenAI(base_url=self.url, api_key="none")
        person = self.person()
        answer = client.chat.completions.parse(model="tiny-qwen3", messages=self.messages, temperature=0,
                                               tools=[openai.pydantic_function_tool(person)], tool_choice="required")
        calls = answer.choices[0].message.tool_calls
        self.assertTrue(calls)
        for call in calls:
            self.assertIsInstance(call.function.parsed_arguments, person)

    def test_instructor(self):
        needs("instructor")
        import instructor
        import openai
        person = self.person()
        for mode in (instructor.Mode.TOOLS, instructor.Mode.TOOLS_STRICT):
            client = instructor.from_openai(openai.OpenAI(base_url=self.url, api_key="none"), mode=mode)
            answer = client.chat.completions.create(model="tiny-qwen3", messages=self.messages, temperature=0,
                                                    response_model=person, max_retries=1)
            self.assertIsInstance(answer, person)

    def test_pydantic_ai(self):
        needs("pydantic_ai")
        from pydantic_ai import Agent, ToolOutput
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.providers.openai import OpenAIProvider
        person = self.person()
        model = OpenAIChatModel("tiny-qwen3", provider=OpenAIProvider(base_url=self.url, api_key="none"))
        agent = Agent(model, output_type=ToolOutput(person), model_settings={"temperature": 0})
        self.assertIsInstance(agent.run_sync(self.question).output, person)

    def test_langchain(self):
        needs("langchain_openai")
        from langchain_openai import ChatOpenAI
        person = self.person()
        model = ChatOpenAI(model="tiny-qwen3", base_url=self.url, api_key="none", temperature=0)
        asked = model.with_structured_output(person, method="function_calling")
        self.assertIsInstance(asked.invoke(self.question), person)


if __name__ == "__main__":
    if not any(importlib.util.find_spec(package) for package in EXAMPLES):
        print("note: none of openai, instructor, pydantic-ai and langchain-openai is installed: their answers of a "
              "form are not tested")
        sys.exit(SKIPPED)
    main()
