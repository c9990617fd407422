from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any, Literal

__all__ = ["Answer", "Error", "Model", "__version__"]

__version__: str

_Message = Mapping[str, Any]  # such as {"role": "user", "content": "Hi"}
_Prompt = str | Sequence[int] | Sequence[_Message]  # a text, token ids, or the messages of a chat

class Error(Exception):
    id: str  # listed in docs/errors.md
    def __init__(self, id: str, message: str) -> None: ...

class Answer:  # an iterator of texts
    tokens: list[int]  # read so far
    # None until the end; then end_token, stop_token, stop_string, length, context, cancelled, or complete if the
    # constraint permits nothing more
    finish_reason: str | None
    def __iter__(self) -> Answer: ...
    def __next__(self) -> str: ...
    def cancel(self) -> None: ...

class Model:
    def __init__(
        self,
        path: str | PathLike[str],  # a Hugging Face folder or a GGUF file
        *,
        draft: str | PathLike[str] | None = None,  # a draft model, which changes the speed only
        context: int = 0,  # most tokens of a text; 0: the model's limit
        cache_format: Literal["f32", "f16", "bf16", "int8"] | None = None,  # of keys and values
        threads: int = 0,  # 0: one per usable core, in a pool that all such models share
        template: str | PathLike[str] | None = None,  # of chats: a file or a name; None: the model's own
        progress: Callable[[float], object] | None = None,  # called with 0 to 1; an exception ends the loading
    ) -> None: ...
    @property
    def vocab(self) -> int: ...
    @property
    def context(self) -> int: ...
    def encode(self, text: str, *, special: bool = True) -> list[int]: ...
    def decode(self, tokens: Sequence[int], *, skip_special: bool = True) -> str: ...
    def stream(
        self,
        prompt: _Prompt,
        *,
        max_tokens: int = 128,
        temperature: float = 0.0,  # 0: the most likely token
        top_k: int = 0,
        top_p: float = 0.0,
        min_p: float = 0.0,
        repetition_penalty: float = 0.0,
        presence_penalty: float = 0.0,
        frequency_penalty: float = 0.0,
        seed: int = 0,
        stop: str | Sequence[str] = (),
        schema: Mapping[str, Any] | str | Literal[True] | None = None,  # a JSON schema; True: any JSON object
        regex: str | None = None,
        gbnf: str | None = None,
        choice: Sequence[str] | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,  # of a chat
        variables: Mapping[str, Any] | None = None,  # of the chat template
    ) -> Answer: ...
    def generate(
        self,
        prompt: _Prompt,
        *,
        max_tokens: int = 128,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 0.0,
        min_p: float = 0.0,
        repetition_penalty: float = 0.0,
        presence_penalty: float = 0.0,
        frequency_penalty: float = 0.0,
        seed: int = 0,
        stop: str | Sequence[str] = (),
        schema: Mapping[str, Any] | str | Literal[True] | None = None,
        regex: str | None = None,
        gbnf: str | None = None,
        choice: Sequence[str] | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> str: ...
    def chat(
        self,
        messages: str | Sequence[_Message],
        *,
        max_tokens: int = 128,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 0.0,
        min_p: float = 0.0,
        repetition_penalty: float = 0.0,
        presence_penalty: float = 0.0,
        frequency_penalty: float = 0.0,
        seed: int = 0,
        stop: str | Sequence[str] = (),
        schema: Mapping[str, Any] | str | Literal[True] | None = None,
        regex: str | None = None,
        gbnf: str | None = None,
        choice: Sequence[str] | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> str: ...
    def embed(self, text: str | Sequence[int], *, pooling: Literal["mean", "last"] = "mean") -> list[float]: ...
