#!/usr/bin/env python3
"""slm template: the prompt and nothing else on standard output, its ids, and clear errors.
usage: template_test.py PROGRAM SOURCE_DIR SCRATCH_DIR"""
import json
import os
import pathlib
import subprocess
import unittest

from program import PAIR, PROGRAM, SCRATCH, SOURCE, ProgramTest

CASES = SOURCE / "tests" / "fixtures" / "templates"
DATA = pathlib.Path(os.environ.get("SLM_TEST_DATA", SOURCE / ".." / "shared" / "data")) / "chat_templates"
HI = [{"role": "user", "content": "Hi"}]


def written(name, content):
    path = SCRATCH / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), newline="")
    return path


def render(*arguments):
    return subprocess.run([PROGRAM, "template", *map(str, arguments)], capture_output=True, timeout=300)


def conversation(case):
    """The arguments of a case."""
    arguments = ["--messages", written("messages.json", case["messages"]), "--date", case.get("date", "2025-03-09T14:05:07")]
    if "tools" in case:
        arguments += ["--tools", written("tools.json", case["tools"])]
    if "kwargs" in case:
        arguments += ["--kwargs", json.dumps(case["kwargs"])]
    for name in ("bos_token", "eos_token"):
        if name in case:
            arguments += ["--" + name.replace("_", "-"), case[name]]
    if case.get("continue_final_message"):
        arguments.append("--continue-final-message")
    elif not case.get("add_generation_prompt", True):
        arguments.append("--no-generation-prompt")
    return arguments


class Template(ProgramTest):
    def prompt(self, *arguments):
        result = render(*arguments)
        self.assertEqual((result.returncode, result.stderr), (0, b""), result.stderr)
        return result.stdout.decode()

    def refused(self, expected, *arguments, status=1):
        result = render(*arguments)
        self.assertEqual((result.returncode, result.stdout), (status, b""))
        self.assertRegex(result.stderr.decode(), expected)

    def test_any_template_with_its_variables(self):
        for case in json.loads((CASES / "micro.json").read_text())[::6]:
            if case.get("rare"):
                continue
            with self.subTest(case["name"]):
                arguments = ["--template", written("t.jinja", case["template"]), "--context", written("c.json", case["context"]),
                             "--date", case.get("date", "2025-03-09T14:05:07")]
                if "expected" in case:
                    self.assertEqual(self.prompt(*arguments), case["expected"])
                else:
                    self.refused(r"chat\.template-", *arguments)

    @unittest.skipUnless(DATA.is_dir(), "SKIPPED: the folder chat_templates is not here (set SLM_TEST_DATA)")
    def test_published_templates(self):
        for case in json.loads((CASES / "templates.json").read_text())[::9]:
            with self.subTest(case["name"]):
                arguments = ["--template", DATA / case["template"], *conversation(case)]
                if "expected" in case:
                    self.assertEqual(self.prompt(*arguments), case["expected"])
                else:
                    self.refused(rf"line {case['error_line']}, column|line {case['error_line'] - 1}, column", *arguments)

    def test_ids(self):
        for case in json.loads((CASES / "ids" / "ids.json").read_text()):
            if case["tokenizer"] not in ("chatml", "llama3"):
                continue
            with self.subTest(case["name"]):
                arguments = ["--model", CASES / "ids" / case["tokenizer"], *conversation(case)]
                self.assertEqual(self.prompt(*arguments), case["text"])
                self.assertEqual(json.loads(self.prompt(*arguments, "--ids")), case["ids"])

    def test_names_keep_their_order(self):
        arguments = {"z": [1, {"b": 1, "a": "x"}], "a": 2.0}
        call = {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": arguments}}]}
        tool = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"b": 1, "a": {"d": 1, "c": 2}}}}
        x = {"z": {"c": 1, "b": {}}, "a": []}
        own = ["--template", written("own.jinja", "{{ [messages, tools, x]|tojson }}")]
        given = ["--messages", written("calls.json", [call]), "--tools", written("tools.json", [tool])]
        self.assertEqual(self.prompt(*own, *given, "--kwargs", json.dumps({"x": x})), json.dumps([[call], [tool], x]))
        context = {"messages": [call], "tools": [tool], "x": x}
        self.assertEqual(self.prompt(*own, "--context", written("c.json", context)), json.dumps([[call], [tool], x]))

    def test_templates_by_name_and_wrong_usage(self):
        messages = ["--messages", written("hi.json", HI)]
        self.assertEqual(self.prompt("--model", PAIR / "target", "--template", "plain", *messages), "Hi\n")
        self.refused("chat.unrecognised", "--model", PAIR / "target", *messages)
        self.refused("chat.unknown-template", "--model", PAIR / "target", "--template", "lama", *messages)
        own = ["--template", written("own.jinja", "a\n{{ raise_exception('only ' + messages[0].role) }}")]
        self.refused("line 2, column 4: it refuses: only user", *own, *messages)
        self.refused("cli.template-usage", *messages)
        self.refused("cli.template-usage", *own)
        self.refused("cli.template-usage", *own, *messages, "--ids")
        self.refused("cli.template-usage", *own, *messages, "--context", written("c.json", {}))
        self.refused("chat.bad-date", *own, *messages, "--date", "2025-02-30")
        self.refused("json.malformed", *own, "--messages", written("torn.json", "["))
        self.refused("chat.bad-message", *own, "--messages", written("object.json", {}))
        self.refused("chat.bad-options", *own, *messages, "--kwargs", "[]")
        self.refused("cli", *own, "--messages", SCRATCH / "absent.json")


if __name__ == "__main__":
    unittest.main(argv=["template_test.py"])
