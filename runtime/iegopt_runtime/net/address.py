"""Where a process listens: ``unix:/run/iegopt/controller.sock`` or ``tcp:127.0.0.1:7410``."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from iegopt.errors import InputError

__all__ = ["Address"]

_LONGEST_PATH = 107
"""Bytes of a unix socket's path (``sun_path`` of Linux, unix(7), less the closing zero)."""


@dataclass(frozen=True)
class Address:
    """A unix socket's ``path``, or ``host`` and ``port``; port 0 lets the system choose one when it is listened on."""

    path: str | None = None
    host: str | None = None
    port: int | None = None

    @classmethod
    def read(cls, text: str) -> Address:
        """
        Raises
        ------
        InputError
            For anything but the two forms.
        """
        kind, _, rest = text.partition(":")
        if kind == "unix" and rest:
            if len(rest.encode()) > _LONGEST_PATH:
                raise InputError(f"{text}: the path of a unix socket has at most {_LONGEST_PATH} bytes")
            return cls(path=rest)
        host, _, port = rest.rpartition(":")
        if kind == "tcp" and host and port.isdecimal() and int(port) < 2**16:
            return cls(host=host.strip("[]"), port=int(port))
        raise InputError(f"address {text!r}: expected unix:PATH or tcp:HOST:PORT")

    @property
    def is_loopback(self) -> bool:
        """Whether no other machine can reach it."""
        if self.path is not None:
            return True
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host or "").is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        if self.path is not None:
            return f"unix:{self.path}"
        host = f"[{self.host}]" if ":" in (self.host or "") else self.host
        return f"tcp:{host}:{self.port}"
