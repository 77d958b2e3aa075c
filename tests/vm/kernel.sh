#!/bin/sh
# kernel.sh stable|backports CACHE: gets Debian 12's own kernel, or that of its backports,
# into CACHE, unpacked and never installed. Prints "ROOT VERSION": the directory it was
# unpacked into and the name of its modules below it. What is in CACHE already is not
# fetched again.
#
# apt runs on a configuration of its own below CACHE: own sources, lists and caches; the
# machine's are only asked which mirror it uses. Root is not needed.
set -eu
which=${1:?usage: kernel.sh stable|backports CACHE}
mkdir -p "${2:?usage: kernel.sh stable|backports CACHE}/$which"
cache=$(realpath "$2")/$which
release=bookworm
case $which in
stable) suite=$release ;;
backports) suite=$release-backports ;;
*)
    echo "kernel.sh: no such kernel: $which" >&2
    exit 2
    ;;
esac

answer() {
    version=$(ls "$cache/root/lib/modules")
    echo "$cache/root $version"
    exit 0
}
[ ! -f "$cache/complete" ] || answer

# The mirror of the machine, and the keyring that it names for it, from apt itself, which
# reads both forms of sources.
mirror() {
    apt-get indextargets --format '$(REPO_URI) $(ORIGIN) $(LABEL) $(CODENAME)' \
        'Created-By: Packages' | awk '$2 == "Debian" && $3 == "Debian" { print $1; exit }'
}
uri=$(mirror)
[ -n "$uri" ] || {
    echo "kernel.sh: apt has no mirror of Debian here (or apt-get update was never run)" >&2
    exit 1
}

keyring=/usr/share/keyrings/debian-archive-keyring.gpg
mkdir -p "$cache/apt/lists/partial" "$cache/apt/cache/archives/partial"
: >"$cache/apt/status"
echo "deb [signed-by=$keyring] $uri $suite main" >"$cache/apt/sources.list"
# Of the machine's own configuration only how to fetch is taken over (proxies, time-outs): the
# hooks that run after its updates are not for ours.
apt-config dump | grep '^Acquire::' >"$cache/apt/apt.conf"
cat >>"$cache/apt/apt.conf" <<CONF
Dir::Etc::Main "/dev/null";
Dir::Etc::Parts "/dev/null";
Dir::Etc::SourceList "$cache/apt/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::Etc::Preferences "/dev/null";
Dir::Etc::PreferencesParts "/dev/null";
Dir::State::Lists "$cache/apt/lists";
Dir::State::Status "$cache/apt/status";
Dir::Cache "$cache/apt/cache";
Acquire::Languages "none";
Acquire::Retries "3";
APT::Architecture "amd64";
APT::Architectures "amd64";
APT::Sandbox::User "";
CONF
export APT_CONFIG="$cache/apt/apt.conf"
quiet() { "$@" >"$cache/log" 2>&1 || { cat "$cache/log" >&2; exit 1; }; }
quiet apt-get update
package=$(apt-cache depends linux-image-amd64 | sed -n 's/^ *Depends: *\(linux-image-[0-9].*\)$/\1/p' |
    head -n 1)
[ -n "$package" ] || {
    echo "kernel.sh: $suite has no linux-image-amd64" >&2
    exit 1
}
rm -rf "$cache/root" "$cache/package"
mkdir -p "$cache/package"
cd "$cache/package"
quiet apt-get download "$package"
quiet dpkg -x "$cache/package/"*.deb "$cache/root"
version=$(ls "$cache/root/lib/modules")
PATH=$PATH:/usr/sbin:/sbin quiet depmod -b "$cache/root" "$version"
rm -rf "$cache/package" "$cache/apt" "$cache/log"
: >"$cache/complete"
answer
