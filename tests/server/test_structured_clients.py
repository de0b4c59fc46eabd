"""The programs of examples/structured: published clients ask this server for answers of a form, by the calls of
their own documentation. Debian has no packages of them. What is not installed is skipped:

    python3 -m venv /tmp/clients && /tmp/clients/bin/pip install openai instructor langchain-openai "pydantic-ai-slim[openai]"
    NANOVLLM_PROGRAM=build/release/nanovllm /tmp/clients/bin/python tests/server/test_structured_clients.py
"""

import importlib.util
import os
import subprocess
import sys
import unittest

from server_fixture import ROOT, ServerTest, main

SKIPPED = 77  # as CTest is told
EXAMPLES = {"openai": "with_openai.py", "instructor": "with_instructor.py",
            "pydantic_ai": "with_pydantic_ai.py", "langchain_openai": "with_langchain.py"}


class Clients(ServerTest):
    flags = ("--log", "none")

    def run_example(self, package):
        if not importlib.util.find_spec(package):
            raise unittest.SkipTest(package + " is not installed")
        done = subprocess.run([sys.executable, "-B", f"examples/structured/{EXAMPLES[package]}",
                               f"http://127.0.0.1:{self.server.port}/v1"],
                              cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        lines = done.stdout.splitlines()
        self.assertTrue(lines)
        for line in lines:
            self.assertRegex(line, r"^(Person\()?name='Rosa',? age=62,? place='mountain'\)?$")

    def test_openai(self):
        self.run_example("openai")

    def test_instructor(self):
        self.run_example("instructor")

    def test_pydantic_ai(self):
        self.run_example("pydantic_ai")

    def test_langchain(self):
        self.run_example("langchain_openai")

    def test_every_example_is_here(self):
        self.assertEqual(sorted(os.listdir(os.path.join(ROOT, "examples/structured"))), sorted(EXAMPLES.values()))


if __name__ == "__main__":
    if not any(importlib.util.find_spec(package) for package in EXAMPLES):
        print("note: none of openai, instructor, pydantic-ai and langchain-openai is installed: their answers of a "
              "form are not tested")
        sys.exit(SKIPPED)
    main()
