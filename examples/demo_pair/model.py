"""A Llama whose parameter names are those of a Hugging Face checkpoint, and reading/writing such a folder.

Parameters carry Hugging Face's names and layout (`[out, in]` matrices, rotate-half RoPE), so that exporting is
nothing but a cast to bfloat16.
"""
import json
import os
import shutil

import torch
import torch.nn as nn
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

EOT = 0  # <|endoftext|>: document separator, beginning and end of text
TARGET = dict(hidden_size=256, intermediate_size=640, num_hidden_layers=6, num_attention_heads=4)
DRAFT = dict(hidden_size=128, intermediate_size=352, num_hidden_layers=2, num_attention_heads=2)


def make_config(shape, vocab_size=2048):
    return dict(
        architectures=["LlamaForCausalLM"], model_type="llama", vocab_size=vocab_size, **shape,
        num_key_value_heads=shape["num_attention_heads"],
        head_dim=shape["hidden_size"] // shape["num_attention_heads"],
        max_position_embeddings=1024, rope_theta=10000.0, rope_scaling=None, rms_norm_eps=1e-5,
        tie_word_embeddings=True, hidden_act="silu", attention_bias=False, attention_dropout=0.0, mlp_bias=False,
        pretraining_tp=1, initializer_range=0.02, bos_token_id=EOT, eos_token_id=EOT, pad_token_id=None,
        use_cache=True, torch_dtype="bfloat16")


class RMSNorm(nn.Module):
    def __init__(self, dim, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(dim)), eps

    def forward(self, x):
        y = x.float()
        return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight).to(x.dtype)


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-b, a), dim=-1) * sin


def causal_attention(q, k, v, block=256):
    """Attention by blocks of queries, as plain matrix products.

    For training on a processor: torch's fused CPU kernel has a slow backward pass, while these products run on the
    processor's matrix units and a compiled softmax. Blocks skip most of what the causal mask would discard.
    """
    t, out = q.shape[2], []
    q = q * q.shape[-1] ** -0.5
    for at in range(0, t, block):
        end = min(at + block, t)
        scores = q[:, :, at:end] @ k[:, :, :end].transpose(-1, -2)
        hidden = torch.ones(end - at, end, dtype=torch.bool, device=q.device).triu(at + 1)
        p = scores.float().masked_fill(hidden, float("-inf")).softmax(-1).to(v.dtype)
        out.append(p @ v[:, :, :end])
    return torch.cat(out, dim=2)


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads, self.kv_heads, self.dim = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        d = c["hidden_size"]
        self.q_proj = nn.Linear(d, self.heads * self.dim, bias=False)
        self.k_proj = nn.Linear(d, self.kv_heads * self.dim, bias=False)
        self.v_proj = nn.Linear(d, self.kv_heads * self.dim, bias=False)
        self.o_proj = nn.Linear(self.heads * self.dim, d, bias=False)

    def forward(self, x, cos, sin, cache):
        b, t, _ = x.shape
        q = rotate(self.q_proj(x).view(b, t, self.heads, self.dim).transpose(1, 2), cos, sin)
        k = rotate(self.k_proj(x).view(b, t, self.kv_heads, self.dim).transpose(1, 2), cos, sin)
        v = self.v_proj(x).view(b, t, self.kv_heads, self.dim).transpose(1, 2)
        if cache is None:
            y = causal_attention(q, k, v)
        else:
            y = F.scaled_dot_product_attention(q, *cache.append(self, k, v), attn_mask=cache.mask)
        return self.o_proj(y.transpose(1, 2).reshape(b, t, -1))


class MLP(nn.Module):
    def __init__(self, c):
        super().__init__()
        d, f = c["hidden_size"], c["intermediate_size"]
        self.gate_proj, self.up_proj = nn.Linear(d, f, bias=False), nn.Linear(d, f, bias=False)
        self.down_proj = nn.Linear(f, d, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.input_layernorm = RMSNorm(c["hidden_size"], c["rms_norm_eps"])
        self.self_attn = Attention(c)
        self.post_attention_layernorm = RMSNorm(c["hidden_size"], c["rms_norm_eps"])
        self.mlp = MLP(c)

    def forward(self, x, cos, sin, cache):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, cache)
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    """`forward(ids)` gives the logits of every position; the output matrix is the embedding (tied)."""

    def __init__(self, config):
        super().__init__()
        self.config = c = config
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(c["vocab_size"], c["hidden_size"])
        self.model.layers = nn.ModuleList(Block(c) for _ in range(c["num_hidden_layers"]))
        self.model.norm = RMSNorm(c["hidden_size"], c["rms_norm_eps"])
        half = torch.arange(0, c["head_dim"], 2).float() / c["head_dim"]
        angle = torch.arange(c["max_position_embeddings"]).float()[:, None] / c["rope_theta"] ** half
        self.register_buffer("cos", torch.cat((angle, angle), -1).cos(), persistent=False)
        self.register_buffer("sin", torch.cat((angle, angle), -1).sin(), persistent=False)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                # Matrices that write into the residual stream start smaller, as many of them add up there.
                deep = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(p, std=0.02 / (2 * c["num_hidden_layers"]) ** 0.5 if deep else 0.02)

    def forward(self, ids, cache=None):
        at = slice(0, ids.shape[1]) if cache is None else cache.positions(ids)
        x = self.model.embed_tokens(ids)
        # In a low-precision region the residual stream is kept in that precision too: it is bound by memory traffic.
        x = x.to(torch.get_autocast_dtype("cpu")) if torch.is_autocast_enabled("cpu") else x
        cos, sin = self.cos[at].to(x.dtype), self.sin[at].to(x.dtype)
        if cache is not None and cos.dim() == 3:
            cos, sin = cos[:, None], sin[:, None]
        for layer in self.model.layers:
            x = layer(x, cos, sin, cache)
        return F.linear(self.model.norm(x), self.model.embed_tokens.weight)


class Cache:
    """Keys and values of a batch of left-padded sequences, with the attention mask of the tokens being added."""

    def __init__(self, model, batch, length, pad=None):
        c = model.config
        self.store = {id(l.self_attn): tuple(
            torch.zeros(batch, c["num_key_value_heads"], length, c["head_dim"], dtype=model.model.norm.weight.dtype)
            for _ in "kv") for l in model.model.layers}
        self.used, self.pad = 0, torch.zeros(batch, dtype=torch.long) if pad is None else pad

    def positions(self, ids):
        t = ids.shape[1]
        slots, new = torch.arange(self.used + t), torch.arange(self.used, self.used + t)
        # A slot is visible if it is not padding and not in the future. Padding sees itself, to keep softmax finite.
        seen = (slots[None, None] <= new[None, :, None]) & (slots[None, None] >= self.pad[:, None, None])
        self.mask = (seen | (slots[None, None] == new[None, :, None]))[:, None]
        self.span, self.used = slice(self.used, self.used + t), self.used + t
        return (new[None] - self.pad[:, None]).clamp(min=0)

    def keep(self, rows):
        self.store = {layer: tuple(z[rows] for z in pair) for layer, pair in self.store.items()}
        self.pad = self.pad[rows]

    def append(self, layer, k, v):
        keys, values = self.store[id(layer)]
        keys[:, :, self.span], values[:, :, self.span] = k, v
        return keys[:, :, :self.used], values[:, :, :self.used]


@torch.inference_mode()
def continue_texts(model, prompts, new_tokens, temperature=None, generator=None):
    """Continues a batch of token lists until the separator; `temperature` holds one value per row, 0 being greedy."""
    longest = max(map(len, prompts))
    pad = torch.tensor([longest - len(p) for p in prompts])
    cache = Cache(model, len(prompts), longest + new_tokens, pad)
    ids = torch.tensor([[EOT] * (longest - len(p)) + list(p) for p in prompts])
    written, rows = [[] for _ in prompts], torch.arange(len(prompts))
    for _ in range(new_tokens):
        logits = model(ids, cache)[:, -1].float()
        ids = logits.argmax(-1)
        if temperature is not None:
            t = temperature[rows]
            drawn = torch.multinomial((logits / t.clamp(min=1e-3)[:, None]).softmax(-1), 1, generator=generator)[:, 0]
            ids = torch.where(t > 0, drawn, ids)
        for row, token in zip(rows.tolist(), ids.tolist()):
            if not written[row] or written[row][-1] != EOT:
                written[row].append(token)
        running = torch.tensor([written[row][-1] != EOT for row in rows.tolist()])
        if not running.any():
            break
        if running.float().mean() < 0.75:  # drops finished rows occasionally, since moving the cache costs time
            cache.keep(running)
            ids, rows = ids[running], rows[running]
        ids = ids[:, None]
    return written


def write_atomically(path, write):
    """Writes atomically: under another name first, then renames."""
    write(path + ".tmp")
    os.replace(path + ".tmp", path)


def write_json(path, value, indent=2):
    def write(name):
        with open(name, "w") as f:
            json.dump(value, f, indent=indent)
            f.write("\n")
    write_atomically(path, write)


def export(state, config, tokenizer, folder):
    """Writes a Hugging Face folder from a state dict in float32 and the path of a tokenizer.json."""
    os.makedirs(folder, exist_ok=True)
    tensors = {name: value.to(torch.bfloat16).contiguous() for name, value in state.items()}
    write_atomically(f"{folder}/model.safetensors", lambda p: save_file(tensors, p, metadata={"format": "pt"}))
    os.chmod(f"{folder}/model.safetensors", 0o644)
    write_json(f"{folder}/config.json", config)
    write_json(f"{folder}/generation_config.json", dict(bos_token_id=EOT, eos_token_id=EOT, do_sample=False))
    write_atomically(f"{folder}/tokenizer.json", lambda p: shutil.copyfile(tokenizer, p))
    write_json(f"{folder}/tokenizer_config.json", dict(
        tokenizer_class="PreTrainedTokenizerFast", bos_token="<|endoftext|>", eos_token="<|endoftext|>",
        add_bos_token=True, add_eos_token=False, clean_up_tokenization_spaces=False,
        model_max_length=config["max_position_embeddings"]))


def load(folder):
    """The model of a Hugging Face folder, in float32."""
    with open(f"{folder}/config.json") as f:
        model = Llama(json.load(f))
    model.load_state_dict({k: v.float() for k, v in load_file(f"{folder}/model.safetensors").items()})
    return model.eval()
