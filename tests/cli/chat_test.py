#!/usr/bin/env python3
"""slm chat: lines through a pipe, keys on a terminal, Ctrl-C during an answer.
usage: chat_test.py PROGRAM SOURCE_DIR SCRATCH_DIR"""
import json
import os
import pathlib
import pty
import select
import shutil
import signal
import subprocess
import sys
import time
import unittest

from tiny_models import sentencepiece

PROGRAM, SOURCE, SCRATCH = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
PAIR = SOURCE / "examples" / "demo_pair"
FIXTURE = SOURCE / "tests" / "fixtures" / "models" / "llama-mha3h"
PLAIN = ["--target", PAIR / "target", "--template", "plain"]
PATIENCE = 60  # time limit of an event, seconds


def command(*arguments):
    return [PROGRAM, "chat", *map(str, arguments)]


def chatml_model():
    """A tiny model whose tokenizer has ChatML's markers, with its template in the folder."""
    folder = SCRATCH / "chatml"
    shutil.copytree(FIXTURE, folder)
    pieces = [chr(code) for code in range(33, 125)] + ["\u0120", "\u010a"]  # ids 0 to 93
    markers = [
        {"id": 94 + i, "content": f"<|im_{name}|>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
        for i, name in enumerate(("start", "end"))
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {
        "version": "1.0",
        "added_tokens": markers,
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": {piece: i for i, piece in enumerate(pieces)}, "merges": []},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    template = "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    template += "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    config = json.loads((folder / "config.json").read_text())
    config["max_position_embeddings"] = 512
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def sentencepiece_model():
    folder = SCRATCH / "sentencepiece"
    shutil.copytree(FIXTURE, folder)
    (folder / "tokenizer.json").write_text(json.dumps(sentencepiece()))
    return folder


class Conversation:
    """A running conversation whose output is read continuously."""

    def __init__(self, *arguments):
        self.process = subprocess.Popen(
            command(*arguments), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
        )
        self.said = {self.process.stdout: b"", self.process.stderr: b""}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            pipe.close()

    def say(self, line):
        self.process.stdin.write(line.encode() + b"\n")

    def wait_until_listening(self):
        """Waits until Ctrl-C is caught (bit 1 of the caught signals) and the first line is read."""
        deadline = time.monotonic() + PATIENCE
        status = pathlib.Path(f"/proc/{self.process.pid}/status")
        while not int(status.read_text().split("SigCgt:")[1].split()[0], 16) & 2:
            if time.monotonic() > deadline:
                raise AssertionError("Ctrl-C is never caught")
            time.sleep(0.02)
        time.sleep(0.4)

    def interrupt(self):
        self.process.send_signal(signal.SIGINT)

    def wait_for(self, holds, what):
        deadline = time.monotonic() + PATIENCE
        while not holds():
            left = deadline - time.monotonic()
            ready = select.select(list(self.said), [], [], max(left, 0))[0]
            chunks = [(pipe, os.read(pipe.fileno(), 4096)) for pipe in ready]
            for pipe, chunk in chunks:
                self.said[pipe] += chunk
            if left <= 0 or all(not chunk for _, chunk in chunks):
                raise AssertionError(f"no {what} in {self.said}")

    def output(self):
        return self.said[self.process.stdout]

    def wait_for_output(self, text):
        self.wait_for(lambda: text in self.output(), repr(text))

    def wait_for_error(self, text, times=1):
        self.wait_for(lambda: self.said[self.process.stderr].count(text) >= times, repr(text))


class Chat(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        shutil.rmtree(SCRATCH, ignore_errors=True)
        SCRATCH.mkdir(parents=True)
        cls.chatml = chatml_model()
        cls.sentencepiece = sentencepiece_model()

    def run_chat(self, lines, *arguments, status=0):
        result = subprocess.run(command(*arguments), input=lines.encode(), capture_output=True, timeout=300)
        self.assertEqual(result.returncode, status, result.stderr)
        return result.stdout.decode(), result.stderr.decode()

    def answers(self, lines, *arguments):
        out, err = self.run_chat(lines, *arguments, "--json")
        self.assertEqual(err, "")
        return [json.loads(line) for line in out.splitlines()]

    def test_one_answer_for_each_line(self):
        answers = self.answers("def add(a, b):\n\n   \nclass Stack:\r\n", *PLAIN, "--max-new-tokens", 24)
        self.assertEqual(len(answers), 2)
        keys = {"text", "ids", "prompt_ids", "reused_tokens", "forgotten_turns", "interrupted", "statistics"}
        for answer in answers:
            self.assertEqual(set(answer), keys)
            self.assertFalse(answer["interrupted"])
            self.assertEqual(len(answer["ids"]), answer["statistics"]["new_tokens"])
        text, _ = self.run_chat("def add(a, b):\nclass Stack:\n", *PLAIN, "--max-new-tokens", 24)
        self.assertEqual(text, "".join(answer["text"] + "\n" for answer in answers))

    def test_a_line_without_its_newline_and_exit(self):
        self.assertEqual(len(self.answers("def f():", *PLAIN, "--max-new-tokens", 4)), 1)
        self.assertEqual(len(self.answers("def f():\n/exit\ndef g():\n", *PLAIN, "--max-new-tokens", 4)), 1)
        self.assertEqual(self.answers("", *PLAIN), [])

    def test_the_kv_cache_is_kept_between_turns(self):
        first, second = self.answers("def add(a, b):\nclass Stack:\n", *PLAIN, "--max-new-tokens", 24)
        self.assertEqual(first["reused_tokens"], 0)
        self.assertGreaterEqual(second["reused_tokens"], len(first["prompt_ids"]))
        # The cache changes nothing: the same prompt from an empty cache gives the same answer.
        prompt = "def add(a, b):\n" + first["text"] + ("" if first["text"].endswith("\n") else "\n") + "class Stack:\n"
        fresh = subprocess.run(
            [PROGRAM, "generate", "--target", PAIR / "target", "--prompt", prompt, "--max-new-tokens", "24", "--json"],
            capture_output=True, timeout=300, check=True,
        )
        self.assertEqual(json.loads(fresh.stdout)["prompt_ids"], second["prompt_ids"])
        self.assertEqual(json.loads(fresh.stdout)["ids"], second["ids"])

    def test_speculation_changes_no_answer(self):
        lines = "def add(a, b):\nclass Stack:\nimport os\n"
        for sampling in ([], ["--temperature", "0.8", "--seed", "5"]):
            plain = self.answers(lines, *PLAIN, "--max-new-tokens", 40, *sampling)
            for drafting in (["--draft", PAIR / "draft", "--draft-length", 4], ["--drafter", "lookup", "--draft-length", 4]):
                with self.subTest(sampling=sampling, drafting=drafting):
                    drafted = self.answers(lines, *PLAIN, "--max-new-tokens", 40, *sampling, *drafting)
                    self.assertEqual([a["ids"] for a in drafted], [a["ids"] for a in plain])
                    self.assertGreater(sum(a["statistics"]["drafted"] for a in drafted), 0)

    def test_the_oldest_turns_are_dropped(self):
        lines = "".join(f"def function_{i}(a, b):\n" for i in range(8))
        answers = self.answers(lines, *PLAIN, "--max-new-tokens", 300, "--system", "# a module")
        self.assertEqual(answers[0]["forgotten_turns"], 0)
        self.assertGreater(sum(answer["forgotten_turns"] for answer in answers), 0)
        for answer in answers:
            self.assertLessEqual(len(answer["prompt_ids"]) + 256, 1024)
            self.assertEqual(answer["prompt_ids"][:3], answers[0]["prompt_ids"][:3])  # the system message stays
        _, err = self.run_chat(lines, *PLAIN, "--max-new-tokens", 300, "--system", "# a module")
        self.assertIn("forgotten", err)

    def test_a_message_that_never_fits(self):
        out, err = self.run_chat("x = 1; " * 1000 + "\n", *PLAIN, status=1)
        self.assertEqual(out, "")
        self.assertRegex(err, r"has \d+ tokens.*context of 1024.*cli.long-message")

    def test_the_text_of_an_answer_begins_where_the_prompt_ends(self):
        def decoded(ids):
            back = subprocess.run([PROGRAM, "tokenize", self.sentencepiece, "--decode"], input=json.dumps(ids).encode(),
                                  capture_output=True, timeout=300, check=True)
            return back.stdout.decode()

        for form, space in (("plain", ""), ("llama-2", " "), ("mistral-v0.1", " "), ("zephyr", "")):
            answers = self.answers("hello world\nt\nfff\nab c\n", "--target", self.sentencepiece, "--template", form, "--max-new-tokens", 20)
            begins_with_space = 0
            for answer in answers:
                with self.subTest(form=form, answer=answer):
                    before = decoded(answer["prompt_ids"])
                    whole = decoded(answer["prompt_ids"] + answer["ids"])
                    self.assertTrue(whole.startswith(before))
                    added = whole[len(before):]
                    self.assertEqual(answer["text"], added.removeprefix(space))
                    begins_with_space += added.startswith(" ")
            self.assertGreater(begins_with_space, 0, form)

    def test_stop_strings(self):
        whole = self.answers("def add(a, b):\n", *PLAIN, "--max-new-tokens", 40)[0]["text"]
        cut = self.answers("def add(a, b):\n", *PLAIN, "--max-new-tokens", 40, "--stop", "function")[0]
        self.assertEqual(cut["text"], whole[: whole.index("function")])
        self.assertEqual(cut["statistics"]["finish_reason"], "stop_string")
        self.assertFalse(cut["interrupted"])

    def test_the_folder_has_its_template_and_messages_contain_no_marker(self):
        tokens = {piece: i for i, piece in enumerate([chr(code) for code in range(33, 125)] + [" ", "\n"])}

        def ids(text):
            return [tokens[character] for character in text]

        start, end = 94, 95
        answer = self.answers("hi<|im_end|>\n", "--target", self.chatml, "--max-new-tokens", 4, "--system", "s<|im_start|>")[0]
        expected = [start, *ids("system\ns<|im_start|>"), end, *ids("\n"), start, *ids("user\nhi<|im_end|>"), end, *ids("\n"), start, *ids("assistant\n")]
        self.assertEqual(answer["prompt_ids"], expected)

    def test_the_template_of_the_folder_is_rendered_and_a_guess_is_reported(self):
        changed = SCRATCH / "changed"
        shutil.copytree(self.chatml, changed)
        config = json.loads((changed / "tokenizer_config.json").read_text())
        source = config["chat_template"]
        config["chat_template"] = source.replace("message['content']", "message['content'] | nope")
        (changed / "tokenizer_config.json").write_text(json.dumps(config))
        _, err = self.run_chat("hi\n", "--target", changed, status=1)
        self.assertRegex(err, r"line \d+, column.*no filter named 'nope'.*chat\.template-syntax")
        (changed / "chat_template.jinja").write_bytes(source.replace("\n", "\r\n").encode() + b"\r\n")
        prompts = [self.answers("hi\n", "--target", folder, "--max-new-tokens", 2)[0]["prompt_ids"] for folder in (changed, self.chatml)]
        self.assertEqual(prompts[0], prompts[1])

        guessed = SCRATCH / "TinyLlama-Chat"
        shutil.copytree(self.sentencepiece, guessed)
        out, err = self.run_chat("hello world\n", "--target", guessed, "--max-new-tokens", 2)
        self.assertRegex(err, "zephyr is guessed.*--chat-template")
        said = ["--target", guessed, "--template", "zephyr", "--max-new-tokens", 2]
        self.assertEqual(self.run_chat("hello world\n", *said), (out, ""))

    def test_wrong_usage(self):
        def refused(expected, status, *arguments):
            out, err = self.run_chat("x\n", *arguments, status=status)
            self.assertEqual(out, "")
            self.assertRegex(err, expected)

        refused("no chat template.*plain.*chat.unrecognised", 1, "--target", PAIR / "target")
        refused("needs the token.*chat.missing-token", 1, "--target", PAIR / "target", "--template", "chatml")
        refused("expected a folder or a GGUF file", 1, "--target", SCRATCH / "absent", "--template", "plain")
        refused("no file 'lama'.*qwen-3.*chat.unknown-template", 1, "--target", PAIR / "target", "--template", "lama")
        refused(".", 2, "--template", "plain")

    # ---- Ctrl-C

    # The reference backend is slow, so an answer can be interrupted.
    SLOW = [*PLAIN, "--backend", "reference", "--max-new-tokens", 900]

    def test_interrupt_stops_the_answer_and_not_the_program(self):
        for drafting in ([], ["--draft", PAIR / "draft"]):
            with self.subTest(drafting=drafting), Conversation(*self.SLOW, *drafting) as conversation:
                conversation.say("def add(a, b):")
                conversation.wait_for(lambda: len(conversation.output()) > 8, "answer")
                conversation.interrupt()
                conversation.wait_for_error(b"(stopped)")
                conversation.wait_for(lambda: conversation.output().endswith(b"\n"), "end of the line")
                answered = len(conversation.output())
                self.assertLess(answered, 2000)
                conversation.say("class Stack:")
                conversation.wait_for(lambda: len(conversation.output()) > answered + 8, "second answer")
                conversation.interrupt()
                conversation.wait_for_error(b"(stopped)", times=2)
                conversation.say("/exit")
                self.assertEqual(conversation.process.wait(PATIENCE), 0)

    def test_interrupted_answers_in_json(self):
        with Conversation(*self.SLOW, "--json") as conversation:
            conversation.say("def add(a, b):")
            conversation.wait_until_listening()
            conversation.interrupt()
            conversation.wait_for_output(b"}\n")
            answer = json.loads(conversation.output())
            self.assertTrue(answer["interrupted"])
            self.assertEqual(answer["statistics"]["finish_reason"], "interrupted")
            self.assertLess(len(answer["ids"]), 900)

    def test_a_second_interrupt_at_the_prompt_ends_the_program(self):
        with Conversation(*PLAIN, "--max-new-tokens", 4) as conversation:
            conversation.say("def f():")
            conversation.wait_for_output(b"\n")
            time.sleep(0.2)  # the prompt comes just after the answer's newline
            conversation.interrupt()
            conversation.wait_for_error(b"once more")
            self.assertIsNone(conversation.process.poll())
            conversation.interrupt()
            self.assertEqual(conversation.process.wait(PATIENCE), 0)

    def test_on_a_terminal(self):
        pid, terminal = pty.fork()
        if pid == 0:
            os.execv(PROGRAM, command(*self.SLOW))
        shown = b""

        def read_until(holds):
            nonlocal shown
            deadline = time.monotonic() + PATIENCE
            while not holds():
                self.assertTrue(select.select([terminal], [], [], max(deadline - time.monotonic(), 0))[0], shown)
                shown += os.read(terminal, 4096)

        try:
            read_until(lambda: shown.endswith(b"> "))
            os.write(terminal, b"def add(a, b):\n")
            read_until(lambda: len(shown.split(b"b):\r\n")[-1]) > 8 and b"b):\r\n" in shown)
            os.write(terminal, b"\x03")  # Ctrl-C
            read_until(lambda: b"(stopped)" in shown and shown.endswith(b"> "))
            os.write(terminal, b"x = 1; " * 500 + b"\n")  # too long for the model: reported, and the conversation continues
            read_until(lambda: b"cli.long-message" in shown and shown.endswith(b"> "))
            os.write(terminal, b"\x04")  # Ctrl-D
            status = os.waitpid(pid, 0)[1]
            pid = 0
            self.assertEqual(os.waitstatus_to_exitcode(status), 0)
        finally:
            if pid:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            os.close(terminal)

    def test_output_that_fails(self):
        with open("/dev/full", "wb") as full:
            result = subprocess.run(command(*PLAIN), input=b"x\n", stdout=full, stderr=subprocess.PIPE, timeout=300)
        self.assertEqual(result.returncode, 1)
        self.assertIn(b"could not be written", result.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
