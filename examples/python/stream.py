#!/usr/bin/env python3
"""Continues a text piece by piece, and answers with JSON that a schema describes.
usage: stream.py MODEL PROMPT"""
import sys

import slm

SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 24}, "count": {"type": "integer", "maximum": 99}},
          "required": ["name", "count"], "additionalProperties": False}


def main(path, prompt):
    model = slm.Model(path)
    print(prompt, end="")
    for text in model.stream(prompt, max_tokens=48):
        print(text, end="", flush=True)
    print("\n---")
    print(model.generate("# JSON: ", schema=SCHEMA))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except slm.Error as error:
        sys.exit(str(error))
