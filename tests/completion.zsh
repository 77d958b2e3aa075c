# SPDX-License-Identifier: Apache-2.0
# completion.zsh DIRECTORY LINE...: what zsh offers, with the functions in DIRECTORY, behind each
# command line when Tab is pressed; "== LINE" before the offers of each. A shell on a terminal of its
# own is typed to, so that its completion runs as a user's does; compadd, which is told each offer,
# prints it.
zmodload zsh/zpty || exit 77
directory=$1
shift
setup=$(mktemp)
cat >$setup <<END
PROMPT=
fpath=(${(q)directory} \$fpath)
autoload -Uz compinit
compinit -u -D
unsetopt auto_list
bindkey '^I' complete-word
compadd() {
    if [[ \${@[1,(i)(-|--)]} == *-(O|A|D)\\ * ]]; then
        builtin compadd "\$@"
        return
    fi
    local -a hits
    builtin compadd -A hits "\$@"
    for hit in \$hits; do
        print -r -- "HIT \$hit"
    done
}
finish() {
    print OVER
    exit
}
comppostfuncs=(finish)
# Only now is the terminal the line editor's, and not the kernel's.
zle-line-init() { print READY; }
zle -N zle-line-init
END
for line; do
    print -r -- "== $line"
    zpty shell zsh -f -i
    zpty -w shell "source $setup"
    while zpty -r shell out && [[ $out != *READY* ]]; do :; done
    zpty -w -n shell "$line"$'\t'
    while zpty -r shell out && [[ $out != *OVER* ]]; do
        [[ $out != *HIT* ]] || print -r -- "${${out#*HIT }%%[[:space:]]*}"
    done
    zpty -d shell
done
rm -f $setup
