"""Adapters in PEFT's format, for tests of programs."""
import json
import random
import struct


def make_adapter_folder(folder, seed, layers, hidden, ffn, most, **config):
    """Writes an adapter of rank 2 on the down projections, with weights up to `most`. Returns the folder."""
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 2, "lora_alpha": 4} | config))
    draw, header, data = random.Random(seed), {}, b""
    for layer in range(layers):
        for part, shape in (("A", [2, ffn]), ("B", [hidden, 2])):
            count = shape[0] * shape[1]
            values = struct.pack(f"<{count}f", *(draw.uniform(-most, most) for _ in range(count)))
            header[f"base_model.model.model.layers.{layer}.mlp.down_proj.lora_{part}.weight"] = {
                "dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
            data += values
    text = json.dumps(header).encode()
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    return folder
