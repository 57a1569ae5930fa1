"""Telling systemd that the daemon is up (Type=notify): one datagram, no library."""

import os
import socket


def notify(state: str) -> None:
    """Sends `state` (for example READY=1) where systemd listens; does nothing outside systemd."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
        sender.connect("\0" + address[1:] if address.startswith("@") else address)
        sender.sendall(state.encode())
