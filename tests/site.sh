#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# site.sh ROOT: the pages that `make site` makes of the documentation are whole: no dead link or anchor,
# nothing from elsewhere, every function and document found. Then each kind of fault is made, in a
# copy, and has to be said.
. "$(dirname "$0")/step_lib.sh"
root=$(realpath "${1:?usage: $0 ROOT}")
need mandoc /usr/bin/python3
/usr/bin/python3 -c 'import markdown_it, pygments' 2>/dev/null || {
    echo "site: python3-markdown-it and python3-pygments are not installed"
    [ -z "${CI:-}" ] || exit 1
    exit 77
}
site() { /usr/bin/python3 "$1/docs/site/site.py" "$1" "$2"; }
pages() { /usr/bin/python3 "$root/docs/site/check.py" "$1"; }

whole() {
    site "$root" "$WORK/site"
    pages "$WORK/site"
}
check E12_pages_are_whole whole

# The functions of the library's own list, each with a link that check.py has followed.
functions() {
    sed -n '/global:/,/local:/s/^ *\(weir_[a-z_0-9]*\);.*/\1/p' "$root/weir.map" >"$WORK/functions"
    [ "$(wc -l <"$WORK/functions")" -gt 50 ] || fail 'functions were not found'
    while read -r name; do
        grep -q "href=\"weir.3.html#$name\"" "$WORK/site/functions.html" || fail "$name has no link"
    done <"$WORK/functions"
}
check E12_every_function_is_found functions

# A name in a text leads to the manual, and a file to its page.
cross() {
    grep -q 'href="weir.3.html#weir_transfer_waiting_for"' "$WORK/site/index.html"
    grep -q 'href="examples-stream.c.html"' "$WORK/site/recipes.html"
    grep -q 'href="recipes.html#who-makes-progress"' "$WORK/site/index.html"
    grep -q '<span id="L1">' "$WORK/site/examples-stream.c.html"
}
check E12_names_and_files_are_links cross

# All that the pages name as weir's is there: functions, types and constants, and variables that are read.
real_names() {
    grep -rohE '\b(weir|WEIR)_[A-Za-z0-9_]+' "$root/include" "$root/src" "$root/tests" "$root/python" \
        "$root/adapters" |
        sort -u >"$WORK/real"
    grep -hoE '\b(weir|WEIR)_[A-Za-z0-9_]*[A-Za-z0-9]\b' "$root/README.md" "$root"/docs/*.md "$root"/man/* |
        sort -u >"$WORK/named"
    [ "$(wc -l <"$WORK/named")" -gt 250 ] || fail 'names were not found'
    comm -13 "$WORK/real" "$WORK/named" | tr '\n' ' ' >"$WORK/unreal"
    [ ! -s "$WORK/unreal" ] || fail "there is no $(cat "$WORK/unreal")"
}
check E12_what_is_named_is_there real_names

# says COMPLAINT COMMAND: what COMMAND does to a copy of the pages is complained about so.
says() {
    rm -rf "$WORK/copy"
    cp -r "$WORK/site" "$WORK/copy"
    (cd "$WORK/copy" && eval "$2")
    ! pages "$WORK/copy" >"$WORK/said" || fail "passes all the same: $2"
    grep -qF "$1" "$WORK/said" || fail "does not say \"$1\", but $(cat "$WORK/said")"
}
into() { # HTML PAGE, for the commands below
    sed -i "s,</main>,$1</main>," "$2"
}
faults() {
    says 'xyzzy.html is not there' 'into "<a href=\"xyzzy.html\">x</a>" index.html'
    says 'limits.html#xyzzy: there is no such anchor' 'into "<a href=\"limits.html#xyzzy\">x</a>" index.html'
    says '#xyzzy: there is no such anchor' 'into "<a href=\"#xyzzy\">x</a>" design.html'
    says 'the anchor main is there twice' 'into "<p id=\"main\">x</p>" design.html'
    says '<script>' 'into "<script>1</script>" index.html'
    says 'a script in onclick' 'into "<p onclick=\"1\">x</p>" index.html'
    says 'is fetched from elsewhere' 'into "<img src=\"https://xyzzy.example/a.png\">" index.html'
    says 'names a place of this machine' 'into "<a href=\"/usr/share\">x</a>" index.html'
    says 'xyzzy.html: no page leads there' 'cp index.html xyzzy.html'
    says '</main> ends nothing' 'into "<div>" index.html'
    says 'style.css is not there' 'rm style.css'
    says 'no title' 'sed -i "s,<title>.*</title>,<title></title>," index.html'
    says '2 headings of the first level' 'into "<h1>x</h1>" index.html'
}
check E12_a_fault_of_a_page_is_said faults

# refuses COMPLAINT COMMAND: of a copy of the tree, after COMMAND, no pages are made.
mkdir "$WORK/tree"
(cd "$root" && tar -c VERSION LICENSE ./*.md docs man include examples) | tar -x -C "$WORK/tree"
refuses() {
    rm -rf "$WORK/broken"
    cp -r "$WORK/tree" "$WORK/broken"
    (cd "$WORK/broken" && eval "$2")
    ! site "$WORK/broken" "$WORK/none" >"$WORK/said" 2>&1 || fail "passes all the same: $2"
    grep -qF "$1" "$WORK/said" || fail "does not say \"$1\", but $(cat "$WORK/said")"
}
documents() {
    site "$WORK/tree" "$WORK/again"
    refuses 'docs/limits.md: a link to xyzzy.md, which is not there' 'echo "[x](xyzzy.md)" >>docs/limits.md'
    refuses 'docs/xyzzy.md has no place in the navigation' 'echo "# X" >docs/xyzzy.md'
    refuses 'a link to the directory man, which has no page' 'echo "[x](../man)" >>docs/limits.md'
    refuses 'docs/trace.md does not open with a heading' 'sed -i "/^#/d" docs/trace.md'
    refuses 'functions were not found' 'sed -i "/^\.F[no] /d" man/weir.3'
}
check E12_a_fault_of_a_document_ends_it documents
