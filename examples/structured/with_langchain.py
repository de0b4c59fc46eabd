"""An answer as an object, by the package langchain-openai.   usage: with_langchain.py [URL]"""

import sys

from langchain_openai import ChatOpenAI
from pydantic import BaseModel


class Person(BaseModel):
    name: str
    age: int
    place: str


url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000/v1"
model = ChatOpenAI(model="tiny-qwen3", base_url=url, api_key="none", temperature=0)

person = model.with_structured_output(Person).invoke(
    "Write JSON for a person: name Rosa, age 62, place mountain."
)
print(repr(person))
