"""What other evidence than the log changes: stops, claims, caps, neighbours, curves, the kernel log."""

from dataclasses import replace
from typing import Any

import pytest

from gpuqueue.diagnose.diagnose import diagnose
from gpuqueue.diagnose.finding import Cause, Confidence, Evidence, Retry

GIB = 1024
BARE = "RuntimeError: CUDA error: out of memory"


def oom(*, asked: str = "512.00 MiB", free: str, allocated: str, unused: str = "200.00 MiB", middle: str = "") -> str:
    return (
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {asked}. GPU 0 has a total capacity "
        "of "
        f"31.74 GiB of which {free} is free. {middle}Of the allocated memory {allocated} is allocated by "
        "PyTorch, "
        f"and {unused} is reserved by PyTorch but unallocated."
    )


CROWDED = oom(free="100.00 MiB", allocated="9.50 GiB", middle="Process 77 has 20.10 GiB memory in use. ")


class TestStopsOfOurOwn:
    @pytest.mark.parametrize(
        ("reason", "cause", "retry"),
        [
            ("time_limit", Cause.timeout, Retry.no),
            ("overuse: declared 8.0 GiB, used 14.2 GiB", Cause.quota_cap, Retry.no),
            ("card failed: Xid 79", Cause.hardware, Retry.free),
            ("reclaimed for job 12", Cause.signal, Retry.free),
            ("idle on card 0 for 30 min", Cause.signal, Retry.no),
            ("idle for 30 min: GPU 0 %, 0.0 CPU cores, 0 B/s of I/O on average; limit 30 min", Cause.signal, Retry.no),
            ("ran 2h 00m, its time limit is 2h", Cause.timeout, Retry.no),
            ("card gpu0 failed: Xid 79", Cause.hardware, Retry.free),
            ("cancelled by its owner", Cause.signal, Retry.no),
        ],
    )
    def test_the_reason_decides_whatever_the_log_says(self, reason: str, cause: Cause, retry: Retry) -> None:
        finding = diagnose(Evidence(CROWDED, exit_status=1, stop_reason=reason))
        assert (finding.cause, finding.retry, finding.evidence) == (cause, retry, reason)


class TestNeighbours:
    def test_a_job_within_its_claim_is_the_victim_and_the_offender_is_named(self) -> None:
        finding = diagnose(Evidence(CROWDED, exit_status=1, claim_mib=22 * GIB, neighbours=((77, "bo", 20 * GIB),)))
        assert (finding.cause, finding.confidence) == (Cause.neighbour, Confidence.high)
        assert finding.retry is Retry.free
        assert finding.pids == (77,)
        assert "77 of bo, 20.0 GiB" in finding.advice

    def test_a_job_that_outgrew_its_claim_is_no_victim_whoever_is_there(self) -> None:
        finding = diagnose(Evidence(CROWDED, exit_status=1, claim_mib=8 * GIB, neighbours=((77, "bo", 20 * GIB),)))
        assert finding.cause is Cause.out_of_memory
        assert "beyond its claim of 8.0 GiB" in finding.advice

    def test_the_jobs_own_ranks_are_not_neighbours(self) -> None:
        finding = diagnose(Evidence(CROWDED, exit_status=1, own_pids=frozenset({77, 78})))
        assert finding.cause is Cause.out_of_memory
        assert finding.pids == ()

    def test_the_own_process_listed_as_a_stranger_is_not_blamed(self) -> None:
        text = oom(
            free="100.00 MiB",
            allocated="9.50 GiB",
            middle="Process 76 has 10.20 GiB memory in use. Process 77 has 20.80 GiB memory in use. ",
        )
        finding = diagnose(Evidence(text, exit_status=1))
        assert finding.cause is Cause.neighbour
        assert finding.pids == (77,)

    def test_a_message_without_numbers_is_judged_by_claim_curve_and_neighbours(self) -> None:
        crowd = Evidence(
            BARE,
            exit_status=1,
            claim_mib=16 * GIB,
            curve=((0, 500), (10, 8 * GIB)),
            neighbours=((5, "bo", 24 * GIB),),
        )
        assert diagnose(crowd).cause is Cause.neighbour

    def test_no_claim_is_advised_that_is_larger_than_the_card(self) -> None:
        text = oom(asked="2.00 GiB", free="100.00 MiB", allocated="31.00 GiB")
        advice = diagnose(Evidence(text, exit_status=1, claim_mib=3 * GIB)).advice
        assert "on a card of 31.7 GiB: use" in advice
        assert ": claim" not in advice

    def test_no_claim_is_advised_that_could_never_start_here(self) -> None:
        text = oom(asked="2.00 GiB", free="100.00 MiB", allocated="27.00 GiB", unused="2.00 GiB")
        asked = Evidence(text, exit_status=1, claim_mib=1 * GIB, largest_claim_mib=23 * GIB + 300)
        advice = diagnose(asked).advice
        assert "such a job may claim no more than 23.3 GiB here: use a smaller micro-batch" in advice
        assert ": claim" not in advice
        assert "near miss" not in advice, "it needed 31 times its claim"

    def test_a_claim_is_advised_in_the_unit_of_claims_and_suffices(self) -> None:
        text = oom(asked="2.00 GiB", free="1.00 GiB", allocated="15.00 GiB", unused="0 bytes")
        advice = diagnose(Evidence(text, exit_status=1, claim_mib=8 * GIB, largest_claim_mib=23 * GIB)).advice
        assert ": claim 17.9 GiB or more, or use" in advice  # 17 GiB and 5 %, rounded up

    def test_a_near_miss_of_a_job_within_its_claim_is_said_to_be_one(self) -> None:
        text = oom(asked="300.00 MiB", free="200.00 MiB", allocated="31.00 GiB", unused="200.00 MiB")
        assert "A near miss" in diagnose(Evidence(text, exit_status=1, claim_mib=32 * GIB)).advice

    def test_what_the_job_needed_is_told_where_its_message_tells(self) -> None:
        assert diagnose(Evidence(CROWDED, exit_status=1)).needed_mib == 9728 + 200 + 512
        assert diagnose(Evidence(BARE, exit_status=1)).needed_mib is None
        assert diagnose(Evidence(CROWDED, exit_status=1)).held_mib == 9728 + 200

    def test_a_server_that_wants_more_than_its_claim_is_no_victim(self) -> None:
        text = (
            "ValueError: Free memory on device (9.84/31.37 GiB) on startup is less than desired GPU memory "
            "utilization (0.9, 28.23 GiB)."
        )
        greedy = diagnose(Evidence(text, exit_status=1, claim_mib=8 * GIB))
        assert (greedy.cause, greedy.retry) == (Cause.out_of_memory, Retry.no)
        assert "gpu_memory_utilization to 0.26" in greedy.advice
        assert diagnose(Evidence(text, exit_status=1, claim_mib=30 * GIB)).cause is Cause.neighbour


class TestCaps:
    def test_a_cap_that_the_message_does_not_name_is_recognised_by_the_room_that_was_left(self) -> None:
        text = oom(free="20.00 GiB", allocated="9.90 GiB", unused="60.00 MiB")
        assert diagnose(Evidence(text, exit_status=1, cap_mib=10 * GIB)).cause is Cause.quota_cap
        uncapped = diagnose(Evidence(text, exit_status=1))
        assert uncapped.confidence is Confidence.low

    def test_a_full_card_under_a_cap_is_not_blamed_on_the_cap(self) -> None:
        text = oom(free="100.00 MiB", allocated="31.00 GiB")
        assert diagnose(Evidence(text, exit_status=1, cap_mib=31 * GIB)).cause is Cause.out_of_memory

    def test_other_frameworks_are_judged_by_how_near_the_curve_came_to_the_cap(self) -> None:
        text = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 900000000 bytes."
        near = Evidence(text, exit_status=1, cap_mib=10 * GIB, curve=((0, 300), (9, 9700)))
        far = Evidence(text, exit_status=1, cap_mib=10 * GIB, curve=((0, 300), (9, 4000)))
        assert diagnose(near).cause is Cause.quota_cap
        assert diagnose(far).cause is Cause.out_of_memory


class TestCurves:
    def test_steady_growth_is_a_leak_with_its_slope(self) -> None:
        curve = tuple((60 * i, 8000 + 100 * i) for i in range(100))
        finding = diagnose(Evidence(BARE, exit_status=1, curve=curve))
        assert (finding.cause, finding.retry) == (Cause.leak, Retry.yes)
        assert "6000 MiB an hour" in finding.advice

    @pytest.mark.parametrize(
        "curve",
        [
            tuple((i, 300 * i) for i in range(100)),
            tuple((i, 20000 if i > 50 else 9000) for i in range(100)),
            tuple((i, 20000 + (i % 7) * 30) for i in range(100)),
            tuple((i, 9000 + 500 * i) for i in range(6)),
        ],
        ids=["loading", "one jump", "plateau", "too few samples"],
    )
    def test_other_curves_are_no_leaks(self, curve: tuple[tuple[int, int], ...]) -> None:
        assert diagnose(Evidence(BARE, exit_status=1, curve=curve)).cause is Cause.out_of_memory

    def test_fragmentation_explains_a_growing_curve_better(self) -> None:
        text = oom(asked="2.00 GiB", free="300.00 MiB", allocated="22.00 GiB", unused="8.80 GiB")
        curve = tuple((60 * i, 8000 + 200 * i) for i in range(100))
        assert diagnose(Evidence(text, exit_status=1, curve=curve)).cause is Cause.fragmentation


class TestKernelLog:
    BENIGN = "eth0: link is up"
    KILLED = "Out of memory: Killed process 4411 (python) total-vm:1kB, anon-rss:1kB"
    PAGE_FAULT = "NVRM: Xid (PCI:0000:17:00): 31, pid=900, name=python, MMU Fault"
    DEAD_CARD = "NVRM: Xid (PCI:0000:17:00): 79, pid=900, name=python, GPU has fallen off the bus."

    def test_the_oom_killer_names_the_job(self) -> None:
        finding = diagnose(Evidence("step 1", signal=9, kernel_lines=(self.KILLED,), own_pids=frozenset({4411})))
        assert (finding.cause, finding.confidence) == (Cause.host_out_of_memory, Confidence.high)

    @pytest.mark.parametrize(
        "line",
        [
            "Memory cgroup out of memory: Killed process 4411 (python) total-vm:1kB, anon-rss:1kB, UID:1000",
            "Out of memory: Kill process 4411 (python) score 904 or sacrifice child",
            "Killed process 4411 (python), UID 1000, total-vm:1kB, anon-rss:1kB",
            "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),oom_memcg=/a,task_memcg=/a/b,task=python,pid=4411,uid=0",
            "oom_reaper: reaped process 4411 (python), now anon-rss:0kB",
        ],
    )
    def test_each_line_of_the_oom_killer_that_names_whom_it_killed(self, line: str) -> None:
        ours = Evidence("x", exit_status=1, kernel_lines=(line,), own_pids=frozenset({4411}))
        assert (diagnose(ours).cause, diagnose(ours).evidence) == (Cause.host_out_of_memory, line)
        others = Evidence("x", exit_status=1, kernel_lines=(line,), own_pids=frozenset({441}))
        assert diagnose(others).cause is Cause.program_error

    def test_the_cgroups_count_needs_no_kernel_log(self) -> None:
        finding = diagnose(Evidence("step 1", signal=9, oom_kills=2))
        assert (finding.cause, finding.confidence) == (Cause.host_out_of_memory, Confidence.high)
        assert finding.evidence == "memory.events of the job's cgroup: oom_kill 2"
        assert finding.retry is Retry.no
        assert finding.advice.startswith("The kernel killed 2 of the job's processes for want of memory. ")
        assert diagnose(Evidence("step 1", exit_status=0, oom_kills=1)).cause is Cause.none

    def test_the_limit_that_was_met_is_named(self) -> None:
        finding = diagnose(Evidence("step 1", signal=9, oom_kills=1, mem_limit_mib=200))
        assert "for want of memory (its --mem is 200 MiB)." in finding.advice

    @pytest.mark.parametrize("text", ["step 1", "/run/train.sh: line 3: 4411 Killed                  python train.py"])
    def test_a_kill_that_the_kernel_did_not_note_was_somebodys(self, text: str) -> None:
        killed = Evidence(text, exit_status=137, own_pids=frozenset({4411}))
        denials: list[dict[str, Any]] = [{"kernel_lines": ()}, {"kernel_lines": (self.BENIGN,)}, {"oom_kills": 0}]
        for denied in denials:
            finding = diagnose(replace(killed, **denied))
            assert (finding.cause, finding.confidence, finding.retry) == (Cause.signal, Confidence.medium, Retry.yes)
        assert diagnose(killed).cause is Cause.host_out_of_memory
        another = replace(killed, kernel_lines=(self.KILLED.replace("4411", "77"),))
        assert diagnose(another).cause is Cause.host_out_of_memory

    def test_a_kill_of_another_process_is_not_the_jobs(self) -> None:
        evidence = Evidence("ValueError", exit_status=1, kernel_lines=(self.KILLED,), own_pids=frozenset({1}))
        assert diagnose(evidence).cause is Cause.program_error

    def test_an_xid_of_another_job_counts_only_where_the_card_is_at_fault(self) -> None:
        own = frozenset({1})
        trouble = Evidence("x", exit_status=1, kernel_lines=(self.PAGE_FAULT,), own_pids=own)
        dead = Evidence("x", exit_status=1, kernel_lines=(self.DEAD_CARD,), own_pids=own)
        assert diagnose(trouble).cause is Cause.program_error
        assert diagnose(dead).cause is Cause.hardware
        assert diagnose(dead).retry is Retry.free


class TestStatus:
    def test_the_shells_words_and_its_status_together_are_sure(self) -> None:
        text = "/run/train.sh: 2: python9.9: not found"
        assert diagnose(Evidence(text, exit_status=127)).confidence is Confidence.high
        assert diagnose(Evidence(text, exit_status=1)).confidence is Confidence.medium

    def test_a_shell_that_was_refused_a_directory_of_the_path_means_the_same(self) -> None:
        text = "/run/train.sh: 2: python9.9: Permission denied\n"
        assert diagnose(Evidence(text, exit_status=127)).confidence is Confidence.high
        assert diagnose(Evidence(text, exit_status=127)).cause is Cause.missing_module
        assert diagnose(Evidence(text, exit_status=2)).confidence is Confidence.low

    @pytest.mark.parametrize(
        "status, text",
        [
            (127, "bash: gone.sh: No such file or directory"),
            (127, "/run/train.sh: line 2: ./gone.sh: No such file or directory"),
            (127, "/run/train.sh: line 2: ./x.py: cannot execute: required file not found"),
            (127, "/run/train.sh: 2: ./gone.sh: not found"),
            (127, "zsh: can't open input file: gone.sh"),
            (126, "/run/train.sh: line 2: ./x.sh: Permission denied"),
            (126, "/run/train.sh: 2: ./x.sh: Permission denied"),
            (126, "/run/train.sh: line 2: /data: Is a directory"),
            (126, "/run/train.sh: line 2: ./x: cannot execute binary file: Exec format error"),
            (126, "/run/train.sh: 2: ./x: Exec format error"),
            (2, "/bin/sh: 0: cannot open gone.sh: No such file"),
            (2, "sh: can't open 'gone.sh': No such file or directory"),
            (2, "python3: can't open file '/w/gone.py': [Errno 2] No such file or directory"),
        ],
    )
    def test_a_file_that_is_gone_or_no_program_is_not_tried_again(self, status: int, text: str) -> None:
        finding = diagnose(Evidence(f"step 1\n{text}\n", exit_status=status))
        assert (finding.cause, finding.confidence, finding.retry) == (Cause.program_error, Confidence.high, Retry.no)

    @pytest.mark.parametrize(
        "status, text, named",
        [
            (126, "/bin/bash: ./x.py: /no/py: bad interpreter: No such file or directory", "interpreter"),
            (127, "env: \u2018python9\u2019: No such file or directory", "`python9`"),
        ],
    )
    def test_an_interpreter_that_is_missing_is_named(self, status: int, text: str, named: str) -> None:
        finding = diagnose(Evidence(text, exit_status=status))
        assert (finding.cause, finding.confidence) == (Cause.missing_module, Confidence.high)
        assert named in finding.advice

    @pytest.mark.parametrize("text", ["cat: x: No such file or directory", "x.sh: line 3: ./d: Permission denied"])
    def test_a_files_absence_alone_says_little(self, text: str) -> None:
        assert diagnose(Evidence(text, exit_status=1)).confidence is Confidence.low

    def test_success_is_no_failure_whatever_was_printed(self) -> None:
        finding = diagnose(Evidence(f"Traceback (most recent call last):\n{BARE}\nstep 1", exit_status=0))
        assert finding.cause is Cause.none

    def test_success_after_a_final_traceback_warns_of_a_pipe(self) -> None:
        finding = diagnose(Evidence('Traceback (most recent call last):\n  File "a"\nKeyError: 1', exit_status=0))
        assert finding.cause is Cause.none
        assert "pipefail" in finding.advice

    @pytest.mark.parametrize(
        "evidence",
        [
            Evidence("", signal=9),
            Evidence("", exit_status=-9),
            Evidence("", exit_status=137),
        ],
    )
    def test_a_silent_sigkill_means_host_memory_in_each_convention(self, evidence: Evidence) -> None:
        finding = diagnose(evidence)
        assert (finding.cause, finding.confidence) == (Cause.host_out_of_memory, Confidence.medium)

    @pytest.mark.parametrize("number", [1, 2, 6, 11, 15, 40])
    def test_other_signals_are_signals(self, number: int) -> None:
        assert diagnose(Evidence("step 1", signal=number)).cause is Cause.signal

    def test_a_failure_that_nothing_explains_is_a_guess(self) -> None:
        finding = diagnose(Evidence("step 1\nbye", exit_status=3))
        assert (finding.cause, finding.confidence) == (Cause.program_error, Confidence.low)
        assert finding.evidence == "bye"

    def test_a_warning_that_was_survived_is_the_last_resort_of_a_failed_run(self) -> None:
        text = "CUDA out of memory. Tried to allocate 2.00 GiB. Retrying\nstep 1\nstep 2"
        finding = diagnose(Evidence(text, exit_status=1))
        assert (finding.cause, finding.confidence) == (Cause.out_of_memory, Confidence.low)
