# SPDX-License-Identifier: Apache-2.0
# chroot.sh: a minimal Debian 12 in a directory, for what has to be tried where nothing of this machine
# is. Sourced by bash scripts. Packages come from wherever this machine's own apt gets them: its
# configuration is read, and copied into the new system. Whoever cannot do it says why not.
suite=bookworm
mounts=()

# chroot_lacks: prints what is missing here to make one; nothing when it can be done.
chroot_lacks() {
    [ "$(id -u)" -eq 0 ] || { echo 'chroot needs root'; return; }
    command -v debootstrap >/dev/null || { echo 'debootstrap is not installed'; return; }
    [ -n "$(chroot_mirror)" ] || echo "apt has no source for $suite"
}

# chroot_mirror: the first mirror of the suite, from either format of sources.list(5).
chroot_mirror() {
    {
        cat /etc/apt/sources.list.d/*.sources 2>/dev/null |
            awk '/^URIs:/ { uri = $2 } /^Suites:/ { if ($0 ~ /[ ]'$suite'( |$)/ && uri) print uri }'
        cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null |
            sed 's/\[[^]]*\]//' | awk '$1 == "deb" && $3 == "'$suite'" { print $2 }'
    } | head -n 1
}

# chroot_make DIRECTORY: installs the system, unless it is there.
chroot_make() {
    local directory=$1
    if [ ! -x "$directory/usr/bin/apt-get" ]; then
        debootstrap --variant=minbase --include=make,ca-certificates "$suite" "$directory" "$(chroot_mirror)"
    fi
    # Proxies and certificates are part of how this machine reaches its packages.
    printf 'deb %s %s main\n' "$(chroot_mirror)" "$suite" >"$directory/etc/apt/sources.list"
    cp -r /etc/apt/apt.conf.d/. "$directory/etc/apt/apt.conf.d/"
    [ ! -f /etc/apt/apt.conf ] || cp /etc/apt/apt.conf "$directory/etc/apt/"
    cp -L /etc/resolv.conf /etc/hosts "$directory/etc/"
}

# chroot_enter DIRECTORY: mounts what programs in there need, until chroot_leave.
chroot_enter() {
    local directory=$1
    chroot_mount proc proc "$directory/proc"
    chroot_mount devtmpfs devtmpfs "$directory/dev" 2>/dev/null || {
        mount --rbind /dev "$directory/dev"
        mount --make-rslave "$directory/dev"
        mounts+=("$directory/dev")
    }
    chroot_mount devpts devpts "$directory/dev/pts"
    chroot_mount tmpfs tmpfs "$directory/dev/shm"
    chroot_mount tmpfs tmpfs "$directory/tmp"
}
chroot_mount() { # TYPE SOURCE TARGET
    mkdir -p "$3"
    mount -t "$1" "$2" "$3" || return
    mounts+=("$3")
}
chroot_leave() {
    local i
    for ((i = ${#mounts[@]} - 1; i >= 0; i--)); do
        umount "${mounts[i]}" || umount -l "${mounts[i]}"
    done
    mounts=()
}

# chroot_drop DIRECTORY: removes the system, and nothing that is mounted in it: /dev would be the host's.
chroot_drop() {
    local where
    awk -v below="$1/" 'index($2, below) == 1 { print $2 }' /proc/mounts | tac | while read -r where; do
        umount -l "$where"
    done
    rm -rf --one-file-system "$1"
}

# chroot_run DIRECTORY COMMAND...: there, with an environment of its own.
chroot_run() {
    local directory=$1
    shift
    chroot "$directory" env -i CI=true HOME=/root LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"
}
