# SPDX-License-Identifier: Apache-2.0
"""liar.py PORT KIND WHAT: a metadata server that answers each request with what no server should.

KIND is redis, or anything else for HTTP. WHAT: "trickle", a long answer of which a byte comes now and
then; "flood", one that never ends; "mute", none; else that text, which for redis is the whole answer
and for HTTP the body of a 200."""
import socket
import sys
import threading
import time

port, kind, what = int(sys.argv[1]), sys.argv[2], sys.argv[3]


def head(length):
    if kind == "redis":
        return b"$%d\r\n" % length
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % length


def answer(to):
    if what == "mute":
        time.sleep(3600)
    elif what == "trickle":
        to.sendall(head(1 << 20))
        while True:
            to.sendall(b"x")
            time.sleep(0.05)
    elif what == "flood":
        to.sendall(head(500 << 20))
        while True:
            to.sendall(b"x" * 65536)
    else:
        body = what.encode().decode("unicode_escape").encode("latin-1")
        to.sendall(body if kind == "redis" else head(len(body)) + body)


def serve(to):
    try:
        while to.recv(1 << 20):
            answer(to)
    except OSError:
        pass
    to.close()


listener = socket.create_server(("127.0.0.1", port))
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
