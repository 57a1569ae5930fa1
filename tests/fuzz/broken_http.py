"""Hypothesis strategies: HTTP that is nearly right, and values that JSON allows and nobody expects."""

import json
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from tests.fuzz.harmless import PROGRAM

HUGE = 2**64
SHOWN = 600
MAX_BODY = 8 * 1024 * 1024

_odd_texts = st.sampled_from(
    ["", "\0", "\ud800", "\udcff", "é" * 300, "a" * 5000, "\u202e", "../../etc", "%00", "💥", "\r\n"]
)
texts = st.one_of(_odd_texts, st.text(max_size=20))
integers = st.one_of(
    st.sampled_from([-1, 0, 1, 2**31 - 1, 2**31, 2**63 - 1, 2**63, HUGE, -HUGE, 10**40, 10**4299]), st.integers()
)
scalars = st.one_of(
    texts, integers, st.booleans(), st.none(), st.sampled_from([float("nan"), float("inf"), -0.0, 1e308, 22.0])
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=6
)

_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "vram_mib": st.integers(1, 5000),
    "umask": st.integers(-1, 0o1000),
    "script_name": texts,
    "name": texts,
    "class": st.sampled_from(["train", "light", "TRAIN"]),
    "gpus": st.integers(0, 3),
    "gpu_type": texts,
    "gpu_indexes": st.lists(integers, max_size=4),
    "exclusive": st.booleans(),
    "time_s": integers,
    "signal": st.sampled_from(["SIGTERM", "SIGUSR1", "SIGKILL", "TERM", "15"]),
    "grace_s": integers,
    "mem_mib": integers,
    "cpus": integers,
    "interactive": st.booleans(),
    "borrow": st.booleans(),
    "restart": st.sampled_from(["never", "always", "on-failure", "Never"]),
    "checkpoint_dir": texts,
    "checkpoint_command": st.just(f"{PROGRAM} #"),
    "resume": st.one_of(texts, st.just("latest")),
    "resume_arg": texts,
    "grow": st.booleans(),
    "cap": st.booleans(),
    "vram_auto": st.booleans(),
    "account": texts,
    "as_user": st.one_of(texts, st.just("root")),
    "idempotency_key": texts,
    "env": st.dictionaries(texts, texts, max_size=4),
    "cwd": st.one_of(texts, st.just("/tmp")),
}


@st.composite
def submissions(draw: st.DrawFn) -> dict[str, Any]:
    """Near to right: mostly one or two fields of a good submission are odd."""
    body: dict[str, Any] = {
        "idempotency_key": draw(st.text("0123456789abcdef", min_size=8, max_size=8)),
        "vram_mib": 1,
        "command": [PROGRAM],
        "cwd": "/tmp",
        "env": {},
    }
    for name in draw(st.lists(st.sampled_from(sorted(_FIELDS)), max_size=3)):
        body[name] = draw(_FIELDS[name])
    for name in draw(st.lists(st.sampled_from([*sorted(_FIELDS), "vram", "user", "\ud800"]), max_size=1)):
        if name != "checkpoint_command":
            body[name] = draw(values)
    body["command"] = [PROGRAM, *draw(st.lists(texts, max_size=2))]
    return body


def json_text(value: Any) -> bytes:
    return json.dumps(value).encode("ascii")


bodies = st.one_of(
    submissions().map(json_text),
    st.fixed_dictionaries({}, optional={"extend_s": values, "train_mib": values, "light_mib": values}).map(json_text),
    values.map(json_text),
    st.binary(max_size=50),
    st.sampled_from(
        [
            b"[" * 100_000,
            b'{"a":' * 50_000,
            b'{"vram_mib":' + b"9" * 5000 + b"}",
            b'{"extend_s":1e999}',
            b'{"extend_s":1,"extend_s":2}',
            b"\xff\xfe{\x00}\x00",
            b'\xef\xbb\xbf{"extend_s":60}',
            b"{" + b" " * 200_000 + b"}",
        ]
    ),
)

job_ids = st.one_of(
    st.integers(0, 40).map(str), st.sampled_from(["-1", "x", "1.0", "１", str(HUGE), "9" * 5000, "%00", "1%2f2"])
)
paths = st.one_of(
    st.sampled_from(
        [
            "/v1/jobs",
            "/v1/jobs/cancel-all",
            "/v1/cards",
            "/v1/quotas",
            "/v1/history",
            "/v1/events",
            "/v1/history",
            "/v1/calibration?model=x",
            "/v1/node",
            "/v1/doctor",
        ]
    ),
    st.builds(
        "/v1/jobs/{}{}".format, job_ids, st.sampled_from(["", "/why", "/cancel", "/requeue", "/keep", "/log", "/"])
    ),
    st.builds(
        "/v1/jobs/{}/wait?timeout_s={}".format, job_ids, st.sampled_from(["0", "0.01", "-1", "nan", "inf", "1e9", ""])
    ),
    st.builds("/v1/quotas/{}".format, st.sampled_from(["ann", "%ff", "%00", "a" * 300, "%F0%9F%92%A5", ".."])),
    st.sampled_from(
        ["/", "*", "//", "/v1", "/v2/jobs", "http://[::1/v1/jobs", "/v1/jobs/../jobs", "/%ed%a0%80", "/v1/openapi.json"]
    ),
)
_ODD_QUERIES = (
    "all=1 all=maybe limit=0 limit=1&limit=2 user=%00 user=%ff frobnicate=1 after=-1 after=1e3 job=0 attempt=1 &&& = % "
    f"after={HUGE} offset={-HUGE} limit={'9' * 5000}"
).split()
queries = st.one_of(st.just(""), st.just(""), st.sampled_from(_ODD_QUERIES))
content_types = st.sampled_from(
    [b"application/json"] * 6
    + [
        b"text/plain",
        b"",
        b"application/json; charset=utf-16",
        b"application/x-www-form-urlencoded",
        b"\xff",
        b"multipart/form-data",
    ]
)
headers = st.lists(
    st.sampled_from(
        [
            (b"Accept", b"text/html"),
            (b"Last-Event-ID", b"-1"),
            (b"X-Remote-User", b"root"),
            (b"Forwarded", b"for=10.0.0.1;by=root"),
            (b"Authorization", b"Basic cm9vdDpyb290"),
            (b"Cookie", b"a" * 4000),
            (b"Expect", b"100-continue"),
            (b"Upgrade", b"websocket"),
            (b"X-Odd", b"\xff\xfe"),
            (b"X-Http-Method-Override", b"DELETE"),
        ]
    ),
    max_size=2,
)
methods = st.sampled_from(
    [b"GET"] * 4
    + [b"POST"] * 4
    + [b"PUT", b"DELETE", b"HEAD", b"OPTIONS", b"PATCH", b"TRACE", b"CONNECT", b"FROBNICATE"]
)


@dataclass(frozen=True, slots=True)
class Message:
    """`whole`: a complete request by the rules of HTTP, after which the daemon closes the connection."""

    data: bytes
    whole: bool
    head_only: bool = False

    def __repr__(self) -> str:
        more = f"… {len(self.data)} bytes" if len(self.data) > SHOWN else ""
        return f"Message({self.data[:SHOWN]!r}{more}, whole={self.whole})"


@st.composite
def whole_requests(draw: st.DrawFn) -> Message:
    method, path, query = draw(methods), draw(paths), draw(queries)
    target = path + (("&" if "?" in path else "?") + query if query else "")
    lines = [
        method + b" " + target.encode("utf-8", "surrogatepass") + b" HTTP/1.1",
        b"Host: gpuqueued",
        b"Connection: close",
    ]
    lines += [name + b": " + value for name, value in draw(headers)]
    body = draw(bodies) if method in (b"POST", b"PUT", b"PATCH") or draw(st.integers(0, 9)) == 0 else b""
    if body:
        lines.append(b"Content-Type: " + draw(content_types))
        if draw(st.booleans()):
            lines.append(b"Content-Length: %d" % len(body))
        else:
            lines.append(b"Transfer-Encoding: chunked")
            body = _chunked(body, draw(st.sampled_from([1, 7, 4096])) if len(body) < 500 else 65536)
    ascii_target = all(0x21 <= byte <= 0x7E for byte in lines[0].split(b" ")[1])
    return Message(b"\r\n".join([*lines, b"", b""]) + body, ascii_target, method in (b"HEAD", b"CONNECT"))


def _chunked(body: bytes, size: int) -> bytes:
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


@st.composite
def damaged_requests(draw: st.DrawFn) -> Message:
    """Cut off, with bytes changed, added or left out, or two of them in one."""
    data = draw(whole_requests()).data[:20_000]
    head = data.partition(b"\r\n\r\n")[0]
    how = draw(st.sampled_from(["cut", "cut head", "change", "insert", "remove", "twice", "frame"]))
    where = draw(st.integers(0, max(len(head) - 1, 0)))
    if how == "cut":
        data = data[: draw(st.integers(0, len(data)))]
    elif how == "cut head":
        data = head[:where]
    elif how == "change":
        data = data[:where] + draw(st.binary(min_size=1, max_size=3)) + data[where + 1 :]
    elif how == "insert":
        junk = st.sampled_from([b"\r\n", b"\n", b"\0", b" ", b":", b"\r\n\r\n", b"A" * 70_000, b"X: y\r\n" * 3000])
        data = data[:where] + draw(junk) + data[where:]
    elif how == "remove":
        data = data[:where] + data[where + draw(st.integers(1, 20)) :]
    elif how == "twice":
        data = data.replace(b"Connection: close\r\n", b"") + data
    else:
        data = head + b"\r\n" + draw(_framings) + b"\r\n\r\n" + draw(bodies)[:20_000]
    return Message(data, whole=False)


_framings = st.sampled_from(
    [
        b"Content-Length: -1",
        b"Content-Length: 1, 2",
        b"Content-Length: 5\r\nContent-Length: 6",
        b"Content-Length: 5\r\nTransfer-Encoding: chunked",
        b"Content-Length: 99999999999999999999999999",
        b"Content-Length: %d" % (MAX_BODY + 1),
        b"Content-Length: " + b"9" * 5000,
        b"Content-Length: 0x10",
        b"Content-Length: \xb2",
        b"Transfer-Encoding: gzip",
        b"Transfer-Encoding: chunked, chunked",
        b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n",
        b"Expect: 100-continue\r\nContent-Length: 10",
    ]
)


@st.composite
def submission_requests(draw: st.DrawFn) -> Message:
    """Good HTTP; what is odd is the job."""
    body = json_text(draw(submissions()))
    head = b"POST /v1/jobs HTTP/1.1\r\nHost: gpuqueued\r\nConnection: close\r\nContent-Type: application/json\r\n"
    return Message(head + b"Content-Length: %d\r\n\r\n" % len(body) + body, whole=True)


noise = st.binary(min_size=1, max_size=300).map(lambda data: Message(data, whole=False))
