"""How Python calls kernels: arguments are counted and converted, and what cannot be converted is an error."""

from __future__ import annotations

import re

import numpy as np
import pytest

from sqlfront.storage.kernels.jit import KERNELS, entry_point, import_all
from sqlfront.storage.kernels.numbers.limbs import sign_of
from sqlfront.storage.kernels.python_calls import Exported, python_module
from sqlfront.storage.native.native_file import loaded
from sqlfront.storage.stores.row_addresses import address_of

WORDS = np.array([7, -3, 5], np.int64)
ADDRESS = int(WORDS.ctypes.data)
in_file = pytest.mark.skipif(loaded() is None, reason="numba makes its own calls")


def test_every_kernel_has_a_call() -> None:
    import_all()
    signatures = [made.signature.replace("void", "none") for made in KERNELS if isinstance(made.signature, str)]
    printed = [re.sub(r"^(\w+)(\(.*\))$", r"\2 -> \1", signature) for signature in signatures]
    calls = python_module([Exported("kernel", "symbol", one, False) for one in printed], "")
    assert calls.count("define internal ptr @call") == len(printed) > 200


@in_file
def test_a_call_gives_what_the_kernel_gives() -> None:
    call = entry_point(sign_of)
    assert [call(ADDRESS, place, 1) for place in range(3)] == [1, -1, 1]
    assert call(*map(np.int64, (ADDRESS, 1, 1))) == -1


@in_file
@pytest.mark.parametrize("arguments", [(), (ADDRESS,), (ADDRESS, 0), (ADDRESS, 0, 1, 1)])
def test_arguments_are_counted(arguments: tuple[int, ...]) -> None:
    with pytest.raises(TypeError, match=f"a kernel takes 3 arguments, not {len(arguments)}"):
        entry_point(sign_of)(*arguments)


@in_file
@pytest.mark.parametrize(
    ("argument", "error"), [("1", TypeError), (None, TypeError), (1.5, TypeError), (2**63, OverflowError)]
)
@pytest.mark.parametrize("place", range(3))
def test_what_is_no_word_is_refused(argument: object, error: type[Exception], place: int) -> None:
    arguments: list[object] = [ADDRESS, 0, 1]
    arguments[place] = argument
    with pytest.raises(error):
        entry_point(sign_of)(*arguments)


@in_file
def test_minus_one_is_a_word_and_no_error() -> None:
    call = entry_point(sign_of)
    assert call(ADDRESS + 8, -1, 1) == 1  # The word before the second is the first.


@pytest.mark.parametrize(
    "words",
    [
        WORDS,
        WORDS[1:],
        WORDS[::2],
        np.empty((0, 3), np.int64),
        np.ones((3, 4))[:, 1],
        np.frombuffer(bytes(16), np.int64),
    ],
    ids=["whole", "behind another", "strided", "empty", "a column", "read-only"],
)
def test_the_address_of_an_array_is_that_of_its_words(words: np.ndarray) -> None:
    assert address_of(words) == words.ctypes.data
