"""Number formats of the model: the activation rounding it is defined with, and the formats its weights are stored in.

Everything is computed in fp32, whatever the caller's type. All `fake_*` functions round in the forward pass and hand the
gradient through unchanged (straight-through)."""
import torch

E4M3_MAX = 448.0
E2M1_MAX = 6.0
INV_E4M3_MAX = (torch.tensor(1.0) / E4M3_MAX).item()      # rounded to fp32
INV_E2M1_MAX = (torch.tensor(1.0) / E2M1_MAX).item()
E2M1_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def straight_through(x, rounded):
    """`rounded` in the forward pass, exactly; d/dx = 1 in the backward pass."""
    rounded = rounded.to(x.dtype)
    return rounded.detach() + (x - x.detach()) if x.requires_grad else rounded


def ceil_pow2(x):
    """2^ceil(log2(x)) of positive fp32 values, from their bits."""
    bits = x.float().contiguous().view(torch.int32)
    exponent = (bits >> 23) + ((bits & 0x7FFFFF) != 0).to(torch.int32)
    return (exponent << 23).view(torch.float32)


def e4m3(x):
    """Nearest e4m3 value (ties to even), magnitudes clamped to 448."""
    return x.clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn).float()


def e2m1(x):
    """Nearest e2m1 value, ties to the even code, magnitudes clamped to 6."""
    a = x.abs()
    r = torch.where(a > 5.0, 6.0, 4.0)
    for bound, value, inclusive in ((3.5, 3.0, False), (2.5, 2.0, True), (1.75, 1.5, False),
                                    (1.25, 1.0, True), (0.75, 0.5, False), (0.25, 0.0, True)):
        r = torch.where(a <= bound if inclusive else a < bound, value, r)
    return torch.where(x < 0, -r, r)


def blocks_of(x, size):
    return x.float().unflatten(-1, (-1, size))


def fp8_scale(amax, floor=1e-4):
    return ceil_pow2(amax.clamp_min(floor) * INV_E4M3_MAX)


def fp4_scale(amax, floor=6 * 2.0 ** -126):
    return ceil_pow2(amax.clamp_min(floor) * INV_E2M1_MAX)


def fake_fp8_block32(x):
    """Window KV: e4m3 in blocks of 32 channels, power-of-two scale."""
    b = blocks_of(x, 32)
    s = fp8_scale(b.abs().amax(-1, keepdim=True))
    return straight_through(x, (e4m3(b / s) * s).flatten(-2))


def fake_fp4_block32(x):
    """Indexer queries and keys: e2m1 in blocks of 32 channels, power-of-two scale."""
    b = blocks_of(x, 32)
    s = fp4_scale(b.abs().amax(-1, keepdim=True))
    return straight_through(x, (e2m1(b / s) * s).flatten(-2))


def fake_fp4_block16(x):
    """Compressed KV: e2m1 in blocks of 16 channels, e4m3 scale (which may round down: values clamp at 6)."""
    b = blocks_of(x, 16)
    s = e4m3(b.abs().amax(-1, keepdim=True).clamp_min(6 * 2.0 ** -9) / E2M1_MAX)
    return straight_through(x, (e2m1(b / s) * s).flatten(-2))


# ---- weights ------------------------------------------------------------------------------------------------------
# The scale floor keeps the scale of an all-zero block an ordinary number.
WEIGHT_FLOOR = 2.0 ** -60


def _tiles(w):
    """[.., o, i] -> [.., o/32, 32, i/32, 32], padded with zeros."""
    o, i = w.shape[-2:]
    w = torch.nn.functional.pad(w.float(), (0, -i % 32, 0, -o % 32))
    return w.unflatten(-2, (-1, 32)).unflatten(-1, (-1, 32))


def _untile(t, shape):
    return t.flatten(-2).flatten(-3, -2)[..., :shape[-2], :shape[-1]]


def fp8_tiles(w):
    """Dense weights: (values on the e4m3 grid, scale of each 32x32 tile)."""
    t = _tiles(w)
    s = fp8_scale(t.abs().amax((-3, -1), keepdim=True), WEIGHT_FLOOR)
    return _untile(e4m3(t / s), w.shape), s[..., 0, :, 0]


def fp4_rows(w):
    """Routed experts: (values on the e2m1 grid, scale of each row's 32 columns)."""
    b = blocks_of(w, 32)
    s = fp4_scale(b.abs().amax(-1, keepdim=True), WEIGHT_FLOOR)
    return e2m1(b / s).flatten(-2), s[..., 0]


def fp8_rows(w):
    """Engram rows: (values on the e4m3 grid, scale of each row's 32 channels)."""
    b = blocks_of(w, 32)
    s = fp8_scale(b.abs().amax(-1, keepdim=True), WEIGHT_FLOOR)
    return e4m3(b / s).flatten(-2), s[..., 0]


def expand_tile_scale(scale, shape):
    return scale.repeat_interleave(32, -2).repeat_interleave(32, -1)[..., :shape[-2], :shape[-1]]


def fake_fp8_tiles(w):
    q, s = fp8_tiles(w)
    return straight_through(w, q * expand_tile_scale(s, w.shape))


def fake_fp4_rows(w):
    q, s = fp4_rows(w)
    return straight_through(w, q * s.repeat_interleave(32, -1))


def fake_fp8_rows(w):
    q, s = fp8_rows(w)
    return straight_through(w, q * s.repeat_interleave(32, -1))


def fake_bf16(w):
    return straight_through(w, w.to(torch.bfloat16))


def e2m1_codes(values):
    """4-bit codes of values that lie on the e2m1 grid (bit 3 is the sign)."""
    grid = torch.tensor(E2M1_VALUES)
    return torch.searchsorted(grid, values.abs().contiguous()).to(torch.uint8) | (torch.signbit(values).to(torch.uint8) << 3)


def e8m0_codes(scale):
    return (scale.contiguous().view(torch.int32) >> 23).to(torch.uint8)


def e8m0_values(codes):
    """2^(code-127); code 0 is an fp32 subnormal."""
    return torch.ldexp(torch.ones_like(codes, dtype=torch.float64), codes.to(torch.int32) - 127).float()
