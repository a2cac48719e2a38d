"""The independent implementation: Hugging Face transformers and torch, on the CPU in fp32.

What `ridgepoint train` and `ridgepoint generate` are compared with: losses and gradient norms of AdamW steps on
sequential data, and greedy continuation. Works with transformers 4 and 5.
"""
import pathlib

import numpy as np
import torch
import transformers

BATCH, LENGTH, STEPS = 2, 64, 10
LEARNING_RATE, BETAS, EPS = 1e-3, (0.9, 0.95), 1e-8
PROMPT, NEW_TOKENS = [1, 2, 3], 24
# Steps before a model is saved: predictions become informative and greedy choices clear.
WARM_UP_STEPS = 60
# Two best logits nearer than this could change places by rounding alone; a model with such a choice is not recorded.
MIN_MARGIN = 0.01

MAJOR = int(transformers.__version__.split(".")[0])


def rope(theta, llama3_original_length=None):
    """RoPE settings as this version of transformers takes and writes them."""
    scaling = {}
    if llama3_original_length is not None:
        scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                   "original_max_position_embeddings": llama3_original_length}
    if MAJOR >= 5:
        return {"rope_parameters": {"rope_type": "default", "rope_theta": theta, **scaling}}
    return {"rope_theta": theta, **({"rope_scaling": scaling} if scaling else {})}


def llama(width, **settings):
    common = {"vocab_size": 256, "hidden_size": width, "intermediate_size": 2 * width + 8, "num_hidden_layers": 2,
              "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128,
              "rms_norm_eps": 1e-5, "tie_word_embeddings": False}
    if "rope_parameters" not in settings and "rope_theta" not in settings:
        settings |= rope(10000.0)
    return transformers.LlamaConfig(**(common | settings))


def common(width):
    return {"vocab_size": 256, "hidden_size": width, "intermediate_size": 2 * width, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "rms_norm_eps": 1e-6,
            "tie_word_embeddings": False}


FAMILIES = {
    "gpt2": lambda width: transformers.GPT2Config(
        vocab_size=256, n_embd=width, n_layer=2, n_head=4, n_positions=80, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0),
    "llama-gqa": lambda width: llama(width),
    "llama-mqa": lambda width: llama(width, num_key_value_heads=1),
    "llama-head-dim": lambda width: llama(width, head_dim=width // 2, rms_norm_eps=1e-6),
    "llama3-rope": lambda width: llama(width, head_dim=16, **rope(10000.0, llama3_original_length=32)),
    "llama-tied": lambda width: llama(width, tie_word_embeddings=True),
    "qwen2": lambda width: transformers.Qwen2Config(
        vocab_size=256, hidden_size=width, intermediate_size=2 * width, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128, rms_norm_eps=1e-6, tie_word_embeddings=True,
        use_sliding_window=False, **rope(1e6)),
    # Families of a later day: a window shorter than the sequence, norms of queries and keys, experts, ALiBi.
    "mistral-window": lambda width: transformers.MistralConfig(**common(width), sliding_window=20, **rope(10000.0)),
    "qwen3": lambda width: transformers.Qwen3Config(**common(width), head_dim=16, **rope(1e6)),
    "mixtral": lambda width: transformers.MixtralConfig(
        **common(width), num_local_experts=4, num_experts_per_tok=2, sliding_window=None, **rope(10000.0)),
    # Trained with a capacity: LIMITS below.
    "mixtral-capacity": lambda width: transformers.MixtralConfig(
        **common(width), num_local_experts=4, num_experts_per_tok=2, sliding_window=None, **rope(10000.0)),
    "qwen2-moe": lambda width: transformers.Qwen2MoeConfig(
        **common(width), num_experts=6, num_experts_per_tok=2, moe_intermediate_size=24, decoder_sparse_step=2,
        shared_expert_intermediate_size=40, norm_topk_prob=False, use_sliding_window=False, **rope(1e6)),
    "qwen3-moe": lambda width: transformers.Qwen3MoeConfig(
        **common(width), head_dim=16, num_experts=8, num_experts_per_tok=3, moe_intermediate_size=24,
        norm_topk_prob=True, use_sliding_window=False, **rope(1e6)),
    "qwen2-moe-all-layers": lambda width: transformers.Qwen2MoeConfig(
        **common(width), num_experts=6, num_experts_per_tok=2, moe_intermediate_size=24, decoder_sparse_step=1,
        shared_expert_intermediate_size=40, norm_topk_prob=False, use_sliding_window=False, **rope(1e6)),
    # Latent attention, with a latent of queries and without; routers by sigmoid and bias within groups, and by softmax.
    "deepseek-v3": lambda width: transformers.DeepseekV3Config(
        **common(width) | {"num_key_value_heads": 4, "num_hidden_layers": 3}, q_lora_rank=24, kv_lora_rank=16,
        qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=12, n_routed_experts=8, num_experts_per_tok=3,
        moe_intermediate_size=24, n_shared_experts=1, first_k_dense_replace=1, n_group=4, topk_group=2, num_nextn_predict_layers=0,
        routed_scaling_factor=2.5, norm_topk_prob=True, **rope(10000.0)),
    "deepseek-v2": lambda width: transformers.DeepseekV2Config(
        **common(width) | {"num_key_value_heads": 4, "num_hidden_layers": 2}, q_lora_rank=None, kv_lora_rank=16,
        qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=12, n_routed_experts=6, num_experts_per_tok=2,
        moe_intermediate_size=24, n_shared_experts=2, first_k_dense_replace=1, n_group=1, topk_group=1,
        topk_method="greedy", routed_scaling_factor=1.0, norm_topk_prob=False, **rope(10000.0)),
    # A module of multi-token prediction, which transformers does not compute: Module below.
    "deepseek-v3-mtp": lambda width: transformers.DeepseekV3Config(
        **common(width) | {"num_key_value_heads": 4}, q_lora_rank=None, kv_lora_rank=16,
        qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=12, n_routed_experts=6, num_experts_per_tok=2,
        moe_intermediate_size=24, n_shared_experts=1, first_k_dense_replace=1, n_group=1, topk_group=1,
        num_nextn_predict_layers=1, routed_scaling_factor=2.5, norm_topk_prob=True, **rope(10000.0)),
    # Sinks, a window in every other layer, YaRN, biases everywhere, clamped activations.
    "gpt-oss": lambda width: transformers.GptOssConfig(
        **common(width) | {"intermediate_size": 24}, head_dim=16, num_local_experts=4, num_experts_per_tok=2, sliding_window=12,
        rope_parameters={"rope_type": "yarn", "rope_theta": 150000.0, "factor": 8.0, "beta_fast": 32.0, "beta_slow": 1.0,
                         "truncate": False, "original_max_position_embeddings": 16}),
    # Segments in all layers but each second, which has no positions; weights on what experts read.
    "llama4": lambda width: transformers.Llama4TextConfig(
        **common(width) | {"intermediate_size": 24}, intermediate_size_mlp=2 * width, head_dim=16, num_local_experts=4,
        num_experts_per_tok=1, interleave_moe_layer_step=2, attention_chunk_size=20, no_rope_layers=[1, 0],
        no_rope_layer_interval=2, **rope(10000.0)),
    "llama4-as-published": lambda width: transformers.Llama4TextConfig(
        **common(width) | {"intermediate_size": 24, "num_hidden_layers": 4}, intermediate_size_mlp=2 * width, head_dim=16,
        num_local_experts=4, num_experts_per_tok=1, interleave_moe_layer_step=2, **rope(10000.0)),
    # A padding token's embedding would not learn there.
    "olmo2": lambda width: transformers.Olmo2Config(**common(width), pad_token_id=None, **rope(10000.0)),
    "gemma": lambda width: transformers.GemmaConfig(
        **common(width) | {"num_key_value_heads": 1, "tie_word_embeddings": True}, head_dim=24, pad_token_id=None, **rope(10000.0)),
    # Caps of scores and of logits, low enough to bend them; norms around each part; scores divided by another root than
    # head_dim's, as in the largest models of both families.
    "gemma2": lambda width: transformers.Gemma2Config(
        **common(width) | {"tie_word_embeddings": True}, head_dim=16, pad_token_id=None, query_pre_attn_scalar=40, sliding_window=12,
        layer_types=["sliding_attention", "full_attention"], attn_logit_softcapping=1.5, final_logit_softcapping=4.0, **rope(10000.0)),
    "gemma2-as-published": lambda width: transformers.Gemma2Config(
        **common(width) | {"tie_word_embeddings": True}, head_dim=16, pad_token_id=None, query_pre_attn_scalar=16, sliding_window=12,
        layer_types=["sliding_attention", "full_attention"], **rope(10000.0)),
    # Norms around each part; layers with windows rotate by another base.
    "gemma3": lambda width: transformers.Gemma3TextConfig(
        **common(width) | {"num_hidden_layers": 3, "tie_word_embeddings": True}, head_dim=16, pad_token_id=None, query_pre_attn_scalar=24,
        sliding_window=12, layer_types=["sliding_attention", "sliding_attention", "full_attention"],
        rope_parameters={"full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e6},
                         "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}),
    "gemma3-as-published": lambda width: transformers.Gemma3TextConfig(
        **common(width) | {"num_hidden_layers": 6, "tie_word_embeddings": True}, head_dim=16, pad_token_id=None,
        query_pre_attn_scalar=16, sliding_window=12,
        rope_parameters={"full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e6},
                         "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}),
    "falcon": lambda width: transformers.FalconConfig(
        vocab_size=256, hidden_size=width, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=128),
    "falcon-grouped": lambda width: transformers.FalconConfig(
        vocab_size=256, hidden_size=width, num_hidden_layers=2, num_attention_heads=4, num_kv_heads=2,
        new_decoder_architecture=True, max_position_embeddings=128),
    "gpt-neox": lambda width: transformers.GPTNeoXConfig(
        vocab_size=256, hidden_size=width, intermediate_size=2 * width, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=128, hidden_dropout=0.0, attention_dropout=0.0,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}),
    "mpt": lambda width: transformers.MptConfig(vocab_size=256, d_model=width, n_heads=4, n_layers=2, max_seq_len=128),
    "opt": lambda width: transformers.OPTConfig(
        vocab_size=256, hidden_size=width, word_embed_proj_dim=width, ffn_dim=2 * width, num_hidden_layers=2,
        num_attention_heads=4, max_position_embeddings=128, dropout=0.0, attention_dropout=0.0,
        pad_token_id=None),
    "bloom": lambda width: transformers.BloomConfig(
        vocab_size=256, hidden_size=width, n_layer=2, n_head=4, hidden_dropout=0.0, attention_dropout=0.0),
    # Heads that are no power of two have the slopes of two series.
    "bloom-6-heads": lambda width: transformers.BloomConfig(
        vocab_size=256, hidden_size=width // 4 * 6, n_layer=1, n_head=6, hidden_dropout=0.0, attention_dropout=0.0),
}


# Rows that an expert takes in training, over the mean; what is more is dropped.
LIMITS = {"mixtral-capacity": 0.75}


def limit_experts(model, factor):
    """Each expert takes its first rows, tokens in order and a token's choices in order (Switch Transformer, arXiv 2101.03961,
    section 2.2); what comes after has weight 0, which transformers does not do."""
    for module in model.modules():
        if not (hasattr(module, "gate") and hasattr(module, "experts")):
            continue

        def forward(hidden, index, weights, forward=module.experts.forward, experts=module.experts.num_experts):
            places, chosen = int(factor * index.numel() / experts), index.flatten()
            rank = torch.nn.functional.one_hot(chosen, experts).cumsum(0).gather(1, chosen[:, None]).view_as(index)
            return forward(hidden, index, weights * (rank <= places))

        module.experts.forward = forward


def make_tokens(vocab_size, count=STEPS * BATCH * LENGTH + 1, seed=5):
    """Predictable enough to learn, random enough not to be learnt whole."""
    rng = np.random.default_rng(seed)
    tokens = np.zeros(count, dtype=np.int64)
    for i in range(1, count):
        tokens[i] = (7 * tokens[i - 1] + 3) % vocab_size if rng.random() < 0.7 else rng.integers(vocab_size)
    return tokens


def batch(tokens, step):
    """Inputs and targets of a step: row b of step i reads tokens from (i * B + b) * T, targets one further."""
    starts = [(step * BATCH + row) * LENGTH for row in range(BATCH)]
    pick = lambda shift: torch.tensor(np.stack([tokens[s + shift:s + shift + LENGTH] for s in starts]))
    return pick(0), pick(1)


def attach_module(model):
    """Multi-token prediction (DeepSeek-V3, arXiv 2412.19437, section 2.2): one layer behind the model's last, under the names
    of the published weights. From the last hidden state and the next token's embedding it predicts the token after that."""
    config = model.config
    layer = type(model.model.layers[-1])(config, config.num_hidden_layers)
    norm = lambda: type(model.model.norm)(config.hidden_size, eps=config.rms_norm_eps)
    layer.enorm, layer.hnorm, layer.shared_head = norm(), norm(), torch.nn.Module()
    layer.shared_head.norm = norm()
    layer.eh_proj = torch.nn.Linear(2 * config.hidden_size, config.hidden_size, bias=False)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.05) if parameter.dim() > 1 else torch.nn.init.ones_(parameter)
    model.model.layers.append(layer)


def module_loss(model, hidden, targets):
    """Loss of the tokens after next; a sequence's last position has none. As a mean over all positions."""
    layer, length = model.model.layers[-1], targets.shape[1]
    joined = torch.cat([layer.enorm(model.model.embed_tokens(targets)), layer.hnorm(hidden)], dim=-1)
    positions = torch.arange(length).unsqueeze(0)
    mask = torch.full((length, length), float("-inf")).triu(1)[None, None]
    out = layer(layer.eh_proj(joined), attention_mask=mask, position_ids=positions,
                position_embeddings=model.model.rotary_emb(joined, positions))
    logits = model.lm_head(layer.shared_head.norm(out))
    return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), targets[:, 1:].flatten(),
                                             reduction="sum") / targets.numel()


def loss_of(model, inputs, targets):
    """The model's own loss and logits, and what is added to that loss."""
    if not has_module(model):
        logits = model(input_ids=inputs, use_cache=False).logits
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten()), logits, 0.0
    hidden = []
    hook = model.model.norm.register_forward_pre_hook(lambda _, arguments: hidden.append(arguments[0]))
    logits = model(input_ids=inputs, use_cache=False).logits
    hook.remove()
    own = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
    return own, logits, module_loss(model, hidden[0], targets)


def has_module(model):
    return getattr(model.config, "num_nextn_predict_layers", 0) > 0


def adamw(model, learning_rate=LEARNING_RATE):
    return torch.optim.AdamW(model.parameters(), lr=learning_rate, betas=BETAS, eps=EPS, weight_decay=0.0)


def make_model(name, width, seed=0):
    """A small model of a family, every parameter away from its trivial start (biases 0, norms 1), briefly trained."""
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(FAMILIES[name](width), attn_implementation="eager").float().eval()
    if has_module(model):
        attach_module(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.05)
    optimizer = adamw(model, 1e-2)
    tokens = make_tokens(model.config.vocab_size, seed=seed + 100)
    for step in range(WARM_UP_STEPS):
        optimizer.zero_grad()
        own, _, further = loss_of(model, *batch(tokens, step % STEPS))
        (own + further).backward()
        optimizer.step()
    return model


def load_model(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").float().eval()


def train(model, tokens):
    """Losses and gradient norms of the steps, with a digest of the first logits. Changes the model."""
    optimizer = adamw(model)
    losses, norms, digest = [], [], {}
    for step in range(STEPS):
        optimizer.zero_grad()
        loss, logits, further = loss_of(model, *batch(tokens, step))
        (loss + further).backward()
        if step == 0:
            digest = {"sum": logits.double().sum().item(), "abs_sum": logits.double().abs().sum().item(),
                      "first_row_last_position": logits[0, -1, :16].tolist()}
        losses.append(loss.item())
        norms.append(torch.sqrt(sum((p.grad.double() ** 2).sum() for p in model.parameters() if p.grad is not None)).item())
        optimizer.step()
    return {"losses": losses, "grad_norms": norms, "first_logits": digest}


@torch.no_grad()
def generate(model):
    """Greedy continuation without a cache, and the least distance between the two best logits on the way."""
    tokens, margin = list(PROMPT), float("inf")
    for _ in range(NEW_TOKENS):
        best = model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0, -1].topk(2)
        margin = min(margin, (best.values[0] - best.values[1]).item())
        tokens.append(best.indices[0].item())
    return {"prompt": PROMPT, "tokens": tokens[len(PROMPT):], "min_margin": margin}


def token_dtype(vocab_size):
    return np.uint16 if vocab_size <= 65535 else np.uint32


def make_reference(name, folder, width):
    """Writes config.json, model.safetensors and tokens.bin of a small model; returns what is expected of them."""
    folder = pathlib.Path(folder)
    for seed in range(20):
        model = make_model(name, width, seed)
        generation = generate(model)
        if generation["min_margin"] >= MIN_MARGIN:
            break
    else:
        raise RuntimeError(f"{name}: no seed gives clear greedy choices")
    model.save_pretrained(folder, safe_serialization=True)
    tokens = make_tokens(model.config.vocab_size)
    (folder / "tokens.bin").write_bytes(tokens.astype(token_dtype(model.config.vocab_size)).tobytes())
    # What was saved is what is measured.
    trained = model if has_module(model) else load_model(folder)
    limit = {}
    if name in LIMITS:
        limit_experts(trained, LIMITS[name])
        limit = {"expert_capacity_factor": LIMITS[name]}
    return {"made_with": {"transformers": transformers.__version__, "torch": torch.__version__.split("+")[0]},
            "training": limit | train(trained, tokens), "generation": generation}
