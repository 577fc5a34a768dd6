"""Regular expressions over topic names, in RE2's language and with its promise: time is linear in the name's length.

Consumers send these to the server, and Python's `re` can be made to run for years by a short one. Only whole names
match, as Kafka's coordinator has it. Names are ASCII, so sets of characters are masks of 128 bits.
"""

from __future__ import annotations

from collections.abc import Collection, Container
from enum import IntEnum, auto
from typing import TypeAlias

from msgspec import Struct

LENGTH_MAX = 4096
SIZE_MAX = 2_000  # steps of a compiled expression, after repetitions are written out
REPEAT_MAX = 1_000
DEPTH_MAX = 100
CACHE_MAX = 20_000
KEPT_MAX = 1_000  # compiled expressions
WORK_MAX = 300_000  # steps and characters looked at in one go; about a tenth of a second

_ALL = (1 << 128) - 1
_NEWLINE = 1 << 10


class InvalidPattern(Exception):
    """The text says what is wrong, for the person who wrote the expression."""


def _mask(characters: str) -> int:
    return sum(1 << ord(character) for character in set(characters))


def _span(first: int, last: int) -> int:
    return ((1 << (last + 1)) - 1) & ~((1 << first) - 1)


_LOWER, _UPPER, _DIGITS = _span(97, 122), _span(65, 90), _span(48, 57)
_WORD = _LOWER | _UPPER | _DIGITS | _mask("_")
_SPACE = _mask("\t\n\f\r ")
_CLASSES = {"d": _DIGITS, "w": _WORD, "s": _SPACE}
_OCTAL = "01234567"
_ESCAPES = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_POSIX = {
    "alnum": _LOWER | _UPPER | _DIGITS, "alpha": _LOWER | _UPPER, "ascii": _ALL, "blank": _mask("\t "),
    "cntrl": _span(0, 31) | 1 << 127, "digit": _DIGITS, "graph": _span(33, 126), "lower": _LOWER,
    "print": _span(32, 126), "punct": _span(33, 47) | _span(58, 64) | _span(91, 96) | _span(123, 126),
    "space": _SPACE | _mask("\v"), "upper": _UPPER, "word": _WORD, "xdigit": _DIGITS | _mask("abcdefABCDEF"),
}  # fmt: skip


class _Place(IntEnum):
    """Assertions: they take no character."""

    START = auto()
    END = auto()
    LINE_START = auto()
    LINE_END = auto()
    BOUNDARY = auto()
    INSIDE = auto()


class _Set(Struct, frozen=True):
    mask: int


class _Assert(Struct, frozen=True):
    place: _Place


class _Sequence(Struct, frozen=True):
    parts: tuple[_Node, ...]


class _Choice(Struct, frozen=True):
    parts: tuple[_Node, ...]


class _Repeat(Struct, frozen=True):
    part: _Node
    least: int
    most: int | None


_Node: TypeAlias = _Set | _Assert | _Sequence | _Choice | _Repeat


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._flags = ""

    def parse(self) -> _Node:
        node = self._choice()
        if self._at < len(self._text):
            raise InvalidPattern("unexpected )")
        return node

    def _peek(self, count: int = 1) -> str:
        return self._text[self._at : self._at + count]

    def _take(self) -> str:
        if self._at >= len(self._text):
            raise InvalidPattern("it ends too early")
        self._at += 1
        return self._text[self._at - 1]

    def _taken(self, text: str) -> bool:
        if self._text.startswith(text, self._at):
            self._at += len(text)
            return True
        return False

    def _choice(self) -> _Node:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise InvalidPattern(f"groups are nested more than {DEPTH_MAX} deep")
        flags = self._flags
        parts = [self._sequence()]
        while self._taken("|"):
            parts.append(self._sequence())
        self._flags = flags  # flags set inside a group end with it
        self._depth -= 1
        return parts[0] if len(parts) == 1 else _Choice(tuple(parts))

    def _sequence(self) -> _Node:
        parts: list[_Node] = []
        repeated = False
        while self._at < len(self._text) and self._peek() not in "|)":
            bounds = self._repetition()
            if bounds is None:
                parts += self._atom()
                repeated = False
                continue
            if not parts:
                raise InvalidPattern("a repetition has nothing to repeat")
            if repeated:
                raise InvalidPattern("a repetition is repeated; put it into a group")
            parts.append(_Repeat(parts.pop(), *bounds))
            repeated = True
        return parts[0] if len(parts) == 1 else _Sequence(tuple(parts))

    def _repetition(self) -> tuple[int, int | None] | None:
        """Lazy and greedy match the same names."""
        character = self._peek()
        if character in "*+?" and character:
            self._at += 1
            bounds: tuple[int, int | None] = {"*": (0, None), "+": (1, None), "?": (0, 1)}[character]
        elif character == "{":
            found = self._braces()
            if found is None:
                return None
            bounds = found
        else:
            return None
        self._taken("?")
        return bounds

    def _braces(self) -> tuple[int, int | None] | None:
        """{2}, {2,} or {2,5}; anything else is a brace that means itself."""
        end = self._text.find("}", self._at)
        least, comma, most = self._text[self._at + 1 : end].partition(",") if end >= 0 else ("", "", "")
        if not _number(least) or (most and not _number(most)):
            return None
        self._at = end + 1
        low = int(least)
        high = int(most) if most else None if comma else low
        if low > REPEAT_MAX or (high is not None and (high > REPEAT_MAX or high < low)):
            raise InvalidPattern(f"bad repetition {{{least}{comma}{most}}}")
        return low, high

    def _atom(self) -> list[_Node]:
        character = self._take()
        match character:
            case "(":
                return self._group()
            case "[":
                return [_Set(self._bracket())]
            case ".":
                return [_Set(_ALL if "s" in self._flags else _ALL & ~_NEWLINE)]
            case "^":
                return [_Assert(_Place.LINE_START if "m" in self._flags else _Place.START)]
            case "$":
                return [_Assert(_Place.LINE_END if "m" in self._flags else _Place.END)]
            case "\\":
                return self._escape()
        return [self._literal(character)]

    def _literal(self, character: str) -> _Node:
        code = ord(character)
        return _Set(self._fold(1 << code) if code < 128 else 0)  # no topic is named so

    def _fold(self, mask: int) -> int:
        if "i" not in self._flags:
            return mask
        return mask | (mask & _LOWER) >> 32 | (mask & _UPPER) << 32

    def _group(self) -> list[_Node]:
        outer = self._flags
        if self._taken("?"):
            named = self._taken("P<") or (
                self._peek() == "<" and self._peek(2) not in ("<=", "<!") and self._taken("<")
            )
            if named:
                name, closed, _ = self._text[self._at :].partition(">")
                if not closed or not name.isidentifier():
                    raise InvalidPattern("a group's name is wrong")
                self._at += len(name) + 1
            elif not self._set_flags():
                return []
        node = self._choice()
        if not self._taken(")"):
            raise InvalidPattern("a ) is missing")
        self._flags = outer
        return [node]

    def _set_flags(self) -> bool:
        """(?i) holds to the end of the group around it, (?i:...) for itself; whether a group follows."""
        value = True
        flags = set(self._flags)
        while True:
            character = self._take()
            if character == "-" and value:
                value = False
            elif character in "imsU":
                (flags.add if value else flags.discard)(character)
            elif character in ":)":
                break
            else:
                raise InvalidPattern(f"(?{character} is not supported: there is no looking ahead or behind")
        self._flags = "".join(sorted(flags))
        return character == ":"

    def _escape(self) -> list[_Node]:
        character = self._take()
        if character == "Q":
            quoted, _, _ = self._text[self._at :].partition("\\E")
            self._at = min(self._at + len(quoted) + 2, len(self._text))
            return [self._literal(one) for one in quoted]
        places = {"A": _Place.START, "z": _Place.END, "b": _Place.BOUNDARY, "B": _Place.INSIDE}
        if character in places:
            return [_Assert(places[character])]
        return [_Set(self._fold(self._escaped(character)))]

    def _escaped(self, character: str) -> int:
        """The characters that an escape means, in or outside of brackets."""
        if character.lower() in _CLASSES:
            mask = _CLASSES[character.lower()]
            return mask if character.islower() else _ALL & ~mask
        if character in _ESCAPES:
            return 1 << ord(_ESCAPES[character])
        if character == "x":
            return _bit(self._hexadecimal())
        if character in "pP":
            return self._property(character == "P")
        if character == "0" or (character in _OCTAL and self._peek() and self._peek() in _OCTAL):
            digits = character
            while len(digits) < 3 and self._peek() and self._peek() in _OCTAL:
                digits += self._take()
            return _bit(int(digits, 8))
        if character.isalnum():
            raise InvalidPattern(f"\\{character} is not supported")
        return _bit(ord(character))

    def _hexadecimal(self) -> int:
        if self._taken("{"):
            digits, closed, _ = self._text[self._at :].partition("}")
            self._at += len(digits) + 1
        else:
            digits, closed = self._peek(2), "}"
            self._at += 2
        try:
            if not closed or not digits.isalnum() or len(digits) > 6:
                raise ValueError
            return int(digits, 16)
        except ValueError:
            raise InvalidPattern("\\x is followed by something else than a number") from None

    def _property(self, negated: bool) -> int:
        """Unicode classes, as far as names can tell them apart."""
        name = self._take()
        if name == "{":
            name, closed, _ = self._text[self._at :].partition("}")
            self._at += len(name) + 1
            if not closed:
                raise InvalidPattern("a } is missing")
        if name.startswith("^"):
            name, negated = name[1:], not negated
        known = {"L": _LOWER | _UPPER, "Ll": _LOWER, "Lu": _UPPER, "N": _DIGITS, "Nd": _DIGITS,
                 "Latin": _LOWER | _UPPER, "P": _mask("!\"#%&'()*,-./:;?@[\\]_{}"), "Pd": _mask("-"),
                 "Pc": _mask("_")}  # fmt: skip
        if name not in known:
            raise InvalidPattern(f"the class {name} is not supported")
        return _ALL & ~known[name] if negated else known[name]

    def _bracket(self) -> int:
        negated = self._taken("^")
        mask, first = 0, True
        while first or self._peek() != "]":
            first = False
            low = self._bracket_part()
            if self._peek() == "-" and self._peek(2) != "-]" and low.bit_count() == 1:
                self._at += 1
                high = self._bracket_part()
                if high.bit_count() != 1 or high < low:
                    raise InvalidPattern("a range in brackets is wrong")
                mask |= _span(low.bit_length() - 1, high.bit_length() - 1)
            else:
                mask |= low
        self._at += 1
        mask = self._fold(mask)
        return _ALL & ~mask if negated else mask

    def _bracket_part(self) -> int:
        if self._taken("[:"):
            name, closed, _ = self._text[self._at :].partition(":]")
            known = _POSIX.get(name.removeprefix("^"))
            if not closed or known is None:
                raise InvalidPattern(f"[:{name[:20]}:] is not a class")
            self._at += len(name) + 2
            return _ALL & ~known if name.startswith("^") else known
        character = self._take()
        return self._escaped(self._take()) if character == "\\" else _bit(ord(character))


def _bit(code: int) -> int:
    return 1 << code if code < 128 else 0


def _number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 5


class TopicPattern:
    """A compiled expression. Steps are numbered; a set of steps is a mask, and what follows from one is remembered."""

    def __init__(self, text: str) -> None:
        if len(text) > LENGTH_MAX:
            raise InvalidPattern(f"it is longer than {LENGTH_MAX} characters")
        self.text = text
        # Step -> what it takes (a mask), or an assertion, or neither: then only its followers count.
        self._takes: list[int] = []
        self._asserts: list[_Place | None] = []
        self._next: list[tuple[int, ...]] = []
        self._end = self._step(0, None)
        self._first = self._compile(_Parser(text).parse(), self._end)
        self._reached: dict[tuple[int, int, int], int] = {}
        self._moves: dict[tuple[int, str], int] = {}
        self.work = 0  # steps and characters looked at so far

    def matches(self, name: str) -> bool:
        if not name.isascii():
            return False
        if len(self._reached) + len(self._moves) > CACHE_MAX:
            self._reached.clear()
            self._moves.clear()
        self.work += len(name)
        before, steps, last = -1, 1 << self._first, len(name)
        for place in range(last + 1):
            after = ord(name[place]) if place < last else -1
            key = (steps, _kind(before), _kind(after))
            reached = self._reached.get(key)
            if reached is None:
                reached = self._reached[key] = self._reach(steps, before, after)
            if after < 0:
                return bool(reached >> self._end & 1)
            move = (reached, name[place])
            found = self._moves.get(move)
            if found is None:
                found = self._moves[move] = self._move(reached, after)
            if not found:
                return False
            steps, before = found, after
        raise AssertionError("a name ends")

    def _step(self, takes: int, asserts: _Place | None, *following: int) -> int:
        if len(self._takes) >= SIZE_MAX:
            raise InvalidPattern("it is too large")
        self._takes.append(takes)
        self._asserts.append(asserts)
        self._next.append(following)
        return len(self._takes) - 1

    def _compile(self, node: _Node, then: int) -> int:
        """The step at which `node` begins, if `then` comes after it."""
        match node:
            case _Set(mask):
                return self._step(mask, None, then)
            case _Assert(place):
                return self._step(0, place, then)
            case _Sequence(parts):
                for part in reversed(parts):
                    then = self._compile(part, then)
                return then
            case _Choice(parts):
                return self._step(0, None, *[self._compile(part, then) for part in parts])
            case _Repeat(part, least, most):
                if most is None:
                    loop = self._step(0, None)
                    self._next[loop] = (self._compile(part, loop), then)
                    then = loop
                else:
                    skip = then
                    for _ in range(most - least):
                        then = self._step(0, None, self._compile(part, then), skip)
                for _ in range(least):
                    then = self._compile(part, then)
                return then
        raise AssertionError(node)

    def _reach(self, steps: int, before: int, after: int) -> int:
        """Every step that can be reached here without taking a character."""
        found = 0
        self.work += steps.bit_length()
        waiting = [step for step in range(steps.bit_length()) if steps >> step & 1]
        while waiting:
            step = waiting.pop()
            if found >> step & 1:
                continue
            place = self._asserts[step]
            if place is not None and not _holds(place, before, after):
                continue
            found |= 1 << step
            if not self._takes[step]:
                waiting += self._next[step]
        return found

    def _move(self, reached: int, code: int) -> int:
        found = 0
        self.work += reached.bit_length()
        for step in range(reached.bit_length()):
            if reached >> step & 1 and self._takes[step] >> code & 1:
                for following in self._next[step]:
                    found |= 1 << following
        return found


def _is_word(code: int) -> bool:
    return code >= 0 and bool(_WORD >> code & 1)


def _kind(code: int) -> int:
    """All that assertions ask of a character: none, a newline, of a word, another."""
    return -1 if code < 0 else 0 if code == 10 else 1 if _is_word(code) else 2


def _holds(place: _Place, before: int, after: int) -> bool:
    match place:
        case _Place.START:
            return before < 0
        case _Place.END:
            return after < 0
        case _Place.LINE_START:
            return before < 0 or before == 10
        case _Place.LINE_END:
            return after < 0 or after == 10
        case _Place.BOUNDARY:
            return _is_word(before) != _is_word(after)
        case _Place.INSIDE:
            return _is_word(before) == _is_word(after)


class _Known(Struct):
    """What an expression is known to match of `names`; `more` are names that were looked at since."""

    names: Container[str] = ()
    matched: frozenset[str] = frozenset()
    more: dict[str, bool] = {}


class Patterns:
    """The expressions in use, and what they are known to match: a name is looked at once."""

    def __init__(self) -> None:
        self._compiled: dict[str, TopicPattern] = {}
        self._known: dict[str, _Known] = {}

    def check(self, text: str) -> str | None:
        """What is wrong with an expression."""
        if text not in self._compiled:
            try:
                compiled = TopicPattern(text)
            except InvalidPattern as invalid:
                return str(invalid)
            if len(self._compiled) >= KEPT_MAX:
                oldest = next(iter(self._compiled))  # if it is still in use, it is compiled again
                del self._compiled[oldest], self._known[oldest]
            self._compiled[text], self._known[text] = compiled, _Known()
        return None

    def matching(self, text: str, names: Collection[str]) -> tuple[frozenset[str], bool]:
        """The names that match, and whether all were looked at: an expression that costs much is asked for again.

        `names` is kept and must not change."""
        assert self.check(text) is None, "an expression that is in use was checked"
        pattern, known = self._compiled[text], self._known[text]
        work_max = pattern.work + WORK_MAX
        found: list[str] = []
        whole = True
        for name in names:
            fits = name in known.matched if name in known.names else known.more.get(name)
            if fits is None:
                if pattern.work > work_max:
                    whole = False
                    continue
                fits = known.more[name] = pattern.matches(name)
            if fits:
                found.append(name)
        matched = frozenset(found)
        if whole:
            self._known[text] = _Known(names, matched, {})
        return matched, whole
