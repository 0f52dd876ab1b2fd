"""A GGUF file as llama.cpp writes them: one Llama layer of random weights, a byte-pair tokenizer, a chat template."""

from pathlib import Path

import gguf
import numpy as np

TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *"0123456789+=-", "Ġ", "12"]
HIDDEN, LAYER, HEADS, KV_HEADS = 32, 32, 2, 1


def write_tiny_gguf(path: Path, *, architecture: str = "llama", pre_tokenizer: str = "gpt-2", seed: int = 0) -> Path:
    """Weights in Q4_1 where llama.cpp quantizes them (matrices), in float32 elsewhere; the head is tied."""
    rng = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(1)
    writer.add_feed_forward_length(LAYER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_vocab_size(len(TOKENS))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre_tokenizer)
    writer.add_token_list(TOKENS)
    writer.add_token_types([gguf.TokenType.CONTROL] * 3 + [gguf.TokenType.NORMAL] * (len(TOKENS) - 3))
    writer.add_token_merges(["1 2"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_chat_template("{% for message in messages %}{{ message['content'] }}{% endfor %}")
    width = HIDDEN // HEADS * KV_HEADS
    for name, shape in {
        "token_embd": (len(TOKENS), HIDDEN), "blk.0.attn_q": (HIDDEN, HIDDEN), "blk.0.attn_k": (width, HIDDEN),
        "blk.0.attn_v": (width, HIDDEN), "blk.0.attn_output": (HIDDEN, HIDDEN), "blk.0.ffn_gate": (LAYER, HIDDEN),
        "blk.0.ffn_up": (LAYER, HIDDEN), "blk.0.ffn_down": (HIDDEN, LAYER),
    }.items():  # fmt: skip
        weight = gguf.quantize(rng.normal(size=shape).astype(np.float32), gguf.GGMLQuantizationType.Q4_1)
        writer.add_tensor(f"{name}.weight", weight, raw_dtype=gguf.GGMLQuantizationType.Q4_1)
    for name in ("blk.0.attn_norm", "blk.0.ffn_norm", "output_norm"):
        writer.add_tensor(f"{name}.weight", np.ones(HIDDEN, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
