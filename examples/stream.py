"""Two answers at once, each printed while it is generated.   usage: stream.py [MODEL_FOLDER]"""

import asyncio
import sys

from nanovllm import AsyncLLM, SamplingParams


async def ask(llm, question, pieces):
    messages = [{"role": "user", "content": question}]
    try:
        async for chunk in llm.chat(messages, SamplingParams(temperature=0, max_tokens=256)):
            pieces.put_nowait(chunk["text"])
    finally:
        pieces.put_nowait(None)


async def main():
    model = sys.argv[1] if len(sys.argv) > 1 else "models/tiny-qwen3"
    questions = {"What is 37 + 58?": asyncio.Queue(), "introduce yourself": asyncio.Queue()}
    async with AsyncLLM(model) as llm:
        tasks = [asyncio.create_task(ask(llm, *question)) for question in questions.items()]
        # The engine generates both together; the second's pieces wait until the first is printed.
        for question, pieces in questions.items():
            print(f"> {question}")
            while (text := await pieces.get()) is not None:
                print(text, end="", flush=True)
            print()
        await asyncio.gather(*tasks)


if __name__ == "__main__":
    asyncio.run(main())
