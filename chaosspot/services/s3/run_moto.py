"""A program: moto's S3 on a free port of loopback, which it prints.

``python -P run_moto.py PARENT`` ends with its parent, however that ends. It serves S3 and nothing
else: neither moto's other services nor its control can be reached.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
import threading

_PR_SET_PDEATHSIG = 1


def end_with(parent: int) -> None:
    """The kernel's promise, and a pipe for parents whose thread ends before they do."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    threading.Thread(target=_wait_for_end_of_input, daemon=True).start()
    if os.getppid() != parent:  # gone before the promise was made
        os._exit(1)


def _wait_for_end_of_input() -> None:
    while os.read(0, 1024):
        pass
    os._exit(0)


def main() -> None:
    end_with(int(sys.argv[1]))

    from moto.moto_server.werkzeug_app import (
        BackendRequest,
        MotoRequestHandler,
        create_backend_app,
    )
    from werkzeug.serving import make_server

    class Request(BackendRequest):
        @property
        def want_form_data_parsed(self) -> bool:
            """An object is bytes, also when its content type is that of a form."""
            return self.method == "POST" and super().want_form_data_parsed

    class Handler(MotoRequestHandler):
        def log_request(self, *_: object) -> None:
            """Only what goes wrong is logged."""

    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    app = create_backend_app("s3")
    app.request_class = Request
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Handler)
    print(server.server_address[1], flush=True)  # noqa: T201
    server.serve_forever()


if __name__ == "__main__":
    main()
