"""An answer as an object, by the package instructor.   usage: with_instructor.py [URL]"""

import sys

import instructor
from openai import OpenAI
from pydantic import BaseModel


class Person(BaseModel):
    name: str
    age: int
    place: str


url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000/v1"
client = instructor.from_openai(OpenAI(base_url=url, api_key="none"), mode=instructor.Mode.JSON_SCHEMA)
question = "Write JSON for a person: name Rosa, age 62, place mountain."

person = client.chat.completions.create(
    model="tiny-qwen3",
    messages=[{"role": "user", "content": question}],
    response_model=Person,
    temperature=0,
)
print(repr(person))
