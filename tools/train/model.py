"""The forward pass, written from the description of the architecture: whole sequences, no cache.

`w` maps released tensor names to tensors that already hold dequantised values (routed experts stacked as
`layers.N.ffn.experts.w1` [E, I, D]). The type of `w['embed.weight']` is the type of all activations: fp64 or fp32 to check
arithmetic, bf16 to train. Norms, softmaxes, mixes and gates are computed in fp32 (fp64 for fp64), the state rounding in fp32.

Several documents may be packed into one sequence: `segments` [B, T] numbers them, and nothing (window, compressed
entries, n-gram look-back) reaches across. A document must then start at an even position, so that groups of two tokens stay
inside it; every result is the same as if the document stood alone, but for the rounding of rope angles."""
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch.nn.functional import linear

import quant
from hyper import collapse, expand, mix
from rope import inverse_frequencies, rotate_tail, rotation

NEG = float("-inf")


def wide(x):
    return x if x.dtype == torch.float64 else x.float()


def rms_norm(x, weight, eps):
    z = wide(x)
    return (wide(weight) * z * torch.rsqrt(z.square().mean(-1, keepdim=True) + eps)).to(x.dtype)


def sub(w, prefix):
    return {k[len(prefix):]: v for k, v in w.items() if k.startswith(prefix)}


def part(w, *prefixes):
    return {k: v for k, v in w.items() if k.startswith(prefixes)}


class Kind(NamedTuple):
    """What a layer's attention does beside its window."""
    ratio: int
    kv_source: bool
    index_source: bool
    makes_candidates: bool
    uses_candidates: bool


def kind_of(cfg, layer):
    cand = cfg.candidate_source_layer_id
    index = layer in cfg.index_source_layer_ids
    return Kind(cfg.compress_ratios[layer], layer in cfg.kv_source_layer_ids, index,
                index and layer == cand, index and 0 <= cand < layer)


class Shared(NamedTuple):
    """What a layer hands to the layers after it: the latest source's entries, their index keys, the last selection."""
    latent: torch.Tensor | None = None
    index_k: torch.Tensor | None = None
    selected: torch.Tensor | None = None
    candidates: torch.Tensor | None = None


@dataclass
class Options:
    round_state: bool = True            # the three roundings of caches and indexer
    engram: str = "on"                  # "on", "shut" (every gate 0), "none" (a model without Engram)
    index_loss: bool = False            # also the indexer's training loss
    row_dropout: float = 0.0            # training: chance of each fetched row to be left out
    memory_dropout: float = 0.0         # training: chance of a token to go without its rows in a layer
    trace: dict | None = None
    site_functions: tuple | None = None  # compiled replacements of (spread, engram, attention_site, ffn_site)


@dataclass
class Extras:
    index_loss: list = field(default_factory=list)
    expert_load: list = field(default_factory=list)


# ---- attention ----------------------------------------------------------------------------------------------------

def compress(x, lw, cfg, ratio):
    """Latents before rope [B, G, d]: every token, or pairs pooled by a softmax over their gates."""
    kv = linear(x, lw["attn.compressor.wkv.weight"])
    if ratio > 1:
        groups = kv.shape[1] // ratio
        kv = wide(kv)[:, :groups * ratio].unflatten(1, (groups, ratio))
        gate = wide(linear(x, lw["attn.compressor.wgate.weight"]))[:, :groups * ratio].unflatten(1, (groups, ratio))
        kv = (torch.softmax(gate, 2) * kv).sum(2).to(x.dtype)
    return rms_norm(kv, lw["attn.compressor.norm.weight"], cfg.rms_norm_eps)


def visible_entries(length, ratio, segments, device):
    """bool [1 or B, T, G]: entry g is complete at position t (and of the same document)."""
    groups = length // ratio
    t = torch.arange(length, device=device)
    g = torch.arange(groups, device=device)
    ok = (g[None, :] < ((t + 1) // ratio)[:, None])[None]
    if segments is not None:
        ok = ok & (segments[:, :, None] == segments[:, None, :groups * ratio:ratio])
    return ok


def top_mask(scores, k):
    """bool mask of the k best of the last axis; among equals the earlier one."""
    k = min(k, scores.shape[-1])
    if scores.shape[-1] <= 32:      # few candidates: count those that are better
        at = torch.arange(scores.shape[-1], device=scores.device)
        other, own = scores[..., None, :], scores[..., :, None]
        better = (other > own) | ((other == own) & (at[None, :] < at[:, None]))
        return better.sum(-1) < k
    if scores.is_cuda:
        best = torch.topk(scores, k, dim=-1, sorted=False).indices
    else:
        best = torch.sort(scores, dim=-1, descending=True, stable=True).indices[..., :k]
    return torch.zeros_like(scores, dtype=torch.bool).scatter(-1, best, True)


def candidate_blocks(scores, ratio, segments, cfg):
    """bool [B, T, blocks]: the best blocks by their best entry; the block of the newest visible entry always among them."""
    B, T, G = scores.shape
    size = cfg.candidate_block_size
    pooled = torch.nn.functional.pad(scores, (0, -G % size), value=NEG).unflatten(-1, (-1, size)).amax(-1)
    newest = (torch.arange(T, device=scores.device) + 1) // ratio - 1
    here = torch.arange(pooled.shape[-1], device=scores.device)[None, :] == torch.div(newest, size, rounding_mode="floor")[:, None]
    pooled = torch.where(here[None] & (pooled > NEG), float("inf"), pooled)
    return top_mask(pooled, cfg.candidate_topk_blocks) & (pooled > NEG)


def index_scores(x, qr, index_k, lw, cfg, cos, sin, round_state):
    """[B, T, G]: how well each entry's key answers each position."""
    q = linear(qr, lw["attn.indexer.wq_b.weight"]).unflatten(-1, (cfg.index_n_heads, cfg.index_head_dim))
    q = rotate_tail(q, cos, sin)
    if round_state:
        q = quant.fake_fp4_block32(q)
    head_weight = wide(linear(x, lw["attn.indexer.weights_proj.weight"])) * cfg.index_head_dim ** -0.5 * cfg.index_n_heads ** -0.5
    B, T, n, c = q.shape
    dots = torch.matmul(q.reshape(B, T * n, c), index_k.transpose(1, 2)).view(B, T, n, -1)
    return (torch.relu(wide(dots)) * head_weight[..., None]).sum(2)


def update_shared(x, qr, lw, shared, kind, cfg, cos, sin, segments, warm, opt):
    """The source layers' work: new latents and index keys, a new selection. Returns (Shared, visible, scores or None)."""
    T, ratio = x.shape[1], kind.ratio
    if kind.kv_source:
        latent = compress(x, lw, cfg, ratio)
        at = slice(0, (T // ratio) * ratio, ratio)
        index_k = None
        if kind.index_source:
            index_k = rms_norm(linear(latent.detach(), lw["attn.indexer.wk.weight"]), lw["attn.indexer.k_norm.weight"], cfg.rms_norm_eps)
            index_k = rotate_tail(index_k, cos[at], sin[at])
            index_k = quant.fake_fp4_block32(index_k) if opt.round_state else index_k
        latent = rotate_tail(latent, cos[at], sin[at])
        latent = quant.fake_fp4_block16(latent) if opt.round_state else latent
        shared = Shared(latent, index_k, None, shared.candidates)
    visible = visible_entries(T, ratio, segments, x.device)
    if not kind.index_source:
        return shared, visible, None
    scores = index_scores(x.detach(), qr.detach(), shared.index_k, lw, cfg, cos, sin, opt.round_state)
    with torch.no_grad():
        ranked = scores.masked_fill(~visible, NEG)
        candidates = shared.candidates
        if kind.uses_candidates:
            inside = candidates.repeat_interleave(cfg.candidate_block_size, -1)[..., :ranked.shape[-1]]
            inside = inside if warm is None else inside | warm
            picked = ranked.masked_fill(~inside, NEG)
        else:
            picked = ranked
        selected = top_mask(picked, cfg.index_topk) & (picked > NEG)
        if warm is not None:        # early in training: everything visible is attended
            selected = selected | (visible & warm)
        if kind.makes_candidates:
            candidates = candidate_blocks(ranked, ratio, segments, cfg)
    if opt.trace is not None:
        opt.trace.update(index_scores=ranked, index_selected=selected)
        if kind.makes_candidates:
            opt.trace.update(candidate_blocks=candidates)
    return Shared(shared.latent, shared.index_k, selected, candidates), visible, scores


def window_blocks(x, size):
    """[B, T, C] -> [B, T/size, 2*size, C]: each block of keys with the block before it."""
    own = x.unflatten(1, (-1, size))
    before = torch.cat((torch.zeros_like(own[:, :1]), own[:, :-1]), 1)
    return torch.cat((before, own), 2)


def window_mask(blocks, size, segments, device):
    """bool [1 or B, blocks, size, 2*size] of the keys in `window_blocks` that a query sees."""
    i = torch.arange(size, device=device)[:, None]
    j = torch.arange(2 * size, device=device)[None, :] - size
    ok = ((i - j >= 0) & (i - j < size))[None, None]
    first = (torch.arange(blocks, device=device) == 0)[None, :, None, None] & (j < 0)[None, None]
    ok = ok & ~first
    if segments is not None:
        own = segments.unflatten(1, (-1, size))
        ok = ok & (own[..., None] == window_blocks(segments[..., None], size)[..., 0][:, :, None, :])
    return ok


def index_loss(scores, logits, visible):
    """KL of the indexer's distribution from the heads' mean attention over the compressed entries (held fixed)."""
    seen = visible.any(-1)
    with torch.no_grad():
        fill = torch.where(visible[:, :, None, :], wide(logits), -1e30)
        target = torch.softmax(fill, -1).mean(2)
    log_q = torch.log_softmax(torch.where(visible, scores, -1e30), -1)
    terms = torch.where(visible & (target > 0), target * (torch.log(target.clamp_min(1e-30)) - log_q), 0.0)
    return (terms.sum(-1) * seen).sum() / seen.expand(scores.shape[:2]).sum().clamp_min(1)


def attention(x, lw, shared, kind, cfg, cos, sin, segments, warm, opt):
    """Returns (y, Shared, index loss or None)."""
    B, T, _ = x.shape
    n, d, size = cfg.num_attention_heads, cfg.head_dim, cfg.sliding_window
    qr = rms_norm(linear(x, lw["attn.wq_a.weight"]), lw["attn.q_norm.weight"], cfg.rms_norm_eps)
    q = rotate_tail(linear(qr, lw["attn.wq_b.weight"]).unflatten(-1, (n, d)), cos, sin)
    kv = rms_norm(linear(x, lw["attn.wkv.weight"]), lw["attn.kv_norm.weight"], cfg.rms_norm_eps)
    kv = rotate_tail(kv, cos, sin)
    kv = quant.fake_fp8_block32(kv) if opt.round_state else kv

    # The window: blocks of `size` queries against their own and the previous block of keys.
    pad = -T % size
    qw, kw, sw = q, kv, segments
    if pad:
        qw, kw = (torch.nn.functional.pad(t, (0, 0) * (t.dim() - 2) + (0, pad)) for t in (q, kv))
        sw = None if segments is None else torch.nn.functional.pad(segments, (0, pad), value=-1)
    blocks = (T + pad) // size
    keys = window_blocks(kw, size)
    near = torch.matmul(qw.reshape(B, blocks, size * n, d), keys.transpose(-1, -2)).view(B, blocks, size, n, 2 * size)
    near = wide(near) * d ** -0.5
    near = near.masked_fill(~window_mask(blocks, size, sw, x.device)[..., None, :], NEG)

    # The compressed entries that the indexer selected.
    far, loss = None, None
    if kind.ratio:
        shared, visible, scores = update_shared(x, qr, lw, shared, kind, cfg, cos, sin, segments, warm, opt)
        raw = torch.matmul(q.reshape(B, T * n, d), shared.latent.transpose(1, 2)).view(B, T, n, -1)
        far = wide(raw) * d ** -0.5
        if opt.index_loss and scores is not None:
            loss = index_loss(scores, far.detach(), visible)
        far = far.masked_fill(~shared.selected[:, :, None, :], NEG)

    # One softmax over both, with the sink in the denominator only.
    sink = wide(lw["attn.attn_sink"]).to(near.dtype)
    near = near.flatten(1, 2)[:, :T]                                             # [B, T, n, 2*size]
    top = torch.maximum(near.amax(-1), sink)
    if far is not None and far.shape[-1]:
        top = torch.maximum(top, far.amax(-1))
    top = top.detach()[..., None]
    p_near = torch.exp(near - top)
    total = p_near.sum(-1) + torch.exp(sink - top[..., 0])
    p = torch.nn.functional.pad(p_near, (0, 0, 0, 0, 0, pad)) if pad else p_near
    out = torch.matmul(p.to(x.dtype).view(B, blocks, size * n, 2 * size), keys)
    out = wide(out).view(B, blocks * size, n, d)[:, :T]
    if far is not None and far.shape[-1]:
        p_far = torch.exp(far - top)
        total = total + p_far.sum(-1)
        out = out + wide(torch.matmul(p_far.to(x.dtype).view(B, T * n, -1), shared.latent).view(B, T, n, d))
    out = rotate_tail((out / total[..., None]).to(x.dtype), cos, sin, inverse=True)

    # Grouped output projection.
    groups = cfg.o_groups
    wo_a = lw["attn.wo_a.weight"].unflatten(0, (groups, -1))                      # [groups, rank, heads*d/groups]
    low = torch.einsum("btgi,gri->btgr", out.reshape(B, T, groups, -1), wo_a).flatten(-2)
    if opt.trace is not None:
        opt.trace.update(window_kv=kv)
        if kind.kv_source:
            opt.trace.update(compress_kv=shared.latent, index_k=shared.index_k)
    return linear(low, lw["attn.wo_b.weight"]), shared, loss


def attention_site(h, pre, lw, shared, kind, cfg, cos, sin, segments, warm, opt):
    next_pre, post, comb = mix(h, lw["hc_attn_fn"], lw["hc_attn_scale"], lw["hc_attn_base"], cfg)
    x = rms_norm(collapse(h, pre), lw["attn_norm.weight"], cfg.rms_norm_eps)
    y, shared, loss = attention(x, lw, shared, kind, cfg, cos, sin, segments, warm, opt)
    if opt.trace is not None:
        opt.trace.update({"attn_in": x, "attn_out": y, "attn.hc_pre": next_pre, "attn.hc_post": post, "attn.hc_comb": comb})
    return expand(y, h, post, comb), next_pre, shared, loss


# ---- mixture of experts -------------------------------------------------------------------------------------------

def route(x, lw, cfg, image_mask, opt):
    """Routing weights [.., E], zero for experts that were not chosen."""
    logits = wide(linear(x, lw["ffn.gate.weight"])) / cfg.gate_temp
    if cfg.scoring_func == "sqrtsoftplus":
        score = torch.sqrt(torch.nn.functional.softplus(logits))
    else:
        score = torch.sigmoid(logits) if cfg.scoring_func == "sigmoid" else torch.softmax(logits, -1)
    bias = lw["ffn.gate.bias"]
    if image_mask is not None:
        bias = torch.where(image_mask[..., None], lw["ffn.gate.bias_vl"], bias)
    biased = score.detach() + bias
    chosen = top_mask(biased, cfg.num_experts_per_tok)
    weight = torch.where(chosen, score, 0.0)
    if cfg.norm_topk_prob:
        weight = weight / (weight.sum(-1, keepdim=True) + 1e-20)
    weight = weight * cfg.routed_scaling_factor
    if opt.trace is not None:
        order = torch.topk(biased, cfg.num_experts_per_tok, dim=-1).indices
        opt.trace.update({"router.indices": order, "router.weights": weight.gather(-1, order)})
    return weight, chosen


def moe(x, lw, cfg, image_mask, opt):
    """All experts are computed and weighted, most of them with zero: at this size that is quicker than sorting tokens."""
    weight, chosen = route(x, lw, cfg, image_mask, opt)
    shared = [lw[f"ffn.shared_experts.{n}.weight"] for n in ("w1", "w3", "w2")]
    E, I, _ = lw["ffn.experts.w1"].shape
    gate = linear(x, torch.cat((lw["ffn.experts.w1"].flatten(0, 1), shared[0])))
    up = linear(x, torch.cat((lw["ffn.experts.w3"].flatten(0, 1), shared[1])))
    w2 = torch.cat((lw["ffn.experts.w2"].permute(1, 0, 2).flatten(1), shared[2]), 1)
    scale = torch.cat((weight[..., None].expand(*weight.shape, I).flatten(-2),
                       weight.new_ones(*weight.shape[:-1], shared[0].shape[0])), -1)
    gate, up, limit = wide(gate), wide(up), cfg.swiglu_limit
    if limit:
        gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    hidden = (scale * torch.nn.functional.silu(gate) * up).to(x.dtype)
    return linear(hidden, w2), chosen


def ffn_site(h, pre, lw, cfg, image_mask, opt):
    next_pre, post, comb = mix(h, lw["hc_ffn_fn"], lw["hc_ffn_scale"], lw["hc_ffn_base"], cfg)
    x = rms_norm(collapse(h, pre), lw["ffn_norm.weight"], cfg.rms_norm_eps)
    y, chosen = moe(x, lw, cfg, image_mask, opt)
    load = chosen.flatten(0, -2).float().mean(0)
    if opt.trace is not None:
        opt.trace.update({"ffn_in": x, "ffn_out": y, "ffn.hc_pre": next_pre})
    return expand(y, h, post, comb), next_pre, load


# ---- Engram -------------------------------------------------------------------------------------------------------

def kept_rows(rows, opt):
    """Dropout's factor of each row, [B, T, columns]: hashed rows of long n-grams learn a text by heart together if they can."""
    kept = torch.rand(rows.shape, device=rows.device) >= opt.row_dropout
    kept = kept & (torch.rand(rows.shape[:-1], device=rows.device) >= opt.memory_dropout)[..., None]
    return kept / (1 - opt.row_dropout)


def engram(h, rows, lw, cfg, shut, opt):
    """h [B, T, H, D], rows [B, T, columns]; `shut` bool [B, T] or None: positions left as they are."""
    e = torch.nn.functional.embedding(rows, lw["engram.embed.weight"])
    if opt.row_dropout or opt.memory_dropout:
        e = e * kept_rows(rows, opt)[..., None].to(e.dtype)
    e = e.flatten(-2)
    kv = linear(e, lw["engram.wkv.weight"]).unflatten(-1, (cfg.hc_mult + 1, cfg.hidden_size))
    key, value, hw = wide(kv[..., :-1, :]), wide(kv[..., -1:, :]), wide(h)
    weight = wide(lw["engram.q_weight"]) * wide(lw["engram.k_weight"])
    dot = (hw * weight * key).sum(-1)
    dot = dot * torch.rsqrt(hw.square().mean(-1) + cfg.rms_norm_eps) * torch.rsqrt(key.square().mean(-1) + cfg.rms_norm_eps)
    dot = dot * cfg.hidden_size ** -0.5
    gate = torch.sigmoid(torch.copysign(torch.sqrt(dot.abs().clamp_min(1e-6)), dot))
    if shut is not None:
        gate = gate.masked_fill(shut[..., None], 0.0)
    if opt.trace is not None:
        opt.trace.update({"engram.gate": gate})
    return (hw + gate[..., None] * value).to(h.dtype)


def spread(tokens, embed, streams):
    """The embedding of each token, the same in every stream."""
    return torch.nn.functional.embedding(tokens, embed)[:, :, None, :].repeat(1, 1, streams, 1)


# ---- the model ----------------------------------------------------------------------------------------------------

def rope_tables(cfg, length, dtype, device):
    """{ratio > 0: (cos, sin)}"""
    at = torch.arange(length, device=device)
    r = cfg.qk_rope_head_dim
    plain = inverse_frequencies(r, cfg.rope_theta).to(device)
    far = inverse_frequencies(r, cfg.compress_rope_theta, cfg.rope_scaling).to(device)
    return {False: rotation(at, plain, dtype), True: rotation(at, far, dtype)}


def hidden_states(w, cfg, tokens, row_numbers, image_mask=None, segments=None, warm=None, opt=Options(), ropes=None):
    """[B, T, D] after the last norm, and Extras. `row_numbers` comes from EngramTables (None without Engram)."""
    spread_fn, engram_fn, attention_fn, ffn_fn = opt.site_functions or (spread, engram, attention_site, ffn_site)
    embed = w["embed.weight"]
    ropes = ropes or rope_tables(cfg, tokens.shape[1], embed.dtype, tokens.device)
    h = spread_fn(tokens, embed, cfg.hc_mult)
    pre = torch.zeros(*tokens.shape, cfg.hc_mult, device=tokens.device, dtype=wide(embed[:1]).dtype)
    pre[..., 0] = 1
    shared, extras, whole = Shared(), Extras(), opt.trace
    for layer in range(cfg.num_hidden_layers):
        lw = sub(w, f"layers.{layer}.")
        engram_w, attention_w, ffn_w = (part(lw, *p) for p in (("engram",), ("attn", "hc_attn"), ("ffn", "hc_ffn")))
        kind = kind_of(cfg, layer)
        if whole is not None:
            opt.trace = whole.setdefault(layer, {})
        if layer in cfg.engram_layer_ids and opt.engram == "on":
            h = engram_fn(h, row_numbers[cfg.engram_layer_ids.index(layer)], engram_w, cfg, image_mask, opt)
            if whole is not None:
                opt.trace.update(streams_after_engram=h)
        cos, sin = ropes[kind.ratio > 0]
        h, pre, shared, loss = attention_fn(h, pre, attention_w, shared, kind, cfg, cos, sin, segments, warm, opt)
        h, pre, load = ffn_fn(h, pre, ffn_w, cfg, image_mask, opt)
        if whole is not None:
            opt.trace.update(streams_out=h)
        extras.expert_load.append(load)
        if loss is not None:
            extras.index_loss.append(loss)
    opt.trace = whole
    return rms_norm(collapse(h, pre), w["norm.weight"], cfg.rms_norm_eps), extras


def logits(w, cfg, tables, tokens, image_mask=None, segments=None, opt=None):
    """[B, T, vocab] in the wide type."""
    rows = tables.row_numbers(tokens, image_mask, segments) if tables is not None else None
    x, _ = hidden_states(w, cfg, tokens, rows, image_mask, segments, opt=opt or Options())
    return linear(wide(x), wide(w["head.weight"]))
