"""What a generated submission may run: /bin/true, whatever its arguments. And what it must have not to be refused
for the first thing that is wrong with it."""

from typing import Any

PROGRAM = "/bin/true"


def harmless(body: Any) -> Any:
    """The body of a submission with everything else as it was; values of a wrong type are refused anyway."""
    if not isinstance(body, dict):
        return body
    made = dict(body)
    if isinstance(made.get("command"), list) and made["command"] and made.get("script") is None:
        made["command"] = [PROGRAM, *made["command"][1:]]
    if isinstance(made.get("script"), str):
        made["script"] = f"#!{PROGRAM}\n{made['script']}"
    if isinstance(made.get("checkpoint_command"), str):
        made["checkpoint_command"] = f"{PROGRAM} #"
    if isinstance(made.get("cwd"), str):
        made["cwd"] = "/" + made["cwd"]
    if type(made.get("vram_mib")) is int and made["vram_mib"] >= 0:
        made["vram_mib"] = 1 + made["vram_mib"] % 6000
    if isinstance(estimate := made.get("estimate"), dict):
        sizes = {name: 1 + mib % 6000 if type(mib) is int and mib >= 0 else mib for name, mib in estimate.items()}
        made["estimate"] = sizes
    if made.get("vram_auto") is True:
        made["vram_mib"] = 0
    if isinstance(made.get("signal"), str):
        made["signal"] = "SIGUSR1" if len(made["signal"]) % 2 else made["signal"]
    return made
