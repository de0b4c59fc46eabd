"""Asks the tiny model fresh questions, greedily, thinking off, in float32; compares the answers.

Writes what tests/reference/data/tiny-qwen3-eval.json holds: the accuracy of each task over 200
questions, and its first 25 questions with the right answer and the model's.
Needs torch and transformers; a CUDA GPU is used where there is one.
"""
import argparse
import json
import random

import torch

import tiny_data

QUESTIONS_PER_TASK = 200
QUESTIONS_KEPT = 25


def answer_questions(model, tokenizer, seed):
    """({task: accuracy}, [{task, question, answer, model_answers}])"""
    tokenizer.padding_side = "left"
    r = random.Random(seed)
    accuracy, items = {}, []
    for task in tiny_data.CHECKABLE_TASKS:
        asked = [tuple(map(tiny_data.an, task(r))) for _ in range(QUESTIONS_PER_TASK)]
        prompts = [
            tokenizer.apply_chat_template([{"role": "user", "content": question}], tokenize=False,
                                          add_generation_prompt=True, enable_thinking=False)
            for question, _, _ in asked
        ]
        batch = tokenizer(prompts, return_tensors="pt", padding=True, add_special_tokens=False)
        batch = batch.to(model.device)
        with torch.no_grad():
            ids = model.generate(**batch, max_new_tokens=120, do_sample=False, temperature=None,
                                 top_p=None, top_k=None)
        texts = tokenizer.batch_decode(ids[:, batch.input_ids.shape[1]:], skip_special_tokens=True)
        said = [text.strip() for text in texts]
        right = sum(s == answer for s, (_, answer, _) in zip(said, asked))
        accuracy[task.__name__] = right / QUESTIONS_PER_TASK
        for s, (question, answer, _) in list(zip(said, asked))[:QUESTIONS_KEPT]:
            items.append({"task": task.__name__, "question": question, "answer": answer,
                          "model_answers": s})
    return accuracy, items


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="checkpoint folder")
    parser.add_argument("out", help="JSON file to write")
    parser.add_argument("--seed", type=int, required=True, help="which questions")
    args = parser.parse_args()

    from transformers import AutoModelForCausalLM, AutoTokenizer
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32).eval()
    model = model.to("cuda" if torch.cuda.is_available() else "cpu")
    accuracy, items = answer_questions(model, tokenizer, args.seed)
    with open(args.out, "w", encoding="utf-8") as file:
        json.dump({"accuracy": accuracy, "items": items}, file, ensure_ascii=False, indent=0)
    print(accuracy)


if __name__ == "__main__":
    main()
