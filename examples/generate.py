from nanovllm import LLM, SamplingParams

llm = LLM("models/tiny-qwen3")
question = [{"role": "user", "content": "What is 37 + 58?"}]
(answer,) = llm.chat(question, SamplingParams(temperature=0))
print(answer["text"], answer["finish_reason"])

params = SamplingParams(temperature=0.6, max_tokens=32, skip_special_tokens=True)
for output in llm.generate(["Once upon a time", "The capital of France"], params):
    print(repr(output["text"]), output["finish_reason"])
