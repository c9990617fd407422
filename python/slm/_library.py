"""libslm by ctypes: the structs and functions of slm.h. Each call releases Python's lock."""
import ctypes as c
import os
import pathlib
import sys

ABI = 1
VOID, SIZE, TEXT, I32, I64, F32, F64 = c.c_void_p, c.c_size_t, c.c_char_p, c.c_int32, c.c_int64, c.c_float, c.c_double
TOKENS = c.POINTER(I32)
Progress = c.CFUNCTYPE(c.c_int, VOID, F64)


class Struct(c.Structure):
    """A struct of slm.h: `size` is set, other members are zero unless given."""

    def __init__(self, **members):
        super().__init__(size=c.sizeof(self), **members)


class LoadOptions(Struct):
    _fields_ = [("size", SIZE), ("context", I32), ("cache_format", I32), ("threads", I32), ("head_tokens", I32), ("bits", I32),
                ("reserved", I32), ("progress", Progress), ("user", VOID), ("executor", VOID)]


class ModelInfo(Struct):
    _fields_ = [("size", SIZE), ("vocab", I32), ("context", I32), ("headless", I32), ("reserved", I32), ("step_bytes", I64)]


class TemplateOptions(Struct):
    _fields_ = [("size", SIZE), ("tools", TEXT), ("documents", TEXT), ("variables", TEXT), ("no_generation_prompt", I32),
                ("continue_final_message", I32)]


class Request(Struct):
    _fields_ = [("size", SIZE), ("prompt", VOID), ("prompt_count", SIZE), ("stop_tokens", VOID), ("stop_count", SIZE),
                ("constraint", VOID), ("adapter", VOID), ("draft_adapter", VOID), ("seed", c.c_uint64), ("tenant", c.c_uint64),
                ("max_new_tokens", I32), ("temperature", F32), ("top_k", I32), ("top_p", F32), ("min_p", F32),
                ("repetition_penalty", F32), ("presence_penalty", F32), ("frequency_penalty", F32), ("ignore_end_tokens", I32),
                ("logprobs", I32), ("top_logprobs", I32), ("pooling", I32)]


class Generated(Struct):
    _fields_ = [("size", SIZE), ("token", I32), ("drafted", I32), ("position", I64), ("logprob", F64), ("top", VOID),
                ("top_count", SIZE)]


class Stats(Struct):
    _fields_ = [("size", SIZE), ("finish_reason", I32), ("reserved", I32), ("prompt_tokens", I64), ("reused_tokens", I64),
                ("new_tokens", I64), ("steps", I64), ("drafted", I64), ("accepted", I64), ("prompt_seconds", F64),
                ("total_seconds", F64)]


class Drafting(Struct):
    _fields_ = [("size", SIZE), ("model", VOID), ("no_lookup", I32), ("no_forced_text", I32), ("draft_tokens", I32),
                ("reserved", I32)]


class EngineOptions(Struct):
    _fields_ = [("size", SIZE), ("drafting", VOID), ("cache_memory", c.c_uint64), ("max_requests", SIZE), ("max_running", SIZE),
                ("max_unread", SIZE), ("step_seconds", F64), ("no_shared_prefixes", I32), ("reserved", I32)]


FUNCTIONS = {
    "model_load": [TEXT, VOID, VOID],
    "model_get_info": [VOID, VOID],
    "tokenizer_load": [TEXT, VOID],
    "tokenizer_encode": [VOID, TEXT, SIZE, I32, VOID, VOID],
    "tokenizer_decode": [VOID, VOID, SIZE, I32, VOID, VOID],
    "template_load": [TEXT, TEXT, VOID],
    "template_encode": [VOID, VOID, TEXT, VOID, VOID, VOID],
    "template_stop_tokens": [VOID, VOID, VOID, VOID],
    "stream_create": [VOID, VOID, VOID, SIZE, VOID, SIZE, VOID],
    "stream_push": [VOID, I32, VOID, VOID, VOID],
    "stream_finish": [VOID, VOID, VOID],
    "constraint_create": [VOID, I32, TEXT, SIZE, VOID],
    "constraint_choice": [VOID, VOID, SIZE, VOID],
    "embed": [VOID, VOID, SIZE, I32, VOID, VOID],
    "engine_create": [VOID, VOID, VOID],
    "engine_submit": [VOID, VOID, VOID, VOID],
    "engine_step": [VOID, VOID],
    "answer_poll": [VOID, VOID, VOID],
    "answer_stats": [VOID, VOID],
    "answer_cancel": [VOID],
}
HANDLES = ("model", "tokenizer", "template", "stream", "constraint", "engine", "answer")


class Error(Exception):
    def __init__(self, id, message):
        super().__init__(message)
        self.id = id


def check(status):
    if status != 0:
        raise Error(library.slm_error_id().decode(), library.slm_error_message().decode(errors="replace"))


def load():
    suffix = {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")
    path = os.environ.get("SLM_LIBRARY") or pathlib.Path(__file__).with_name("libslm" + suffix)
    loaded = c.CDLL(str(path))
    if loaded.slm_abi() != ABI:
        raise ImportError(f"{path}: expected the ABI {ABI} of libslm, found {loaded.slm_abi()}")
    for name in ("version", "error_id", "error_message"):
        getattr(loaded, "slm_" + name).restype = TEXT
    for name, arguments in FUNCTIONS.items():
        function = getattr(loaded, "slm_" + name)
        function.argtypes, function.restype = arguments, check
    for function in [loaded.slm_free, *(getattr(loaded, f"slm_{name}_free") for name in HANDLES)]:
        function.argtypes, function.restype = [VOID], None
    return loaded


library = load()


class Handle:
    """A handle of this kind that a function makes. It is an argument of the library's functions."""

    def __init__(self, kind, function, *arguments):
        self.free = getattr(library, f"slm_{kind}_free")
        self._as_parameter_ = VOID()
        function(*arguments, c.byref(self._as_parameter_))

    def __del__(self):
        self.free(self._as_parameter_)


def array_of(function, type, *arguments):
    """The content of the array that a function makes."""
    values, count = c.POINTER(type)(), SIZE()
    function(*arguments, c.byref(values), c.byref(count))
    try:
        return values[:count.value]
    finally:
        library.slm_free(values)
