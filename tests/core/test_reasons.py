"""S5, Z1: every code has its sentence, and a sentence says each size and time as people do."""

import pytest

from gpuqueue.core.reasons import SENTENCES, Reason, ReasonCode, fields_of, sentence


def test_every_code_has_a_sentence_of_its_own() -> None:
    assert set(SENTENCES) == set(ReasonCode)
    assert len(set(SENTENCES.values())) == len(SENTENCES)


@pytest.mark.parametrize("code", ReasonCode)
def test_every_sentence_reads_with_its_fields(code: ReasonCode) -> None:
    fields: dict[str, str | int] = dict.fromkeys(fields_of(code), 7777)
    words = sentence(Reason(code, fields))
    assert "{" not in words and "?" not in words and words == words.strip()
    assert ("7.6 GiB" in words) is any(name.endswith("_mib") for name in fields)
    assert ("2h09m" in words) is any(name.endswith("_s") for name in fields)


def test_a_field_that_an_older_release_did_not_keep_is_a_question_mark() -> None:
    assert sentence(Reason(ReasonCode.LOST)) == "its exit status is lost: ?"


@pytest.mark.parametrize("restarts, said", [(1, "1 time "), (4, "4 times "), ("?", "? times ")])
def test_numbers_of_things_agree_with_their_noun(restarts: int | str, said: str) -> None:
    assert sentence(Reason(ReasonCode.TOO_MANY_RESTARTS, {"restarts": restarts, "last": "x"})).startswith(
        f"restarted {said}within"
    )


def test_never_resources() -> None:
    assert not any("resources" in words.lower() for words in SENTENCES.values())
