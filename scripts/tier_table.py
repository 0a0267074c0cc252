"""tier_table.py FOLDER: what each tier took, from FOLDER/TIER.xml (JUnit) and FOLDER/TIER.seconds.

A row a tier: tests, seconds, the slowest five. Then each failed test, and last "N passed, N failed, N skipped". Exit
status 1 if a tier failed: FOLDER/TIER.failed is there.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

SLOWEST = 5


class Tier:
    """What the files of one tier say. A tier without tests, like `check`, has no XML."""

    def __init__(self, seconds: Path) -> None:
        self.name, self.seconds = seconds.stem, int(seconds.read_text())
        self.failed = seconds.with_suffix(".failed").exists()
        self.counts: Counter[str] = Counter(passed=0, failed=0, skipped=0)
        self.slowest: list[tuple[float, str]] = []
        self.failures: list[str] = []
        report = seconds.with_suffix(".xml")
        if report.exists():
            self._read(ElementTree.parse(report))
        if self.failed and not self.counts["failed"]:
            self.counts["failed"] = 1
            self.failures.append(f"{self.name}: see above")

    def _read(self, report: ElementTree.ElementTree[ElementTree.Element]) -> None:
        cases: dict[str, list[ElementTree.Element]] = {}
        for case in report.iter("testcase"):
            cases.setdefault(f"{case.get('classname')}::{case.get('name')}", []).append(case)
        for name, parts in cases.items():
            found = {child.tag for part in parts for child in part}
            how = "failed" if found & {"failure", "error"} else "skipped" if "skipped" in found else "passed"
            self.counts[how] += 1
            self.slowest.append((sum(float(part.get("time") or 0) for part in parts), name))
            if how == "failed":
                self.failures.append(f"{self.name}: {name}")
        self.slowest = sorted(self.slowest, reverse=True)[:SLOWEST]

    def row(self) -> str:
        slow = ", ".join(f"{name.rpartition('::')[2]} {seconds:.0f}" for seconds, name in self.slowest)
        mark = "FAILED" if self.failed else "ok"
        return f"{self.name:12} {sum(self.counts.values()):6} {self.seconds:6}  {mark:7} {slow}"


def main(folder: str) -> int:
    tiers = [Tier(path) for path in sorted(Path(folder).glob("*.seconds"), key=lambda path: path.stat().st_mtime_ns)]
    lines = [f"{'tier':12} {'tests':>6} {'sec':>6}  {'':7} slowest (seconds)", *(tier.row() for tier in tiers)]
    lines += [f"FAILED {failure}" for tier in tiers for failure in tier.failures]
    total = sum((tier.counts for tier in tiers), Counter())
    lines.append(f"{total['passed']} passed, {total['failed']} failed, {total['skipped']} skipped")
    sys.stdout.write("\n".join(lines) + "\n")
    return int(any(tier.failed for tier in tiers))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
