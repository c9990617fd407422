#!/usr/bin/env python3
"""Continues a prompt through libslm.so, with Python's ctypes only. With a JSON schema, the answer fits it.
usage: generate.py LIBSLM MODEL PROMPT [SCHEMA]"""
import ctypes as c
import sys

VOID, SIZE, I32, F32 = c.c_void_p, c.c_size_t, c.c_int32, c.c_float
NEW_TOKENS, JSON_SCHEMA = 48, 1


class Request(c.Structure):  # slm_request
    _fields_ = [("size", SIZE), ("prompt", VOID), ("prompt_count", SIZE), ("stop_tokens", VOID), ("stop_count", SIZE),
                ("constraint", VOID), ("adapter", VOID), ("draft_adapter", VOID), ("seed", c.c_uint64), ("tenant", c.c_uint64),
                ("max_new_tokens", I32), ("temperature", F32), ("top_k", I32), ("top_p", F32), ("min_p", F32),
                ("repetition_penalty", F32), ("presence_penalty", F32), ("frequency_penalty", F32), ("ignore_end_tokens", I32),
                ("logprobs", I32), ("top_logprobs", I32), ("pooling", I32)]


class Generated(c.Structure):  # slm_generated
    _fields_ = [("size", SIZE), ("token", I32), ("drafted", I32), ("position", c.c_int64), ("logprob", c.c_double),
                ("top", VOID), ("top_count", SIZE)]


OnToken = c.CFUNCTYPE(c.c_int, VOID, c.POINTER(Generated))


def library(path):
    """The functions that this program uses. A failed call raises its message."""
    slm = c.CDLL(path)
    slm.slm_error_message.restype = c.c_char_p

    def check(status, *_):
        if status != 0:
            raise RuntimeError(slm.slm_error_message().decode())

    for name, arguments in {
        "model_load": [c.c_char_p, VOID, VOID],
        "tokenizer_load": [c.c_char_p, VOID],
        "tokenizer_encode": [VOID, c.c_char_p, SIZE, I32, VOID, VOID],
        "stream_create": [VOID, VOID, VOID, SIZE, VOID, SIZE, VOID],
        "stream_push": [VOID, I32, VOID, VOID, VOID],
        "stream_finish": [VOID, VOID, VOID],
        "constraint_create": [VOID, I32, c.c_char_p, SIZE, VOID],
        "generator_create": [VOID, VOID, VOID],
        "generate": [VOID, VOID, OnToken, VOID, VOID],
    }.items():
        function = getattr(slm, "slm_" + name)
        function.argtypes, function.restype = arguments, check
    for name in ("model", "tokenizer", "stream", "constraint", "generator"):
        getattr(slm, f"slm_{name}_free").argtypes = [VOID]
    slm.slm_free.argtypes = [VOID]
    return slm


def main(path, model_path, prompt, schema=None):
    slm = library(path)
    model, tokenizer, stream, constraint, generator, tokens = (VOID() for _ in range(6))
    count, text, size, stopped = SIZE(), VOID(), SIZE(), I32()
    words = prompt.encode()
    slm.slm_model_load(model_path.encode(), None, c.byref(model))
    slm.slm_tokenizer_load(model_path.encode(), c.byref(tokenizer))
    slm.slm_tokenizer_encode(tokenizer, words, len(words), 1, c.byref(tokens), c.byref(count))
    slm.slm_stream_create(tokenizer, None, tokens, count, None, 0, c.byref(stream))
    if schema:
        slm.slm_constraint_create(tokenizer, JSON_SCHEMA, schema.encode(), len(schema.encode()), c.byref(constraint))

    def show():
        print(c.string_at(text, size.value).decode(), end="", flush=True)

    @OnToken
    def on_token(_, token):
        slm.slm_stream_push(stream, token.contents.token, c.byref(text), c.byref(size), c.byref(stopped))
        show()
        return stopped.value

    print(prompt, end="")
    slm.slm_generator_create(model, None, c.byref(generator))
    request = Request(size=c.sizeof(Request), prompt=tokens, prompt_count=count, constraint=constraint,
                      max_new_tokens=NEW_TOKENS)
    slm.slm_generate(generator, c.byref(request), on_token, None, None)  # other Python threads run meanwhile
    slm.slm_stream_finish(stream, c.byref(text), c.byref(size))
    show()
    print()
    slm.slm_free(tokens)
    for name, handle in (("generator", generator), ("stream", stream), ("constraint", constraint), ("tokenizer", tokenizer),
                         ("model", model)):
        getattr(slm, f"slm_{name}_free")(handle)


if __name__ == "__main__":
    if not 4 <= len(sys.argv) <= 5:
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except RuntimeError as error:
        sys.exit(str(error))
