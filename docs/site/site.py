#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""site.py ROOT OUT: the documentation as pages of HTML in OUT, which need nothing but each other.

The markdown of the tree and the manual pages are what is shown, and are written to be read where they
are, too: a link to a file leads to its page, a heading has the anchor that code hosts give it, and the
name of a public function or structure leads to where weir(3) has it. A document without a place in
PLACES, and a link to what is not there, end the build.
"""
import html
import os
import re
import subprocess
import sys

from markdown_it import MarkdownIt
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name

# The navigation: groups of (file of the tree, its page, what it is called).
PLACES = [
    ("Begin", [
        ("README.md", "index.html", "What weir is"),
        ("docs/first-transfer.md", "first-transfer.html", "A first transfer"),
        ("docs/python.md", "python.html", "weir in Python"),
        ("docs/recipes.md", "recipes.html", "Recipes"),
        ("docs/coming-from.md", "coming-from.html", "Coming from UCX, libfabric, NIXL, Mooncake, verbs"),
        ("docs/mooncake.md", "mooncake.html", "Programs for Mooncake"),
        ("docs/nixl.md", "nixl.html", "NIXL's plug-in"),
        ("docs/building.md", "building.html", "Building and installing"),
        ("examples", "examples.html", "Examples"),
    ]),
    ("Look up", [
        ("man/weir.3", "weir.3.html", "weir(3), the library"),
        ("", "functions.html", "Functions by name"),
        ("include/weir.h", "weir.h.html", "The header, weir.h"),
        ("man/weir.1", "weir.1.html", "weir(1), the tool"),
        ("docs/glossary.md", "glossary.html", "Glossary"),
        ("docs/limits.md", "limits.html", "Limits"),
        ("docs/trace.md", "trace.html", "Request traces"),
    ]),
    ("How it works", [
        ("docs/promises.md", "promises.html", "Promises"),
        ("docs/design.md", "design.html", "Design"),
        ("docs/protocol.md", "protocol.html", "Protocol"),
        ("docs/testing.md", "testing.html", "Testing"),
    ]),
    ("The project", [
        ("CHANGELOG.md", "changelog.html", "Changes"),
        ("CONTRIBUTING.md", "contributing.html", "Contributing"),
        ("SECURITY.md", "security.html", "Security"),
        ("LICENSE", "licence.html", "Licence"),
    ]),
]
LANGUAGES = {".c": "c", ".h": "c", ".py": "python", ".sh": "sh"}


def escape(text):
    return html.escape(text, quote=True)


def slug(text, taken):
    """The anchor of a heading, as code hosts make it; the second of a name gets a number."""
    base = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
    name, again = base, 0
    while name in taken:
        again += 1
        name = "%s-%d" % (base, again)
    taken.add(name)
    return name


def highlighted(code, language, anchors=()):
    """The code with its words in classes; names that weir(3) has an anchor for lead there."""
    if not language:
        return escape(code)
    text = highlight(code, get_lexer_by_name(language, stripnl=False), HtmlFormatter(nowrap=True))
    return re.sub(
        r'<span class="n">(weir_\w+)</span>',
        lambda m: '<a class="name" href="weir.3.html#%s">%s</a>' % (m.group(1), m.group(1))
        if m.group(1) in anchors else m.group(0),
        text)


class Page:
    """A page: its title, its headings as (level, anchor, text), its body, and what it was made from."""

    def __init__(self, title, headings, body, source, kind=""):
        self.title, self.headings, self.body = title, headings, body
        self.source, self.kind = source, kind


class Site:
    def __init__(self, root, out):
        self.root, self.out = root, out
        self.pages = {file: page for _, group in PLACES for file, page, _ in group if file}
        self.written = {}  # page: Page
        self.wanted = []  # files of the tree that some page leads to, and that have a page of their own
        self.version = self.read("VERSION").strip()
        # Name: anchor in weir(3), of all that has one.
        self.manual = self.tagged(self.mandoc("man/weir.3"))
        self.anchors = set(re.findall(r'id="(weir_[a-z_0-9]+)"', self.manual))

    def read(self, file):
        with open(os.path.join(self.root, file), encoding="utf-8") as source:
            return source.read()

    @staticmethod
    def tagged(manual):
        """Each function has its anchor where it is told of: at the beginning of a sentence in the
        section that has the name of its group in the synopsis, or else of any, or else where it is
        named first. (mandoc puts it at the first sentence.)"""
        begin = manual.index('id="DESCRIPTION"')
        head, rest = manual[:begin], manual[begin:]
        groups = {}
        for part in head[head.index('id="SYNOPSIS"'):].split("<h2 ")[1:]:
            title = re.search(r'id="([^"]*)"', part).group(1)
            for name in re.findall(r'<code class="Fn">(weir_\w+)</code>', part):
                groups[name] = title
        for name in groups:
            rest = rest.replace(' id="%s"' % name, "")
            rest = re.sub(r'<a class="permalink" href="#%s">(.*?)</a>' % name, r"\1", rest, flags=re.S)
        for name, group in groups.items():
            # The synopsis has its sections first, so that those of the description have a number.
            own = re.search(r'<h2 class="Ss" id="%s(?:~2)?">.*?(?=<h2 |\Z)' % re.escape(group), rest, re.S)
            code = r'<code class="Fn">%s</code>' % name
            opening = r'(?:<p class="Pp">|<dt>|<li[^>]*>|[.:]\s+)(?=%s)' % code
            for pattern, where in ((opening, own), (opening, None), (r"(?=%s)" % code, own), (r"(?=%s)" % code, None)):
                found = re.compile(pattern).search(rest, *(where.span() if where else ()))
                if found:
                    at = found.end()
                    rest = rest[:at] + rest[at:].replace('class="Fn"', 'class="Fn" id="%s"' % name, 1)
                    break
        return head + rest

    # ---- links ----

    def resolve(self, href, source):
        """Where a link of a document leads on the site."""
        if re.match(r"[a-z]+:", href) or href.startswith("#"):
            return href
        path, hash_, anchor = href.partition("#")
        file = os.path.normpath(os.path.join(os.path.dirname(source), path))
        whole = os.path.join(self.root, file)
        if not os.path.exists(whole):
            sys.exit("%s: a link to %s, which is not there" % (source, href))
        if file not in self.pages:
            if os.path.isdir(whole):
                sys.exit("%s: a link to the directory %s, which has no page" % (source, file))
            self.pages[file] = file.replace("/", "-") + ".html"
            self.wanted.append(file)
        return self.pages[file] + hash_ + anchor

    def name_link(self, name, page):
        """The name as code, and a link where weir(3) has it."""
        code = "<code>%s</code>" % escape(name)
        bare = re.sub(r"\(.*\)$", "", name)
        if bare in self.anchors:
            return '<a class="name" href="%s#%s">%s</a>' % (self.pages["man/weir.3"], bare, code)
        return code

    # ---- markdown ----

    def markdown(self, file):
        reader = MarkdownIt("commonmark").enable(["table", "strikethrough"])
        tokens = reader.parse(self.read(file))
        headings, taken = [], set()
        for token, following in zip(tokens, tokens[1:]):
            if token.type == "heading_open":
                text = "".join(t.content for t in following.children if t.type in ("text", "code_inline"))
                anchor = slug(text, taken)
                token.attrSet("id", anchor)
                headings.append((int(token.tag[1]), anchor, text))
        for token in tokens:
            inside = False
            for child in token.children or []:
                if child.type == "link_open":
                    child.attrSet("href", self.resolve(child.attrGet("href"), file))
                    inside = True
                elif child.type == "link_close":
                    inside = False
                elif child.type == "code_inline" and not inside:
                    child.type = "html_inline"
                    child.content = self.name_link(child.content, file)
        rules = reader.renderer.rules
        fence = {"c": "c", "sh": "sh", "diff": "diff"}
        rules["fence"] = lambda t, i, *_: "<pre><code>%s</code></pre>\n" % highlighted(
            t[i].content, fence.get(t[i].info.strip()), self.anchors
        )
        rules["table_open"] = lambda *_: '<div class="wide"><table>\n'
        rules["table_close"] = lambda *_: "</table></div>\n"
        rules["heading_close"] = lambda t, i, *_: ' <a class="here" href="#%s" aria-label="here">#</a></%s>\n' % (
            t[i - 2].attrGet("id"), t[i].tag)
        body = reader.renderer.render(tokens, reader.options, {})
        # A table whose head is empty has none.
        body = re.sub(r"<thead>\s*<tr>\s*(<th[^>]*></th>\s*)+</tr>\s*</thead>", "", body)
        if not headings or headings[0][0] != 1:
            sys.exit("%s does not open with a heading" % file)
        return Page(headings[0][2], headings[1:], body, file)

    # ---- manual pages ----

    def mandoc(self, file):
        return subprocess.run(
            ["mandoc", "-Thtml", "-O", "fragment,man=%N.%S.html", os.path.join(self.root, file)],
            stdout=subprocess.PIPE, check=True, text=True,
        ).stdout

    def manual_page(self, file, title):
        body = self.manual if file == "man/weir.3" else self.mandoc(file)
        # Of the pages that it refers to, ours are here.
        def reference(match):
            return match.group(0) if match.group(1) in self.pages.values() else match.group(2)
        body = re.sub(r'<a class="Xr" href="([^"]*)">(.*?)</a>', reference, body, flags=re.S)
        body = re.sub(r'<a class="In">(.*?)</a>', r"\1", body)
        # A function leads to where it is told of, unless that is here.
        def function(match):
            name = match.group(1)
            if name not in self.anchors:
                return match.group(0)
            return '<a class="name" href="%s#%s">%s</a>' % (self.pages["man/weir.3"], name, match.group(0))
        body = re.sub(r'<code class="Fn">(weir_[a-z_0-9]+)</code>', function, body)
        body = re.sub(r"<table class=\"(?:tbl|Bl-column).*?</table>", r'<div class="wide">\g<0></div>', body, flags=re.S)
        body = re.sub(r"<table class=\"(?:head|foot)\">.*?</table>", "", body, flags=re.S)
        headings = [
            (2 if level == "1" else 3, anchor, html.unescape(re.sub(r"<[^>]*>", "", text)).replace("\n", " "))
            for level, anchor, text in re.findall(
                r'<h([12]) class="S[hs]" id="([^"]*)">(.*?)</h\1>', body, re.S)
        ]
        if len(headings) < 8:
            sys.exit("%s: its sections were not found" % file)
        # Sections of a manual are below the title of its page.
        body = re.sub(r"<(/?)h2\b", r"<\1h3", body)
        body = re.sub(r"<(/?)h1\b", r"<\1h2", body)
        return Page(title, headings, "<h1>%s</h1>\n%s" % (escape(title), body), file, "manual")

    def functions(self):
        """An index of the functions, in the groups of weir(3)."""
        text = self.read("man/weir.3")
        synopsis = text[text.index(".Sh SYNOPSIS"):text.index(".Sh DESCRIPTION")]
        parts, count = [], 0
        taken, headings = set(), []
        for group in synopsis.split("\n.Ss ")[1:]:
            title, _, rest = group.partition("\n")
            names = re.findall(r"^\.F[no] (weir_[a-z_0-9]+)", rest, re.M)
            count += len(names)
            anchor = slug(title, taken)
            headings.append((2, anchor, title))
            parts.append('<h2 id="%s">%s</h2>\n<ul class="names">%s</ul>' % (anchor, escape(title), "".join(
                "<li>%s</li>" % self.name_link(name, "") for name in names)))
            for name in names:
                if name not in self.anchors:
                    sys.exit("weir(3) has no anchor for %s" % name)
        if count < 50:
            sys.exit("functions were not found")
        body = "<h1>Functions by name</h1>\n<p>Each leads to where <a href=\"%s\">weir(3)</a> tells of it.</p>\n" % (
            self.pages["man/weir.3"]) + "\n".join(parts)
        return Page("Functions by name", headings, body, "man/weir.3")

    # ---- files ----

    def source_page(self, file):
        text = self.read(file)
        language = LANGUAGES.get(os.path.splitext(file)[1])
        lines = highlighted(text, language, self.anchors).rstrip("\n").split("\n")
        body = "<h1>%s</h1>\n" % escape(file)
        if language is None:
            body += '<pre class="plain">%s</pre>' % escape(text)
        else:
            body += '<pre class="lines"><code>%s</code></pre>' % "\n".join(
                '<span id="L%d">%s</span>' % (number + 1, line) for number, line in enumerate(lines))
        return Page(file, [], body, file, "source")

    def examples(self):
        """The directory, with the sentence that each file opens with."""
        rows = []
        for name in sorted(os.listdir(os.path.join(self.root, "examples"))):
            if not name.endswith((".c", ".py")):
                continue
            file = "examples/" + name
            opening = re.search(r'(?:/\*|""").?%s: (.*?)(?:\.\s|\*/|:\n)' % re.escape(name), self.read(file), re.S)
            what = re.sub(r"[\s*]+", " ", opening.group(1)).strip()
            rows.append('<tr><td><a href="%s"><code>%s</code></a></td><td>%s</td></tr>' % (
                self.resolve(file, "README.md"), name, escape(what)))
        body = ("<h1>Examples</h1>\n<p>Programs to begin with. <code>make build</code> builds them, below "
                "<code>build/examples</code>; the <a href=\"recipes.html\">recipes</a> tell of them.</p>\n"
                '<div class="wide"><table>%s</table></div>' % "".join(rows))
        return Page("Examples", [], body, "examples")

    # ---- all of it ----

    def build(self):
        for markdown in sorted(os.listdir(os.path.join(self.root, "docs"))):
            if markdown.endswith(".md") and "docs/" + markdown not in self.pages:
                sys.exit("docs/%s has no place in the navigation (docs/site/site.py)" % markdown)
        for _, group in PLACES:
            for file, page, title in group:
                self.written[page] = self.make(file, title)
        while self.wanted:
            file = self.wanted.pop()
            self.written[self.pages[file]] = self.source_page(file)
        os.makedirs(self.out, exist_ok=True)
        for old in os.listdir(self.out):
            if old.endswith((".html", ".css")):
                os.remove(os.path.join(self.out, old))
        for name, page in self.written.items():
            self.write(name, self.whole(name, page))
        self.write("style.css", self.read("docs/site/style.css"))
        return len(self.written)

    def make(self, file, title):
        if not file:
            return self.functions()
        if file == "examples":
            return self.examples()
        if file.startswith("man/"):
            return self.manual_page(file, title)
        if file.endswith(".md"):
            return self.markdown(file)
        return self.source_page(file)

    def write(self, name, text):
        with open(os.path.join(self.out, name), "w", encoding="utf-8") as file:
            file.write(text)

    def navigation(self, current):
        parts = []
        for title, group in PLACES:
            links = "".join(
                '<li><a href="%s"%s>%s</a></li>' % (
                    page, ' aria-current="page"' if page == current else "", escape(name))
                for _, page, name in group)
            parts.append("<h2>%s</h2>\n<ul>%s</ul>" % (title, links))
        return "\n".join(parts)

    def contents(self, page):
        deepest = 3 if sum(level == 3 for level, _, _ in page.headings) < 80 else 2
        return "".join(
            '<li class="level%d"><a href="#%s">%s</a></li>' % (level, escape(anchor), escape(text))
            for level, anchor, text in page.headings if level <= deepest)

    def whole(self, name, page):
        contents = self.contents(page)
        aside = short = ""
        if len(page.headings) > 1:
            aside = '<aside aria-label="On this page"><h2>On this page</h2><ul>%s</ul></aside>' % contents
            short = '<details class="contents"><summary>On this page</summary><ul>%s</ul></details>' % contents
        title = page.title if name == "index.html" else "%s – weir" % page.title
        return """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>%s</title>
<link rel="stylesheet" href="style.css">
</head>
<body class="%s">
<a class="skip" href="#main">To the text</a>
<header><a class="brand" href="index.html">weir</a> <span class="version">%s</span>
<a class="menu" href="#nav">Menu</a></header>
<div class="columns">
<main id="main">
%s
%s
<footer>weir %s. From <code>%s</code>.</footer>
</main>
%s
<nav id="nav" aria-label="All pages">
%s
</nav>
</div>
</body>
</html>
""" % (escape(title), page.kind, escape(self.version), short, page.body, escape(self.version),
       escape(page.source), aside, self.navigation(name))


if len(sys.argv) != 3:
    sys.exit(__doc__.splitlines()[0])
print("%d pages" % Site(*sys.argv[1:]).build())
