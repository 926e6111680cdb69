#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# usage: fabric.sh N     makes rxe1 .. rxeN, all on one bridge
#
# Soft-RoCE works in the first network namespace only, so all devices live there together; and there
# Linux would send packets between two of its own addresses over lo, where soft-RoCE does not see
# them. Hence one routing table per device: a packet from 10.10.0.I leaves by vI, and an address is
# "local" only to what comes in by the interface that has it.
set -e
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
count=$1
mtu=4200 # 4096 bytes of payload and the headers

ip link set lo up
for scope in all default; do
  echo 0 >/proc/sys/net/ipv4/conf/$scope/rp_filter
  echo 1 >/proc/sys/net/ipv4/conf/$scope/accept_local
done
[ "$count" -gt 0 ] || exit 0

commands=$(mktemp)
{
  echo "link add br0 type bridge"
  echo "link set br0 mtu $mtu up"
  for ((i = 1; i <= count; ++i)); do
    table=$((100 + i))
    echo "link add v$i address 02:00:00:00:00:0$i mtu $mtu type veth peer name p$i mtu $mtu"
    echo "link set p$i master br0 up"
    echo "link set v$i up"
    echo "addr add 10.10.0.$i/24 dev v$i noprefixroute"
    echo "route add local 10.10.0.$i dev v$i table $table"
    echo "route add 10.10.0.0/24 dev v$i src 10.10.0.$i table $table"
    echo "rule add pref 10 iif v$i to 10.10.0.$i lookup local"
    echo "rule add pref 11 oif v$i to 10.10.0.0/24 lookup $table"
    echo "rule add pref 20 from 10.10.0.$i iif lo lookup $table"
    for ((j = 1; j <= count; ++j)); do
      [ $i = $j ] ||
        echo "neigh replace 10.10.0.$j lladdr 02:00:00:00:00:0$j dev v$i nud permanent"
    done
  done
  echo "rule add pref 100 lookup local"
  echo "rule del pref 0"
} >"$commands"
ip -batch "$commands"
for ((i = 1; i <= count; ++i)); do echo "link add rxe$i type rxe netdev v$i"; done >"$commands"
rdma -b "$commands"
rm -f "$commands"
