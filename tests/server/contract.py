"""schemathesis over /openapi.json of a server on the bundled model: all checks, no server error. Not part
of the test suite; the first line says which version runs.

    python3 -m venv /tmp/clients && /tmp/clients/bin/pip install schemathesis
    NANOVLLM_PROGRAM=build/release/nanovllm /tmp/clients/bin/python tests/server/contract.py [EXAMPLES]
"""

import json
import os
import subprocess
import sys
import tempfile

from scripted_model import TEMPLATE
from server_fixture import Server

EXAMPLES = sys.argv[1] if len(sys.argv) > 1 else "100"
TOOL = os.path.join(os.path.dirname(sys.executable), "schemathesis")


def shorten(schema):
    """No text, list or object of any size: the prompt is to fit the context."""
    if isinstance(schema, list):
        for item in schema:
            shorten(item)
    elif isinstance(schema, dict):
        kind = schema.get("type")
        if kind == "string":
            schema.setdefault("maxLength", 100)
        elif kind == "array":
            schema["maxItems"] = 2
        elif kind == "object" and "$ref" not in schema:
            schema.update({"additionalProperties": False} if "properties" in schema else {"maxProperties": 0})
        for item in schema.values():
            shorten(item)


def narrow(document):
    """What no schema says: the model's vocabulary and context, and members that need or exclude another."""
    schemas = document["components"]["schemas"]
    schemas["TokenId"]["maximum"] = 4095
    for name in ("Message", "Tool"):
        shorten(schemas[name])
    shorten(schemas["AnthropicChat"]["properties"])
    for name in ("messages", "tools"):
        schemas["Chat"]["properties"][name]["maxItems"] = 2
    schemas["Prompt"]["oneOf"][2]["maxItems"] = schemas["Prompt"]["oneOf"][3]["maxItems"] = 2
    schemas["Sampling"]["properties"]["logit_bias"]["propertyNames"]["pattern"] = "^(0|[1-9][0-9]{0,2})$"
    schemas["Sampling"]["properties"].update(model={"enum": ["tiny-qwen3", None]}, min_tokens={"enum": [0, None]},
                                             stream_options={"type": "null"})
    for name in ("top_p", "repetition_penalty"):  # a float above 0
        schemas["Sampling"]["properties"][name] = {"type": "number", "minimum": 1e-6, "maximum": 1}
    for path in ("/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages"):
        own = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]["allOf"][-1]
        length = "max_output_tokens" if path == "/v1/responses" else "max_tokens"
        own["properties"][length] = {"enum": [1, 2]}
        own["required"] = sorted({*own.get("required", []), length})
        for name in ("best_of", "top_logprobs", "prompt_logprobs", "max_completion_tokens", "tool_choice",
                     "logprob_token_ids", "n_predict",
                     "add_generation_prompt", "continue_final_message"):
            if name in own["properties"]:
                own["properties"][name] = {"type": "null"}
    return document


def check(folder, change, server_flags, *flags):
    """schemathesis over a server's own document, changed: its exit status, or 1 where the server failed."""
    server = Server(*server_flags)
    path = os.path.join(folder, "openapi.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(change(server.get("/openapi.json")[1]), file)
    code = subprocess.run([TOOL, "run", path, "--url", f"http://127.0.0.1:{server.port}", "--max-examples", EXAMPLES,
                           "--request-timeout", "30", "--generation-allow-x00", "false", *flags], cwd=folder,
                          check=False).returncode
    fault = server.stop()
    print(fault or "the server ended well")
    return 1 if fault else code


def main():
    if not os.path.exists(TOOL):
        sys.exit("schemathesis is not installed beside this Python")
    print(subprocess.run([TOOL, "--version"], capture_output=True, text=True, check=True).stdout.strip(), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        template = os.path.join(folder, "template.jinja")
        with open(template, "w", encoding="utf-8") as file:
            file.write(TEMPLATE)
        flags = ("--log", "none", "--chat-template", template)
        # The document as it is: all checks but the one that what it allows is always answered. Answers that
        # name no length end soon.
        codes = [check(folder, lambda document: document, (*flags, "--max-model-len", "512"), "--checks", "all",
                       "--exclude-checks", "positive_data_acceptance"),
                 check(folder, narrow, flags, "--checks", "positive_data_acceptance,not_a_server_error", "--mode",
                       "positive")]
    sys.exit(max(codes))


if __name__ == "__main__":
    main()
