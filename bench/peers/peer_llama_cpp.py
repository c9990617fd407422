#!/usr/bin/env python3
"""llama.cpp as a peer of `slm bench speculative`, through the C interface of llama-cpp-python.

    pip install llama-cpp-python gguf numpy

The Python package offers speculation without a draft model only (prompt lookup). With a draft model, this file works like
llama.cpp's server: one llama_decode verifies the draft's likeliest tokens, which are accepted while the target's sampler
chooses the same tokens.
"""
import ctypes
import time

import gguf_of
import peer


class Context:
    """A model with one sequence: the tokens that llama_decode has processed, and the sampler."""

    def __init__(self, path, size, threads):
        import llama_cpp

        self.api = llama_cpp
        options = llama_cpp.llama_model_default_params()
        options.n_gpu_layers = 0
        self.model = llama_cpp.llama_model_load_from_file(str(path).encode(), options)
        if not self.model:
            raise peer.Refused(f"llama.cpp cannot load '{path}'")
        options = llama_cpp.llama_context_default_params()
        options.n_ctx = options.n_batch = size
        options.n_threads = options.n_threads_batch = threads
        self.context = llama_cpp.llama_init_from_model(self.model, options)
        if not self.context:
            raise peer.Refused(f"llama.cpp cannot allocate a context of {size} tokens")
        self.memory = llama_cpp.llama_get_memory(self.context)
        self.batch = llama_cpp.llama_batch_init(size, 0, 1)
        self.vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))
        self.sampler = None
        self.length = 0

    def start(self, task):
        """Starts a new sequence with the task's sampling."""
        api = self.api
        self.length = 0
        api.llama_memory_clear(self.memory, True)
        if self.sampler:
            api.llama_sampler_free(self.sampler)
        self.sampler = api.llama_sampler_chain_init(api.llama_sampler_chain_default_params())
        steps = [api.llama_sampler_init_greedy()]
        if task["temperature"] > 0:  # the order of slm
            steps = [api.llama_sampler_init_temp(task["temperature"]), api.llama_sampler_init_top_k(task["top_k"]),
                     api.llama_sampler_init_top_p(task["top_p"], 1), api.llama_sampler_init_dist(task["seed"])]
        for step in steps:
            api.llama_sampler_chain_add(self.sampler, step)

    def read(self, ids, every=False):
        """Processes these tokens. Returns the logits of the last one, or of all."""
        if not ids:
            return
        batch = self.batch
        batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            batch.token[i] = token
            batch.pos[i] = self.length + i
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = 0
            batch.logits[i] = every or i + 1 == len(ids)
        if self.api.llama_decode(self.context, batch) != 0:
            raise peer.Refused("llama_decode failed")
        self.length += len(ids)

    def choose(self, row=-1):
        return self.api.llama_sampler_sample(self.sampler, self.context, row)

    def forget(self, length):
        """Removes all but the first `length` tokens from the KV cache."""
        if length < self.length:
            self.api.llama_memory_seq_rm(self.memory, 0, length, -1)
            self.length = length


class LlamaCpp:
    def __init__(self, request):
        import llama_cpp

        self.log = llama_cpp.llama_log_callback(lambda level, line, data: None)
        llama_cpp.llama_log_set(self.log, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        made = {kind: gguf_of.write_gguf(request[kind], f"{request['scratch']}/{kind}.gguf")
                for kind in peer.FOLDERS if request[kind] is not None}
        contexts = {kind: Context(one.path, request["context"], request["threads"]) for kind, one in made.items()}
        self.target, self.draft = contexts["target"], contexts.get("draft")
        version = getattr(llama_cpp, "llama_version", None)
        self.about = {
            "engine": "llama.cpp",
            "version": (version().decode() + ", " if version else "") + f"llama-cpp-python {llama_cpp.__version__}",
            "threads": request["threads"],
            "dtype": made["target"].precision,
            "speculation": "draft model, sample-match, the loop in Python" if self.draft else None,
            "notes": ["GGUF of the same tensors, norms in F32", "KV cache in F16"],
            "weights": {kind: one.digest for kind, one in made.items()},
        }

    def run(self, task):
        speculative = task["kind"] == "speculative"
        started = time.perf_counter()
        self.target.start(task)
        self.target.read(task["ids"][:-1])
        if speculative:
            self.draft.start({**task, "temperature": 0})
            self.draft.read(self.known(task["ids"][:-1]))
        prompt = time.perf_counter() - started
        row = self.speculate(task) if speculative else self.decode(task)
        row["seconds"] = {"total": time.perf_counter() - started, "prompt": prompt}
        return row

    def decode(self, task):
        text = list(task["ids"])  # its last token is not processed yet
        for _ in range(task["max_new_tokens"]):
            self.target.read([text[-1]])
            text.append(self.target.choose())
            if text[-1] in task["end_tokens"]:
                break
        return {"new_ids": text[len(task["ids"]):]}

    def speculate(self, task):
        draft_length = peer.DraftLength(task["draft_length"])
        text = list(task["ids"])  # its last token is not processed by either model
        most, ends = len(text) + task["max_new_tokens"], task["end_tokens"]
        rounds = drafted = accepted = 0
        while len(text) < most and not (rounds > 0 and text[-1] in ends):
            guesses = self.guess(text, min(draft_length.tokens, most - len(text) - 1), ends)
            self.target.read([text[-1]] + guesses, every=True)
            right = 0
            while True:
                text.append(self.target.choose(right))
                if right == len(guesses) or text[-1] != guesses[right]:
                    break
                right += 1
                if text[-1] in ends:
                    break
            self.target.forget(len(text) - 1)
            draft_length.observe(len(guesses), right)
            rounds += 1
            drafted += len(guesses)
            accepted += right
        return {"new_ids": text[len(task["ids"]):], "rounds": rounds, "drafted": drafted, "accepted": accepted}

    def guess(self, text, count, ends):
        if count <= 0:
            return []
        self.draft.forget(len(text) - 1)
        self.draft.read(self.known(text[self.draft.length:]))
        guesses = [self.draft.choose()]
        while len(guesses) < count and guesses[-1] not in ends:
            self.draft.read([guesses[-1]])
            guesses.append(self.draft.choose())
        return guesses

    def known(self, ids):
        """Replaces ids outside the draft's vocabulary by id 0."""
        return [token if token < self.draft.vocab else 0 for token in ids]


if __name__ == "__main__":
    peer.serve(LlamaCpp)
