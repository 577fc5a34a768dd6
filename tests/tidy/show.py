"""`PYTHONPATH=tests python -m tidy.show PAGE...`: the sentences and cells of pages that are too long."""

from __future__ import annotations

import sys
from pathlib import Path

from tidy.prose import long_cells, long_sentences

for _page in sys.argv[1:]:
    for _text in (*long_sentences(Path(_page).read_text()), *long_cells(Path(_page).read_text())):
        print(f"{_page}: {_text}\n")
