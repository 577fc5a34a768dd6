"""Writes the Python source of a decoder for one message in one version; codec.py compiles it when it is first used.

Source instead of a loop over fields, because a decoder that knows its version is many times faster: neighbouring fields
of fixed size, and the length in front of the next field, become one struct call, and nothing is looked up by name.
Names in the source: b the buffer, e its end, p the position, n a length or count, q the end of the field at p, c the
items of arrays so far.
"""

from __future__ import annotations

import struct

from cairnmq.wire.notation import FIXED, Field, Shape

# Of all arrays of a request together. An item of four bytes becomes an object of hundreds, and its answer another one:
# without this a request of 100 MB would need tens of GB. The largest honest ones name every partition of a broker.
ITEMS_MAX = 250_000


def decoder_source(shape: Shape, version: int) -> tuple[str, dict[str, struct.Struct]]:
    """The source of `decode(b, p) -> (message, p)`, and the structs it calls by name."""
    writer = _DecoderWriter(shape, version)
    return writer.whole(), writer.structs


class _DecoderWriter:
    def __init__(self, shape: Shape, version: int) -> None:
        self.shape = shape
        self.version = version
        self.flexible = shape.is_flexible(version)
        self.counts_items = shape.name.endswith("Request")
        self.structs: dict[str, struct.Struct] = {}
        self.lines: list[str] = []
        self.depth = 1
        self.names = 0
        self.pending: list[tuple[str, str]] = []

    def whole(self) -> str:
        message = self.struct(self.shape.name, "C_", self.shape.fields)
        self.line(f"return {message}, p")
        return "\n".join(["def decode(b, p):", "    e = len(b); c = 0", *self.lines, ""])

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def fail_if(self, condition: str, path: str, what: str) -> None:
        self.line(f"if {condition}: raise Malformed({path + ' ' + what!r})")

    def name(self, letter: str = "v") -> str:
        self.names += 1
        return f"{letter}{self.names}"

    def flush(self) -> None:
        """One call for all fixed-size fields read since the last one."""
        if not self.pending:
            return
        formats, names = "".join(f for f, _ in self.pending), [n for _, n in self.pending]
        self.pending = []
        if formats == "B":
            self.line(f"{names[0]} = b[p]; p += 1")
            return
        compiled = struct.Struct(">" + formats)
        function = "U_" + formats.replace("?", "t")
        self.structs[function] = compiled
        self.line(f"{', '.join(names)}{',' if len(names) == 1 else ''} = {function}(b, p); p += {compiled.size}")

    def length(self, wide: bool, kind: str = "") -> None:
        """Reads a length or count into n: as it is (legacy) or plus one (compact)."""
        if not self.flexible:
            self.pending.append(("i" if wide else "h", "n"))
            self.flush()
            return
        self.pending.append(("B", "n"))
        self.flush()
        self.line("if n > 127:")
        self.depth += 1
        if kind == "records":  # nearly always two bytes long: not worth a call
            self.line("q = b[p]")
            self.line("if q < 128: n = n & 127 | q << 7; p += 1")
            self.line("else: n, p = read_uvarint(b, p - 1)")
        else:
            self.line("n, p = read_uvarint(b, p - 1)")
        if kind == "str":
            self.line("if n > 32768: raise Malformed('a string of more than 32767 bytes')")
        self.depth -= 1

    def field(self, field: Field, path: str) -> str:
        """Writes the reading of one field; gives back the expression that holds it."""
        path = f"{path}.{field.name}"
        nullable = field.may_be_null(self.version)
        if field.array:
            return self.array(field, nullable, path)
        if field.type in FIXED:
            target = self.name()
            self.pending.append((FIXED[field.type], target))
            return target
        if field.is_struct:
            return self.inner_struct(field, nullable, path)
        return self.variable(field.type, nullable, path)

    def when_present(self, target: str, nullable: bool, path: str, null: str = "None") -> None:
        """After length(): opens the branch where the value is not null; the caller closes it if nullable."""
        missing = "n == 0" if self.flexible else "n < 0"
        if not nullable:
            self.fail_if("not n" if self.flexible else missing, path, "is null")
            return
        if not self.flexible:
            self.fail_if("n < -1", path, "has a negative length")
        self.line(f"if {missing}: {target} = {null}")
        self.line("else:")
        self.depth += 1

    def variable(self, kind: str, nullable: bool, path: str) -> str:
        target = self.name()
        self.length(wide=kind != "str", kind=kind)
        self.when_present(target, nullable, path)
        self.line("q = p + n - 1" if self.flexible else "q = p + n")
        self.fail_if("q > e", path, "is truncated")
        copied = {"str": ".tobytes().decode()", "bytes": ".tobytes()", "records": ""}[kind]
        self.line(f"{target} = b[p:q]{copied}; p = q")
        if nullable:
            self.depth -= 1
        return target

    def array(self, field: Field, nullable: bool, path: str) -> str:
        target = self.name("a")
        self.length(wide=True)
        self.when_present(target, nullable, path)
        if self.flexible:
            self.line("n -= 1")
        smallest = self.smallest_item(field)
        self.fail_if(f"n * {smallest} > e - p", path, "has more items than bytes")
        if self.counts_items:
            self.line("c += n")
            self.fail_if(f"c > {ITEMS_MAX}", path, f"and the fields before it have more than {ITEMS_MAX} items")
        if field.type in FIXED and field.type not in ("bool", "uuid"):
            letter = FIXED[field.type]
            self.line(f"{target} = list(unpack_from(f'>{{n}}{letter}', b, p)); p += n * {smallest}")
        else:
            self.line(f"{target} = []")
            self.line("for _ in range(n):")
            self.depth += 1
            if field.is_struct:
                item = self.struct(path, f"C_{field.type}", self.shape.structs[field.type])
            elif field.type in FIXED:
                item = self.name()
                self.pending.append((FIXED[field.type], item))
                self.flush()
            else:
                item = self.variable(field.type, False, path)
            self.line(f"{target}.append({item})")
            self.depth -= 1
        if nullable:
            self.depth -= 1
        return target

    def inner_struct(self, field: Field, nullable: bool, path: str) -> str:
        fields = self.shape.structs[field.type]
        if not nullable:
            return self.struct(path, f"C_{field.type}", fields)
        target = self.name()
        self.pending.append(("b", "n"))
        self.flush()
        self.line(f"if n == -1: {target} = None")
        self.line(f"elif n != 1: raise Malformed({path + ' has a bad presence byte'!r})")
        self.line("else:")
        self.depth += 1
        self.line(f"{target} = {self.struct(path, f'C_{field.type}', fields)}")
        self.depth -= 1
        return target

    def struct(self, path: str, constructor: str, fields: tuple[Field, ...]) -> str:
        """Writes the reading of all fields of a struct; gives back the call that makes it."""
        values: dict[str, str] = {}
        tagged = []
        for field in fields:
            if self.version not in field.versions:
                continue
            if field.tag is not None:
                tagged.append(field)
            else:
                values[field.name] = self.field(field, path)
        if self.flexible:
            self.pending.append(("B", "n"))
            self.flush()
            self.tags(tagged, values, path)
        self.flush()
        arguments = [values.get(field.name) or default_expression(field) for field in fields]
        while arguments and fields[len(arguments) - 1].name not in values:
            arguments.pop()  # the class knows its own defaults
        return f"{constructor}({', '.join(arguments)})"

    def tags(self, tagged: list[Field], values: dict[str, str], path: str) -> None:
        for field in tagged:
            values[field.name] = self.name("t")
            self.line(f"{values[field.name]} = {default_expression(field)}")
        self.line("if n:")
        self.depth += 1
        self.line("if n > 127: n, p = read_uvarint(b, p - 1)")
        if not tagged:
            self.line("p = skip_tags(b, p, n)")
            self.depth -= 1
            return
        end = self.name("q")
        self.line("for _ in range(n):")
        self.depth += 1
        self.line("tag, p = read_uvarint(b, p)")
        self.line("n, p = read_uvarint(b, p)")
        self.line(f"{end} = p + n")
        self.fail_if(f"{end} > e", path, "has a truncated tagged field")
        for number, field in enumerate(tagged):
            self.line(f"{'el' if number else ''}if tag == {field.tag}:")
            self.depth += 1
            value = self.field(field, path)
            self.flush()
            self.line(f"{values[field.name]} = {value}")
            self.fail_if(f"p != {end}", f"{path}.{field.name}", "does not match its length")
            self.depth -= 1
        self.line(f"else: p = {end}")
        self.depth -= 2

    def smallest_item(self, field: Field) -> int:
        """The fewest bytes one item of the array can take: bounds its count before anything is allocated."""
        if field.is_struct:
            return self.smallest_struct(self.shape.structs[field.type])
        return self.smallest_value(field.type)

    def smallest_value(self, kind: str) -> int:
        if kind in FIXED:
            return struct.calcsize(">" + FIXED[kind])
        return 1 if self.flexible else 2 if kind == "str" else 4

    def smallest_struct(self, fields: tuple[Field, ...]) -> int:
        size = 1 if self.flexible else 0
        for field in fields:
            if self.version not in field.versions or field.tag is not None:
                continue
            if field.array:
                size += 1 if self.flexible else 4
            elif field.is_struct:
                present = not field.may_be_null(self.version)
                size += self.smallest_struct(self.shape.structs[field.type]) if present else 1
            else:
                size += self.smallest_value(field.type)
        return max(size, 1)


def default_expression(field: Field) -> str:
    if field.is_embedded:
        return f"D_{field.type}"
    return "[]" if field.default == () else repr(field.default)
