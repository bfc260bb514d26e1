"""Arrays of numpy as tensors of torch with the same memory, and what is done to tensors so that they may not fit."""

import numpy as np
import torch
from calls import pick
from damage import listed, shaped
from reference import dtype

NAMES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64", "bfloat16", "complex32", "complex64"]
NAMES += ["complex128", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"]
TYPES = [getattr(torch, name) for name in NAMES if hasattr(torch, name)]
BITS = {1: np.uint8, 2: np.int16}


def as_tensor(array):
    """A tensor with an array's memory."""
    name = str(array.dtype)
    if name.startswith(("bfloat", "float8")):
        return torch.from_numpy(array.view(BITS[array.itemsize])).view(getattr(torch, name))
    return torch.from_numpy(array)


def as_array(tensor):
    """An array with the numbers of a tensor; what is none stays."""
    if not isinstance(tensor, torch.Tensor):
        return tensor
    tensor = tensor.detach().resolve_neg()
    name = str(tensor.dtype).removeprefix("torch.")
    if name.startswith(("bfloat", "float8")):
        return tensor.view(torch.uint8 if tensor.element_size() == 1 else torch.int16).numpy().view(dtype(name))
    return tensor.numpy()


def typed(rng, tensor):
    return tensor.to(pick(rng, TYPES))


def negative(rng, tensor):
    """A view whose numbers have the other sign than its memory."""
    return torch._neg_view(tensor) if tensor.dtype.is_floating_point and tensor.element_size() > 1 else tensor


def conjugate(rng, tensor):
    return torch.complex(tensor.double(), tensor.double()).conj()


def imaginary(rng, tensor):
    """The imaginary part of a conjugate: a view with the negative bit, and gaps."""
    if tensor.dtype not in (torch.float32, torch.float64):
        return tensor
    return torch.complex(torch.zeros_like(tensor), tensor).conj().imag


def sparse(rng, tensor):
    return tensor.float().to_sparse()


def compressed(rng, tensor):
    return tensor.float().to_sparse_csr() if tensor.dim() == 2 else tensor.float().to_sparse()


def nested(rng, tensor):
    return torch.nested.nested_tensor([tensor.float(), tensor.float()])


def elsewhere(rng, tensor):
    return tensor.to("meta")


def recorded(rng, tensor):
    return tensor.detach().clone().requires_grad_() if tensor.dtype.is_floating_point else tensor


def expanded(rng, tensor):
    return tensor[..., :1].expand(tensor.shape) if tensor.dim() and tensor.numel() else tensor


def freed(rng, tensor):
    """A tensor whose memory was given back."""
    copy = tensor.clone()
    copy.untyped_storage().resize_(0)
    return copy


def shaped_tensor(rng, tensor):
    return as_tensor(shaped(rng, as_array(tensor)))


DAMAGES_OF_TENSORS = [typed] * 6 + [negative, conjugate, imaginary, sparse, compressed, nested, elsewhere, recorded, expanded, freed, shaped_tensor, listed]
