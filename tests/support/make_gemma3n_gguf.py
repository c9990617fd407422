#!/usr/bin/env python3
"""Writes tests/fixtures/gguf/gemma3n.gguf: the weights of the folder gemma3n under the names and keys of llama.cpp's converter.
usage: make_gemma3n_gguf.py FOLDER OUT; needs the packages gguf and numpy"""
import json
import pathlib
import statistics
import struct
import sys

import gguf
import numpy

LAYER = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
         "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
         "post_feedforward_layernorm": "post_ffw_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
         "mlp.down_proj": "ffn_down", "per_layer_input_gate": "inp_gate", "per_layer_projection": "proj",
         "post_per_layer_input_norm": "post_norm", "altup.correction_coefs": "altup_correct_coef",
         "altup.correct_output_scale": "altup_correct_scale", "altup.prediction_coefs": "altup_predict_coef",
         "altup.modality_router": "altup_router", "altup.router_norm": "altup_router_norm", "laurel.linear_left": "laurel_l",
         "laurel.linear_right": "laurel_r", "laurel.post_laurel_norm": "laurel_post_norm"}
OTHERS = {"embed_tokens": "token_embd", "embed_tokens_per_layer": "per_layer_token_embd", "norm": "output_norm",
          "per_layer_model_projection": "per_layer_model_proj", "per_layer_projection_norm": "per_layer_proj_norm"}


def tensors_of(path):
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    for name, entry in json.loads(data[8:8 + length]).items():
        if name != "__metadata__":
            assert entry["dtype"] == "F32", name
            first, last = entry["data_offsets"]
            yield name, numpy.frombuffer(data[8 + length + first:8 + length + last], "<f4").reshape(entry["shape"])


def main():
    folder = pathlib.Path(sys.argv[1])
    config = json.loads((folder / "config.json").read_text())
    writer = gguf.GGUFWriter(sys.argv[2], "gemma3n")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_parameters"]["full_attention"]["rope_theta"])
    writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    writer.add_sliding_window(config["sliding_window"])
    writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in config["layer_types"]])
    writer.add_altup_active_idx(config["altup_active_idx"])
    writer.add_altup_num_inputs(config["altup_num_inputs"])
    writer.add_embedding_length_per_layer_input(config["hidden_size_per_layer_input"])
    writer.add_shared_kv_layers(config["num_kv_shared_layers"])
    shares = config["activation_sparsity_pattern"]
    writer.add_activation_sparsity_scale([statistics.NormalDist().inv_cdf(s) if s > 0 else float("-inf") for s in shares])
    stacked = {"altup_projections": {}, "altup_unembed_projections": {}}
    for name, values in tensors_of(folder / "model.safetensors"):
        module = name.removeprefix("model.").removeprefix("language_model.").removesuffix(".weight")
        family, _, rest = module.partition(".")
        if family in stacked:
            stacked[family][int(rest)] = values
        elif family == "layers":
            layer, _, part = rest.partition(".")
            writer.add_tensor(f"blk.{layer}.{LAYER[part]}.weight", values)
        else:
            writer.add_tensor(f"{OTHERS[module]}.weight", values)
    for family, name in (("altup_projections", "altup_proj"), ("altup_unembed_projections", "altup_unembd_proj")):
        writer.add_tensor(f"{name}.weight", numpy.stack([stacked[family][i] for i in range(len(stacked[family]))]))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


main()
