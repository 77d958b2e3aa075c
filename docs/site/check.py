#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check.py SITE: what is wrong with the pages that site.py made, a line each; status 1 if anything is.

Each link leads to a page, and to an anchor that is there; no anchor is there twice in a page, and no
element is left open. Nothing is fetched from elsewhere, nothing is a script, and nothing names a place
of one machine, so that the pages work from a directory as from a server. Every page can be come to
from the first one.
"""
import os
import sys
from html.parser import HTMLParser
from urllib.parse import unquote

VOID = {"br", "hr", "img", "input", "link", "meta", "col", "wbr"}
# HTML lets their end be left out.
IMPLIED = {"p", "li", "dt", "dd", "tr", "td", "th", "thead", "tbody", "colgroup"}


class Reader(HTMLParser):
    def __init__(self, page):
        super().__init__()
        self.page, self.wrong = page, []
        self.ids, self.links, self.open = set(), [], []
        self.title, self.headings = "", 0

    def say(self, what):
        self.wrong.append("%s:%d: %s" % (self.page, self.getpos()[0], what))

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        if tag not in VOID:
            self.open.append(tag)
        self.headings += tag == "h1"
        if tag in ("script", "iframe", "object", "embed"):
            self.say("<%s>" % tag)
        for name, value in attributes:
            if name.startswith("on"):
                self.say("a script in %s" % name)
        if "id" in given:
            if given["id"] in self.ids:
                self.say("the anchor %s is there twice" % given["id"])
            self.ids.add(given["id"])
        if tag == "a" and given.get("href") is not None:
            self.links.append((self.getpos()[0], given["href"]))
        elif given.get("href") or given.get("src"):
            where = given.get("href") or given["src"]
            self.links.append((self.getpos()[0], where))
            if ":" in where:
                self.say("%s is fetched from elsewhere" % where)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag):
        while self.open and self.open[-1] != tag and self.open[-1] in IMPLIED:
            self.open.pop()
        if not self.open or self.open.pop() != tag:
            self.say("</%s> ends nothing" % tag)

    def handle_data(self, data):
        if self.open and self.open[-1] == "title":
            self.title += data


def read(site, page):
    reader = Reader(page)
    with open(os.path.join(site, page), encoding="utf-8") as file:
        reader.feed(file.read())
    reader.close()
    if reader.open:
        reader.say("<%s> is left open" % reader.open[-1])
    if not reader.title.strip():
        reader.say("no title")
    if reader.headings != 1:
        reader.say("%d headings of the first level" % reader.headings)
    return reader


def main(site):
    pages = {p: read(site, p) for p in sorted(os.listdir(site)) if p.endswith(".html")}
    leads, count = {}, 0
    for page, reader in pages.items():
        leads[page] = set()
        for line, href in reader.links:
            if href.startswith(("http:", "https:")):
                continue
            count += 1
            path, _, anchor = href.partition("#")
            path, anchor = unquote(path) or page, unquote(anchor)
            at = "%s:%d: %s" % (page, line, href)
            if path.startswith("/") or ":" in path:
                reader.wrong.append("%s names a place of this machine" % at)
            elif not os.path.isfile(os.path.join(site, path)):
                reader.wrong.append("%s is not there" % at)
            elif path in pages:
                leads[page].add(path)
                if anchor and anchor not in pages[path].ids:
                    reader.wrong.append("%s: there is no such anchor" % at)
    come_to, more = set(), ["index.html"]
    while more:
        page = more.pop()
        if page in pages and page not in come_to:
            come_to.add(page)
            more += leads[page]
    wrong = [line for reader in pages.values() for line in reader.wrong]
    wrong += ["%s: no page leads there" % page for page in pages if page not in come_to]
    for line in wrong:
        print(line)
    print("%d pages, %d links" % (len(pages), count))
    return 1 if wrong or len(pages) < 10 or count < 500 else 0


if len(sys.argv) != 2:
    sys.exit(__doc__.splitlines()[0])
sys.exit(main(sys.argv[1]))
