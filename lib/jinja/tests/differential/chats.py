"""Chats that templates are tried with: talk, system messages, tools, calls, results, reasoning, documents,
content as a list, odd turns. CHATS is recorded in tests/reference/data; ALL_CHATS has the flags and forms
of published templates too."""

import json

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


QUESTION = {"role": "user", "content": [{"type": "text", "text": "Is it warm in "}, {"type": "text", "text": "Oslo?"}]}
THOUGHT = {"role": "assistant", "content": "It is 21.", "reasoning_content": "The tool says so.", "thinking": "So."}
FORECAST = {"type": "function", "function": {
    "name": "forecast", "description": "Days ahead.\nSeveral lines.", "strict": True, "parameters": {
        "type": "object", "additionalProperties": False, "required": ["where", "unit"], "properties": {
            "where": {"type": "object", "description": "A place", "required": ["name"], "properties": {
                "name": {"type": "string"}, "near": {"type": "array", "items": {"type": "string"}}}},
            "unit": {"type": "string", "enum": ["C", "F"], "default": "C"},
            "hours": {"type": ["integer", "null"], "description": "From now", "minimum": 0, "maximum": 2.5},
            "exact": {"type": "boolean"}, "any": {"anyOf": [{"type": "string"}, {"type": "number"}]}}},
    "return": {"type": "object"}}}
FORECASTS = calls(
    ("forecast", {"where": {"name": "K\u00f6ln", "near": ["a", "b"]}, "unit": "C", "hours": None, "exact": True,
                  "any": 1.5, "text": "it's \"so\" <b>\n"}), ("get_time", {}), content=None)
AS_TEXT = calls(("get_weather", json.dumps({"place": "Oslo", "days": 2})))
MORE_CHATS = [
    {"messages": said("Warm?") + [FORECASTS, result("[1, 2]"), result('{"time": "noon"}', 1)], "tools": [FORECAST]},
    {"messages": said("Warm?") + [FORECASTS, result("cold"), result("noon", 1), THOUGHT] + said("And then?"),
     "tools": [WEATHER, FORECAST, CLOCK]},
    {"messages": said("Warm?") + [AS_TEXT, result("21")], "tools": [WEATHER]},
    {"messages": [system("Be kind."), QUESTION, THOUGHT] + said("Sure?"), "tools": [WEATHER]},
    {"messages": [{"role": "developer", "content": "Be exact."}] + said("Hi")},
    {"messages": [{"role": "system", "content": [{"type": "text", "text": "Parts."}]}, QUESTION]},
    {"messages": said("Warm?") + [dict(ONE_CALL, content=[{"type": "text", "text": "I look."}]),
                                  dict(result(""), content=[{"type": "text", "text": "21"}], name="get_weather")] +
     said("And?", "21."), "tools": [WEATHER]},
    {"messages": said("Count.", "1 2 3", "Go on.", "4 5 6", "More.")},
    {"messages": said("Draw.") + [{"role": "user", "content": [{"type": "image", "image": "x.png"},
                                                               {"type": "text", "text": "Like this"}]}]},
    {"messages": said("a") + [{"role": "assistant", "content": ""}] + said("b")},
    {"messages": [{"role": "critic", "content": "x"}]},
    {"messages": said("Go") + [calls(("get_time", {}), content="<think>\nNow.\n</think>\n"), result("noon")]},
]
FLAGS = [
    {}, {"add_generation_prompt": False}, {"enable_thinking": False}, {"enable_thinking": True},
    {"thinking": True, "reasoning_effort": "high", "date_string": "01 Feb 2025"},
    {"tools_in_user_message": False, "builtin_tools": ["code_interpreter"], "custom_tools": None,
     "documents": [{"title": "T", "text": "Doc."}]},
]
ALL_CHATS = [chat | flags for chat in CHATS + MORE_CHATS for flags in FLAGS if not flags.keys() & chat.keys()]
