"""Language models on the CPU, through libslm. docs/embedding.md describes the use; __init__.pyi has the types."""
import ctypes as c
import json
import os
import threading
from collections.abc import Mapping

from ._library import (F32, I32, SIZE, TEXT, TOKENS, VOID, Drafting, EngineOptions, Error, Generated, Handle, LoadOptions,
                       ModelInfo, Progress, Request, Stats, TemplateOptions, array_of, library)

__all__ = ["Answer", "Error", "Model", "__version__"]
__version__ = library.slm_version().decode()

_CACHE_FORMATS = {None: 0, "f32": 1, "f16": 2, "bf16": 3, "int8": 4}
_POOLINGS = {"mean": 1, "last": 2}
_JSON_SCHEMA, _JSON, _REGEX, _GBNF = 1, 2, 3, 4
_TOKEN, _ENDED = 1, 2
_FINISH_REASONS = ("end_token", "stop_token", "callback", "length", "context", "cancelled", "deadline", "error", "complete")


def _tokens(tokens):
    return (I32 * len(tokens))(*tokens)


def _json(value):
    return None if value is None else json.dumps(value).encode()


def _load(path, progress, **options):
    failures = []

    def report(_, share):
        try:
            progress(share)
        except BaseException as failure:  # it ends the loading, and is raised below
            failures.append(failure)
        return len(failures)

    callback = Progress(report) if progress else Progress()
    try:
        return Handle("model", library.slm_model_load, os.fsencode(path), c.byref(LoadOptions(progress=callback, **options)))
    except Error:
        if failures:
            raise failures[0]
        raise


class Model:
    def __init__(self, path, *, draft=None, context=0, cache_format=None, threads=0, template=None, progress=None):
        if cache_format not in _CACHE_FORMATS:
            raise ValueError(f"expected a cache_format of {list(_CACHE_FORMATS)}, found {cache_format!r}")
        self._path, self._choice, self._chat = path, template, None
        options = {"context": context, "cache_format": _CACHE_FORMATS[cache_format], "threads": threads}
        self._model = _load(path, progress, **options)
        self._tokenizer = Handle("tokenizer", library.slm_tokenizer_load, os.fsencode(path))
        draft_model = _load(draft, progress, context=context, threads=threads) if draft is not None else None
        drafting = Drafting(model=draft_model._as_parameter_ if draft_model else None)
        engine = EngineOptions(drafting=c.addressof(drafting))
        self._engine = Handle("engine", library.slm_engine_create, self._model, c.byref(engine))
        self._turn = threading.Lock()  # one thread at a time steps the engine, for the requests of all threads

    @property
    def vocab(self):
        return self._info().vocab

    @property
    def context(self):
        return self._info().context

    def encode(self, text, *, special=True):
        data = text.encode()
        return array_of(library.slm_tokenizer_encode, I32, self._tokenizer, data, len(data), special)

    def decode(self, tokens, *, skip_special=True):
        some = _tokens(tokens)
        text = array_of(library.slm_tokenizer_decode, c.c_char, self._tokenizer, some, len(some), skip_special)
        return text.decode(errors="replace")

    def stream(self, prompt, *, max_tokens=128, temperature=0.0, top_k=0, top_p=0.0, min_p=0.0, repetition_penalty=0.0,
               presence_penalty=0.0, frequency_penalty=0.0, seed=0, stop=(), schema=None, regex=None, gbnf=None, choice=None,
               tools=None, variables=None):
        chat, ends = None, []
        if isinstance(prompt, str):
            tokens = self.encode(prompt)
        elif len(prompt) > 0 and isinstance(prompt[0], Mapping):
            chat = self._template()
            options = TemplateOptions(tools=_json(tools), variables=_json(variables))
            tokens = array_of(library.slm_template_encode, I32, chat, self._tokenizer, _json(prompt), c.byref(options))
            ends = array_of(library.slm_template_stop_tokens, I32, chat, self._tokenizer)
        else:
            tokens = prompt
        request = Request(max_new_tokens=max_tokens, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p,
                          repetition_penalty=repetition_penalty, presence_penalty=presence_penalty,
                          frequency_penalty=frequency_penalty, seed=seed)
        constraint = self._constraint(schema, regex, gbnf, choice)
        return Answer(self, tokens, ends, request, constraint, chat, [stop] if isinstance(stop, str) else list(stop))

    def generate(self, prompt, **options):
        return "".join(self.stream(prompt, **options))

    def chat(self, messages, **options):
        return self.generate([{"role": "user", "content": messages}] if isinstance(messages, str) else messages, **options)

    def embed(self, text, *, pooling="mean"):
        if pooling not in _POOLINGS:
            raise ValueError(f"expected a pooling of {list(_POOLINGS)}, found {pooling!r}")
        tokens = _tokens(self.encode(text) if isinstance(text, str) else text)
        return array_of(library.slm_embed, F32, self._model, tokens, len(tokens), _POOLINGS[pooling])

    def _info(self):
        info = ModelInfo()
        library.slm_model_get_info(self._model, c.byref(info))
        return info

    def _template(self):
        if self._chat is None:
            choice = None if self._choice is None else os.fsencode(self._choice)
            self._chat = Handle("template", library.slm_template_load, os.fsencode(self._path), choice)
        return self._chat

    def _constraint(self, schema, regex, gbnf, choice):
        given = [kind for kind in (schema, regex, gbnf, choice) if kind is not None]
        if not given:
            return None
        if len(given) > 1:
            raise ValueError("expected one of schema, regex, gbnf and choice, found several")
        if choice is not None:
            texts = (TEXT * len(choice))(*(text.encode() for text in choice))
            return Handle("constraint", library.slm_constraint_choice, self._tokenizer, texts, len(texts))
        if schema is True:
            return Handle("constraint", library.slm_constraint_create, self._tokenizer, _JSON, None, 0)
        kind = _JSON_SCHEMA if schema is not None else _REGEX if regex is not None else _GBNF
        text = (given[0] if isinstance(given[0], str) else json.dumps(given[0])).encode()
        return Handle("constraint", library.slm_constraint_create, self._tokenizer, kind, text, len(text))

    def _step(self):
        with self._turn:
            library.slm_engine_step(self._engine, c.byref(I32()))


class Answer:
    def __init__(self, model, tokens, ends, request, constraint, chat, stops):
        prompt, ends = _tokens(tokens), _tokens(ends)
        texts = (TEXT * len(stops))(*(text.encode() for text in stops))
        self._model, self.tokens, self.finish_reason = model, [], None
        self._stream = Handle("stream", library.slm_stream_create, model._tokenizer, chat, prompt, len(prompt), texts, len(texts))
        request.prompt, request.prompt_count = c.addressof(prompt), len(prompt)
        request.stop_tokens, request.stop_count = c.addressof(ends), len(ends)
        request.constraint = constraint._as_parameter_ if constraint else None
        self._answer = Handle("answer", library.slm_engine_submit, model._engine, c.byref(request), None)

    def __iter__(self):
        return self

    def __next__(self):
        while self.finish_reason is None:
            token, state, stopped = Generated(), I32(), I32()
            library.slm_answer_poll(self._answer, c.byref(token), c.byref(state))
            text = ""
            if state.value == _TOKEN:
                self.tokens.append(token.token)
                text = self._text(library.slm_stream_push, token.token, stopped=stopped)
                if stopped.value:
                    self.cancel()
                    self.finish_reason = "stop_string"
            elif state.value == _ENDED:
                text = self._text(library.slm_stream_finish)
                stats = Stats()
                library.slm_answer_stats(self._answer, c.byref(stats))
                self.finish_reason = _FINISH_REASONS[stats.finish_reason]
            else:
                self._model._step()
            if text:
                return text
        raise StopIteration

    def cancel(self):
        library.slm_answer_cancel(self._answer)

    def _text(self, function, *arguments, stopped=None):
        text, size = VOID(), SIZE()
        function(self._stream, *arguments, c.byref(text), c.byref(size), *([c.byref(stopped)] if stopped is not None else []))
        return c.string_at(text, size.value).decode(errors="replace")
