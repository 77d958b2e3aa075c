#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""as_seen.py OLD.xml NEW.xml: prints NEW as programs of OLD's release see it.

A structure that begins with its own size may grow at its end: the library reads, and writes, as much
of it as the program has. So what is behind the old end is left out, and nothing else is. (abidiff's
own rule for this, has_data_member_inserted_at, passes every other change of such a structure, too.)
"""
import sys
import xml.etree.ElementTree as tree


def structures(root):
    """The structures of a dump that have members, by name."""
    return {
        each.get("name"): each
        for each in root.iter("class-decl")
        if each.get("name") and each.get("size-in-bits") and each.find("data-member") is not None
    }


def offset(member):
    return int(member.get("layout-offset-in-bits"))


def main(old_path, new_path):
    new = tree.parse(new_path)
    before = structures(tree.parse(old_path).getroot())
    for name, structure in structures(new.getroot()).items():
        first = structure.find("data-member/var-decl")
        if name not in before or first.get("name") != "size":
            continue
        end = int(before[name].get("size-in-bits"))
        if int(structure.get("size-in-bits")) <= end:
            continue
        for member in [m for m in structure.findall("data-member") if offset(m) >= end]:
            structure.remove(member)
        structure.set("size-in-bits", str(end))
    new.write(sys.stdout.buffer)


if len(sys.argv) != 3:
    sys.exit(__doc__.splitlines()[0])
main(*sys.argv[1:])
