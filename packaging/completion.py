#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""completion.py WEIR bash|zsh|fish: prints the shell's completion of the tool.

Commands, options, their values and the sentences beside them are what WEIR --help says. A line of
the help that is not understood, or a value of which nobody said what completes it, ends the build:
no option can be left out by oversight.
"""
import json
import os
import re
import subprocess
import sys

# What completes a value, by the word that the help has for it; words with | between them complete
# themselves.
VALUES = {
    "FILE": "file",
    "DIR": "directory",
    "NAME": "device",
    "HOST:PORT": "none",
    "HOST[:PORT]": "none",
    "LIST": "none",
    "MS": "none",
    "N": "none",
    "R": "none",
    "S": "none",
    "SHARE": "none",
    "SIZE": "none",
    "T": "none",
    "X": "none",
}
OPERANDS = {"": "none", "PID": "process", "A.json [B.json]": "file"}


class Option:
    """--name, with a value that is needed, or may be left out, or with none."""

    def __init__(self, name, value, optional, what):
        self.name, self.value, self.optional, self.what = name, value, optional, what
        self.words = value.split("|") if value and "|" in value else []
        self.kind = "words" if self.words else VALUES[value] if value else "flag"


class Command:
    """A command as it is typed, "bench write", its sentence, its options and what its operands are."""

    def __init__(self, weir, words, what):
        self.words, self.what = words, what
        self.options = []
        head, *lines = run(weir, *words.split(), "--help").splitlines()
        operands = re.fullmatch(r"weir %s(.*) \[OPTION\]\.\.\.: .*" % re.escape(words), head).group(1)
        self.operands = OPERANDS[operands.strip()]
        for line in filter(None, lines):
            name, value, optional, what = re.fullmatch(
                r"  --([a-z-]+)(?: (\S+)|\[=([^ \]]+)\])? +(.*)", line
            ).groups()
            self.options.append(Option(name, value or optional, bool(optional), what))
        if not self.options:
            sys.exit("%s: no option was found" % words)


def run(weir, *arguments):
    """What the tool says, whatever its environment's settings are."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("WEIR_")}
    return subprocess.run(
        [weir, *arguments], env=clean, stdout=subprocess.PIPE, check=True, text=True
    ).stdout


def commands_of(weir):
    found = re.findall(r"^  weir ((?:bench )?[a-z]+) +(\S.*)$", run(weir, "--help"), re.M)
    if len(found) < 2:
        sys.exit("no commands were found")
    return [Command(weir, words, what) for words, what in found]


def devices_of(weir):
    return ["auto"] + [device["name"] for device in json.loads(run(weir, "info", "--json"))["devices"]]


def tops(commands):
    """The first words, each with its sentence, and those behind "bench"."""
    first = [(c.words, c.what) for c in commands if " " not in c.words]
    bench = [(c.words.split()[1], c.what) for c in commands if " " in c.words]
    return first + [("bench", "measurements, and what they are made of")], bench


# ---- bash -----------------------------------------------------------------

BASH = """\
# weir: completion for bash. Made from what `weir --help` says.

# _weir_options COMMAND: its options.
_weir_options() {
    case $1 in
%(options)s
    esac
}

# _weir_value COMMAND OPTION: what completes its value: file, directory, "words ...", or none. An
# option without one, or whose value comes behind = alone, has nothing there.
_weir_value() {
    case "$1 $2" in
%(values)s
    esac
}

_weir() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} at=1 command option=
    COMPREPLY=()
    # "--option=value" comes as three words.
    if [[ $current == "=" && $previous == --* ]]; then
        option=$previous= current=
    elif [[ $previous == "=" && ${COMP_WORDS[COMP_CWORD - 2]} == --* ]]; then
        option=${COMP_WORDS[COMP_CWORD - 2]}=
    elif [[ $previous == --* ]]; then
        option=$previous
    fi
    command=${COMP_WORDS[1]}
    if [[ $command == bench ]]; then
        command="bench ${COMP_WORDS[2]}"
        at=2
    fi
    if ((COMP_CWORD <= at)); then
        case $COMP_CWORD in
        1) COMPREPLY=($(compgen -W "%(first)s --help --version" -- "$current")) ;;
        2) COMPREPLY=($(compgen -W "%(bench)s --help" -- "$current")) ;;
        esac
        return
    fi
    local value=
    [[ -n $option ]] && value=$(_weir_value "$command" "$option")
    case $value in
    words*) COMPREPLY=($(compgen -W "${value#words}" -- "$current")) ;;
    file | directory)
        compopt -o filenames
        local IFS=$'\\n'
        [[ $value == file ]] && COMPREPLY=($(compgen -f -- "$current")) ||
            COMPREPLY=($(compgen -d -- "$current"))
        ;;
    none) ;;
    *)
        if [[ $current == -* ]]; then
            COMPREPLY=($(compgen -W "$(_weir_options "$command")" -- "$current"))
        else
            case $command in
%(operands)s
            esac
        fi
        ;;
    esac
}
complete -F _weir weir
"""


def bash(commands, devices):
    options, values, operands = [], [], []
    for c in commands:
        names = ["--" + o.name for o in c.options] + ["--help"]
        options.append("    '%s') echo %s ;;" % (c.words, " ".join(names)))
        for o in c.options:
            words = {"words": o.words, "device": devices}.get(o.kind)
            says = "words " + " ".join(words) if words else o.kind
            pattern = "'%s --%s='" % (c.words, o.name)
            if not o.optional:
                pattern += " | '%s --%s'" % (c.words, o.name)
            if o.kind != "flag":
                values.append("    %s) echo '%s' ;;" % (pattern, says))
        if c.operands == "file":
            operands.append(
                "            %s)\n                compopt -o filenames\n"
                "                local IFS=$'\\n'\n"
                '                COMPREPLY=($(compgen -f -- "$current"))\n'
                "                ;;" % c.words
            )
        elif c.operands == "process":
            operands.append(
                '            %s) COMPREPLY=($(compgen -W "$(ps -A -o pid= 2>/dev/null)" -- "$current")) ;;'
                % c.words
            )
    first, bench = tops(commands)
    return BASH % {
        "options": "\n".join(options),
        "values": "\n".join(values),
        "operands": "\n".join(operands),
        "first": " ".join(word for word, _ in first),
        "bench": " ".join(word for word, _ in bench),
    }


# ---- zsh ------------------------------------------------------------------

ZSH = """\
#compdef weir
# weir: completion for zsh. Made from what `weir --help` says.

# Of all users and terminals, unlike _pids.
_weir_processes() {
    compadd -- ${=$(ps -A -o pid= 2>/dev/null)}
}

_weir() {
    local -a commands benches
    commands=(
%(first)s
    )
    benches=(
%(bench)s
    )
    if ((CURRENT == 2)); then
        _describe -t commands command commands
        _arguments '--help[what there is]' '--version[the version]'
        return
    fi
    local command=$words[2]
    if [[ $command == bench ]]; then
        if ((CURRENT == 3)); then
            _describe -t commands bench benches
            _arguments '--help[what there is]'
            return
        fi
        command="bench $words[3]"
        shift 2 words
        ((CURRENT -= 2))
    else
        shift words
        ((CURRENT--))
    fi
    case $command in
%(options)s
    esac
}

_weir "$@"
"""


def zsh_quote(text):
    return "'%s'" % text.replace("'", "'\\''")


def zsh_specification(option, devices):
    what = re.sub(r"([\[\]:\\])", r"\\\1", option.what)
    if option.kind == "flag" and not option.optional:
        return "--%s[%s]" % (option.name, what)
    action = {
        "words": "(%s)" % " ".join(option.words),
        "device": "(%s)" % " ".join(devices),
        "file": "_files",
        "directory": "_path_files -/",
        "none": " ",
    }[option.kind]
    message = option.value.replace(":", "\\:") if not option.words else option.name
    if option.optional:
        return "--%s=-[%s]::%s:%s" % (option.name, what, message, action)
    return "--%s=[%s]:%s:%s" % (option.name, what, message, action)


def zsh(commands, devices):
    def described(pairs):
        return "\n".join(
            "        " + zsh_quote("%s:%s" % (word, what.replace(":", "\\:"))) for word, what in pairs
        )

    options = []
    for c in commands:
        specifications = [zsh_specification(o, devices) for o in c.options] + ["--help[the options]"]
        if c.operands == "file":
            specifications.append("*:result:_files -g \"*.json\"")
        elif c.operands == "process":
            specifications.append("1:process:_weir_processes")
        lines = " \\\n".join("            " + zsh_quote(s) for s in specifications)
        options.append("    '%s')\n        _arguments \\\n%s\n        ;;" % (c.words, lines))
    first, bench = tops(commands)
    return ZSH % {
        "first": described(first),
        "bench": described(bench),
        "options": "\n".join(options),
    }


# ---- fish -----------------------------------------------------------------

FISH = """\
# weir: completion for fish. Made from what `weir --help` says.

# Whether the words behind "weir" begin with these, or are these and no more with --exactly.
function __weir_at
    set -l words (commandline -opc)
    set -e words[1]
    if test "$argv[1]" = --exactly
        set -e argv[1]
        test "$words" = "$argv"
    else
        set -l length (count $argv)
        test (count $words) -ge $length; and test "$words[1..$length]" = "$argv"
    end
end

complete -c weir -f
"""


def fish_quote(text):
    return "'%s'" % text.replace("\\", "\\\\").replace("'", "\\'")


def fish(commands, devices):
    lines = []
    first, bench = tops(commands)
    for word, what in first:
        lines.append("complete -c weir -n '__weir_at --exactly' -a %s -d %s" % (word, fish_quote(what)))
    lines.append("complete -c weir -n '__weir_at --exactly' -l version -d 'the version'")
    lines.append("complete -c weir -l help -d 'what there is'")
    for word, what in bench:
        lines.append(
            "complete -c weir -n '__weir_at --exactly bench' -a %s -d %s" % (word, fish_quote(what))
        )
    for c in commands:
        at = "complete -c weir -n '__weir_at %s'" % c.words
        for o in c.options:
            words = {"words": o.words, "device": devices}.get(o.kind)
            value = {"flag": "", "file": " -r -F", "directory": " -x -a '(__fish_complete_directories)'"}.get(
                o.kind, " -x"
            )
            if words:
                value = "%s -a %s" % ("" if o.optional else " -x", fish_quote(" ".join(words)))
            lines.append("%s -l %s%s -d %s" % (at, o.name, value, fish_quote(o.what)))
        if c.operands == "file":
            lines.append(at + " -F")
        elif c.operands == "process":
            lines.append(at + " -a '(__fish_complete_pids)'")
    return FISH + "\n".join(lines) + "\n"


SHELLS = {"bash": bash, "zsh": zsh, "fish": fish}


def main(weir, shell):
    text = SHELLS[shell](commands_of(weir), devices_of(weir))
    sys.stdout.write(text)


if len(sys.argv) != 3 or sys.argv[2] not in SHELLS:
    sys.exit(__doc__.splitlines()[0])
main(*sys.argv[1:])
