"""What people type, as click parameter types: sizes, durations, job ids, signals; and `--json`."""

import click

from gpuqueue.wire.units import parse_mib, parse_seconds

AUTO = -1  # no size


class Size(click.ParamType):  # type: ignore[type-arg]
    """`22G` as whole MiB (M1)."""

    name = "size"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return parse_mib(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Claim(Size):
    """A size, or `auto`: the daemon decides (`AUTO`)."""

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        return AUTO if value in ("auto", AUTO) else super().convert(value, param, ctx)


class Duration(click.ParamType):  # type: ignore[type-arg]
    """`2h` as whole seconds, one at least unless `zero`."""

    name = "duration"

    def __init__(self, zero: bool = False) -> None:
        self._zero = zero

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            seconds = parse_seconds(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if seconds == 0 and not self._zero:
            self.fail(f"{value!r} is no time at all", param, ctx)
        return seconds


class Between(click.FloatRange):
    """Above `min`, up to `max`. Not a number is outside of every range, which comparing it does not tell."""

    def __init__(self, min: float, max: float) -> None:
        super().__init__(min, max, min_open=True)

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = super().convert(value, param, ctx)
        if number != number:
            self.fail(f"{value!r} is not a number", param, ctx)
        return number


class JobId(click.ParamType):  # type: ignore[type-arg]
    name = "job"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        written = str(value)
        if not (written.isascii() and written.isdigit() and 0 < len(written) < 19) or int(written) == 0:
            self.fail(f"{written!r} is not a job id: `gq status` shows them in the first column", param, ctx)
        return int(written)


class Signal(click.ParamType):  # type: ignore[type-arg]
    """`SIGUSR1`, `USR1` or `10` as the name `SIGUSR1`."""

    name = "signal"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        import signal

        written = str(value).upper()
        try:
            if written.isdigit():
                return signal.Signals(int(written)).name
            return signal.Signals[written if written.startswith("SIG") else f"SIG{written}"].name
        except (ValueError, KeyError):
            self.fail(f"{value!r} is not a signal: write for example SIGTERM or SIGUSR1", param, ctx)


class Indexes(click.ParamType):  # type: ignore[type-arg]
    """`0` or `0,2` as card indexes."""

    name = "cards"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> list[int]:
        if isinstance(value, list):
            return value
        parts = [part.strip() for part in str(value).split(",")]
        if not all(part.isascii() and part.isdigit() and len(part) < 4 for part in parts):
            self.fail(f"{value!r} is not a card: write for example 0 or 0,1; `gq gpus` lists them", param, ctx)
        return sorted({int(part) for part in parts})


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON with documented, stable fields.")
job_argument = click.argument("job", type=JobId())
jobs_argument = click.argument("jobs", type=JobId(), nargs=-1, required=True)
