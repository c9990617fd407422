"""Writes a Llama checkpoint as a GGUF file with the same weights, and computes the digest of the file's tensors."""
import collections
import os

import peer

Made = collections.namedtuple("Made", "path digest precision")

# safetensors name of a layer's tensor -> GGUF name
LAYER = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}
OTHERS = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def name_in_gguf(name):
    stem, _, kind = name.rpartition(".")
    if kind == "weight" and stem in OTHERS:
        return f"{OTHERS[stem]}.weight"
    parts = stem.split(".", 3)
    if kind == "weight" and parts[:2] == ["model", "layers"] and parts[3] in LAYER:
        return f"blk.{parts[2]}.{LAYER[parts[3]]}.weight"
    raise peer.Refused(f"tensor '{name}' is not a tensor of a plain Llama model, which this conversion requires")


def rotary_heads(name, config):
    """Heads of a query or key tensor, else 0. In a head, GGUF pairs neighbouring elements, safetensors pairs the halves."""
    heads = config["num_attention_heads"]
    if name.endswith("q_proj.weight"):
        return heads
    return config.get("num_key_value_heads", heads) if name.endswith("k_proj.weight") else 0


def reorder(rows, heads, back):
    """Permutes the rows of a projection between the two pairings of each head."""
    count, columns = rows.shape
    cut = (heads, count // heads // 2, 2, columns) if back else (heads, 2, count // heads // 2, columns)
    return rows.reshape(cut).swapaxes(1, 2).reshape(count, columns)


def check(folder, config):
    if config.get("model_type") != "llama":
        raise peer.Refused(f"'{folder}' is of the family '{config.get('model_type')}': only llama is converted")
    for setting in ("quantization_config", "rope_scaling", "attention_bias", "mlp_bias"):
        if config.get(setting):
            raise peer.Refused(f"'{folder}' has the setting '{setting}': this conversion does not support it")

    if (config.get("rope_parameters") or {}).get("rope_type", "default") != "default":
        raise peer.Refused(f"'{folder}' scales its positions, which this conversion does not support")


def write_settings(writer, config):
    heads, hidden = config["num_attention_heads"], config["hidden_size"]
    head_dim = config.get("head_dim") or hidden // heads
    parameters = config.get("rope_parameters") or {}
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(hidden)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config.get("num_key_value_heads", heads))
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(int(head_dim * config.get("partial_rotary_factor", 1)))
    writer.add_rope_freq_base(float(config.get("rope_theta") or parameters.get("rope_theta", 10000.0)))
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    # Only ids are exchanged, but llama.cpp requires a vocabulary.
    writer.add_tokenizer_model("llama")
    pieces = [b"<unk>", b"<s>", b"</s>"] + [f"<0x{byte:02X}>".encode() for byte in range(256)]
    pieces += [f"t{i}".encode() for i in range(len(pieces), config["vocab_size"])]
    writer.add_token_list(pieces[:config["vocab_size"]])
    writer.add_token_scores([0.0] * config["vocab_size"])
    writer.add_token_types(([2, 3, 3] + [6] * 256 + [1] * config["vocab_size"])[:config["vocab_size"]])


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_gguf(folder, path):
    import gguf
    import numpy as np

    config, weights = peer.read_config(folder), peer.read_weights(folder)
    check(folder, config)
    precision = peer.precision(weights, folder)
    stored = gguf.GGMLQuantizationType[precision.replace("FP", "F")]
    element = {"FP32": np.float32, "FP16": np.float16, "BF16": np.uint16}[precision]
    unfinished = f"{path}.partial"
    writer = gguf.GGUFWriter(unfinished, "llama")
    write_settings(writer, config)
    for name, weight in weights.items():
        values = np.frombuffer(weight.bytes, element).reshape(weight.shape)
        if len(weight.shape) == 1:  # llama.cpp supports norms only in F32
            exact = (values.astype(np.uint32) << 16).view(np.float32) if precision == "BF16" else values.astype(np.float32)
            writer.add_tensor(name_in_gguf(name), exact)
            continue
        if heads := rotary_heads(name, config):
            values = reorder(values, heads, back=False)
        values = np.ascontiguousarray(values)
        writer.add_tensor(name_in_gguf(name), values.view(np.uint8) if precision == "BF16" else values, raw_dtype=stored)
    finish(writer)
    os.replace(unfinished, path)
    return Made(path, peer.digest(weights_in(path, config, weights)), precision)


def weights_in(path, config, like):
    """The tensors of a GGUF file with the names, order and types of `like`."""
    import gguf
    import numpy as np

    found = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    weights = {}
    for name, original in like.items():
        tensor = found[name_in_gguf(name)]
        values = np.asarray(tensor.data)
        if len(original.shape) == 1:
            values = {"F32": lambda x: x, "F16": lambda x: x.astype(np.float16),
                      "BF16": lambda x: (x.view(np.uint32) >> 16).astype(np.uint16)}[original.dtype](values)
        elif heads := rotary_heads(name, config):
            if original.dtype == "BF16":
                values = values.view(np.uint16)
            values = reorder(values, heads, back=True)
        weights[name] = peer.Weight(original.dtype, original.shape, np.ascontiguousarray(values).data.cast("B"))
    return weights
