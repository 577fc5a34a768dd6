"""One file of the simulated disk: what programs see of it, and what a power loss may leave of it.

Pages that were not synced survive or not, each by itself and in any version between two appends; the size may have
grown without them, and then they are zeros. A page that is written over may be found as it was at any time since.
"""

from __future__ import annotations

from random import Random

PAGE = 4096
SECTOR = 512
TORN_PAGE_CHANCE = 0.05

_ZEROS = bytes(PAGE)


class Era:
    """The appends between two truncations. Within it a file only grows, so any earlier page is a prefix."""

    __slots__ = ("ends", "pages", "start")

    def __init__(self, start: int) -> None:
        self.start = start
        self.ends: list[int] = []
        # The content when the next era began; of the newest era it is the content of the file.
        self.pages: list[bytes] = []

    def copy(self) -> Era:
        era = Era(self.start)
        era.ends = self.ends.copy()
        era.pages = self.pages
        return era


class Content:
    """An inode of a file: what programs see, what is durable for certain, and the eras in between."""

    __slots__ = ("durable", "durable_size", "eras", "pages", "rewritten", "size")

    def __init__(self) -> None:
        # Pages are immutable and shared by copies of the disk; only the last one may be shorter than PAGE.
        self.pages: list[bytes] = []
        self.size = 0
        # May be shorter or longer than durable_size says: what is missing reads as zeros, what is over is not seen.
        self.durable: list[bytes] = []
        self.durable_size = 0
        self.eras = [Era(0)]
        self.rewritten: dict[int, list[bytes]] = {}  # pages written over since the last sync: what they were

    def copy(self) -> Content:
        content = Content()
        content.pages = self.pages.copy()
        content.size = self.size
        content.durable = self.durable.copy()
        content.durable_size = self.durable_size
        content.eras = [era.copy() for era in self.eras]
        content.rewritten = {number: versions.copy() for number, versions in self.rewritten.items()}
        return content

    def read(self, position: int, size: int) -> bytes:
        first = position // PAGE
        begin = position - first * PAGE
        data = b"".join(self.pages[first : (position + size + PAGE - 1) // PAGE])
        return data[begin : begin + size]

    def append(self, data: bytes) -> None:
        if not data:
            return
        fill = -self.size % PAGE
        if fill:
            self.pages[-1] += data[:fill]
        self.pages.extend(data[at : at + PAGE] for at in range(fill, len(data), PAGE))
        self.size += len(data)
        self.eras[-1].ends.append(self.size)

    def write(self, position: int, data: bytes) -> None:
        """Over what is there, and behind it; what lies between is zeros."""
        if position > self.size:
            self.append(bytes(position - self.size))
        inside = data[: self.size - position]
        at = 0
        while at < len(inside):
            number, begin = divmod(position + at, PAGE)
            part = inside[at : at + PAGE - begin]
            old = self.pages[number]
            self.rewritten.setdefault(number, []).append(old)
            self.pages[number] = old[:begin] + part + old[begin + len(part) :]
            at += len(part)
        self.append(data[len(inside) :])

    def truncate(self, size: int) -> None:
        if size > self.size:
            self.append(bytes(size - self.size))
        elif size < self.size:
            self.rewritten = {
                number: [old[: size - number * PAGE] for old in versions]
                for number, versions in self.rewritten.items()
                if number * PAGE < size
            }
            self.eras[-1].pages = self.pages.copy()
            self.eras.append(Era(size))
            del self.pages[(size + PAGE - 1) // PAGE :]
            if size % PAGE:
                self.pages[-1] = self.pages[-1][: size % PAGE]
            self.size = size

    def is_synced(self) -> bool:
        appended = len(self.eras) > 1 or bool(self.eras[0].ends) or self.durable_size != self.size
        return not appended and not self.rewritten

    def _first_dirty_page(self) -> int:
        first = self.eras[0]
        # Without an append the last page is clean, even if it is not full.
        starts = [first.start if first.ends else first.start + PAGE - 1]
        starts.extend(era.start for era in self.eras[1:])
        return min(starts) // PAGE

    def sync(self) -> None:
        if self.is_synced():
            return
        # Only dirty pages are written: a page that an earlier failed sync lost is clean and stays lost.
        dirty = self._first_dirty_page()
        if len(self.durable) < dirty:
            self.durable.extend([_ZEROS] * (dirty - len(self.durable)))
        self.durable[dirty:] = self.pages[dirty:]
        for number in self.rewritten:
            self.durable[number] = self.pages[number]
        self.durable_size = self.size
        self.eras = [Era(self.size)]
        self.rewritten = {}

    def fail_sync(self, rng: Random) -> None:
        """Some of it got to the device. The kernel marks the rest clean: it reads well and is never written."""
        self.durable, self.durable_size = self.survivor(rng)
        self.eras = [Era(self.size)]
        self.rewritten = {}

    def damage(self, position: int, flip: int) -> None:
        number, at = divmod(position, PAGE)
        for pages in (self.pages, self.durable):
            if number < len(pages) and at < len(pages[number]):
                page = bytearray(pages[number])
                page[at] ^= flip
                pages[number] = bytes(page)

    def after_power_loss(self, rng: Random) -> Content:
        after = Content()
        after.pages, after.size = self.survivor(rng)
        after.durable, after.durable_size = after.pages.copy(), after.size
        after.eras = [Era(after.size)]
        return after

    def survivor(self, rng: Random) -> tuple[list[bytes], int]:
        """Pages and size that may be found after a power loss now."""
        if self.is_synced():
            return _cut(self.durable, self.size), self.size
        # How much of everything survives differs from crash to crash, else all crashes would look alike.
        chosen = len(self.eras) - 1 if rng.random() < 0.5 else rng.randrange(len(self.eras))
        size = self._surviving_size(rng, chosen, keep=rng.choice((0.0, 0.5, 1.0)))
        newest, oldest = rng.choice((0.0, 0.2, 0.5, 0.8, 1.0)), rng.choice((0.0, 0.5, 1.0))
        pages = _cut(self.durable, min(size, self._first_dirty_page() * PAGE))
        for number in range(len(pages), (size + PAGE - 1) // PAGE):
            versions = self._page_versions(rng, chosen, number)
            if rng.random() < newest:
                found = versions[-1]
            elif rng.random() < oldest:
                found = versions[0]
            else:
                found = rng.choice(versions)
            if len(versions) > 1 and rng.random() < TORN_PAGE_CHANCE:
                other = rng.choice(versions).ljust(PAGE, b"\0")
                at = rng.randrange(SECTOR, PAGE, SECTOR)
                found = found.ljust(PAGE, b"\0")[:at] + other[at:]
            pages.append(found)
        pages = _cut(pages, size)
        for number, versions in self.rewritten.items():
            if number < len(pages):
                pages[number] = self._rewritten_page(rng, [*versions, self.pages[number]], pages[number])
        return pages, size

    @staticmethod
    def _rewritten_page(rng: Random, versions: list[bytes], found: bytes) -> bytes:
        """One of the versions, or the beginning of one and the end of another; no longer than the page is."""
        first, second = rng.choice(versions), rng.choice(versions)
        differing = [at for at, (one, other) in enumerate(zip(first, second, strict=False)) if one != other]
        if differing and rng.random() < TORN_PAGE_CHANCE:
            at = rng.randint(differing[0], differing[-1])
            first = first[:at] + second[at:]
        return first[: len(found)] + found[len(first) :]

    def _surviving_size(self, rng: Random, chosen: int, keep: float) -> int:
        era = self.eras[chosen]
        start = self.durable_size if chosen == 0 else era.start
        end = era.ends[-1] if era.ends else era.start
        if rng.random() < keep:
            return end
        shape = rng.randrange(4)
        if shape == 0:
            return start
        if shape == 1 and era.ends:
            return rng.choice(era.ends)
        size = rng.randint(min(start, end), max(start, end))
        if shape == 2:
            return size
        # File systems that grow the size as pages are written leave it at the end of one.
        return min(max(size // PAGE * PAGE, min(start, end)), max(start, end))

    def _page_versions(self, rng: Random, chosen: int, number: int) -> list[bytes]:
        """What the device may hold as a page, oldest first; zeros at the end are left out."""
        begin = number * PAGE
        # The last truncation that reached this page and is durable: the file system zeroes what it cut before it
        # commits the new size, so older bytes of the page are gone from there on.
        origin = 0
        for index in range(chosen, 0, -1):
            if self.eras[index].start < begin + PAGE:
                origin = index
                break
        if origin == 0:
            base = self.durable[number] if number < len(self.durable) else b""
        else:
            kept = max(self.eras[origin].start - begin, 0)
            base = self.eras[origin - 1].pages[number][:kept] if kept else b""
        versions = [base]
        for index in range(origin, len(self.eras)):
            era = self.eras[index]
            if index > chosen and era.start <= begin:
                # This truncation freed the block: what came later went to another one, which nothing points to.
                break
            pages = era.pages if index < len(self.eras) - 1 else self.pages
            if era.start // PAGE <= number < len(pages) and (index > 0 or era.ends):
                page = pages[number]
                shortest = max(era.start - begin, 0)
                if index > 0:
                    versions.append(page[:shortest])
                versions.append(page[: _writeback_length(rng, era.ends, begin, shortest, len(page))])
                versions.append(page)
        return versions


def _cut(pages: list[bytes], size: int) -> list[bytes]:
    """Pages that hold exactly so many bytes; what is missing is zeros."""
    count = (size + PAGE - 1) // PAGE
    result = [page if len(page) == PAGE else page.ljust(PAGE, b"\0") for page in pages[:count]]
    result.extend([_ZEROS] * (count - len(result)))
    if size % PAGE:
        result[-1] = result[-1][: size % PAGE]
    return result


def _writeback_length(rng: Random, ends: list[int], begin: int, shortest: int, longest: int) -> int:
    """How much of a page was filled when the kernel took it to the device."""
    if ends and rng.random() < 0.5:
        return min(max(rng.choice(ends) - begin, shortest), longest)
    return rng.randint(shortest, longest)
