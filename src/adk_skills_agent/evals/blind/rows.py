"""``comparisons.jsonl``: a row for each blind comparison. It says A and B; which arm is which follows from its seed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.evals.blind.pairs import PairKey, sides
from adk_skills_agent.evals.blind.verdict import NEITHER, A, B, BlindVerdict
from adk_skills_agent.evals.row_file import RowFile
from adk_skills_agent.evals.trace import Usage

NAME = "comparisons.jsonl"
SCHEMA = 1
_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Compared:
    """One comparison.

    Attributes:
        key: Case, arm, the arm it is compared with, run.
        seed: What drew which of them is A.
        fingerprint: Of both outputs, the task and the judge.
        winner: ``A``, ``B`` or ``TIE``; empty when the judge gave no verdict.
        agreement: The share of the judge's samples that say so.
        flips: Samples whose two orders named different winners.
        samples: How many samples there were; 0 when the outputs are the same and nobody was asked.
        reasons: The judge's; they call the outputs ``output A`` and ``output B``.
        scores: Mean by output and criterion, 1 to 5.
        names_skill: ``A`` or ``B`` when only that output names a skill of the case: the judge could tell whose it is.
        usage: The judge's tokens.
        cost_usd: The judge's; None when the price is not known.
        error: Why there is no verdict, or empty.
    """

    key: PairKey
    seed: int
    fingerprint: str
    winner: str
    agreement: float
    flips: int = 0
    samples: int = 0
    reasons: str = ""
    scores: Mapping[str, Mapping[str, float]] = field(default_factory=lambda: _NOTHING)
    names_skill: str = ""
    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = None
    error: str = ""

    @property
    def measured(self) -> bool:
        """Whether there is a verdict."""
        return bool(self.winner)

    @property
    def arms(self) -> dict[str, str]:
        """The arm of A and the arm of B. Only what is done after the last question asks for it."""
        return sides(self.key, self.seed)

    @property
    def reasons_by_arm(self) -> str:
        """The reasons, unblinded."""
        arms = self.arms
        return re.sub(r"\boutput ([AB])\b", lambda match: arms[match[1]], self.reasons)

    @property
    def winning_arm(self) -> str:
        """The arm that won, or empty for a tie and for no verdict."""
        return self.arms.get(self.winner, "")


def row_of(compared: Compared, verdict: BlindVerdict | None) -> dict[str, Any]:
    """The row of a comparison."""
    case, arm, baseline, run = compared.key
    return {
        "schema": SCHEMA,
        "case": case,
        "arms": [arm, baseline],
        "run": run,
        "seed": compared.seed,
        "fingerprint": compared.fingerprint,
        "winner": compared.winner or None,
        "agreement": round(compared.agreement, 4),
        "flips": compared.flips,
        "samples": compared.samples,
        "reasons": compared.reasons,
        "scores": {side: dict(scores) for side, scores in compared.scores.items()},
        "names_skill": compared.names_skill or None,
        "votes": [asdict(vote) for vote in verdict.votes] if verdict is not None else [],
        "judge_usage": compared.usage.to_json(),
        "judge_cost_usd": compared.cost_usd,
        "error": {"kind": "judge", "message": compared.error} if compared.error else None,
    }


def compared_of(row: Mapping[str, Any]) -> Compared:
    """The comparison of a row.

    Raises:
        ValueError: It is no row of this schema.
    """
    try:
        if row["schema"] != SCHEMA:
            raise ValueError(f"it has schema {row['schema']!r}, not {SCHEMA}")
        arm, baseline = row["arms"]
        if row["winner"] not in (A, B, NEITHER, None):
            raise ValueError(f"its winner is {row['winner']!r}")
        return Compared(
            key=(str(row["case"]), str(arm), str(baseline), int(row["run"])),
            seed=int(row["seed"]),
            fingerprint=str(row["fingerprint"]),
            winner=row["winner"] or "",
            agreement=float(row["agreement"]),
            flips=int(row["flips"]),
            samples=int(row["samples"]),
            reasons=str(row["reasons"]),
            scores={
                side: {str(name): float(value) for name, value in row["scores"][side].items()}
                for side in (A, B)
                if side in row["scores"]
            },
            names_skill=row["names_skill"] or "",
            usage=Usage.from_json(row["judge_usage"]),
            cost_usd=row["judge_cost_usd"],
            error=str((row["error"] or {}).get("message", "")),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it is no comparison ({type(error).__name__}: {error})") from error


class Comparisons(RowFile):
    """The comparisons of one output folder; see :class:`~adk_skills_agent.evals.row_file.RowFile`."""

    def __init__(self, folder: Path) -> None:
        # Rows of earlier runs need no --resume: a comparison counts only for the very outputs it is of.
        super().__init__(folder, NAME, resume=True)

    def known(self) -> dict[PairKey, Compared]:
        """The comparisons there are; the last row of a pair counts.

        Raises:
            ConfigError: A row is none.
        """
        self.cut_torn_row()
        return _by_pair(self.path, ((number, line) for number, _, line in self.lines()))


def read_comparisons(folder: Path) -> dict[PairKey, Compared]:
    """The comparisons of a run, the last row of a pair; none where there is no file. A torn last line is left out.

    Raises:
        ConfigError: The file cannot be read, or a row is none; the sentence names the line.
    """
    path = folder / NAME
    try:
        with path.open("rb") as file:
            return _by_pair(path, ((n, line) for n, line in enumerate(file, 1) if line.endswith(b"\n")))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigError(f"The comparisons {path} cannot be read: {error.strerror or error}.") from error


def _by_pair(path: Path, lines: Iterable[tuple[int, bytes]]) -> dict[PairKey, Compared]:
    found: dict[PairKey, Compared] = {}
    for number, line in lines:
        try:
            compared = compared_of(json.loads(line))
        except ValueError as error:
            raise ConfigError(f"{path}:{number}: {error}. Remove the line; the judge is asked again.") from error
        found[compared.key] = compared
    return found
