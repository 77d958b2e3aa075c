# SPDX-License-Identifier: Apache-2.0
# devices.sh: makes two RDMA devices, rxe0 and rxe1 (RoCE v2), with a wire between them, and two
# more, siw0 and siw1 (iWARP), where the kernel has that driver; source it in the VM, as root.
# Exports RDMA_A, RDMA_B, WIRE_A and WIRE_CONTROL for lib.sh.
# shellcheck shell=sh
#
# All lie in one network namespace, which is all that rxe of these kernels knows. Its packets
# cross the wire anyway: a device's own lookups are bound to its interface, and accept_local
# makes the other side take packets whose sender is an address of this machine. iWARP is TCP,
# which goes by the loopback interface here.
ip link set lo up
# wire FIRST SECOND NETWORK: two interfaces with a wire between them.
wire() {
    ip link add "$1" mtu 9000 type veth peer name "$2" mtu 9000 || exit 1
    host=0
    for device in "$1" "$2"; do
        host=$((host + 1))
        echo 1 >"/proc/sys/net/ipv4/conf/$device/accept_local"
        echo 0 >"/proc/sys/net/ipv4/conf/$device/rp_filter"
        ip addr add "$3.$host/24" dev "$device"
        ip link set "$device" up
    done
}
echo 1 >/proc/sys/net/ipv4/conf/all/accept_local
echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter
wire v0 v1 10.77.0
wire v2 v3 10.78.0
for i in 0 1; do
    rdma link add rxe$i type rxe netdev v$i || exit 1
    ! [ -d /sys/module/siw ] || rdma link add siw$i type siw netdev v$((i + 2)) || exit 1
done
export RDMA_A=rxe0 RDMA_B=rxe1 WIRE_A=v0 WIRE_CONTROL=lo
