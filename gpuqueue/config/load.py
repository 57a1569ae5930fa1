"""TOML to Settings. Every error names the file, the line and the key, and the way out."""

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from gpuqueue.config.keys import NOMINAL, POLICY, SETTINGS, Key
from gpuqueue.config.lines import key_lines
from gpuqueue.config.readers import count, duration, flag, parts, size
from gpuqueue.config.rules import contradiction
from gpuqueue.config.settings import Settings
from gpuqueue.core.policy import (
    IdlePolicy,
    LimitPolicy,
    Nominal,
    OverusePolicy,
    PlacePolicy,
    Policy,
    QuotaPolicy,
    RestartPolicy,
)
from gpuqueue.wire.errors import ErrorCode, GpuqueueError

SECTIONS = ("daemon", "quota", "place", "idle", "overuse", "restart", "limits", "logs")


def load(path: Path | None) -> Settings:
    """The settings that the file at `path` gives; without a path the defaults.
    Raises GpuqueueError(INVALID), one line: FILE:LINE: KEY: what is wrong."""
    return Settings() if path is None else _File(path).settings()


class _File:
    def __init__(self, path: Path) -> None:
        self.path = path
        text = _text(path)
        try:
            self.values = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            what, _, line = str(error).removesuffix(")").partition(" (at line ")
            where = f"{path}:{line.split(',')[0]}" if line else f"{path}"
            raise _invalid(f"{where}: not valid TOML: {what}", "compare with configs/default.toml") from error
        self.lines = key_lines(text)

    def settings(self) -> Settings:
        for name in self.values:
            if name not in SECTIONS:
                self.refuse((name,), *_unknown("section", name, SECTIONS))
        policy = Policy(
            quota=self.quota(),
            place=PlacePolicy(**self.section("place", POLICY["place"])),
            idle=IdlePolicy(**self.section("idle", POLICY["idle"])),
            overuse=OverusePolicy(**self.section("overuse", POLICY["overuse"])),
            restart=RestartPolicy(**self.section("restart", POLICY["restart"])),
            limits=LimitPolicy(**self.section("limits", POLICY["limits"])),
        )
        own = {name: value for section, keys in SETTINGS.items() for name, value in self.section(section, keys).items()}
        settings = Settings(policy=policy, **own)
        if found := contradiction(settings):
            key = next((key for key in found.keys if key in self.lines), found.keys[0])
            self.refuse(key, found.problem, found.way_out)
        return settings

    def quota(self) -> QuotaPolicy:
        table = dict(self.table("quota"))
        users, groups = table.pop("users", {}), table.pop("groups", {})
        if table.get("borrowing") is True:
            self.refuse(("quota", "borrowing"), "borrowing is not in this release", "write false, or leave it out")
        known = {
            **NOMINAL,
            "held_back": Key("held_back_mib", _held_back),
            "borrowing": Key("borrowing", flag),
            "half_life": Key("half_life_s", duration),
        }
        values = self.read(("quota",), table, known)
        held_back = values.pop("held_back_mib", {})
        default = Nominal(**{name: values.pop(name) for name in ("train_mib", "light_mib") if name in values})
        read_users = self.accounts("users", users, {**NOMINAL, "weight": Key("weight", count(1))})
        weights = {name: user.pop("weight") for name, user in read_users.items() if "weight" in user}
        return QuotaPolicy(
            **values,
            **held_back,
            default=default,
            users={name: Nominal(**user) for name, user in read_users.items() if user},
            groups={name: Nominal(**group) for name, group in self.accounts("groups", groups, NOMINAL).items()},
            weights=weights,
        )

    def accounts(self, kind: str, tables: Any, known: Mapping[str, Key]) -> dict[str, dict[str, Any]]:
        path = ("quota", kind)
        if not isinstance(tables, dict):
            self.refuse(path, "is not a table", f"write [quota.{kind}.NAME]")
        for name, table in tables.items():
            if not isinstance(table, dict):
                self.refuse((*path, name), "is not a table", f'write [quota.{kind}.{name}], below it train = "20G"')
        return {name: self.read((*path, name), table, known) for name, table in tables.items()}

    def section(self, name: str, known: Mapping[str, Key]) -> dict[str, Any]:
        return self.read((name,), self.table(name), known)

    def table(self, name: str) -> Mapping[str, Any]:
        table = self.values.get(name, {})
        if not isinstance(table, dict):
            self.refuse((name,), "is not a table", f"write [{name}] on a line of its own")
        return table

    def read(self, path: tuple[str, ...], table: Mapping[str, Any], known: Mapping[str, Key]) -> dict[str, Any]:
        """Field -> value for the keys that are there."""
        fields = {}
        for name, value in table.items():
            if name not in known:
                self.refuse((*path, name), *_unknown("key", name, known))
            try:
                fields[known[name].field] = known[name].read(value)
            except ValueError as error:
                self.refuse((*path, name), str(error), "configs/default.toml explains every key")
        return fields

    def refuse(self, key: tuple[str, ...], problem: str, way_out: str) -> NoReturn:
        line = next((self.lines[key[:n]] for n in range(len(key), 0, -1) if key[:n] in self.lines), 1)
        raise _invalid(f"{self.path}:{line}: {'.'.join(key)}: {problem}", way_out)


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise _invalid(f"cannot read {path}: {error.strerror}", "give the path of a configuration file") from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise _invalid(f"{path}:{line}: not UTF-8 text", "save the file as UTF-8") from error


def _held_back(value: Any) -> dict[str, int]:
    """A share of each card, or a size (Q2)."""
    if isinstance(value, str) and value.strip().endswith("%"):
        return {"held_back_percent": parts(100)(value)}
    return {"held_back_mib": size(value)}


def _unknown(what: str, name: str, known: Iterable[str]) -> tuple[str, str]:
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1)
    return f"there is no such {what}", f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}"


def _invalid(message: str, hint: str) -> GpuqueueError:
    return GpuqueueError(ErrorCode.INVALID, message, hint)
