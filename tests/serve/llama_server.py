#!/usr/bin/env python3
"""`slm serve` with the arguments of llama.cpp's llama-server, for llama.cpp's own tests.
environment: SLM_PROGRAM: the program slm; SLM_STORIES: the model in place of stories260K; SLM_CONTEXT: its largest context"""
import json
import os
import sys
import tempfile
import time

CHATML = ("{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
          "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
LLAMA_3 = ("{% for message in messages %}<|start_header_id|>{{ message.role }}<|end_header_id|>\n\n{{ message.content }}<|eot_id|>"
           "{% endfor %}{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}")
NAMED = {"chatml": CHATML, "llama3": LLAMA_3}  # llama-server's own templates; it takes ChatML for models without one
FLAGS = {"--offline", "--embedding", "--cont-batching", "--no-slots", "--slots", "--metrics", "--kv-unified", "--swa-full", "--jinja",
         "--no-jinja", "--no-mmproj", "--no-cache-idle-slots", "--verbose"}
# Options without a counterpart in slm: the server does not start.
MISSING = {"--reranking", "--models-dir", "--models-preset", "--models-max", "--no-models-autoload", "--slot-save-path", "--lora",
           "--context-shift", "--spec-synth-len", "--spec-synth-rates", "--mmproj-url", "--media-path", "--sleep-idle-seconds",
           "--ui-mcp-proxy", "--tools", "--tools-runtime", "--mcp-servers-config", "--mcp-servers-json", "--grp-attn-n", "--model-url",
           "--model-draft", "--no-ui"}


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


def translate(options):
    model = options.get("--hf-repo", "")
    if "stories260K" not in model or "infill" in model or options.get("--hf-file"):
        sys.exit(f"this model is not here: {model} {options.get('--hf-file', '')}")
    slots = int(options.get("--parallel", 4))
    context = int(options.get("--ctx-size", 0))
    if "--kv-unified" not in options:
        context //= slots
    most = int(os.environ["SLM_CONTEXT"])
    arguments = ["serve", "--target", os.environ["SLM_STORIES"], "--port", options["--port"], "--host", options["--host"].split(",")[0],
                 "--any-model-name", "--max-running", str(slots), "--context", str(min(context or most, most)), "--threads", "1"]
    for name in sorted(options.get("--alias", "").split(",")):
        arguments += ["--served-model-name", name] if name else []
    fields = {"temperature": options.get("--temp"), "seed": options.get("--seed"), "max_tokens": options.get("--n-predict"),
              "pooling": options.get("--pooling"), "reasoning_format": options.get("--reasoning-format")}
    for name, value in fields.items():
        arguments += ["--default", f"{name}={value}"] if value not in (None, "-1") else []
    if "--api-key" in options:
        arguments += ["--api-key-file", file_of(options["--api-key"] + "\n")]
    form = options.get("--chat-template", "chatml")
    arguments += ["--chat-template", options.get("--chat-template-file") or file_of(NAMED.get(form, form))]
    variables = {"enable_thinking": options.get("--reasoning") != "off",  # llama-server sets these
                 "date_string": time.strftime("%d %b %Y"), "datetime": time.strftime("%b %d %Y")}
    arguments += ["--chat-template-kwargs", json.dumps(variables)]
    return arguments


if __name__ == "__main__":
    program = os.environ["SLM_PROGRAM"]
    os.execv(program, [program, *translate(read(sys.argv[1:]))])
