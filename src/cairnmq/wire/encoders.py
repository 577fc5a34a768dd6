"""Writes the Python source of an encoder for one message in one version; codec.py compiles it when it is first used.

The encoder collects small pieces in o (w appends to it) and joins them; record bytes are put into the answer as they
are, never copied. As in decoders.py, neighbouring fixed-size fields and the length that follows are one struct call.
A field that the version does not have is left out, whatever it holds.
"""

from __future__ import annotations

import struct
from typing import TypeAlias

from cairnmq.wire.decoders import default_expression
from cairnmq.wire.notation import FIXED, Field, Shape

# Structs of the hot path that nearly always have these fields empty: they get a second, shorter body for that case.
QUIET = {
    ("ProduceResponse", "PartitionProduceResponse"): ("record_errors", "error_message"),
    ("FetchResponse", "PartitionData"): ("aborted_transactions",),
}

# Sentences quote what the client sent, which may be as long as a string can be; nobody reads more than this.
SENTENCE_MAX = 1000

# Arrays of numbers with fewer items than this have a struct for every count.
SHORT = 8

Structs: TypeAlias = dict[str, struct.Struct | list[struct.Struct]]


def encoder_source(shape: Shape, version: int) -> tuple[str, Structs]:
    """The source of `encode(m) -> list of buffers`, and the structs it packs with, by name or by name and count."""
    writer = _EncoderWriter(shape, version)
    return writer.whole(), writer.structs


def items_source(shape: Shape, field: str, version: int) -> tuple[str, Structs]:
    """The same for a list of items of one of its arrays, without their count."""
    writer = _EncoderWriter(shape, version)
    return writer.items(next(each for each in shape.fields if each.name == field)), writer.structs


class _EncoderWriter:
    def __init__(self, shape: Shape, version: int) -> None:
        self.shape = shape
        self.version = version
        self.flexible = shape.is_flexible(version)
        self.structs: Structs = {}
        self.lines: list[str] = []
        self.depth = 1
        self.names = 0
        self.pending: list[tuple[str, str]] = []
        self.quiet: tuple[str, ...] = ()
        self.write = "w"
        self.has_records = any(f.type == "records" for fields in shape.structs.values() for f in fields)

    def whole(self) -> str:
        self.struct(self.shape.fields, "m", "")
        self.flush()
        return self.function()

    def items(self, field: Field) -> str:
        self.line("for x in m:")
        self.depth += 1
        self.item(field.type, "x")
        self.flush()
        self.depth -= 1
        return self.function()

    def function(self) -> str:
        head = ["def encode(m):", "    o = []; w = o.append"]
        if self.has_records:
            head.append("    out = []")
            self.line("if o: out.append(b''.join(o))")
            self.line("return out")
        else:
            self.line("return [b''.join(o)]")
        return "\n".join([*head, *self.lines, ""])

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def name(self, letter: str = "v") -> str:
        self.names += 1
        return f"{letter}{self.names}"

    def packed(self, items: list[tuple[str, str]]) -> str:
        """The expression for these items as bytes; format x is a zero byte without a value."""
        if all(f == "x" for f, _ in items):
            return repr(bytes(len(items)))
        formats = "".join(f for f, _ in items)
        function = "P_" + formats.replace("?", "t")
        self.structs[function] = struct.Struct(">" + formats)
        return f"{function}({', '.join(value for f, value in items if f != 'x')})"

    def flush(self) -> None:
        if self.pending:
            self.line(f"{self.write}({self.packed(self.pending)})")
            self.pending = []

    def length(self, count: str, wide: bool) -> None:
        """Writes a length that `count` holds: as it is (legacy) or already plus one (compact)."""
        if not self.flexible:
            self.pending.append(("i" if wide else "h", count))
            self.flush()
        elif self.pending:
            self.line(f"if {count} < 128: {self.write}({self.packed([*self.pending, ('B', count)])})")
            self.line(f"else: {self.write}({self.packed(self.pending)}); {self.write}(uvarint({count}))")
            self.pending = []
        else:
            self.line(f"{self.write}(ONE[{count}] if {count} < 128 else uvarint({count}))")

    def counted(self, expression: str) -> str:
        return f"len({expression}) + 1" if self.flexible else f"len({expression})"

    def field(self, field: Field, holder: str) -> None:
        value = f"{holder}.{field.name}"
        nullable = field.may_be_null(self.version)
        if field.array:
            self.array(field, value, nullable)
        elif field.type in FIXED:
            self.pending.append((FIXED[field.type], value))
        elif field.is_struct:
            self.inner_struct(field, value, nullable)
        elif field.type == "records":
            self.records(value, nullable)
        else:
            self.variable(field.type, value, nullable, cut=field.name.endswith("error_message"))

    def variable(self, kind: str, value: str, nullable: bool, *, cut: bool = False) -> None:
        encode = f"{f'[:{SENTENCE_MAX}]' if cut else ''}.encode()" if kind == "str" else ""
        null = 0 if self.flexible else -1
        self.line(f"v = {value}")
        if nullable:
            self.line(f"if v is None: n = {null}")
            self.line(f"else: v = v{encode}; n = {self.counted('v')}")
        else:
            self.line(f"v = v{encode}; n = {self.counted('v')}" if encode else f"n = {self.counted('v')}")
        if kind == "str" and self.flexible:
            self.line("if n > 32768: raise ValueError('a string of more than 32767 bytes')")
        self.length("n", wide=kind != "str")
        self.line(f"if n > {1 if self.flexible else 0}: {self.write}(v)")

    def records(self, value: str, nullable: bool) -> None:
        """The pieces so far are joined and the records follow as buffers of their own."""
        self.line(f"r = {value}")
        if nullable:
            self.line(f"if r is None: r = (); n = {0 if self.flexible else -1}")
            self.line("elif type(r) is list or type(r) is tuple:")
        else:
            self.line("if type(r) is list or type(r) is tuple:")
        self.line(f"    n = sum(map(len, r)){' + 1' if self.flexible else ''}")
        self.line(f"else: n = {self.counted('r')}; r = (r,)")
        if self.flexible:
            before = self.pending
            for width, items in (
                (7, [("B", "n")]),
                (14, [("B", "n & 127 | 128"), ("B", "n >> 7")]),
                (21, [("B", "n & 127 | 128"), ("B", "n >> 7 & 127 | 128"), ("B", "n >> 14")]),
            ):
                self.line(f"{'if' if width == 7 else 'elif'} n < {1 << width}: w({self.packed([*before, *items])})")
            put = f"w({self.packed(before)}); " if before else ""
            self.line(f"else: {put}w(uvarint(n))")
            self.pending = []
        else:
            self.length("n", wide=True)
        self.line(f"if n > {1 if self.flexible else 0}: out.append(b''.join(o)); o.clear(); out.extend(r)")

    def array(self, field: Field, value: str, nullable: bool) -> None:
        if field.name in self.quiet:
            one = 1 if self.flexible else 0
            count = f"{one - 1} if {value} is None else {one}" if nullable else str(one)
            self.pending.append(("B" if self.flexible else "i", count))
            return
        items = self.name("a")
        self.line(f"{items} = {value}")
        fixed = field.type in FIXED and field.type not in ("bool", "uuid")
        if fixed and not nullable:
            self.numbers(FIXED[field.type], items)
            return
        if nullable:
            self.line(f"if {items} is None: {items} = (); n = {0 if self.flexible else -1}")
            self.line(f"else: n = {self.counted(items)}")
        else:
            self.line(f"n = {self.counted(items)}")
        self.length("n", wide=True)
        if fixed:
            self.line(f"if {items}: {self.write}(pack(f'>{{len({items})}}{FIXED[field.type]}', *{items}))")
            return
        if self.depth == 1 and field.is_struct and self.shape.name.endswith("Response"):
            put = "out.append(b''.join(o)); o.clear(); out" if self.has_records else "o"
            self.line(f"if type({items}) is Encoded: {put}.extend({items}.buffers); {items} = ()")
        item = self.name("x")
        self.line(f"for {item} in {items}:")
        self.depth += 1
        if field.is_struct:
            self.item(field.type, item)
        elif field.type in FIXED:
            self.pending.append((FIXED[field.type], item))
        else:
            self.variable(field.type, item, False)
        self.flush()
        self.depth -= 1

    def numbers(self, letter: str, items: str) -> None:
        """A short array of numbers (replicas, partitions) is packed together with what stands before it."""
        before = "".join(f for f, _ in self.pending)
        arguments = "".join(f"{value}, " for f, value in self.pending if f != "x")
        prefix, count = ("B", "n + 1") if self.flexible else ("i", "n")
        calls = f"S_{before.replace('?', 't')}{prefix}_{letter}"
        self.structs[calls] = [struct.Struct(f">{before}{prefix}{n}{letter}") for n in range(SHORT)]
        self.line(f"n = len({items})")
        self.line(f"if n < {SHORT}: {self.write}({calls}[n]({arguments}{count}, *{items}))")
        self.line("else:")
        self.depth += 1
        self.flush()
        encoded = "uvarint(n + 1)" if self.flexible else "pack('>i', n)"
        self.line(f"{self.write}({encoded}); {self.write}(pack(f'>{{n}}{letter}', *{items}))")
        self.depth -= 1

    def item(self, struct_name: str, item: str) -> None:
        fields = self.shape.structs[struct_name]
        names = QUIET.get((self.shape.name, struct_name), ())
        quiet = [f for f in fields if f.name in names and self.version in f.versions]
        if not quiet:
            self.struct(fields, item, struct_name)
            return
        tests = [f"not {item}.{f.name}" if f.array else f"{item}.{f.name} is None" for f in quiet]
        self.line(f"if {' and '.join(tests)}:")
        self.depth += 1
        self.quiet = names
        self.struct(fields, item, struct_name)
        self.flush()
        self.quiet = ()
        self.depth -= 1
        self.line("else:")
        self.depth += 1
        self.struct(fields, item, struct_name)
        self.flush()
        self.depth -= 1

    def inner_struct(self, field: Field, value: str, nullable: bool) -> None:
        fields = self.shape.structs[field.type]
        holder = self.name("s")
        self.line(f"{holder} = {value}")
        if not nullable:
            self.struct(fields, holder, field.type)
            return
        self.flush()
        self.line(f"if {holder} is None: {self.write}(b'\\xff')")
        self.line("else:")
        self.depth += 1
        self.pending.append(("b", "1"))
        self.struct(fields, holder, field.type)
        self.flush()
        self.depth -= 1

    def struct(self, fields: tuple[Field, ...], holder: str, name: str) -> None:
        tagged = []
        for field in fields:
            if self.version not in field.versions:
                continue
            if field.tag is not None:
                tagged.append(field)
            elif field.name in self.quiet and not field.array:
                self.pending.append(("x", "") if self.flexible else ("h", "-1"))
            else:
                self.field(field, holder)
        if not self.flexible:
            return
        if tagged:
            self.tags(sorted(tagged, key=lambda f: f.tag or 0), holder)
        else:
            self.pending.append(("x", ""))

    def tags(self, tagged: list[Field], holder: str) -> None:
        """A field that holds its default is not sent; the usual case, none is, costs one more zero byte."""
        none = " and ".join(self.holds_default(field, holder, shallow=True) for field in tagged)
        self.line(f"if {none}: {self.write}({self.packed([*self.pending, ('x', '')])})")
        self.line("else:")
        self.depth += 1
        self.flush()
        self.line("tags = []")
        write, self.write = self.write, "tw"
        for field in tagged:
            self.line(f"if not ({self.holds_default(field, holder)}):")
            self.depth += 1
            self.line("to = []; tw = to.append")
            self.field(field, holder)
            self.flush()
            self.line("to = b''.join(to)")
            self.line(f"tags.append({field.tag}); tags.append(to)")
            self.depth -= 1
        self.write = write
        self.line(f"{self.write}(tag_section(tags))")
        self.depth -= 1

    def holds_default(self, field: Field, holder: str, shallow: bool = False) -> str:
        value = f"{holder}.{field.name}"
        if field.default is None and not field.is_embedded:
            return f"{value} is None"
        if field.array:
            return f"not {value}"
        if field.is_embedded and shallow:
            return f"{value} is {default_expression(field)}"
        return f"{value} == {default_expression(field)}"
