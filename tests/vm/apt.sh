# SPDX-License-Identifier: Apache-2.0
# apt.sh: packages of one suite of Debian, without the machine's own apt being touched; source it.
# shellcheck shell=sh
#
# apt runs on a configuration of its own below a directory: own sources, lists and caches; the
# machine's are only asked which mirror it uses. Root is not needed.

quiet() { "$@" >"$apt_log" 2>&1 || { cat "$apt_log" >&2; exit 1; }; }

# apt_open DIRECTORY SUITE: from here on apt knows this suite only. The directory is the
# caller's to remove.
apt_open() {
    apt_log=$1/log
    mkdir -p "$1/lists/partial" "$1/cache/archives/partial"
    # The mirror of the machine, and the keyring that it names for it, from apt itself, which
    # reads both forms of sources.
    # shellcheck disable=SC2016 # for apt
    uri=$(apt-get indextargets --format '$(REPO_URI) $(ORIGIN) $(LABEL) $(CODENAME)' \
        'Created-By: Packages' | awk '$2 == "Debian" && $3 == "Debian" { print $1; exit }')
    [ -n "$uri" ] || {
        echo "apt has no mirror of Debian here (or apt-get update was never run)" >&2
        exit 1
    }
    : >"$1/status"
    keyring=/usr/share/keyrings/debian-archive-keyring.gpg
    echo "deb [signed-by=$keyring] $uri $2 main" >"$1/sources.list"
    # Of the machine's own configuration only how to fetch is taken over (proxies, time-outs):
    # the hooks that run after its updates are not for ours.
    apt-config dump | grep '^Acquire::' >"$1/apt.conf"
    cat >>"$1/apt.conf" <<CONF
Dir::Etc::Main "/dev/null";
Dir::Etc::Parts "/dev/null";
Dir::Etc::SourceList "$1/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::Etc::Preferences "/dev/null";
Dir::Etc::PreferencesParts "/dev/null";
Dir::State::Lists "$1/lists";
Dir::State::Status "$1/status";
Dir::Cache "$1/cache";
Acquire::Languages "none";
Acquire::Retries "3";
APT::Architecture "amd64";
APT::Architectures "amd64";
APT::Sandbox::User "";
CONF
    export APT_CONFIG="$1/apt.conf"
    quiet apt-get update
}
