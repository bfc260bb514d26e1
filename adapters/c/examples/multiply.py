"""A product of integers by falchion's C interface, in the emulator: python3 examples/multiply.py target/release/libfalchion_c.so

The structures are those of include/falchion.h. For PyTorch's tensors on a card, pass `data_ptr()` as addresses and `stride(0)` as leading
dimensions, and call falchion_gemm_load once and falchion_gemm_launch with the current stream in place of falchion_gemm_emulate.
"""

import ctypes
import sys
from ctypes import byref, c_char_p, c_float, c_size_t, c_uint32, c_uint64, c_void_p

NUMBERS = "lda ldb ldc ldd stride_a stride_b stride_c stride_d".split()


class Description(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("types", c_char_p),
        ("layout", c_char_p),
        *[(name, c_uint32) for name in ("m", "n", "k", "batch")],
        ("spec", c_char_p),
        *[(name, c_uint64) for name in NUMBERS],
        ("alignment", c_uint32),
        ("card", c_uint32),
    ]


class Arguments(ctypes.Structure):
    _fields_ = [
        *[(name, c_void_p) for name in "abcd"],
        ("alpha", c_float),
        ("beta", c_float),
        ("workspace", c_void_p),
        ("workspace_bytes", c_uint64),
    ]


def main():
    falchion = ctypes.CDLL(sys.argv[1])
    falchion.falchion_last_error.restype = c_char_p
    falchion.falchion_gemm_name.restype = c_char_p
    falchion.falchion_gemm_name.argtypes = [c_void_p]
    falchion.falchion_gemm_destroy.argtypes = [c_void_p]
    falchion.falchion_gemm_emulate.argtypes = [c_void_p, c_void_p]

    def check(status):
        if status:
            sys.exit(falchion.falchion_last_error().decode())

    # D = A * B, A row-major with rows of `lda` elements, B given as its transpose. K is odd: no tensor copy can load A or B.
    m, n, k, lda = 24, 16, 37, 40
    a = (ctypes.c_int8 * (m * lda))(*[i * 7 % 15 - 7 for i in range(m * lda)])
    b = (ctypes.c_int8 * (n * k))(*[i * 11 % 15 - 7 for i in range(n * k)])
    d = (ctypes.c_int32 * (m * n))()
    size = ctypes.sizeof(Description)
    desc = Description(size=size, types=b"s8", layout=b"kk", m=m, n=n, k=k, lda=lda, alignment=4)
    gemm = c_void_p()
    check(falchion.falchion_gemm_create(byref(desc), byref(gemm)))
    print(falchion.falchion_gemm_name(gemm).decode())
    args = Arguments(a=ctypes.addressof(a), b=ctypes.addressof(b), d=ctypes.addressof(d), alpha=1)
    check(falchion.falchion_gemm_emulate(gemm, byref(args)))
    falchion.falchion_gemm_destroy(gemm)
    wanted = [sum(a[i * lda + x] * b[j * k + x] for x in range(k)) for i in range(m) for j in range(n)]
    assert list(d) == wanted
    print("verified")


main()
