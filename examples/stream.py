"""Prints answers while they are generated, two at a time.   usage: stream.py [MODEL_FOLDER]"""

import asyncio
import sys

from nanovllm import AsyncLLM, SamplingParams


async def ask(llm, question):
    messages = [{"role": "user", "content": question}]
    async for chunk in llm.chat(messages, SamplingParams(temperature=0, max_tokens=256)):
        print(chunk["text"], end="", flush=True)
        if chunk["finish_reason"]:
            print(f" [{question} {chunk['finish_reason']}]")


async def main():
    model = sys.argv[1] if len(sys.argv) > 1 else "models/tiny-qwen3"
    async with AsyncLLM(model) as llm:
        await asyncio.gather(ask(llm, "What is 37 + 58?"), ask(llm, "introduce yourself"))


if __name__ == "__main__":
    asyncio.run(main())
