#!/usr/bin/env python3
"""Output of slm quantize, read by other programs: their model has the logits of slm.

usage: readers_test.py SLM_PROGRAM MODEL_FOLDER

  compressed-tensors   its own decompressor, on both of slm's formats: AutoAWQ's through its AutoAWQConverter
  transformers         from_pretrained on the unchanged folder
  gptqmodel            the reader of AutoAWQ files in transformers

Skips (exit code 77) programs that are not installed: pip install torch transformers compressed-tensors gptqmodel. slm needs
none of them.
"""
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile

IDS = [0, 263, 700, 12, 1999, 45, 45, 310, 8, 1024, 77, 501]
SKIPPED = 77
VARIANTS = {
    "groups of 32": ["--group", "32"],
    "groups of 64, symmetric": ["--group", "64", "--symmetric"],
    "whole rows": ["--group", "-1"],
    "whole rows, symmetric": ["--group", "-1", "--symmetric"],
}


def has(*modules):
    return all(importlib.util.find_spec(module) for module in modules)


def logits_of_slm(program, folder):
    command = [program, "logits", str(folder), "--ids", ",".join(map(str, IDS)), "--json", "--backend", "reference"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["logits"]


def logits_of(model):
    import torch

    with torch.no_grad():
        return model(torch.tensor([IDS])).logits[0].float().tolist()


def compare(name, found, expected, tolerance):
    scale = max(abs(x) for row in expected for x in row)
    worst = max(abs(a - b) for row, other in zip(found, expected) for a, b in zip(row, other)) / scale
    print(f"{name}: largest difference {worst:.1e} of the largest logit")
    if not worst <= tolerance:
        sys.exit(f"{name}: more than {tolerance:.0e}: the reader computes something else from these files")


def scheme_of(config):
    from compressed_tensors.quantization import QuantizationScheme

    return QuantizationScheme(**config["quantization_config"]["config_groups"]["group_0"])


def decompressed(folder):
    """The float32 model of a folder by compressed-tensors."""
    import torch
    import transformers
    from compressed_tensors.compressors.pack_quantized.base import PackedQuantizationCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
    from safetensors.torch import load_file

    config = json.loads((folder / "config.json").read_text())
    tensors = load_file(folder / "model.safetensors")
    quantization = config.pop("quantization_config")
    if quantization["quant_method"] == "awq":
        from compressed_tensors.entrypoints.convert.converters.autoawq import AutoAWQConverter

        converter = AutoAWQConverter.from_autoawq_config(quantization)
        converter.validate(tensors)
        tensors = converter.process(tensors)
        whole = quantization["group_size"] == -1
        arguments = QuantizationArgs(num_bits=4, symmetric=not quantization["zero_point"], strategy="channel" if whole else "group",
                                     group_size=None if whole else quantization["group_size"])
        scheme = QuantizationScheme(targets=["Linear"], weights=arguments)
    else:
        scheme = QuantizationScheme(**quantization["config_groups"]["group_0"])
    state = {}
    for name, tensor in tensors.items():
        module, part = name.rsplit(".", 1)
        if part == "weight_packed":
            local = {p: tensors[f"{module}.{p}"] for p in ("weight_packed", "weight_scale", "weight_zero_point", "weight_shape")
                     if f"{module}.{p}" in tensors}
            local["weight_scale"] = local["weight_scale"].float()
            state[f"{module}.weight"] = PackedQuantizationCompressor.decompress(local, scheme)["weight"].float()
        elif part in ("weight", "bias"):
            state[name] = tensor.float()
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**config))
    missing, unexpected = model.float().load_state_dict(state, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
    model.tie_weights()
    return model.eval()


def main():
    program, model = sys.argv[1:]
    if not has("torch", "transformers", "safetensors"):
        print("SKIPPED: torch and transformers are not installed (pip install torch transformers compressed-tensors gptqmodel)")
        return SKIPPED
    import torch
    import transformers

    compared = 0
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, options) in enumerate(VARIANTS.items()):
            for form in ("compressed-tensors", "awq"):
                output = pathlib.Path(folder) / f"{form}-{number}"
                subprocess.run([program, "quantize", model, str(output), "--rtn", "--format", form, *options],
                               check=True, capture_output=True)
                expected = logits_of_slm(program, output)
                label = f"{form}, {name}"
                if has("compressed_tensors"):
                    # The same float32 weights in another order of additions.
                    compare(f"{label}: decompressor", logits_of(decompressed(output)), expected, 1e-4)
                    compared += 1
                if form == "compressed-tensors" and has("compressed_tensors") and "symmetric" in name:
                    # Weights and activations in bfloat16: 8 bits each. Version 0.20 cannot load asymmetric folders this way, not even
                    # its own: it expects zero points that are not packed.
                    loaded = transformers.AutoModelForCausalLM.from_pretrained(output, dtype=torch.bfloat16)
                    compare(f"{label}: transformers", logits_of(loaded), expected, 5e-2)
                    compared += 1
                if form == "awq" and has("gptqmodel") and name == "groups of 32":
                    loaded = transformers.AutoModelForCausalLM.from_pretrained(output, dtype=torch.float16, device_map="cpu")
                    compare(f"{label}: transformers with gptqmodel", logits_of(loaded), expected, 5e-2)
                    compared += 1
    for module in ("compressed_tensors", "gptqmodel"):
        if not has(module):
            print(f"SKIPPED: {module} is not installed")
    return 0 if compared else SKIPPED


if __name__ == "__main__":
    sys.exit(main())
