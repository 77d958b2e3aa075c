#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# boot.sh ROOT VERSION SHARE COMMAND...: boots the kernel VERSION, unpacked in ROOT by
# kernel.sh, under QEMU's software emulation and runs COMMAND there, in the caller's working
# directory. The guest's console is our standard output. Exit status: the command's; 124 after
# LIMIT seconds; 125 when the guest ended without saying how the command did.
#
# The guest's root file system is the host's (or the container's), read-only over 9p. So are
# the directories named in MOUNTS, which come to lie at their own paths even where these are
# below /tmp; SHARE is writable, also at its own path. /tmp, /run and /dev/shm are the guest's
# own. Root is not needed, nor is /dev/kvm.
#
#   LIMIT=5400    seconds until the guest is given up
#   ICOUNT=1      one virtual CPU and a clock that counts its instructions: times mean nothing
#                 outside, but repeat
#   MOUNTS="..."  more directories of the host, no blanks in their names
set -euo pipefail
root=$1 version=$2 share=$(realpath "$3")
shift 3
mounts=${MOUNTS:-}
work=$(mktemp -d)
qemu=
trap 'test -z "$qemu" || kill "$qemu" 2>/dev/null; rm -rf "$work"' EXIT
PATH=$PATH:/usr/sbin:/sbin

# The modules that the guest needs before it has a root file system (virtio, 9p), and those that
# unprivileged readers of the host's files could not load later.
modules='crc32_generic virtio_pci 9pnet_virtio 9p veth rdma_rxe ib_uverbs rdma_ucm siw sch_netem'
modules="$modules sch_prio cls_u32"

# The modules and what they depend on, uncompressed, numbered in the order of loading.
pack_modules() {
    local module file n=0 to
    for module in $modules; do
        # One that is built in, or has another name in this kernel, has no file.
        modprobe -d "$root" -S "$version" --show-depends "$module" 2>/dev/null || true
    done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' >"$work/modules"
    while read -r file; do
        n=$((n + 1))
        to=$(printf '%s/initrd/mod/%03d.ko' "$work" $n)
        case $file in
        *.xz) xz -dc "$file" >"$to" ;;
        *) cp "$file" "$to" ;;
        esac
    done <"$work/modules"
}

# The guest's first process. The command is one line for a shell.
write_init() {
    local tag=0 dir
    cat <<'INIT'
#!/bin/busybox sh
# init of the guest, made by boot.sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for module in /mod/*; do insmod $module; done
plan9=trans=virtio,version=9p2000.L,msize=512000
mount -t 9p -o $plan9,ro,cache=loose host /new || poweroff -f
for dir in tmp run; do mount -t tmpfs tmpfs /new/$dir; done
mount -t proc proc /new/proc
mount -t sysfs sys /new/sys
mount -t devtmpfs dev /new/dev
mkdir -p /new/dev/shm
mount -t tmpfs tmpfs /new/dev/shm
INIT
    for dir in $mounts; do
        tag=$((tag + 1))
        echo "mkdir -p /new$dir; mount -t 9p -o \$plan9,ro,cache=loose mount$tag /new$dir"
    done
    echo "mkdir -p /new$share; mount -t 9p -o \$plan9 share /new$share"
    echo 'ulimit -l unlimited; ulimit -c 0'
    echo 'export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp'
    printf 'chroot /new /bin/bash -c %q\n' "cd $PWD && $*"
    # shellcheck disable=SC2016 # for the guest's shell
    echo 'rc=$?; echo; echo "guest rc=$rc"; sync; poweroff -f'
}

mkdir -p "$work"/initrd/{bin,mod,proc,sys,dev,new}
cp "$(command -v busybox)" "$work/initrd/bin/busybox"
pack_modules
write_init "$@" >"$work/initrd/init"
chmod +x "$work/initrd/init"
(cd "$work/initrd" && find . | cpio --quiet -o -H newc) >"$work/initrd.img"

speed=(-accel "tcg,thread=multi" -smp 2)
[ -z "${ICOUNT:-}" ] || speed=(-accel "tcg,thread=single" -icount "shift=1,sleep=off" -smp 1)
share9=(-virtfs "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap")
tag=0
for dir in $mounts; do
    tag=$((tag + 1))
    share9+=(-virtfs "local,path=$dir,mount_tag=mount$tag,security_model=none,readonly=on")
done
share9+=(-virtfs "local,path=$share,mount_tag=share,security_model=none")

: >"$work/console"
# The watchdog has its longest threshold: in the kernel a software device works on packets for as
# long as there are any, and an emulated processor may take half a minute.
timeout "${LIMIT:-5400}" qemu-system-x86_64 "${speed[@]}" -cpu max -m "${MEMORY:-3G}" \
    -no-reboot -nodefaults -display none -monitor none -serial stdio \
    -kernel "$root/boot/vmlinuz-$version" -initrd "$work/initrd.img" \
    -append 'console=ttyS0 quiet panic=-1 mitigations=off watchdog_thresh=60' \
    "${share9[@]}" </dev/null >"$work/console" 2>&1 &
qemu=$!
# Shown while it grows, so that a hang shows how far it came.
tail -n +1 -f --pid=$qemu "$work/console" &
shown=$!
status=0
wait "$qemu" || status=$?
qemu=
wait "$shown" || true
[ "$status" -ne 124 ] || exit 124
rc=$(tr -d '\r' <"$work/console" | sed -n 's/^guest rc=\([0-9]*\)$/\1/p' | tail -n 1)
exit "${rc:-125}"
