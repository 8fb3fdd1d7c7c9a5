"""The table of `docs/faults.md`, from the counts that the tests keep in `data/measured/faults.json`."""

import json
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
COUNTS = ROOT / "data" / "measured" / "faults.json"
PAGE = ROOT / "docs" / "faults.md"
BEGIN, END = "<!-- counts -->\n", "<!-- end of counts -->\n"


def total(rows: dict[str, dict[str, float]]) -> Counter:
    """The sums over a table's rows."""
    counts = Counter()
    for row in rows.values():
        counts.update(row)
    return counts


def table() -> str:
    """What was counted before and is counted now, a row for each kind of fault."""
    values = json.loads(COUNTS.read_text(encoding="utf-8"))
    then, now = values["before"], {name: total(rows) for name, rows in values["now"].items()}
    kinds = {name: len(rows) for name, rows in values["now"].items()}
    soaks = {name: row for name, row in values["now"]["T8"].items() if name.startswith("soak") or "pages" in name}
    opened = sum("run of" in name for name in values["now"]["T8"])
    pages = sum(row.get("pages", 0) for row in soaks.values())
    minutes = [row["minutes"] for row in soaks.values() if "minutes" in row]
    growth = max(row["growth_of_memory"] for row in soaks.values())
    two, three, four, five, six, seven, eight = (then[f"T{k}"] for k in range(2, 9))
    rows = [
        (
            "T2, kills",
            f"{two['kills']:,} kills: {two['equal']} of {two['trials']} ended equal",
            f"{now['T2']['kills']:,} kills in {kinds['T2']} kinds: {now['T2']['equal']:,} ended equal",
        ),
        (
            "T3, damage",
            f"{three['damages']:,} damages: {three['silent']} were not noticed",
            f"{now['T3']['damages']:,} damages in {kinds['T3']} kinds: {now['T3']['silent']} were not noticed",
        ),
        (
            "T4, broken input",
            f"{four['inputs']:,} inputs: {four['foreign']} ended in an error of another library",
            f"{now['T4']['inputs']:,} inputs in {kinds['T4']} kinds: {now['T4']['foreign']}",
        ),
        (
            "T5, two at once",
            f"{five['trials']} trials: {five['wrong']} lost or doubled something",
            f"{now['T5']['written']} lines and files by three writers each: {now['T5']['lost']} lost, "
            f"{now['T5']['doubled']} doubled",
        ),
        (
            "T6, read-only folders",
            f"{six['kinds']} kinds: {six['named']} said what to do",
            f"{now['T6']['kinds']} kinds: {now['T6']['named']} say what to do",
        ),
        (
            "T6, full disks",
            f"{six['full']} trials: {six['told']} fitted or said what to do",
            f"{now['T6']['trials']} trials: {now['T6']['told'] + now['T6']['fitted']} fitted or said what to do",
        ),
        (
            "T7, served apps",
            f"{seven['apps']} app tried",
            f"{kinds['T7']} apps in a browser, {now['T7']['doors']} doors without the token: {now['T7']['open']} open",
        ),
        (
            "T8, older versions",
            f"{eight['runs']} runs of one older version opened or ended",
            f"{opened} runs of {opened // 2} older versions opened or ended",
        ),
        (
            "T8, long work",
            f"{eight['seconds']} seconds of training",
            f"{len(minutes)} soaks of {min(minutes):g} to {max(minutes):g} minutes and {pages:,} pages that were left: "
            f"memory grew by {growth:.1%} at most",
        ),
    ]
    lines = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    return f"| fault | before | now |\n|---|---|---|\n{lines}"


def with_counts(page: str) -> str:
    """The page with its table made again."""
    head, _, rest = page.partition(BEGIN)
    return head + BEGIN + table() + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(with_counts(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    sys.exit(0)
