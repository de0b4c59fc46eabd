"""Writes data/chat-templates/NAME.json for each NAME.jinja there: the prompts that Jinja2, set up as
transformers sets it up, makes of some chats. Usage: python3 tests/reference/make_template_cases.py (from
the source folder; needs jinja2). The templates are ours, in the forms that published ones have."""
import json
import pathlib
import sys

sys.path.insert(0, "lib/jinja/tests/differential")
sys.dont_write_bytecode = True
import oracle

FOLDER = pathlib.Path("tests/reference/data/chat-templates")
WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a place; \"C\" or <F>.",
    "parameters": {"type": "object", "required": ["place"], "properties": {
        "place": {"type": "string"}, "days": {"type": "integer", "minimum": 1}}}}}
CLOCK = {"type": "function", "function": {
    "name": "get_time", "description": "Die Uhrzeit \u2013 jetzt", "parameters": {}}}


def said(*contents):
    """A chat of these texts, by user and assistant in turn."""
    return [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(contents)]


def system(text):
    return {"role": "system", "content": text}


def calls(*functions, content=""):
    return {"role": "assistant", "content": content, "tool_calls": [
        {"id": f"call{i:05}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for i, (name, arguments) in enumerate(functions)]}


def result(text, number=0):
    return {"role": "tool", "content": text, "tool_call_id": f"call{number:05}"}


ONE_CALL = calls(("get_weather", {"place": "K\u00f6ln", "days": 2}))
TWO_CALLS = calls(("get_weather", {"place": "Oslo"}), ("get_time", {}), content="I look.")
CHATS = [
    {"messages": said("Hello!")},
    {"messages": said("Hello!"), "add_generation_prompt": False},
    {"messages": [system("Be brief.\r\nBe kind. ")] + said("  What is 2 + 2?\n", " 4", "And <3> & \"4\"?")},
    {"messages": said("One?", "<think>\nhm\n</think>\n\nOne.", "Two?"), "enable_thinking": False},
    {"messages": said("One?", "<think>\nhm\n</think>\n\nOne."), "add_generation_prompt": False},
    {"messages": said("One?") + [{"role": "assistant", "content": "1", "reasoning_content": "\nsmall\n"}]},
    {"messages": said("Warm?"), "tools": [WEATHER, CLOCK]},
    {"messages": [system("Look it up.")] + said("Warm?") + [ONE_CALL, result('{"celsius": 21}')],
     "tools": [WEATHER]},
    {"messages": said("Warm?") + [TWO_CALLS, result("21 \u00b0C"), result("noon", 1)] +
     said("Yes, and late?"), "tools": [WEATHER, CLOCK]},
    {"messages": said("Warm?") + [ONE_CALL, result("21"), {"role": "assistant", "content": "Yes."}]},
    {"messages": [{"role": "user", "content": [{"type": "text", "text": " See "}, {"type": "image"},
                                               {"type": "text", "text": "this?"}]}]},
    {"messages": said("a") + said("b")},
    {"messages": said("\U0001f600 \u4f60\u597d", "") + [system("Late.")] + said("e\u0301?")},
    {"messages": said("Who wrote it?"), "controls": {"citations": True, "length": "short"},
     "documents": [{"doc_id": 7, "text": "Ada wrote it."}, {"doc_id": "b", "text": ""}]},
    {"messages": said("Who?", "Ada.", "")},
    {"messages": [system("Nobody speaks.")]},
    {"messages": []},
]


def main():
    environment = oracle.make_environment()
    num_cases = 0
    for path in sorted(FOLDER.glob("*.jinja")):
        source, cases = path.read_text(encoding="utf-8"), []
        for chat in CHATS:
            variables = {"add_generation_prompt": True, "bos_token": "<s>", "eos_token": "</s>"} | chat
            text, reason = oracle.render(environment, source, variables)
            outcome = {"expected": text} if text is not None else {"error": reason}
            cases.append(variables | {"now": oracle.NOW} | outcome)
        num_cases += len(cases)
        path.with_suffix(".json").write_text(
            json.dumps({"cases": cases}, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{num_cases} cases")


main()
