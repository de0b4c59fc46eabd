"""An answer as an object, by the package openai.   usage: with_openai.py [URL]"""

import sys

from openai import OpenAI
from pydantic import BaseModel


class Person(BaseModel):
    name: str
    age: int
    place: str


url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000/v1"
client = OpenAI(base_url=url, api_key="none")
question = "Write JSON for a person: name Rosa, age 62, place mountain."

chat = client.chat.completions.parse(
    model="tiny-qwen3",
    messages=[{"role": "user", "content": question}],
    response_format=Person,
    temperature=0,
)
print(chat.choices[0].message.parsed)

response = client.responses.parse(model="tiny-qwen3", input=question, text_format=Person, temperature=0)
print(response.output_parsed)
