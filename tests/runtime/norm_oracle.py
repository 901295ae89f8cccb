# SPDX-License-Identifier: Apache-2.0
# Copyright the Keel authors
"""The norm against arithmetic nobody here wrote: math.fsum of exact squares, then math.sqrt.

The square of an f32 is exact in f64, fsum rounds the exact sum once, and sqrt is correctly rounded:
all 64 bits must be equal.  Usage: norm_oracle.py LIBKEEL_SHARED_OBJECT
"""
import ctypes
import math
import random
import struct
import sys

F32 = 1  # KEEL_FORMAT_F32
SIZES = [0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 255, 256, 257, 1023, 1024, 1025,
         2047, 2048, 2049, 4097, 10000]


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("numel", ctypes.c_int64), ("format", ctypes.c_int32),
                ("reserved", ctypes.c_int32), ("scale", ctypes.c_void_p),
                ("scale_inv", ctypes.c_void_p)]


def load(path):
    lib = ctypes.CDLL(path)
    lib.keel_clip_global_norm.restype = ctypes.c_int32
    lib.keel_clip_global_norm.argtypes = [
        ctypes.c_void_p, ctypes.POINTER(Tensor), ctypes.c_int64, ctypes.c_float, ctypes.c_void_p,
        ctypes.c_int64, ctypes.POINTER(ctypes.c_double)]
    return lib


def norm_of(lib, pieces):
    """Pieces are lists of 32-bit patterns."""
    arrays = [(ctypes.c_uint32 * max(len(p), 1))(*p) for p in pieces]
    tensors = (Tensor * max(len(pieces), 1))(*[
        Tensor(ctypes.addressof(a), len(p), F32, 0, None, None) for a, p in zip(arrays, pieces)])
    norm = ctypes.c_double(-1)
    status = lib.keel_clip_global_norm(None, tensors, len(pieces), math.inf, None, 0,
                                       ctypes.byref(norm))
    assert status == 0, status
    return norm.value


def value(bits):
    return struct.unpack("<f", struct.pack("<I", bits))[0]


def bits_of(x):
    return struct.unpack("<I", struct.pack("<f", x))[0]


def expected(patterns):
    return math.sqrt(math.fsum(value(b) ** 2 for b in patterns))


def any_finite(r):
    while True:
        bits = r.getrandbits(32)
        if bits & 0x7F800000 != 0x7F800000:
            return bits


def near(r, exponent, spread):
    return (r.getrandbits(1) << 31 | min(max(exponent + r.randint(-spread, spread), 0), 254) << 23
            | r.getrandbits(23))


def tie(r):
    """1 + 2^-53 and a last grain below it, shifted about: squares on which one bit decides."""
    e = r.randint(-40, 100)
    grain = [bits_of(2.0 ** r.randint(-149, -100))] if r.getrandbits(1) else []
    halves = [bits_of(math.ldexp(1.0, e - 27))] * 2  # two squares of 2^(2e-54): half an ulp
    odd = [bits_of(math.ldexp(1.0, e - 26))] if r.getrandbits(1) else []
    return [bits_of(math.ldexp(1.0, e))] + halves + odd + grain


def fills(r, n):
    centre = r.randint(0, 254)
    yield [any_finite(r) for _ in range(n)]
    yield [r.getrandbits(32) & 0x807FFFFF for _ in range(n)]
    yield [near(r, centre, 0) for _ in range(n)]
    yield [near(r, centre, 25) for _ in range(n)]
    yield [bits_of(r.choice([1e30, 1e-30, -1e30, -1e-30])) for _ in range(n)]
    yield [r.choice([0, 0x80000000, 1, 0x7F7FFFFF, 0x00800000, 0x3FFFFFFF]) for _ in range(n)]
    yield ([0x7F7FFFFF] + [1] * n)[:n]


def cut(r, patterns):
    pieces, at = [], 0
    while at < len(patterns):
        n = r.randint(0, 1500)
        pieces.append(patterns[at:at + n])
        at += n
    r.shuffle(pieces)
    return pieces


def main():
    lib = load(sys.argv[1])
    r = random.Random(20)
    trials = [f for n in SIZES for f in fills(r, n)] + [tie(r) for _ in range(3000)]
    trials += [f for _ in range(60) for f in fills(r, r.randint(0, 3000))]
    wrong = 0
    for patterns in trials:
        want = expected(patterns)
        for pieces in ([patterns], cut(r, patterns)):
            got = norm_of(lib, pieces)
            if struct.pack("<d", got) != struct.pack("<d", want):
                wrong += 1
                print(f"{len(patterns)} elements in {len(pieces)} pieces: {got.hex()}, "
                      f"want {want.hex()}")
    print(f"{2 * len(trials)} norms, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
