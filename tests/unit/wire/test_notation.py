"""The notation of the schema table, on a table of its own."""

from __future__ import annotations

import pytest

from cairnmq.wire.notation import SHAPES, Field, Range, parse

TABLE = """
Paint 7 1-5 3+
  > name:str?2+ colours:[Colour]?@2-4 coats:i8=2
    thick:bool@4+#1=true
  Colour: code:i32
  <
Note - 0-1 never
  = text:str?=null ids:[uuid]
"""


def test_a_table() -> None:
    shapes = parse(TABLE)
    assert list(shapes) == ["PaintRequest", "PaintResponse", "Note"]
    paint = shapes["PaintRequest"]
    assert (paint.key, paint.versions, paint.flexible_from) == (7, Range(1, 5), 3)
    assert paint.fields == (
        Field("name", "str", False, Range(1, 5), Range(2, 5), None, ""),
        Field("colours", "Colour", True, Range(2, 4), Range(2, 4), None, ()),
        Field("coats", "i8", False, Range(1, 5), None, None, 2),
        Field("thick", "bool", False, Range(4, 5), None, 1, True),
    )
    assert paint.structs == {"Colour": (Field("code", "i32", False, Range(1, 5), None, None, 0),)}
    assert shapes["PaintResponse"].fields == ()
    assert (shapes["Note"].key, shapes["Note"].flexible_from) == (None, None)
    assert [f.default for f in shapes["Note"].fields] == [None, ()]


def test_a_field_that_cannot_be_read_is_named() -> None:
    with pytest.raises(ValueError, match="name;str"):
        parse("Paint 7 1-5 3+\n  > name;str")


def test_the_table_keeps_what_the_codecs_rely_on() -> None:
    for shape in SHAPES.values():
        for fields in (shape.fields, *shape.structs.values()):
            for field in fields:
                assert not field.is_struct or field.type in shape.structs, (shape.name, field.name)
                assert field.versions.first >= shape.versions.first, (shape.name, field.name)
                assert field.versions.last <= shape.versions.last, (shape.name, field.name)
                if field.tag is not None:
                    assert shape.is_flexible(field.versions.first), (shape.name, field.name)
                    # The encoder has one buffer for the tagged field it is writing.
                    inner = shape.structs.get(field.type, ())
                    assert all(f.tag is None for f in inner), (shape.name, field.name)
            tags = [field.tag for field in fields if field.tag is not None]
            assert sorted(tags) == list(range(len(tags))), shape.name
