"""Both sides of a comparison: Jinja2 set up as transformers sets it up (utils/chat_template_utils.py), and ours.

Importing this ends the program with 77 (skipped) where no Python with jinja2 is found."""
import copy
import datetime
import functools
import json
import os
import subprocess
import sys

try:
    import jinja2
except ImportError:
    # Debian's package belongs to Debian's own interpreter, which may not be the first in PATH.
    system = "/usr/bin/python3"
    if os.path.exists(system) and not os.environ.get("NANOVLLM_TEST_REEXEC"):
        os.environ["NANOVLLM_TEST_REEXEC"] = "1"
        os.execv(system, [system] + sys.argv)
    print("skipped: no Python with jinja2 (Debian: python3-jinja2)")
    sys.exit(77)
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = "2026-01-02T03:04:05"


class Generation(jinja2.ext.Extension):
    """{% generation %}: renders its body."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_render")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _render(self, caller):
        return caller()


def make_environment(now=NOW):
    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(
            value,
            ensure_ascii=ensure_ascii,
            indent=indent,
            separators=separators,
            sort_keys=sort_keys,
        )

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    time = datetime.datetime.fromisoformat(now)
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda format: time.strftime(format)
    return environment


@functools.lru_cache(maxsize=1)  # a template is compiled once for all the variables that it is rendered over
def compile_source(environment, source):
    return environment.from_string(source)


def render(environment, source, variables):
    """(text, None) or (None, reason)."""
    variables = copy.deepcopy(variables)  # some filters (indent of a list) change what they are given
    try:
        return compile_source(environment, source).render(**variables), None
    except Exception as error:  # every exception is a refusal of the template or of its input
        return None, f"{type(error).__name__}: {error}"


def run_ours(program, renders):
    """The {"text"} or {"error"} that `program`, jinja_lines, answers to each (source, variables)."""
    lines = "".join(json.dumps({"template": s, "variables": v, "now": NOW}) + "\n" for s, v in renders)
    done = subprocess.run([program], input=lines.encode(), stdout=subprocess.PIPE, timeout=600)
    if done.returncode != 0:
        sys.exit(f"{program} ended with {done.returncode}")
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(results) == len(renders)
    return results
