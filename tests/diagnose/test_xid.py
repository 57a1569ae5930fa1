"""Xid lines: parsed from every form that drivers write, classified as H1 says."""

import pytest

from gpuqueue.diagnose.xid import XidClass, classify, parse, parse_all, pci_address


@pytest.mark.parametrize(
    ("line", "pci", "number", "pid"),
    [
        ("NVRM: Xid (PCI:0000:b3:00): 79, GPU has fallen off the bus.", "0000:b3:00", 79, None),
        ("[ 12.5] NVRM: Xid (PCI:0000:17:00): 31, pid=55120, name=python, Ch 18", "0000:17:00", 31, 55120),
        ("NVRM: Xid (PCI:0000:17:00): 48, pid='<unknown>', name=<unknown>, DBE", "0000:17:00", 48, None),
        ("kernel: NVRM: Xid (0000:03:00): 13, 0003 00000000 0000902d", "0000:03:00", 13, None),
        ("NVRM: Xid (PCI:0001:0a:00): 94, pid='77', name=python, Contained", "0001:0a:00", 94, 77),
        ("NVRM: GPU 0000:81:00.0: GPU has fallen off the bus.", "0000:81:00", 79, None),
    ],
)
def test_address_number_and_pid_are_read(line: str, pci: str, number: int, pid: int | None) -> None:
    event = parse(line)
    assert event is not None
    assert (event.pci, event.number, event.pid) == (pci, number, pid)


def test_a_report_over_three_lines_keeps_its_card() -> None:
    lines = (
        "NVRM: The NVIDIA GPU 0000:b3:00.0",
        "NVRM: (PCI ID: 10de:26b5) installed in this system has",
        "NVRM: fallen off the bus and is not responding to commands.",
    )
    assert [(event.pci, event.number) for event in parse_all(lines)] == [("0000:b3:00", 79)]


@pytest.mark.parametrize("line", ["", "nvidia: loading", "NVRM: loading NVIDIA UNIX 570.1", "Xid 79"])
def test_other_lines_are_no_events(line: str) -> None:
    assert parse(line) is None


@pytest.mark.parametrize("number", [46, 48, 62, 64, 79, 95, 109, 119, 120, 140])
def test_hardware_drains(number: int) -> None:
    assert classify(number) is XidClass.hardware


@pytest.mark.parametrize("number", [13, 31, 32, 39, 40, 41, 43, 69])
def test_application_faults_are_evidence_about_the_job(number: int) -> None:
    assert classify(number) is XidClass.application


@pytest.mark.parametrize(
    ("number", "text", "kind"),
    [
        (94, "Contained: SM", XidClass.contained),
        (45, "Ch 00000010", XidClass.follows),
        (63, "Row Remapper", XidClass.note),
        (92, "", XidClass.note),
        (74, "NVLink: fatal error detected on link 2", XidClass.hardware),
        (74, "NVLink: non-fatal error detected", XidClass.note),
        (149, "NETIR_LINK_EVT Nonfatal XC0", XidClass.note),
        (149, "NETIR_LINK_EVT Fatal XC0", XidClass.hardware),
        (154, "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", XidClass.hardware),
        (154, "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)", XidClass.note),
        (9999, "", XidClass.unknown),
    ],
)
def test_the_others_follow_their_text(number: int, text: str, kind: XidClass) -> None:
    assert classify(number, text) is kind


@pytest.mark.parametrize("text", ["PCI:0000:B3:00", "00000000:B3:00.0", "0000:b3:00.0", "b3:00"])
def test_bus_ids_of_kernel_and_nvml_are_the_same_card(text: str) -> None:
    assert pci_address(text) == "0000:b3:00"


def test_what_is_no_bus_id_is_no_card() -> None:
    assert pci_address("GPU-1234") == ""
