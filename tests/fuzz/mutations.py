"""What a hostile or broken client does to a right request: one to four changes, each where it hurts."""

from __future__ import annotations

import random
import struct

from cairnmq.wire.primitives import uvarint
from fuzz.frames import BITS, EDGES, Frame, Token

HUGE_VARINTS = [b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x07", b"\x80\x80\x80\x80\x08", b"\xff" * 5, b"\xff" * 10,
                b"\x80\x80\x80\x80\x00", b"\x80", b"\xff\xff\xff\xff\x7f"]  # fmt: skip
WIDE = [0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFFFE, 0x10000000, 0x00FFFFFF, 0, 1]
NARROW = [0x7FFF, 0x8000, 0xFFFF, 0xFFFE, 0, 1]


def mutate(rng: random.Random, frame: Frame) -> bytes:
    """The frame without its size. At times nothing is changed: right requests between wrong ones keep state alive."""
    chance = rng.random()
    if chance < 0.15:
        return frame.body()
    if chance < 0.5:  # still a request, but an odd one: it comes as far as the handler
        for _ in range(rng.choice([1, 2, 4, 8])):
            _odd_value(rng, frame)
        return frame.body()
    for _ in range(rng.choice([1, 1, 1, 2, 2, 4])):
        _change(rng, frame)
    return mutate_bytes(rng, frame.body()) if rng.random() < 0.2 else frame.body()


def mutate_bytes(rng: random.Random, data: bytes) -> bytes:
    """For frames without tokens (recorded ones): flips, cuts, insertions."""
    body = bytearray(data)
    match rng.randrange(5):
        case 0:
            del body[rng.randrange(len(body)) :]
        case 1:
            for _ in range(rng.choice([1, 1, 2, 8])):
                # The first four bytes say which request this is: mostly left alone.
                low = 4 if len(body) > 4 and rng.random() < 0.9 else 0
                if len(body) > low:
                    body[rng.randrange(low, len(body))] ^= 1 << rng.randrange(8)
        case 2:
            place = rng.randrange(len(body))
            body[place:place] = rng.randbytes(rng.choice([1, 2, 4, 100]))
        case 3:
            place = rng.randrange(len(body))
            body[place : place + 4] = struct.pack(">I", rng.choice(WIDE))
        case 4:
            place = rng.randrange(len(body))
            body[place : place + 1] = rng.choice(HUGE_VARINTS)
    return bytes(body)


def _odd_value(rng: random.Random, frame: Frame) -> None:
    """Another number, text or number of items; lengths and counts stay true."""
    place = rng.randrange(1, len(frame.tokens))
    token = frame.tokens[place]
    if token.kind in BITS:
        _odd_number(rng, token)
    elif token.kind in ("str", "bytes", "records") and frame.tokens[place - 1].kind == "len":
        text = rng.choice(["", "x" * 32767, "\x7f", "0", "-1", "fuzz-0", "\u2028" * 10, "name with blanks"]).encode()
        token.data = text if token.kind == "str" else rng.choice([b"", rng.randbytes(61), token.data * 2, text])
        length = frame.tokens[place - 1]
        if length.compact:
            length.data = uvarint(len(token.data) + 1)
        else:
            token.data = token.data[: (1 << (8 * len(length.data) - 1)) - 1]
            length.data = len(token.data).to_bytes(len(length.data), "big")


def _odd_number(rng: random.Random, token: Token) -> None:
    bits = BITS[token.kind]
    value = rng.choice([*EDGES, -1, -2, 1 << (bits - 1)])
    token.data = (value & ((1 << bits) - 1)).to_bytes(bits // 8, "big")


def _change(rng: random.Random, frame: Frame) -> None:
    tokens = frame.tokens
    lengths = [token for token in tokens if token.kind in ("len", "count", "tags")]
    match rng.randrange(10):
        case 0 | 1 | 2:
            if lengths:
                _spoil_length(rng, rng.choice(lengths))
        case 3 | 4:
            numbers = [token for token in tokens if token.kind in BITS]
            if numbers:
                _odd_number(rng, rng.choice(numbers))
        case 5:
            texts = [token for token in tokens if token.kind in ("str", "bytes", "records")]
            if texts:
                token = rng.choice(texts)
                token.data = rng.choice([b"", b"\xff\xfe" * 3, rng.randbytes(50), token.data * 3, token.data[:-1]])
        case 6:
            if frame.spans:
                start, end = rng.choice(frame.spans)
                copies = rng.choice([1, 2, 30])
                tokens[end:end] = [Token(t.kind, t.data, t.compact) for t in tokens[start:end]] * copies
        case 7:
            del tokens[rng.randrange(1, len(tokens) + 1) :]
        case 8:
            if len(tokens) > 2:
                del tokens[rng.randrange(1, len(tokens))]
        case 9:
            if len(tokens) > 2:
                a, b = rng.randrange(1, len(tokens)), rng.randrange(1, len(tokens))
                tokens[a], tokens[b] = tokens[b], tokens[a]


def _spoil_length(rng: random.Random, token: Token) -> None:
    if token.kind == "tags" or token.compact:
        token.data = rng.choice([*HUGE_VARINTS, uvarint(0), uvarint(1), uvarint(2**31), uvarint(rng.randrange(300))])
    elif len(token.data) == 2:
        token.data = struct.pack(">H", rng.choice([*NARROW, rng.randrange(300)]))
    else:
        token.data = struct.pack(">I", rng.choice([*WIDE, rng.randrange(300)]))
