# devices.sh: makes two RDMA devices, rxe0 and rxe1, with a wire between them; source it in the
# VM, as root. Exports RDMA_A, RDMA_B and WIRE_A for lib.sh.
# shellcheck shell=sh
#
# Both lie in one network namespace, which is all that rxe of these kernels knows. The packets
# cross the wire anyway: a device's own lookups are bound to its interface, and accept_local
# makes the other side take packets whose sender is an address of this machine.
ip link set lo up
ip link add v0 mtu 9000 type veth peer name v1 mtu 9000 || exit 1
for device in all v0 v1; do
    echo 1 >/proc/sys/net/ipv4/conf/$device/accept_local
    echo 0 >/proc/sys/net/ipv4/conf/$device/rp_filter
done
for i in 0 1; do
    ip addr add 10.77.0.$((i + 1))/24 dev v$i
    ip link set v$i up
    rdma link add rxe$i type rxe netdev v$i || exit 1
done
export RDMA_A=rxe0 RDMA_B=rxe1 WIRE_A=v0
