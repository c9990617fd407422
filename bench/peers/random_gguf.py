"""Writes GGUF files of published shapes with random weights. Size and speed equal those of real models."""
import typing

import gguf_of

CONTEXT = 2048


class Shape(typing.NamedTuple):
    layers: int
    hidden: int
    ffn: int  # of one expert, if there are experts
    heads: int
    kv_heads: int
    vocab: int
    tied: bool
    architecture: str = "llama"
    head_dim: int = 0  # 0: hidden / heads
    rotated: float = 1  # part of a head
    theta: float = 1e4
    epsilon: float = 1e-5
    experts: int = 0
    chosen: int = 0  # experts of a token
    recurrent: tuple = ()  # layers with a recurrence instead of attention

    @property
    def width(self):
        return self.head_dim or self.hidden // self.heads


class DeltaNet(typing.NamedTuple):
    heads: int = 16  # of keys, and of values
    width: int = 128  # of a head
    taps: int = 4  # of the convolution

    @property
    def inner(self):
        return self.heads * self.width


DELTA_NET = DeltaNet()
SHORT_CONV_TAPS = 3

SHAPES = {
    "AMD-Llama-135M": Shape(12, 768, 2048, 12, 12, 32000, False),
    "AMD-OLMo-1B": Shape(16, 2048, 8192, 16, 16, 50304, True),
    "CodeLlama-7B": Shape(32, 4096, 11008, 32, 32, 32016, False),
    "SmolLM3-3B": Shape(36, 2048, 11008, 16, 4, 128256, True),
    "LFM2-1.2B": Shape(16, 2048, 8192, 32, 8, 65536, True, "lfm2", theta=1e6, recurrent=(0, 1, 3, 4, 6, 7, 9, 11, 13, 15)),
    "Qwen3.5-0.8B": Shape(24, 1024, 3584, 8, 2, 248320, True, "qwen35", head_dim=256, rotated=0.25, theta=1e7, epsilon=1e-6,
                          recurrent=tuple(layer for layer in range(24) if layer % 4 != 3)),
    "OLMoE-1B-7B": Shape(16, 2048, 1024, 16, 16, 50304, False, "olmoe", experts=64, chosen=8),
    "6-of-48-layers-of-Qwen3-30B-A3B": Shape(6, 2048, 768, 32, 4, 151936, False, "qwen3moe", head_dim=128, theta=1e6, epsilon=1e-6,
                                             experts=128, chosen=8),
}
TYPES = ["bf16", "q4_0", "q4_k_m"]


def more_bits(layer, layers):
    """The layers in which llama.cpp's Q4_K_M stores values and down projections in six bits."""
    return layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2


def attention(shape):
    """The matrices of a layer's attention: name -> (outputs, inputs)."""
    q, kv = shape.heads * shape.width, shape.kv_heads * shape.width
    gates = q if shape.architecture == "qwen35" else 0
    return {"attn_q": (q + gates, shape.hidden), "attn_k": (kv, shape.hidden), "attn_v": (kv, shape.hidden),
            "attn_output": (shape.hidden, q)}


def recurrence(shape):
    """The matrices of a layer's recurrence."""
    if shape.architecture == "lfm2":
        return {"shortconv.in_proj": (3 * shape.hidden, shape.hidden), "shortconv.out_proj": (shape.hidden, shape.hidden)}
    net = DELTA_NET
    return {"attn_qkv": (3 * net.inner, shape.hidden), "attn_gate": (net.inner, shape.hidden), "ssm_beta": (net.heads, shape.hidden),
            "ssm_alpha": (net.heads, shape.hidden), "ssm_out": (shape.hidden, net.inner)}


def mlp(shape):
    """The matrices of a layer's MLP, or of its experts: name -> (experts, outputs, inputs)."""
    matrices = {"ffn_gate": (shape.ffn, shape.hidden), "ffn_up": (shape.ffn, shape.hidden), "ffn_down": (shape.hidden, shape.ffn)}
    if not shape.experts:
        return matrices
    return {f"{name}_exps": (shape.experts, *matrix) for name, matrix in matrices.items()}


def vectors(shape, layer):
    """The norms and other F32 tensors with equal elements of a layer: name -> (shape, element)."""
    found = {"attn_norm.weight": (shape.hidden, 1)}
    found["post_attention_norm.weight" if shape.architecture == "qwen35" else "ffn_norm.weight"] = (shape.hidden, 1)
    if layer not in shape.recurrent:
        whole = shape.architecture == "olmoe"
        if shape.architecture != "llama":
            found["attn_q_norm.weight"] = (shape.heads * shape.width if whole else shape.width, 1)
            found["attn_k_norm.weight"] = (shape.kv_heads * shape.width if whole else shape.width, 1)
    elif shape.architecture == "lfm2":
        found["shortconv.conv.weight"] = ((shape.hidden, SHORT_CONV_TAPS), 0.5)
    else:
        found |= {"ssm_conv1d.weight": ((3 * DELTA_NET.inner, DELTA_NET.taps), 0.5), "ssm_norm.weight": (DELTA_NET.width, 1),
                  "ssm_a": (DELTA_NET.heads, -1), "ssm_dt.bias": (DELTA_NET.heads, 0)}
    return found


def write_settings(writer, shape):
    kv_heads = shape.kv_heads
    if shape.architecture == "lfm2":
        kv_heads = [0 if layer in shape.recurrent else kv_heads for layer in range(shape.layers)]
    gguf_of.write_settings(writer, {
        "max_position_embeddings": CONTEXT, "hidden_size": shape.hidden, "num_hidden_layers": shape.layers,
        "intermediate_size": shape.ffn, "num_attention_heads": shape.heads, "num_key_value_heads": kv_heads,
        "head_dim": shape.width, "partial_rotary_factor": shape.rotated, "rope_theta": shape.theta,
        "rms_norm_eps": shape.epsilon, "vocab_size": shape.vocab,
    })
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    if shape.experts:
        writer.add_expert_count(shape.experts)
        writer.add_expert_used_count(shape.chosen)
        writer.add_expert_feed_forward_length(shape.ffn)
    if shape.architecture == "lfm2":
        writer.add_shortconv_l_cache(SHORT_CONV_TAPS)
    if shape.architecture == "qwen35":
        writer.add_rope_dimension_sections([11, 11, 10, 0])
        writer.add_full_attention_interval(4)
        writer.add_ssm_conv_kernel(DELTA_NET.taps)
        writer.add_ssm_state_size(DELTA_NET.width)
        writer.add_ssm_group_count(DELTA_NET.heads)
        writer.add_ssm_time_step_rank(DELTA_NET.heads)
        writer.add_ssm_inner_size(DELTA_NET.inner)


def write(path, shape, type_name):
    import gguf
    import numpy as np

    types = gguf.GGMLQuantizationType
    usual = {"bf16": types.BF16, "q4_0": types.Q4_0, "q4_k_m": types.Q4_K}[type_name]
    head = types.BF16 if type_name == "bf16" else types.Q6_K
    generator = np.random.default_rng(1)
    writer = gguf.GGUFWriter(path, shape.architecture)
    write_settings(writer, shape)
    file_types = gguf.LlamaFileType
    writer.add_file_type({"bf16": file_types.MOSTLY_BF16, "q4_0": file_types.MOSTLY_Q4_0, "q4_k_m": file_types.MOSTLY_Q4_K_M}[type_name])

    def matrix(name, size, type_):
        *others, columns = size
        if type_ in (types.BF16, types.F32):
            values = generator.standard_normal(size, dtype=np.float32) / np.sqrt(columns)
            return writer.add_tensor(name, gguf.quants.quantize(values, type_), raw_dtype=type_)
        # Random codes with scales that keep the activations small. The mean of the weights is 0, or else all tokens would
        # choose the same experts.
        values, bytes_ = gguf.GGML_QUANT_SIZES[type_]
        blocks = generator.integers(0, 256, (*others, columns // values, bytes_), dtype=np.uint8)

        def put(offset, numbers):
            blocks[..., offset : offset + 2] = np.asarray(numbers, dtype=np.float16)[..., None].view(np.uint8)

        if type_ == types.Q4_0:  # codes of -8 to 7
            put(0, generator.choice([-0.02, 0.02], blocks.shape[:-1]))
        elif type_ == types.Q4_K:  # a scale of scales and one of minima; codes of 0 to 15
            put(0, 0.02 / 64)
            put(2, 7.5 * 0.02 / 64)
        else:  # Q6_K: scales of 8 bits, the one of theirs at the end
            put(bytes_ - 2, 0.02 / 512)
        return writer.add_tensor(name, blocks.reshape(*others, -1), raw_dtype=type_)

    def filled(name, size, element):
        writer.add_tensor(name, np.full(size, element, dtype=np.float32))

    matrix("token_embd.weight", (shape.vocab, shape.hidden), head)
    for layer in range(shape.layers):
        wider = types.Q6_K if type_name == "q4_k_m" and more_bits(layer, shape.layers) else usual
        for name, (size, element) in vectors(shape, layer).items():
            filled(f"blk.{layer}.{name}", size, element)
        if shape.experts:
            matrix(f"blk.{layer}.ffn_gate_inp.weight", (shape.experts, shape.hidden), types.F32)
        for name, size in ((recurrence if layer in shape.recurrent else attention)(shape) | mlp(shape)).items():
            matrix(f"blk.{layer}.{name}.weight", size, wider if name in ("attn_v", "ffn_down", "ffn_down_exps") else usual)
    filled("token_embd_norm.weight" if shape.architecture == "lfm2" else "output_norm.weight", shape.hidden, 1)
    if not shape.tied:
        matrix("output.weight", (shape.vocab, shape.hidden), head)
    gguf_of.finish(writer)
