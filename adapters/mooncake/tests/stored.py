# SPDX-License-Identifier: Apache-2.0
"""stored.py KIND PORT KEY [VALUE]: what a metadata server has at the key, on standard output, or puts
a value there. Asks by itself, and not through the adapter. Exit status 1: there is no such key."""
import base64
import json
import socket
import sys
import urllib.error
import urllib.parse
import urllib.request

kind, port, key = sys.argv[1:4]
value = sys.argv[4] if len(sys.argv) > 4 else None


def web(url, body=None, method=None):
    request = urllib.request.Request(url, body.encode() if body is not None else None, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.read().decode()


def coded(text):
    return base64.b64encode(text.encode()).decode()


def etcd():
    where = f"http://127.0.0.1:{port}/v3/kv/"
    if value is not None:
        return web(where + "put", json.dumps({"key": coded(key), "value": coded(value)}))
    found = json.loads(web(where + "range", json.dumps({"key": coded(key)}))).get("kvs")
    return base64.b64decode(found[0]["value"]).decode() if found else None


def redis():
    words = ["GET", key] if value is None else ["SET", key, value]
    said = f"*{len(words)}\r\n" + "".join(f"${len(word.encode())}\r\n{word}\r\n" for word in words)
    with socket.create_connection(("127.0.0.1", int(port)), timeout=60) as server:
        server.sendall(said.encode())
        answer = server.makefile("rb")
        head = answer.readline().decode()
        if value is not None:
            return head
        return answer.read(int(head[1:])).decode() if head[0] == "$" and head != "$-1\r\n" else None


def http():
    url = f"http://127.0.0.1:{port}/metadata?key=" + urllib.parse.quote(key, safe="")
    try:
        return web(url, value, "GET" if value is None else "PUT")
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise


found = {"etcd": etcd, "redis": redis, "http": http}[kind]()
if found is None:
    sys.exit(1)
print(found, end="")
