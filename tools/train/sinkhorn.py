"""Sinkhorn normalisation of the stream-mixing matrices: plain PyTorch, and Triton kernels for training on a GPU.

Both directions of the GPU version keep one matrix in registers; the backward pass recomputes the iterates it needs (a few
hundred multiplications for each matrix) instead of storing them."""
import torch

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None


def sinkhorn_plain(logits, iterations, eps):
    """logits [.., H, H]: row softmax + eps, a column step, then iterations-1 row and column steps."""
    x = torch.softmax(logits, -1) + eps
    x = x / (x.sum(-2, keepdim=True) + eps)
    for _ in range(iterations - 1):
        x = x / (x.sum(-1, keepdim=True) + eps)
        x = x / (x.sum(-2, keepdim=True) + eps)
    return x


def sinkhorn(logits, iterations, eps):
    if logits.is_cuda and triton is not None and logits.dtype == torch.float32 and (logits.shape[-1] & (logits.shape[-1] - 1)) == 0:
        return _sinkhorn_gpu(logits.contiguous(), iterations, eps)
    return sinkhorn_plain(logits, iterations, eps)


if triton is not None:
    @triton.jit
    def _start(z, eps):
        e = tl.exp(z - tl.max(z, axis=2, keep_dims=True))
        return e / tl.sum(e, axis=2, keep_dims=True)

    @triton.jit
    def _iterate(softmax, steps, eps):
        """The matrix after `steps` normalisations (even ones by columns, odd ones by rows)."""
        x = softmax + eps
        for i in range(steps):
            if i % 2 == 0:
                x = x / (tl.sum(x, axis=1, keep_dims=True) + eps)
            else:
                x = x / (tl.sum(x, axis=2, keep_dims=True) + eps)
        return x

    @triton.jit
    def _offsets(n, H: tl.constexpr, BLOCK: tl.constexpr):
        b = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        off = b[:, None, None] * (H * H) + tl.arange(0, H)[None, :, None] * H + tl.arange(0, H)[None, None, :]
        return off, (b < n)[:, None, None]

    @triton.jit
    def _forward_kernel(z_ptr, out_ptr, n, steps, eps, H: tl.constexpr, BLOCK: tl.constexpr):
        off, ok = _offsets(n, H, BLOCK)
        z = tl.load(z_ptr + off, mask=ok, other=0.0)
        tl.store(out_ptr + off, _iterate(_start(z, eps), steps, eps), mask=ok)

    @triton.jit
    def _backward_kernel(z_ptr, grad_ptr, out_ptr, n, steps, eps, H: tl.constexpr, BLOCK: tl.constexpr):
        off, ok = _offsets(n, H, BLOCK)
        z = tl.load(z_ptr + off, mask=ok, other=0.0)
        g = tl.load(grad_ptr + off, mask=ok, other=0.0)
        softmax = _start(z, eps)
        for k in range(steps):
            i = steps - 1 - k
            x = _iterate(softmax, i, eps)          # input of step i: y = x / (sum(x) + eps)
            if i % 2 == 0:
                s = tl.sum(x, axis=1, keep_dims=True) + eps
                g = (g - tl.sum(g * x, axis=1, keep_dims=True) / s) / s
            else:
                s = tl.sum(x, axis=2, keep_dims=True) + eps
                g = (g - tl.sum(g * x, axis=2, keep_dims=True) / s) / s
        g = softmax * (g - tl.sum(g * softmax, axis=2, keep_dims=True))
        tl.store(out_ptr + off, g, mask=ok)

    def _launch(kernel, tensors, iterations, eps):
        out = torch.empty_like(tensors[0])
        h = out.shape[-1]
        n = out.numel() // (h * h)
        block = 64
        kernel[(triton.cdiv(n, block),)](*tensors, out, n, 2 * iterations - 1, eps, H=h, BLOCK=block)
        return out

    @torch.library.custom_op("ecphory::sinkhorn", mutates_args=())
    def _sinkhorn_gpu(logits: torch.Tensor, iterations: int, eps: float) -> torch.Tensor:
        return _launch(_forward_kernel, (logits,), iterations, eps)

    @torch.library.custom_op("ecphory::sinkhorn_backward", mutates_args=())
    def _sinkhorn_backward(logits: torch.Tensor, grad: torch.Tensor, iterations: int, eps: float) -> torch.Tensor:
        return _launch(_backward_kernel, (logits, grad), iterations, eps)

    @_sinkhorn_gpu.register_fake
    def _(logits, iterations, eps):
        return torch.empty_like(logits)

    @_sinkhorn_backward.register_fake
    def _(logits, grad, iterations, eps):
        return torch.empty_like(logits)

    def _keep(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])
        ctx.iterations, ctx.eps = inputs[1], inputs[2]

    def _grad(ctx, grad):
        logits, = ctx.saved_tensors
        return _sinkhorn_backward(logits, grad.contiguous(), ctx.iterations, ctx.eps), None, None

    _sinkhorn_gpu.register_autograd(_grad, setup_context=_keep)
