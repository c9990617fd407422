#!/usr/bin/env python3
"""An agent over `slm serve`: the model calls two functions of this program until it can answer.
usage: agent.py QUESTION [URL]        e.g. agent.py "What is 17 + 25?" http://127.0.0.1:8080/v1"""
import json
import sys
import time

import openai

NUMBER = {"type": "integer", "minimum": 0, "maximum": 9999}
TOOLS = {
    "add": (lambda a, b: a + b, "Adds two numbers.", {"a": NUMBER, "b": NUMBER}),
    "now": (lambda: f"{time.time():.0f} seconds since 1970", "The time.", {}),
}


def described(name):
    _, description, properties = TOOLS[name]
    schema = {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


question, url = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "http://127.0.0.1:8080/v1"
client = openai.OpenAI(base_url=url, api_key="any")
model = client.models.list().data[0].id
messages = [{"role": "user", "content": question}]
for round in range(3):  # the model looks something up before it answers
    message = client.chat.completions.create(
        model=model, messages=messages, tools=[described(name) for name in TOOLS], temperature=0, max_tokens=256,
        tool_choice="auto" if round else "required").choices[0].message
    messages.append(message.model_dump(exclude_none=True))
    for call in message.tool_calls or []:
        result = str(TOOLS[call.function.name][0](**json.loads(call.function.arguments)))
        print(f"calls {call.function.name} {call.function.arguments}: {result}")
        messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    if not message.tool_calls:
        print(message.content)
        break
