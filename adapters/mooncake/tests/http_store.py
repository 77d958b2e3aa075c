# SPDX-License-Identifier: Apache-2.0
"""http_store.py PORT: a metadata server behind HTTP, as Mooncake has one: GET, PUT and DELETE of
/metadata?key=KEY, kept in memory."""
import http.server
import sys
import urllib.parse

kept = {}


class Handler(http.server.BaseHTTPRequestHandler):
    """One key a request."""

    protocol_version = "HTTP/1.1"

    def answer(self, status, body=b""):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def key(self):
        return urllib.parse.parse_qs(urllib.parse.urlparse(self.path).query).get("key", [""])[0]

    def do_GET(self):
        if self.key() in kept:
            self.answer(200, kept[self.key()])
        else:
            self.answer(404, b"metadata not found")

    def do_PUT(self):
        kept[self.key()] = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.answer(200, b"metadata updated")

    def do_DELETE(self):
        self.answer(200 if kept.pop(self.key(), None) is not None else 404)

    def log_message(self, *args):
        pass


http.server.ThreadingHTTPServer.allow_reuse_address = True
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
