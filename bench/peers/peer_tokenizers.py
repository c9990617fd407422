#!/usr/bin/env python3
"""Hugging Face's tokenizers beside `slm bench tokenize`: a child process that answers each line with one.

    {"tokenizer": FILE, "text": FILE, "bytes": N} -> {"version", "ids": [...]}, of the text's first N bytes
    {} -> {"seconds"}: once more, timed

or, to either, {"error": SENTENCE}.
"""
import json
import sys
import time


def answers():
    import tokenizers

    request = yield None
    tokenizer = tokenizers.Tokenizer.from_file(request["tokenizer"])
    with open(request["text"], "rb") as file:
        text = file.read(request["bytes"]).decode()
    answer = {"version": tokenizers.__version__, "ids": tokenizer.encode(text, add_special_tokens=False).ids}
    while True:
        yield answer
        started = time.perf_counter()
        tokenizer.encode(text, add_special_tokens=False)
        answer = {"seconds": time.perf_counter() - started}


def main():
    peer = None
    for line in sys.stdin:
        try:
            if peer is None:
                peer = answers()
                next(peer)
                answer = peer.send(json.loads(line))
            else:
                answer = next(peer)
        except Exception as failure:  # any kind; the answer reports it
            answer = {"error": f"{type(failure).__name__}: {failure}"[:500]}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
