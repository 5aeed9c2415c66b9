"""Memos against a dict, and sweeps: entries go with their texts, and values stay with theirs."""

from __future__ import annotations

import random

import numpy as np
import pytest

from sqlfront.storage.codecs import memo as memos
from sqlfront.storage.codecs.dictionary import Dictionary
from sqlfront.storage.codecs.memo import Memo
from sqlfront.storage.kernels.layout import NULL_CODE
from sqlfront.storage.kernels.programs.expression import PAGE

ABSENT = NULL_CODE + 7


def codes(*found: int) -> np.ndarray:
    return np.array(found, np.int64)


def upper(dictionary: Dictionary, memo: Memo, *texts: bytes) -> list[int]:
    """Enter what upper() makes of texts; their codes."""
    own = [dictionary.encode_one(text) for text in texts]
    memo.learn(codes(*own), codes(*[dictionary.encode_one(text.upper()) for text in texts]))
    return own


def test_a_memo_is_a_dict() -> None:
    rng, dictionary, model = random.Random(4), Dictionary(), dict[int, int]()
    memo, live = Memo(dictionary, ABSENT, is_text=False), np.zeros(PAGE * 40, bool)
    for _ in range(200):
        some = codes(*(rng.choice([NULL_CODE, rng.randrange(len(live)), rng.randrange(9)]) for _ in range(5)))
        assert sorted(memo.lacks(some)) == sorted(code for code in some if code not in model)
        words = codes(*(rng.choice([NULL_CODE, -3, 0, 2**62]) for _ in some))
        memo.learn(some, words)
        model |= dict(zip(some.tolist(), words.tolist(), strict=True))
        wanted = codes(*model, len(live) * 9)
        assert memo.words(wanted).tolist() == [*model.values(), ABSENT]
        if rng.random() < 0.1:
            live[:] = [rng.random() < 0.3 for _ in live]
            live[PAGE : PAGE * rng.randrange(1, 40)] = False
            memo.keep(live)
            model = {code: word for code, word in model.items() if code < 0 or live[code]}
            assert memo.bytes() <= 8 * PAGE * (1.5 * (len(model) + 1) + 3)
        known, found = memo.entries()
        assert dict(zip(known.tolist(), found.tolist(), strict=True)) == {c: w for c, w in model.items() if c >= 0}
    memo._check(np.ones_like(live))


def test_many_texts_are_lacking_once_each() -> None:
    memo = Memo(Dictionary(), ABSENT, is_text=False)
    assert sorted(memo.lacks(np.arange(5000) % 3)) == [0, 1, 2]


def test_a_failing_text_is_known_until_it_is_forgotten() -> None:
    memo = Memo(Dictionary(), ABSENT, is_text=False)
    memo.fail(codes(3))
    memo.learn(codes(5), codes(ABSENT))  # A value without a word of its own.
    assert [memo.fails(codes(1, code)) for code in (3, 5, 2)] == [True, True, False]
    memo.keep(np.array([True] * 5))
    assert [memo.fails(codes(code)) for code in (3, 5)] == [True, False]


def test_values_stay_with_their_texts_and_go_with_them() -> None:
    dictionary = Dictionary()
    memo = dictionary.memos.open("upper", ABSENT, is_text=True)
    held, gone, itself = upper(dictionary, memo, b"held", b"gone", b"SELF")
    for code in (held, itself):
        dictionary.refs[code] += 1
    for all_unused in (True, False, True):
        dictionary.sweep(all_unused=all_unused)
        dictionary._check()
        assert dictionary.live() == 3
        assert memo.words(codes(gone)).tolist() == [ABSENT]
        assert memo.words(codes(held, itself)).tolist() == [dictionary.find_one(b"HELD"), itself]
    for code in (held, itself):
        dictionary.refs[code] -= 1
    dictionary.sweep()
    assert dictionary.live() == 0 and not dictionary.refs.any()
    assert upper(dictionary, memo, b"other") == [0] and memo.words(codes(0, 1)).tolist() == [1, ABSENT]


def test_texts_that_nothing_refers_to_stay_unless_they_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    dictionary = Dictionary()
    memo = dictionary.memos.open("upper", ABSENT, is_text=True)
    texts = upper(dictionary, memo, *(b"text %d" % number for number in range(2000)))
    assert dictionary.needs_sweep()
    dictionary.sweep(all_unused=False)
    dictionary.note_encoded(10_000)
    assert not dictionary.needs_sweep()  # It would free none.
    assert len(memo.lacks(codes(*texts))) == 0 and dictionary.live() == 4000
    monkeypatch.setattr(memos, "_MOST_LOOSE", 1999)
    dictionary.sweep(all_unused=False)
    assert len(memo.lacks(codes(*texts))) == 2000 and dictionary.live() == 0
    dictionary._check()


def test_values_of_values_stay() -> None:
    dictionary = Dictionary()
    first, second = (dictionary.memos.open(key, ABSENT, is_text=True) for key in "ab")
    (one,) = upper(dictionary, second, b"one")
    two = dictionary.encode_one(b"two")
    first.learn(codes(two), codes(one))
    dictionary.refs[two] += 1
    dictionary.sweep()
    assert dictionary.live() == 3 and second.words(codes(one)) == dictionary.find_one(b"ONE")


def test_what_is_made_of_null_is_pinned_until_the_memo_goes() -> None:
    dictionary = Dictionary()
    for key in ("none", "none"):
        memo = dictionary.memos.open(key, ABSENT, is_text=True)
    memo.learn(codes(NULL_CODE), codes(dictionary.encode_one(b"none")))
    dictionary.sweep()
    assert dictionary.live() == dictionary.pinned == 1
    assert memo.words(codes(NULL_CODE)) == dictionary.find_one(b"none")
    dictionary.memos.close("none")
    assert dictionary.pinned == len(dictionary.memos) == 1
    dictionary.memos.close("none")
    assert dictionary.pinned == len(dictionary.memos) == 0


def test_codes_of_another_dictionary_have_no_entries() -> None:
    dictionary = Dictionary()
    memo = dictionary.memos.open("upper", ABSENT, is_text=True)
    upper(dictionary, memo, b"one")
    sizes, arrays = Dictionary().arrays()

    def read(name: str, array: np.ndarray) -> None:
        array[:] = arrays[name]

    dictionary.adopt(sizes, {name: len(array) for name, array in arrays.items()}, read)
    assert memo.words(codes(0, 1)).tolist() == [ABSENT] * 2
