"""An answer as an object, by the package pydantic-ai.   usage: with_pydantic_ai.py [URL]"""

import sys

from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider


class Person(BaseModel):
    name: str
    age: int
    place: str


url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000/v1"
model = OpenAIChatModel("tiny-qwen3", provider=OpenAIProvider(base_url=url, api_key="none"))
agent = Agent(model, output_type=NativeOutput(Person), model_settings={"temperature": 0})

result = agent.run_sync("Write JSON for a person: name Rosa, age 62, place mountain.")
print(repr(result.output))
