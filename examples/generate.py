from nanovllm import LLM, SamplingParams

llm = LLM("models/tiny-qwen3")
outputs = llm.generate(
    ["Once upon a time", "The capital of France"],
    SamplingParams(temperature=0.6, max_tokens=32),
)
for output in outputs:
    print(repr(output["text"]), output["finish_reason"])

(answer,) = llm.chat([{"role": "user", "content": "What is 37 + 58?"}])
print(answer["text"])
