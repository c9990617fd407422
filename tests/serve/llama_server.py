#!/usr/bin/env python3
"""`slm serve` with the arguments of llama.cpp's llama-server, for llama.cpp's own tests.
environment: SLM_PROGRAM: the program slm; SLM_STORIES: the model in place of stories260K; SLM_CONTEXT: its largest context"""
import json
import os
import sys
import tempfile
import time

# llama-server's own templates. It takes ChatML for models without one.
CHATML = ("{{ bos_token }}{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
          "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
LLAMA_3 = ("{{ bos_token }}{% for message in messages %}<|start_header_id|>{{ message.role }}<|end_header_id|>\n\n"
           "{{ message.content }}<|eot_id|>{% endfor %}"
           "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}")
COMMAND_R = ("{% for message in messages %}<|START_OF_TURN_TOKEN|><|{{ 'CHATBOT' if message.role == 'assistant' else message.role|upper }}"
             "_TOKEN|>{{ message.content }}<|END_OF_TURN_TOKEN|>{% endfor %}"
             "{% if add_generation_prompt %}<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>{% endif %}")
NAMED = {"chatml": CHATML, "llama3": LLAMA_3, "command-r": COMMAND_R}
FLAGS = {"--offline", "--embedding", "--cont-batching", "--no-slots", "--slots", "--metrics", "--kv-unified", "--swa-full", "--jinja",
         "--no-jinja", "--no-mmproj", "--no-cache-idle-slots", "--no-ui", "--reranking", "--backend_sampling", "--verbose"}
# Options without a counterpart in slm: the server does not start.
MISSING = {"--lora", "--context-shift", "--spec-synth-len", "--spec-synth-rates", "--mmproj-url", "--sleep-idle-seconds",
           "--models-dir", "--models-preset", "--models-max", "--no-models-autoload", "--ui-mcp-proxy", "--tools", "--tools-runtime",
           "--mcp-servers-config", "--mcp-servers-json", "--grp-attn-n", "--model-url"}


def read(arguments):
    options = {}
    rest = iter(arguments)
    for name in rest:
        if name in MISSING:
            sys.exit(f"slm serve has nothing like {name}")
        options[name] = True if name in FLAGS else next(rest)
    return options


def file_of(text):
    with tempfile.NamedTemporaryFile("w", delete=False) as file:
        file.write(text)
    return file.name


def model_of(options):
    """Other models than stories260K are replaced by it, so that tests of texts, counts and vectors of these fail."""
    if "--hf-repo" not in options:  # a server of several models
        names = ["ggml-org/tinygemma3-GGUF:Q8_0", "ggml-org/test-model-stories260K:F32", "ggml-org/test-model-stories260K-infill:F32"]
        return [part for name in names for part in ("--model", f"{name}={os.environ['SLM_STORIES']}")] + ["--cache-memory", "64MiB"]
    arguments = ["--target", os.environ["SLM_STORIES"], "--any-model-name"]
    if "--model-draft" in options:
        arguments += ["--draft", os.environ["SLM_STORIES"], "--draft-length", options["--spec-draft-n-max"]]
    for name in sorted(options.get("--alias", "").split(",")):
        arguments += ["--served-model-name", name] if name else []
    for name in options.get("--tags", "").split(","):
        arguments += ["--tag", name] if name else []
    return arguments


def translate(options):
    slots = int(options.get("--parallel", 4))
    context = int(options.get("--ctx-size", 0))
    if "--kv-unified" not in options:
        context //= slots
    most = int(os.environ["SLM_CONTEXT"])
    arguments = ["serve", *model_of(options), "--port", options["--port"], "--host", options["--host"],
                 "--max-running", str(slots), "--context", str(min(context or most, most)), "--threads", "1"]
    fields = {"temperature": options.get("--temp"), "seed": options.get("--seed"), "max_tokens": options.get("--n-predict"),
              "pooling": options.get("--pooling"), "reasoning_format": options.get("--reasoning-format")}
    for name, value in fields.items():
        arguments += ["--default", f"{name}={value}"] if value not in (None, "-1") else []
    if "--api-key" in options:
        arguments += ["--api-key-file", file_of(options["--api-key"] + "\n")]
    arguments += ["--no-page"] if "--no-ui" in options else []
    arguments += ["--no-slots"] if "--no-slots" in options else []
    arguments += [] if "--metrics" in options else ["--no-metrics"]
    arguments += ["--default", "verbose=true"] if "--verbose" in options else []
    arguments += ["--cors-origin", options.get("--cors-origins", "*"), "--cors-credentials", "--prefill-assistant", "--tools-as-text"]
    arguments += ["--prompt-rows", options["--batch-size"]] if "--batch-size" in options else []
    if "--slot-save-path" in options:
        os.makedirs(options["--slot-save-path"], exist_ok=True)
        arguments += ["--slot-save-path", options["--slot-save-path"]]
    form = options.get("--chat-template", "chatml")
    arguments += ["--chat-template", options.get("--chat-template-file") or file_of(NAMED.get(form, form))]
    variables = {"enable_thinking": options.get("--reasoning") != "off",  # llama-server sets these
                 "date_string": time.strftime("%d %b %Y"), "datetime": time.strftime("%b %d %Y"), "functions": ""}
    arguments += ["--chat-template-kwargs", json.dumps(variables)]
    return arguments


if __name__ == "__main__":
    program = os.environ["SLM_PROGRAM"]
    os.execv(program, [program, *translate(read(sys.argv[1:]))])
