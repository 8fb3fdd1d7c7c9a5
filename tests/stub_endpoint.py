"""A server that answers as an OpenAI-compatible endpoint does, or fails as one may."""

import json
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextmanager
def stub_server(*answers):
    """A server that gives its answers in turn, the last one for ever: a text, a status, a status with headers, raw
    bytes, seconds of
    silence, or a function from the body of the request to one of these."""
    requests = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            requests.append(
                (json.loads(self.rfile.read(int(self.headers["Content-Length"]))), self.headers.get("Authorization"))
            )
            answer = answers[min(len(requests), len(answers)) - 1]
            answer = answer(requests[-1][0]) if callable(answer) else answer
            answer, headers = answer if isinstance(answer, tuple) else (answer, {})
            if isinstance(answer, float):
                time.sleep(answer)
            status = answer if isinstance(answer, int) else 200
            content = {"choices": [{"message": {"content": answer}}], "usage": {"total_tokens": 50}}
            body = (
                answer if isinstance(answer, bytes) else json.dumps(content if isinstance(answer, str) else {}).encode()
            )
            try:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)
            except OSError:
                pass

        def log_message(self, *arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", requests
    finally:
        server.shutdown()
        server.server_close()
