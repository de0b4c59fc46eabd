"""Asks a model two questions.   usage: example.py [MODEL_FOLDER]"""

import sys

from nanovllm import LLM, SamplingParams


def main():
    model = sys.argv[1] if len(sys.argv) > 1 else "models/tiny-qwen3"
    llm = LLM(model, enforce_eager=True, tensor_parallel_size=1)
    sampling_params = SamplingParams(temperature=0.6, max_tokens=256)

    questions = ["introduce yourself", "What is 37 + 58?"]
    try:
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(model)
    except ImportError:
        tokenizer = llm.tokenizer  # the model's own chat template, without transformers
    prompts = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": question}], tokenize=False, add_generation_prompt=True
        )
        for question in questions
    ]
    outputs = llm.generate(prompts, sampling_params)

    for prompt, output in zip(prompts, outputs):
        print(f"\nPrompt: {prompt!r}")
        print(f"Completion: {output['text']!r}")


if __name__ == "__main__":
    main()
