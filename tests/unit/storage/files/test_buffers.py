"""A chunk comes back into use only when no view on it is alive."""

from __future__ import annotations

from cairnmq.storage.files.buffers import LARGE, SMALL, Chunks, ResponseArena, SplitBuffer, unseen


def test_a_view_a_slice_and_a_slice_of_a_slice_are_seen() -> None:
    chunk = bytearray(SMALL)
    view = memoryview(chunk)
    part = view[10:20]
    view.release()
    assert not unseen(chunk)
    piece = part[2:3]
    part.release()
    assert not unseen(chunk)
    piece.release()
    assert unseen(chunk)
    assert len(chunk) == SMALL


def test_a_chunk_in_sight_is_not_given_out_again() -> None:
    chunks = Chunks()
    chunk = chunks.take(SMALL)
    held = memoryview(chunk)[:1]
    chunks.give(chunk)
    assert chunks.take(SMALL) is not chunk
    held.release()
    assert chunks.take(SMALL) is chunk


def test_sizes() -> None:
    chunks = Chunks()
    assert [len(chunks.take(size)) for size in (1, SMALL, SMALL + 1, LARGE)] == [SMALL, SMALL, LARGE, LARGE]
    assert len(chunks.take(LARGE + 1)) == LARGE + 1


def test_the_pool_is_bounded_and_keeps_nothing_of_odd_size() -> None:
    chunks = Chunks(kept_small=2, kept_large=1)
    for _ in range(5):
        chunks.give(bytearray(SMALL))
        chunks.give(bytearray(LARGE))
        chunks.give(chunks.take(LARGE + 1))
    assert chunks.kept_bytes == 2 * SMALL + LARGE


def test_large_chunks_that_only_save_work_are_few() -> None:
    chunks = Chunks(large_max=2)
    busy = [chunks.take(SMALL, LARGE) for _ in range(4)]
    assert [len(chunk) for chunk in busy] == [LARGE, LARGE, SMALL, SMALL]
    needed = chunks.take(SMALL + 1)
    assert len(needed) == SMALL + 1  # no more than is needed
    for chunk in (*busy, needed):
        chunks.give(chunk)
    assert len(chunks.take(SMALL, LARGE)) == LARGE


def test_reads_of_an_answer_lie_side_by_side() -> None:
    chunks = Chunks()
    arena = ResponseArena(chunks)
    kept = []
    for fill in (b"a", b"b", b"c"):
        room = arena.take(1000)
        room[:] = fill * 1000
        arena.keep(room[:10])
        kept.append(room[:10])
        room.release()
    arena.keep(memoryview(bytearray(10)))  # of a read that did not come from the arena
    assert [bytes(view) for view in kept] == [b"a" * 10, b"b" * 10, b"c" * 10]
    (chunk,) = {id(view.obj): view.obj for view in kept}.values()
    arena.close()
    assert chunks.take(LARGE) is not chunk, "an answer that did not leave yet holds it"
    kept.clear()
    assert chunks.take(LARGE) is chunk


def test_a_tray_takes_another_chunk_for_what_does_not_fit() -> None:
    arena = ResponseArena(Chunks())
    arena.keep(arena.take(LARGE - 10))
    assert arena.fits(10) and not arena.fits(11)
    assert len(arena.take(10)) == 10
    assert len(arena.take(11)) == 11 and arena.fits(LARGE)
    arena.close()
    assert not arena.fits(1)
    arena.close()


def test_a_slab_is_used_again_only_when_nobody_can_see_it() -> None:
    split_buffer = SplitBuffer(LARGE)
    view = split_buffer.take(LARGE)
    view[:4] = b"seen"
    kept = view[:4]
    view.release()
    other = split_buffer.take(LARGE)
    other[:4] = b"late"
    assert kept == b"seen"
    first = kept.obj
    kept.release()
    other.release()
    again = split_buffer.take(SMALL)
    assert again.obj is first and len(again) == SMALL


def test_a_slab_larger_than_usual_is_not_kept() -> None:
    split_buffer = SplitBuffer(SMALL)
    large = split_buffer.take(LARGE)
    assert len(large) == LARGE
    large.release()
    assert len(split_buffer.take(SMALL).obj) == SMALL


def test_an_emptied_slab_is_zeros_but_not_what_somebody_sees() -> None:
    split_buffer = SplitBuffer(LARGE)
    split_buffer.empty()
    view = split_buffer.take(LARGE)
    view[:4] = b"seen"
    split_buffer.empty()
    assert view[:4] == b"seen"
    view.release()
    view = split_buffer.take(LARGE)
    view[:4] = b"done"
    view.release()
    split_buffer.empty()
    assert split_buffer.take(LARGE)[:4] == bytes(4)
