"""The documents are true: modules named, links resolved, proofs that exist, a table that matches the tests."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from cairnmq.kernels import KERNELS
from cairnmq.wire.apis import APIS
from features import FAILED, NOT_OFFERED, PAGE, YES, row_name, split_id, table_of
from interop.clients.roster import CLIENTS
from tidy.tree import ROOT, SOURCE, collected, committed, modules, name_of

DOCUMENTS = sorted(path for path in committed() if path.suffix == ".md")
ROWS = [f"{letter}{n}" for letter, last in zip("ABCDEF", (10, 10, 6, 4, 5, 5), strict=True) for n in range(1, last + 1)]
LATER = re.compile(r"later \(issue \d+\)|later$")
PROOF = re.compile(r"`([^`]+)`")


def targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def feature_rows() -> dict[str, list[str]]:
    """Row -> the cells behind its number, from the tables of promises."""
    rows = {}
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if re.fullmatch(r"[A-F]\d+", cells[0]):
            rows[cells[0]] = cells[1:]
    return rows


def test_architecture_names_every_module() -> None:
    """Each in the table of its own package: there is more than one `cluster.py`."""
    named, package = set(), ""
    for line in (ROOT / "docs" / "architecture.md").read_text().splitlines():
        if heading := re.match(r"\*\*([\w/]+)\*\*:", line):
            package = "" if heading[1] == "top" else heading[1] + "/"
        elif row := re.match(r"\| `(\w+\.py)` \|", line):
            named.add(package + row[1])
    present = {name_of(module) for module in modules() if module.name != "__init__.py"}
    assert (present - named, named - present) == (set(), set())


def members_of_classes() -> dict[str, set[str]]:
    """Class -> its methods, fields and attributes; of classes of the same name, all of them."""
    found: dict[str, set[str]] = {}
    for module in modules():
        for cls in (node for node in ast.walk(ast.parse(module.read_text())) if isinstance(node, ast.ClassDef)):
            members = found.setdefault(cls.name, set())
            for node in ast.walk(cls):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    members.add(node.name)
                elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
                    members.add(node.attr)
                elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                    members.add(node.target.id)
    return found


def unknown_hops(page: str, classes: dict[str, set[str]]) -> list[str]:
    """Classes that a page names and nobody has; and methods that its classes do not have."""
    hops = set(re.findall(r"\b([A-Z][a-z]+[A-Z]\w+|[A-Z][a-z]+(?=\.[a-z]))(?:\.([a-z]\w+))?", page))
    known = {(name, member) for name, members in classes.items() for member in {"", *members}}
    return sorted(f"{name}.{member}".rstrip(".") for name, member in hops - known)


def test_hops_of_the_walks_exist() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    apis = {api.name for api in APIS.values()}
    assert (
        set(unknown_hops(page, members_of_classes())) - apis - {"CairnMQ", "JavaScript", "RecordBatch", "ZooKeeper"}
        == set()
    )


def test_a_hop_that_does_not_exist_is_found() -> None:
    classes = {"PackSet": {"read"}}
    assert unknown_hops("PackSet.read -> PackSet", classes) == []
    assert unknown_hops("PackShelf.read, PackSet.write, PackShelf", classes) == [
        "PackSet.write",
        "PackShelf",
        "PackShelf.read",
    ]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_resolve(document: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", document.read_text())
    broken = [link for link in links if "://" not in link and not (document.parent / link).exists()]
    assert broken == []


def anchors(page: str) -> set[str]:
    """What headings may be linked by: `## A b: c` by `a-b-c`."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", page, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_to_headings_resolve(document: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]*\.md)?#([^)\s]+)\)", document.read_text())
    pages = [(document.parent / page if page else document, anchor) for page, anchor in links]
    broken = [f"{page.name}#{anchor}" for page, anchor in pages if anchor not in anchors(page.read_text())]
    assert broken == []


def test_how_headings_are_linked() -> None:
    page = "# One: `two.md` \n```sh\n# no heading\n```\n## An older meta.db"
    assert anchors(page) == {"one-twomd-", "an-older-metadb"}


def test_kernels_are_those_of_the_decision() -> None:
    """The table of ADR 0006, the list that the broker knows, and the files."""
    page = (ROOT / "docs" / "adr" / "0006-kernels.md").read_text()
    table = {name.replace("/", ".") for name in re.findall(r"^\| `([\w/]+)\.pyx` \|", page, re.MULTILINE)}
    files = {path.relative_to(SOURCE).with_suffix("").as_posix().replace("/", ".") for path in SOURCE.rglob("*.pyx")}
    assert table == files == {name.removeprefix("cairnmq.") for name in KERNELS}


def reasons() -> list[str]:
    """What `/health/ready` may say, as docs/operating.md lists it."""
    section = (ROOT / "docs" / "operating.md").read_text().partition("## Health checks")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return [reason for row in rows for reason in PROOF.findall(row)]


def test_reasons_of_readiness_are_said_by_the_broker() -> None:
    """Word by word, but for what the broker fills in."""
    source = "\n".join(path.read_text() for path in modules())
    parts = {part.strip(" :,") for reason in reasons() for part in re.split(r"\bN\b|\(?\.\.\.\)?", reason)}
    assert len(parts) > 8
    assert {part for part in parts if part not in source} == set()


def losses() -> list[str]:
    """Lines that a start or a repair may print, as docs/recovery.md explains them."""
    page = (ROOT / "docs" / "recovery.md").read_text()
    rows = re.findall(r"^\| `([^`]+)` \|", page.partition("| line | meaning |")[2].partition("\n\n")[0], re.MULTILINE)
    return rows + re.findall(r"^- `([^`]+)`:", page, re.MULTILINE)


def test_losses_are_said_by_the_broker() -> None:
    """The words, without names and numbers."""
    source = "\n".join(path.read_text() for path in modules())
    gaps = r"\b(?:[NABP]|\d+(?: (?:to \d+|on))?|orders-3|journal|lost|positions|to B|offsets)\b|\.\.\.|[:,]"
    parts = {part.strip() for line in losses() for part in re.split(gaps, line)} - {""}
    assert len(parts) > 6
    assert {part for part in parts if len(part) > 8 and part not in source} == set()


def test_every_feature_is_listed() -> None:
    assert sorted(feature_rows()) == sorted(ROWS)


@pytest.mark.parametrize("row", ROWS)
def test_proofs_exist(row: str) -> None:
    """A proof is a test, a test file, a make target or a command of ours; a promise of later names its issue."""
    proof = feature_rows()[row][-1]
    proofs = PROOF.findall(proof)
    assert proofs or LATER.search(proof), f"{row} has neither a proof nor an issue"
    known = {node.partition("[")[0] for node in collected()}
    files = {node.partition("::")[0] for node in known}
    commands = {path.stem.rstrip("_") for path in (ROOT / "src" / "cairnmq" / "cli").glob("*.py")}
    for each in proofs:
        word, _, rest = each.partition(" ")
        if word == "make":
            assert rest.split()[0] in targets(), f"{row}: no target of that name: {each}"
        elif word == "cairn":
            assert rest.split()[0] in commands, f"{row}: no command of that name: {each}"
        else:
            assert each in known or each in files, f"{row}: no such test: {each}"


def trap_rows() -> dict[str, list[str]]:
    """Trap -> its tests, from the table of testing.md; headings in bold stand alone."""
    text = (ROOT / "docs" / "testing.md").read_text().partition("## Traps of the protocol")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    return {trap: PROOF.findall(tests) for trap, tests in rows[2:] if not trap.startswith("**")}


def test_every_trap_has_its_test() -> None:
    known = {node.partition("[")[0] for node in collected()}
    known |= {node.partition("::")[0] for node in known}
    rows = trap_rows()
    assert len(rows) > 50, "the table was not found"
    assert {trap: tests for trap, tests in rows.items() if not tests or not known.issuperset(tests)} == {}


def expected_cells() -> dict[tuple[str, str], str]:
    """The table as the collected tests imply it, if all pass."""
    cells: dict[tuple[str, str], str] = {}
    for node in collected():
        if not node.startswith("tests/interop/"):
            continue
        name, _, parameters = node.rpartition("::")[2].rstrip("]").partition("[")
        variant, clients = split_id(parameters)
        cells.update({(row_name(name, variant), client): YES for client in clients})
    tests = {test for test, _ in cells}
    return {(test, client): cells.get((test, client), NOT_OFFERED) for test in tests for client in CLIENTS}


def test_client_table_matches_the_cases() -> None:
    """`pytest tests/interop --write-features` writes it."""
    table = table_of(PAGE.read_text())
    assert [key for key, cell in table.items() if cell == FAILED] == []
    assert table == expected_cells()
