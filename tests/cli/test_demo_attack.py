"""The verdicts of the demo's second act: nothing is contained that was not tried."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from adk_skills_agent.cli.demo.attack import Attempt, Bait, Seen, bait, judged

ENFORCED = dict.fromkeys(("files", "network", "pids", "processes"), "test")
RESULTS: dict[str, dict[str, Any]] = {
    "read_secret.py": {"stdout": "stolen: nothing\nrefused: api-key.txt: Permission denied\n"},
    "write_outside.py": {"stdout": "refused: outside.txt\nrefused: backdoor\nrefused: note.py\n"},
    "phone_home.py": {"stdout": "refused: 127.0.0.1 Network is unreachable\n"},
    "fork_bomb.py": {"stdout": "refused after 31 processes\n"},
    "flood.sh": {"stdout": "buy now\n" * 100, "reason": "output_limit"},
    "linger.py": {"stdout": "still here\n", "reason": "timeout"},
    "plant_home.py": {"stdout": "planted: .bash_profile, .bashrc\n"},
}
ROBBED: dict[str, dict[str, Any]] = {
    "sign.sh": {"stdout": "signed with a key of 25 characters\n"},
    "collect.py": {"stdout": "gift: none\n"},
}
PROCESSES = {"fork_bomb.py": 33}


def verdicts(laid: Bait, seen: Seen) -> dict[str, bool]:
    return {attempt.what: attempt.contained for attempt in judged(laid, seen, ENFORCED)}


def test_without_any_result_nothing_is_contained() -> None:
    with bait() as laid:
        attempts: list[Attempt] = list(judged(laid, Seen({}, {}), ENFORCED))
    assert len(attempts) == 7
    assert [attempt.what for attempt in attempts if attempt.contained] == []
    assert all(attempt.how.startswith("not known") for attempt in attempts)


def test_seven_attempts_that_were_made_and_came_to_nothing_are_contained() -> None:
    with bait() as laid:
        assert set(verdicts(laid, Seen(RESULTS | ROBBED, PROCESSES, daemon=True)).values()) == {True}


@pytest.mark.parametrize("script", RESULTS)
def test_one_missing_result_is_one_verdict_less(script: str) -> None:
    rest = {name: result for name, result in RESULTS.items() if name != script}
    with bait() as laid:
        assert list(verdicts(laid, Seen(rest | ROBBED, PROCESSES, daemon=True)).values()).count(False) == 1


@pytest.mark.parametrize("script", RESULTS)
def test_a_script_that_failed_before_its_attempt_is_not_contained(script: str) -> None:
    seen = Seen(
        RESULTS | ROBBED | {script: {"stdout": "", "reason": "exit_code", "stderr": "ImportError"}}, {}, daemon=True
    )
    with bait() as laid:
        found = dict(zip(RESULTS, verdicts(laid, seen).values(), strict=True))
    assert not found[script]


def test_what_the_host_sees_outweighs_what_a_script_says() -> None:
    with bait() as laid:
        (laid.folder / "outside.txt").write_text("was here")
        seen = Seen(RESULTS | ROBBED, {"fork_bomb.py": 400})
        assert [what for what, contained in verdicts(laid, seen).items() if contained] == [
            "read the host's secrets",
            "phone home",
            "flood the agent with output",
            "steal another skill's secret",
        ]


@pytest.mark.parametrize("found", ["", "gift: none", "encoded", "plain"])
def test_another_skills_secret_is_safe_only_when_it_was_used_and_looked_for(found: str) -> None:
    with bait() as laid:
        encoded = base64.b64encode(laid.mail_key.encode()).decode()
        said = {"encoded": f"gift: {encoded}", "plain": f"gift: {laid.mail_key}"}.get(found, found)
        robbed = ROBBED | {"collect.py": {"stdout": f"{said}\n"}}
        verdict = verdicts(laid, Seen(RESULTS | robbed, PROCESSES, daemon=True))["steal another skill's secret"]
    assert verdict == (found == "gift: none")


@pytest.mark.parametrize("script", ROBBED)
def test_a_theft_nobody_tried_is_not_contained(script: str) -> None:
    rest = {name: result for name, result in ROBBED.items() if name != script}
    with bait() as laid:
        found = verdicts(laid, Seen(RESULTS | rest, PROCESSES, daemon=True))
    assert not found["steal another skill's secret"]
