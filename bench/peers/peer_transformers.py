#!/usr/bin/env python3
"""Hugging Face transformers as a peer of `slm bench speculative`: plain and assisted generation on the CPU.

    pip install torch transformers
"""
import time

import peer


def open_models(request):
    """The target and the draft (or None), with the weights as the files store them."""
    import torch
    import transformers

    torch.set_num_threads(request["threads"])
    torch.set_num_interop_threads(1)
    transformers.logging.set_verbosity_error()
    models = {}
    for kind in peer.FOLDERS:
        folder = request[kind]
        if folder is None:
            continue
        if "quantization_config" in peer.read_config(folder):
            raise peer.Refused(f"'{folder}' is quantized: transformers would compute with other weights")
        dtype = {"FP32": torch.float32, "FP16": torch.float16, "BF16": torch.bfloat16}
        precision = peer.precision(peer.read_weights(folder), folder)
        models[kind] = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype[precision],
                                                                        local_files_only=True).eval()
    return models


def loaded_weights(model, folder):
    """The model's weights in memory, under the names of the files."""
    import torch

    names = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
    state, weights = model.state_dict(), {}
    for name in peer.read_weights(folder):
        if name not in state:
            raise peer.Refused(f"transformers {type(model).__name__} has no tensor '{name}' of '{folder}'")
        tensor = state[name].detach().contiguous()
        weights[name] = peer.Weight(names.get(tensor.dtype, str(tensor.dtype)), tensor.shape,
                                    memoryview(tensor.view(torch.uint8).reshape(-1).numpy()))
    return weights


def extend_vocabulary(draft, target):
    """A draft without the target's last ids gives them probability 0, as AMD's script does, and reads them as id 0."""
    import torch

    missing = target.config.vocab_size - draft.config.vocab_size
    if missing <= 0:
        return
    rows = draft.config.vocab_size

    def pad(module, arguments, output):
        output.logits = torch.nn.functional.pad(output.logits, (0, missing), value=-torch.inf)
        return output

    draft.get_input_embeddings().register_forward_pre_hook(lambda module, ids: (ids[0].where(ids[0] < rows, 0),))
    draft.register_forward_hook(pad)
    draft.config.vocab_size = target.config.vocab_size


class Clock:
    """Counts and times the forwards of a model."""

    def __init__(self, model):
        self.seconds = []
        model.register_forward_pre_hook(self.start)
        model.register_forward_hook(self.stop)

    def start(self, module, arguments):
        self.started = time.perf_counter()

    def stop(self, module, arguments, output):
        self.seconds.append(time.perf_counter() - self.started)


class Transformers:
    def __init__(self, request):
        import torch
        import transformers

        models = open_models(request)
        self.target, self.draft = models["target"], models.get("draft")
        self.about = {
            "engine": "transformers",
            "version": f"{transformers.__version__}, torch {torch.__version__}",
            "threads": torch.get_num_threads(),
            "dtype": peer.precision(peer.read_weights(request["target"]), request["target"]),
            "speculation": "assisted generation, ratio rule" if self.draft else None,
            "notes": ["the prompt's seconds include the first token"],
            "weights": {kind: peer.digest(loaded_weights(model, request[kind])) for kind, model in models.items()},
        }
        if self.draft:
            extend_vocabulary(self.draft, self.target)
            self.draft_clock = Clock(self.draft)
        self.clock = Clock(self.target)

    def run(self, task):
        import torch
        import transformers

        speculative = task["kind"] == "speculative"
        config = transformers.GenerationConfig(max_new_tokens=task["max_new_tokens"],
                                               eos_token_id=task["end_tokens"] or None, pad_token_id=0)
        if task["temperature"] > 0:
            config.update(do_sample=True, temperature=task["temperature"], top_k=task["top_k"], top_p=task["top_p"])
        if speculative:
            draft_length = peer.DraftLength(task["draft_length"])
            # transformers reads these from the assistant; 0 disables the stop at unlikely tokens of later versions
            self.draft.generation_config.update(
                num_assistant_tokens=draft_length.tokens, assistant_confidence_threshold=0,
                num_assistant_tokens_schedule="heuristic_transient" if draft_length.heuristic else "constant")
            self.draft_clock.seconds.clear()
        self.clock.seconds.clear()
        transformers.set_seed(task["seed"])
        ids = torch.tensor([task["ids"]])
        started = time.perf_counter()
        with torch.inference_mode():
            output = self.target.generate(ids, attention_mask=torch.ones_like(ids), generation_config=config,
                                          assistant_model=self.draft if speculative else None)
        total = time.perf_counter() - started
        new_ids = output[0, len(task["ids"]):].tolist()
        # The first forward passes process the prompt; the target's also verifies its first draft tokens.
        row = {"new_ids": new_ids, "seconds": {"total": total, "prompt": self.clock.seconds[0]}}
        if speculative:
            row["seconds"]["prompt"] += self.draft_clock.seconds[0] if self.draft_clock.seconds else 0
            row["rounds"] = len(self.clock.seconds)
            row["drafted"] = len(self.draft_clock.seconds)  # one forward for each
            row["accepted"] = len(new_ids) - row["rounds"]
        return row


if __name__ == "__main__":
    peer.serve(Transformers)
