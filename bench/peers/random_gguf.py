"""Writes GGUF files of published shapes with random weights. Size and speed equal those of real models."""
import typing

import gguf_of

CONTEXT = 2048


class Shape(typing.NamedTuple):
    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    vocab: int
    tied: bool


SHAPES = {
    "AMD-Llama-135M": Shape(12, 768, 2048, 12, 12, 32000, False),
    "AMD-OLMo-1B": Shape(16, 2048, 8192, 16, 16, 50304, True),
    "CodeLlama-7B": Shape(32, 4096, 11008, 32, 32, 32016, False),
    "SmolLM3-3B": Shape(36, 2048, 11008, 16, 4, 128256, True),
}
TYPES = ["bf16", "q4_0", "q4_k_m"]


def more_bits(layer, layers):
    """The layers in which llama.cpp's Q4_K_M stores values and down projections in six bits."""
    return layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2


def write(path, shape, type_name):
    import gguf
    import numpy as np

    types = gguf.GGMLQuantizationType
    usual = {"bf16": types.BF16, "q4_0": types.Q4_0, "q4_k_m": types.Q4_K}[type_name]
    head = types.BF16 if type_name == "bf16" else types.Q6_K
    generator = np.random.default_rng(1)
    writer = gguf.GGUFWriter(path, "llama")
    gguf_of.write_settings(writer, {
        "max_position_embeddings": CONTEXT, "hidden_size": shape.hidden, "num_hidden_layers": shape.layers,
        "intermediate_size": shape.ffn, "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads, "rms_norm_eps": 1e-5, "vocab_size": shape.vocab,
    })
    file_types = gguf.LlamaFileType
    writer.add_file_type({"bf16": file_types.MOSTLY_BF16, "q4_0": file_types.MOSTLY_Q4_0, "q4_k_m": file_types.MOSTLY_Q4_K_M}[type_name])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)

    def matrix(name, rows, columns, type_):
        if type_ == types.BF16:
            values = generator.standard_normal((rows, columns), dtype=np.float32) / np.sqrt(columns)
            return writer.add_tensor(name, gguf.quants.quantize(values, type_), raw_dtype=type_)
        # Random codes with scales that keep the activations small.
        values, size = gguf.GGML_QUANT_SIZES[type_]
        blocks = generator.integers(0, 256, (rows, columns // values, size), dtype=np.uint8)

        def put(offset, number):
            blocks[:, :, offset : offset + 2] = np.array([number], dtype=np.float16).view(np.uint8)

        if type_ == types.Q4_0:
            put(0, 0.02)
        elif type_ == types.Q4_K:  # a scale of scales and one of minima
            put(0, 0.02 / 32)
            put(2, 0.02 / 32)
        else:  # Q6_K: scales of 8 bits, the one of theirs at the end
            put(size - 2, 0.02 / 512)
        return writer.add_tensor(name, blocks.reshape(rows, -1), raw_dtype=type_)

    def ones(name):
        writer.add_tensor(name, np.ones(shape.hidden, dtype=np.float32))

    matrix("token_embd.weight", shape.vocab, shape.hidden, head)
    for layer in range(shape.layers):
        wider = types.Q6_K if type_name == "q4_k_m" and more_bits(layer, shape.layers) else usual
        ones(f"blk.{layer}.attn_norm.weight")
        ones(f"blk.{layer}.ffn_norm.weight")
        kv = shape.hidden // shape.heads * shape.kv_heads
        for name, rows, type_ in (("q", shape.hidden, usual), ("k", kv, usual), ("v", kv, wider), ("output", shape.hidden, usual)):
            matrix(f"blk.{layer}.attn_{name}.weight", rows, shape.hidden, type_)
        matrix(f"blk.{layer}.ffn_gate.weight", shape.ffn, shape.hidden, usual)
        matrix(f"blk.{layer}.ffn_up.weight", shape.ffn, shape.hidden, usual)
        matrix(f"blk.{layer}.ffn_down.weight", shape.hidden, shape.ffn, wider)
    ones("output_norm.weight")
    if not shape.tied:
        matrix("output.weight", shape.vocab, shape.hidden, head)
    gguf_of.finish(writer)
