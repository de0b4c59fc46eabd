"""Writes data/chat-templates/NAME.json for each NAME.jinja there: the prompts that Jinja2, set up as
transformers sets it up, makes of the chats of lib/jinja/tests/differential/chats.py. Usage: python3 tests/reference/make_template_cases.py (from
the source folder; needs jinja2). The templates are ours, in the forms that published ones have."""
import json
import pathlib
import sys

sys.path.insert(0, "lib/jinja/tests/differential")
sys.dont_write_bytecode = True
import chats
import oracle

FOLDER = pathlib.Path("tests/reference/data/chat-templates")
def main():
    environment = oracle.make_environment()
    num_cases = 0
    for path in sorted(FOLDER.glob("*.jinja")):
        source, cases = path.read_text(encoding="utf-8"), []
        for chat in chats.CHATS:
            variables = {"add_generation_prompt": True, "bos_token": "<s>", "eos_token": "</s>"} | chat
            text, reason = oracle.render(environment, source, variables)
            outcome = {"expected": text} if text is not None else {"error": reason}
            cases.append(variables | {"now": oracle.NOW} | outcome)
        num_cases += len(cases)
        path.with_suffix(".json").write_text(
            json.dumps({"cases": cases}, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{num_cases} cases")


main()
