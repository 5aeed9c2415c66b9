"""Keys as words: their hashes, 31 bits mixed of one word after the other, and whether two are equal."""

from __future__ import annotations

from sqlfront.storage.kernels.jit import kernel
from sqlfront.storage.kernels.memory import load

_MULTIPLIER = -7046029254386353131


@kernel("int64(int64,int64)", inline=True)
def mix(h, word):
    """Go on hashing with one more word."""
    mixed = (h ^ word) * _MULTIPLIER
    return mixed ^ ((mixed >> 32) & 0xFFFFFFFF)


@kernel("int64(int64)", inline=True)
def finish_hash(h):
    """The 31 bits of what has been mixed."""
    return ((h * _MULTIPLIER) >> 33) & 0x7FFFFFFF


@kernel("int64(int64,int64)")
def hash_words(base, count):
    """A 31-bit hash of `count` words; its low bits choose the slot, the whole tells keys apart."""
    h = count
    for i in range(count):
        h = mix(h, load(base, i))
    return finish_hash(h)


@kernel("int64(int64,int64,int64,int64)")
def hash_places(base, places, first, count):
    """`hash_words` of the words of `base` at the places listed from `places[first]`."""
    h = count
    for i in range(count):
        h = mix(h, load(base, load(places, first + i)))
    return finish_hash(h)


@kernel("boolean(int64,int64,int64)")
def same_words(one, other, count):
    """Whether so many words at two addresses are equal."""
    same = True
    for i in range(count):
        same = same and load(one, i) == load(other, i)
    return same
